"""Load labeled data by name, from files and from folders, checked and split."""

from deepsimplex.datasets.labeled import LabeledData
from deepsimplex.datasets.loading import load

__all__ = ["LabeledData", "load"]
