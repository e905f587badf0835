"""Read the contents of TensorBoard event files."""

from pathlib import Path
from typing import Any

from deepsimplex.monitoring import summaries

SCORES = {summaries.tag_of(name) for name in summaries.SCORES} - {"score/out_of_distribution_auroc"}
"""Tags of all scores that every set of predictions has."""


def events(folder: Path) -> list[dict[tuple[str, int], Any]]:
    """For every event file of a folder, the oldest first, {(tag, step): value}."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util.tensor_util import make_ndarray

    files = []
    for path in sorted(folder.glob("events.out.tfevents.*"), key=lambda path: path.stat().st_mtime_ns):
        loaded = [(value, event.step) for event in EventFileLoader(str(path)).Load() for value in event.summary.value]
        files.append({(value.tag, step): make_ndarray(value.tensor) for value, step in loaded})
    return files
