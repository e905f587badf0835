"""Keras callbacks that write history, logs and backups during training."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras

from deepsimplex.experiments.backup import Backup
from deepsimplex.experiments.configuration import RunConfig
from deepsimplex.experiments.run_folder import RunFolder, epoch_log
from deepsimplex.monitoring import CalibrationBoard


@contextmanager
def files_of_training(config: RunConfig, folder: RunFolder, validation: Any) -> Iterator[list[Any]]:
    """Yield the callbacks that write history, logs and backups, and close their files."""
    history = keras.callbacks.CSVLogger(str(folder.history), append=True)
    boards = [] if validation is None else [CalibrationBoard(folder.events, validation, seed=config.seed)]
    try:
        yield [
            # The logs before the backup, so that they contain every epoch that it counts as trained.
            history,
            keras.callbacks.TensorBoard(str(folder.events), write_graph=False),
            epoch_log(folder, config.training.epochs),
            *boards,
            Backup(folder.backup),
        ]
    finally:
        for board in boards:
            board.close()
        if history.csv_file is not None:  # after an error: Keras closes it at the end of training only
            history.csv_file.close()
