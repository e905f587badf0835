"""Load and split the samples of a run for training, validation and test."""

from dataclasses import dataclass

import numpy as np

from deepsimplex import datasets
from deepsimplex.experiments.configuration import ConfigurationError, RunConfig


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
