"""Experiments: from a configuration to a run folder with a trained, evaluated and exported classifier; reports."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

# Modules are imported when a name is first used: mistakes in a configuration are shown before Keras is imported.
_MODULES = {
    "commands": ("evaluate", "export", "make_targets", "train"),
    "configuration": ("ConfigurationError", "RunConfig", "load_config"),
    "external_validation": ("evaluate_on",),
    "file_predictions": ("FilePredictions", "predict_files"),
    "finished_runs": ("Run", "read_run", "read_runs"),
    "folder_configuration": ("folder_config",),
    "report_figures": ("PageSection", "PageTable"),
    "report_page": ("write_report",),
    "run_folder": ("RunFolder",),
    "saved_predictions": ("Predictions", "load_predictions", "save_predictions"),
    "table_predictions": ("predict_table",),
    "watched_predictions": ("monitor",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
