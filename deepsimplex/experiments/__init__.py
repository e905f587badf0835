"""Experiments: from a configuration to a folder with a trained, evaluated, exported classifier, and reports."""

from deepsimplex.experiments.predictions import Predictions, load_predictions, save_predictions
from deepsimplex.experiments.report_page import write_report
from deepsimplex.experiments.report_source import Run, read_run, read_runs
from deepsimplex.experiments.run_folder import RunFolder
from deepsimplex.experiments.work import evaluate, export, make_targets, train

__all__ = [
    "Predictions",
    "Run",
    "RunFolder",
    "evaluate",
    "export",
    "load_predictions",
    "make_targets",
    "read_run",
    "read_runs",
    "save_predictions",
    "train",
    "write_report",
]
