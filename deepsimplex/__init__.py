"""deepsimplex: classification by regression on the probability simplex, with calibrated class probabilities.

A classifier combines a target, a regressor and a readout, whose interface is a Gaussian over latent space.
"""

import importlib
from typing import TYPE_CHECKING, Any

# Keras loads saved objects by their registered names, so subpackages with Keras objects are imported with the package.
# All others are imported on first use.
from deepsimplex import backbones, calibration, heads, losses, metrics, readout
from deepsimplex.classifier import SimplexClassifier
from deepsimplex.latent import LatentGaussian

if TYPE_CHECKING:
    from deepsimplex import (
        datasets,
        distances,
        estimators,
        evaluation,
        experiments,
        export,
        geometry,
        gp,
        monitoring,
        plots,
        prototypes,
        targets,
    )
    from deepsimplex.estimators import (
        GLVQ,
        GMLVQ,
        GPLVQ,
        LVQ1,
        LVQ2,
        AfterTraining,
        CategoricalGaussianProcess,
        LatentRegressionClassifier,
        SimplexGaussianProcess,
        load,
    )

__version__ = "0.1.0"

__all__ = [  # noqa: RUF022, alphabetical, ignoring case: checked by a test
    "AfterTraining",
    "CategoricalGaussianProcess",
    "GLVQ",
    "GMLVQ",
    "GPLVQ",
    "LVQ1",
    "LVQ2",
    "LatentGaussian",
    "LatentRegressionClassifier",
    "SimplexClassifier",
    "SimplexGaussianProcess",
    "__version__",
    "backbones",
    "calibration",
    "datasets",
    "distances",
    "estimators",
    "evaluation",
    "experiments",
    "export",
    "geometry",
    "gp",
    "heads",
    "load",
    "losses",
    "metrics",
    "monitoring",
    "plots",
    "prototypes",
    "readout",
    "targets",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'deepsimplex' has no attribute {name!r}")
    if name.islower() and name != "load":  # the other lazy names are those of estimators
        return importlib.import_module(f"deepsimplex.{name}")
    return getattr(importlib.import_module("deepsimplex.estimators"), name)


def __dir__() -> list[str]:
    return __all__
