"""Fit a run's feature density, calibration and conformal sets after its training."""

from collections.abc import Callable

from deepsimplex.calibration import CALIBRATIONS, DENSITIES
from deepsimplex.classifier import SimplexClassifier
from deepsimplex.experiments.configuration import ConfigurationError, RunConfig
from deepsimplex.experiments.run_folder import RunFolder
from deepsimplex.experiments.split import Split

BATCH = 512  # of predictions


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
