"""Back up a training after every epoch, with checksums; verify the backup before training resumes from it."""

import json
import shutil
from pathlib import Path
from typing import Any

import keras
import numpy as np

from deepsimplex._utils.archives import fingerprint
from deepsimplex._utils.atomic_files import replacing
from deepsimplex.experiments.configuration import ConfigurationError

# Names of keras.callbacks.BackupAndRestore, which keeps the state of one epoch earlier under names with a suffix.
WEIGHTS = "latest.weights.h5"
METADATA = "training_metadata.json"
EARLIER = ".bkp"
CHECKSUMS = "checksums.json"


class Backup(keras.callbacks.BackupAndRestore):
    """Back up the state of the last two epochs, with checksums, which HDF5 files lack.

    Parameters
    ----------
    folder : pathlib.Path
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder), double_checkpoint=True, delete_checkpoint=False)
        self.folder = folder

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Write the state, then its checksum, so that an interrupted write has none."""
        super().on_epoch_end(epoch, logs)
        with replacing(self.folder / CHECKSUMS) as fresh:
            checksums = [_checksum(self.folder, suffix) for suffix in ("", EARLIER)]
            fresh.write_text(json.dumps(checksums), encoding="utf-8")


def repair_backup(folder: Path) -> int:
    """Verify a backup before training resumes from it; if it is incomplete, restore that of the epoch before.

    Parameters
    ----------
    folder : pathlib.Path
        Where ``Backup`` keeps its files.

    Returns
    -------
    int
        Number of epochs already trained; 0 without a backup, or if the first one is incomplete.

    Raises
    ------
    ConfigurationError
        When neither is complete; the message names the folder to delete.
    """
    names = (WEIGHTS, METADATA)
    if not (folder / CHECKSUMS).exists() and not any((folder / (name + EARLIER)).exists() for name in names):
        shutil.rmtree(folder, ignore_errors=True)  # the first backup was interrupted: there is no earlier one
        return 0
    try:
        known = json.loads((folder / CHECKSUMS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = []
    whole = [suffix for suffix in ("", EARLIER) if (checksum := _checksum(folder, suffix)) and checksum in known]
    if not whole:
        raise ConfigurationError(
            f"the backup in {folder} was cut short or damaged, and there is no complete one before it; delete that "
            "folder and --resume trains the run anew"
        )
    if whole[0] == EARLIER:  # an interruption between the two files leaves a pair without checksum
        for name in names:
            with replacing(folder / name) as fresh:
                shutil.copyfile(folder / (name + EARLIER), fresh)
    return int(json.loads((folder / METADATA).read_text(encoding="utf-8"))["epoch"])


def _checksum(folder: Path, suffix: str) -> str | None:
    """Return a digest of the weights and the metadata of one epoch; None if they are not both there."""
    paths = [folder / (name + suffix) for name in (WEIGHTS, METADATA)]
    return fingerprint(*(np.fromfile(path, np.uint8) for path in paths)) if all(map(Path.is_file, paths)) else None
