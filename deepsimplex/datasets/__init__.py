"""Labeled data by name, from files and from folders, checked and split."""

from deepsimplex.datasets.labeled import LabeledData
from deepsimplex.datasets.loading import load
from deepsimplex.datasets.named import NAMES

__all__ = ["NAMES", "LabeledData", "load"]
