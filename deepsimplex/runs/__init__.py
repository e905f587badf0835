"""Runs: from a configuration to a folder with a trained, evaluated and exported classifier."""

from deepsimplex.runs.folder import RunFolder
from deepsimplex.runs.work import evaluate, export, make_targets, train

__all__ = ["RunFolder", "evaluate", "export", "make_targets", "train"]
