"""Labelled data by name, from files and from folders, checked and split."""

from deepsimplex.datasets.labelled import LabelledData
from deepsimplex.datasets.loading import load
from deepsimplex.datasets.named import NAMES

__all__ = ["NAMES", "LabelledData", "load"]
