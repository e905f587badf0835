"""One page that compares runs: HTML that holds everything it shows."""

from deepsimplex.predictions import Predictions, load_predictions, save_predictions
from deepsimplex.report.page import write
from deepsimplex.report.source import Run, read_run, read_runs

__all__ = ["Predictions", "Run", "load_predictions", "read_run", "read_runs", "save_predictions", "write"]
