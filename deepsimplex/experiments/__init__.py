"""Experiments: from a configuration to a run folder with a trained, evaluated and exported classifier; reports."""

from deepsimplex.experiments.commands import evaluate, export, make_targets, train
from deepsimplex.experiments.configuration import ConfigurationError, RunConfig, load_config
from deepsimplex.experiments.external_validation import evaluate_on
from deepsimplex.experiments.file_predictions import FilePredictions, predict_files
from deepsimplex.experiments.finished_runs import Run, read_run, read_runs
from deepsimplex.experiments.folder_configuration import folder_config
from deepsimplex.experiments.report_figures import PageSection, PageTable
from deepsimplex.experiments.report_page import write_report
from deepsimplex.experiments.run_folder import RunFolder
from deepsimplex.experiments.saved_predictions import Predictions, load_predictions, save_predictions
from deepsimplex.experiments.table_predictions import predict_table
from deepsimplex.experiments.watched_predictions import monitor

__all__ = [
    "ConfigurationError",
    "FilePredictions",
    "PageSection",
    "PageTable",
    "Predictions",
    "Run",
    "RunConfig",
    "RunFolder",
    "evaluate",
    "evaluate_on",
    "export",
    "folder_config",
    "load_config",
    "load_predictions",
    "make_targets",
    "monitor",
    "predict_files",
    "predict_table",
    "read_run",
    "read_runs",
    "save_predictions",
    "train",
    "write_report",
]
