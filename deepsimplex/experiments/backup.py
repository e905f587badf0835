"""Verify the backup of an unfinished training; restore the previous one if it was cut short."""

import json
import shutil
from pathlib import Path

import h5py

from deepsimplex._utils.atomic_files import replacing
from deepsimplex.experiments.configuration import ConfigurationError

# Names of keras.callbacks.BackupAndRestore, which keeps the state of one epoch earlier under names with a suffix.
WEIGHTS = "latest.weights.h5"
METADATA = "training_metadata.json"
EARLIER = ".bkp"
# Where a weights file holds the number of optimizer steps: under mixed precision, and without.
STEPS = ("optimizer/inner_optimizer/vars/0", "optimizer/vars/0")


def repair_backup(folder: Path, steps_per_epoch: int) -> int:
    """Verify a backup before training resumes from it; if writing it was cut short, restore the previous one.

    Parameters
    ----------
    folder : pathlib.Path
        Where ``keras.callbacks.BackupAndRestore(double_checkpoint=True)`` keeps its files.
    steps_per_epoch : int

    Returns
    -------
    int
        Number of epochs already trained; 0 without a backup.

    Raises
    ------
    ConfigurationError
        When neither is complete; the message names the folder to delete.
    """
    weights, metadata = folder / WEIGHTS, folder / METADATA
    earlier_weights, earlier_metadata = folder / (WEIGHTS + EARLIER), folder / (METADATA + EARLIER)
    if not any(path.exists() for path in (weights, metadata, earlier_weights, earlier_metadata)):
        return 0
    epochs = _epochs_trained(weights, metadata, steps_per_epoch)
    if epochs is None:
        epochs = _epochs_trained(earlier_weights, earlier_metadata, steps_per_epoch)
        if epochs is None:
            raise ConfigurationError(
                f"the backup in {folder} was cut short, and there is no complete one before it; delete that folder and "
                "--resume trains the run anew"
            )
        # The small file first: if this is cut short too, the pair is still recognized as not matching.
        for path, earlier in ((metadata, earlier_metadata), (weights, earlier_weights)):
            with replacing(path) as fresh:
                shutil.copyfile(earlier, fresh)
    return epochs


def _epochs_trained(weights: Path, metadata: Path, steps_per_epoch: int) -> int | None:
    """Return the epochs behind a pair of files, or None if one is damaged or they are not of the same epoch."""
    try:
        epochs = int(json.loads(metadata.read_text(encoding="utf-8"))["epoch"])
        with h5py.File(weights) as file:
            steps = next((int(file[key][()]) for key in STEPS if key in file), 0)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    # Weights are written first, so a kill can leave them one epoch ahead. (They may be some steps behind: under mixed
    # precision, steps whose gradients overflow do not count.)
    return epochs if steps <= epochs * steps_per_epoch else None
