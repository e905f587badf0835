"""The state of a drift monitor in a file: what ``deepsimplex monitor`` goes on from, and reports of a run show."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.archives import load_arrays, naming_damage, save_arrays
from deepsimplex._utils.atomic_files import replacing
from deepsimplex.evaluation import DriftMonitor

KEY = "deepsimplex drift 1"


def drift_file(reference: Path) -> Path:
    """Return the place of the state beside the predictions of the reference, unless another is given.

    Examples
    --------
    >>> drift_file(Path("runs/chest/001/predictions.npz")).name
    'predictions_drift.npz'
    """
    return reference.with_name(f"{reference.stem}_drift.npz")


def save_drift(path: Path, monitor: DriftMonitor, files: Sequence[str]) -> None:
    """Write the state of a monitor, and the fingerprints of the files that it has watched, atomically."""
    with replacing(path) as fresh:
        save_arrays(fresh, KEY, {**monitor.state(), "files": np.array(files)})


def load_drift(path: Path) -> tuple[dict[str, NDArray[np.generic]], list[str]]:
    """Return the state for ``DriftMonitor.from_state``, and the fingerprints of files.

    Raises
    ------
    ValueError
        When the file is damaged, or holds something else.
    """
    with naming_damage(path, "stream_p.npy", "is damaged, or no state of deepsimplex monitor", place=f"state {path}"):
        arrays = load_arrays(path, KEY)
    return arrays, arrays.pop("files").tolist()
