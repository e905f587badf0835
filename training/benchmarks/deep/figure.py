"""The figure of the benchmark: every method's means over the seeds, with their standard errors."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from training.benchmarks.deep.table import Rows, detections, standard_error

PANELS = {
    "accuracy": "accuracy",
    "NLL": "NLL",
    "corrupted NLL": "NLL, corrupted",
    "probability": "AUROC, unknown,\nby probability",
    "density": "AUROC, unknown,\nby density",
}


def draw(rows_by_method: Rows, path: Path) -> None:
    """Write the figure: a panel for each measure, a row for each method, ours in color."""
    rows_by_method = dict(sorted(rows_by_method.items(), key=lambda item: item[0].startswith("deepsimplex")))
    figure = Figure(figsize=(12, 0.8 + 0.28 * len(rows_by_method)), layout="constrained")
    axes = figure.subplots(1, len(PANELS), sharey=True)
    for axis, (measure, title) in zip(axes, PANELS.items(), strict=True):
        for place, (name, rows) in enumerate(rows_by_method.items()):
            names = [measure] if measure in rows[0] else detections(rows[0], measure)
            if not names:
                continue  # a mean of several networks has no features
            values = np.mean([[row[one] for one in names] for row in rows], axis=1)
            color = "C0" if name.startswith("deepsimplex") else "0.45"
            axis.errorbar(values.mean(), place, xerr=standard_error(values), fmt="o", color=color, markersize=5)
        axis.set_title(title, fontsize=10)
        axis.tick_params(labelsize=8)
        axis.grid(axis="x", color="0.9")
        axis.spines[["top", "right", "left"]].set_visible(False)
    axes[0].set_yticks(range(len(rows_by_method)), list(rows_by_method), fontsize=9)
    axes[0].invert_yaxis()
    figure.savefig(path, dpi=150)
