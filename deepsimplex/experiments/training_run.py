"""Training of a run: its samples, callbacks that write its files, and fits after training."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from deepsimplex import datasets
from deepsimplex.calibration import CALIBRATIONS, DENSITIES
from deepsimplex.classifier import SimplexClassifier
from deepsimplex.experiments.backup import Backup
from deepsimplex.experiments.configuration import ConfigurationError, RunConfig
from deepsimplex.experiments.run_folder import RunFolder
from deepsimplex.monitoring import CalibrationBoard

BATCH = 512  # of predictions


@dataclass(frozen=True)
class Split:
    """Training, validation and test samples of a run."""

    x: np.ndarray
    y: np.ndarray
    x_validation: np.ndarray
    y_validation: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    class_names: list[str]


def load_split(config: RunConfig) -> Split:
    """Load the data of a configuration, shuffle them by its seed and hold the validation samples out."""
    data = datasets.load(config.data.name, **config.data.options)
    (x, y), (x_test, y_test) = data
    order = np.random.default_rng(config.seed).permutation(len(x))[: config.data.limit]
    fraction = config.data.validation_fraction
    held_out = round(fraction * len(order))
    if held_out == len(order) or (fraction > 0 and held_out == 0):
        raise ConfigurationError(
            f"data.validation_fraction {fraction} of {len(order)} samples leaves {len(order) - held_out} for training "
            f"and {held_out} for validation; both need at least one (0 holds none out)"
        )
    validation, training = order[:held_out], order[held_out:]
    return Split(x[training], y[training], x[validation], y[validation], x_test, y_test, list(data.class_names))


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
            _epoch_log(folder, config.training.epochs),
            *boards,
            Backup(folder.backup),
        ]
    finally:
        for board in boards:
            board.close()
        if history.csv_file is not None:  # after an error: Keras closes it at the end of training only
            history.csv_file.close()


def _epoch_log(folder: RunFolder, epochs: int) -> keras.callbacks.Callback:
    """Return a callback that writes a line for every epoch to the log of a run."""

    def write(epoch: int, logs: Mapping[str, float] | None) -> None:
        scores = ", ".join(f"{name} {value:.4g}" for name, value in (logs or {}).items())
        folder.append_to_log(f"epoch {epoch + 1} of {epochs}: {scores}")

    return keras.callbacks.LambdaCallback(on_epoch_end=write)


def fit_after_training(
    model: SimplexClassifier, config: RunConfig, split: Split, folder: RunFolder, log: Callable[[str], None]
) -> None:
    """Fit the configured density, calibration and sets to a trained model that is saved already, and save it again.

    Raises
    ------
    ConfigurationError
        When one of them cannot be fitted; the saved model is kept.
    """
    held_out = split.x_validation, split.y_validation
    steps: dict[str, Callable[[], object]] = {}
    if (density := config.calibration.density) is not None:
        fitted = DENSITIES.get(density)
        steps[f"density {density['name']}"] = lambda: model.fit_density(split.x, split.y, fitted, batch_size=BATCH)
    if (method := config.calibration.method) is not None:
        calibration = CALIBRATIONS.get(method)
        steps[f"method {method['name']}"] = lambda: model.calibrate(*held_out, calibration, batch_size=BATCH)
    if (coverage := config.calibration.coverage) is not None:
        sets = config.calibration.sets
        steps[f"coverage {coverage}"] = lambda: model.conformalize(*held_out, coverage, sets, batch_size=BATCH)
    for name, step in steps.items():
        try:
            step()
        except ValueError as error:
            raise ConfigurationError(
                f"calibration.{name}: {error}. The model is in {folder.model}, as it was trained"
            ) from error
    if steps:
        model.save(folder.model)
    if model.density is not None:
        log(f"density of {len(split.x)} training samples' features: {type(model.density).__name__}")
    if model.calibration is not None:
        log(f"calibrated on {len(held_out[0])} validation samples: {model.calibration!r}")
    if model.prediction_sets is not None:
        log(f"sets of classes from {len(held_out[0])} validation samples: {model.prediction_sets!r}")
