"""Drift of a stream of predictions, for TensorBoard."""

import os
from typing import Any

from deepsimplex.evaluation import DriftMonitor
from deepsimplex.monitoring.event_file import EventFile
from deepsimplex.monitoring.summaries import CLASS_CURVES, figure_pixels


def write_drift(log_dir: str | os.PathLike[str], monitor: DriftMonitor) -> None:
    """Write what a monitor says now to TensorBoard; the step is the number of samples that it has watched.

    Parameters
    ----------
    log_dir : path-like
        Folder of the event files, created if it does not exist.
    monitor : DriftMonitor
        After at least one ``update``.

    Raises
    ------
    OSError
        If the folder cannot be written.
    ValueError
        For a monitor without samples.

    Notes
    -----
    Scalars: "drift/p_value", "drift/evidence/..." (log10) of each statistic, means of the last samples under
    "drift/confidence" and "drift/familiarity", "drift/frequency/..." of up to twenty classes, and with labels
    "drift/coverage" and "drift/calibration_error"; a picture: ``plots.drift``.

    Examples
    --------
    >>> import numpy as np
    >>> p = np.array([[0.9, 0.1], [0.2, 0.8]] * 50)
    >>> monitor = DriftMonitor(p)
    >>> monitor.update(p).samples
    100
    >>> write_drift(folder / "events", monitor)
    """
    from deepsimplex import plots  # imports Matplotlib

    report = monitor.report()
    frequencies = report.class_frequencies if len(report.class_frequencies) <= CLASS_CURVES else {}
    scalars: dict[str, Any] = {
        "p_value": report.p_value,
        **{f"evidence/{name}": value for name, value in report.log10_evidence.items()},
        "confidence": report.confidence[1],
        "familiarity": None if report.familiarity is None else report.familiarity[1],
        **{f"frequency/{name}": now for name, (_, now) in frequencies.items()},
        "coverage": report.coverage,
        "calibration_error": report.calibration_error[1],
    }
    picture = figure_pixels(plots.drift(monitor))
    file = EventFile(log_dir)
    values = {f"drift/{name}": value for name, value in scalars.items() if value is not None}
    file.write(report.samples, values | {"pictures/drift": picture})
    file.close()
