"""Calibrations by name: the one table to which a new one adds a row."""

import copy

from deepsimplex._utils.names import did_you_mean
from deepsimplex.calibration.base import ProbabilityCalibration
from deepsimplex.calibration.isotonic import IsotonicCalibration
from deepsimplex.calibration.latent_scaling import LatentScaling
from deepsimplex.calibration.platt import PlattScaling
from deepsimplex.calibration.temperature import TemperatureScaling

AnyCalibration = ProbabilityCalibration | LatentScaling

METHODS: dict[str, type[AnyCalibration]] = {
    kind.method: kind for kind in (TemperatureScaling, LatentScaling, PlattScaling, IsotonicCalibration)
}


def make_calibration(method: str | AnyCalibration) -> AnyCalibration:
    """A calibration by name, or a copy of one, to be fitted.

    Parameters
    ----------
    method : str or Calibration
        "temperature", "latent", "platt", "isotonic", or a calibration.

    Raises
    ------
    TypeError, ValueError
        For anything else; the nearest known name is told.

    Examples
    --------
    >>> make_calibration("temperature")
    TemperatureScaling()
    """
    if isinstance(method, AnyCalibration):
        return copy.deepcopy(method)
    if not isinstance(method, str):
        raise TypeError(f"method must be one of {', '.join(METHODS)}, or a calibration; found {type(method).__name__}")
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; found {method!r}{did_you_mean(method, METHODS)}")
    return METHODS[method]()
