"""deepsimplex: classification by regression on the probability simplex, with calibrated class probabilities.

A classifier here is a target x a regressor x a readout, three axes that meet in a Gaussian over latent space.
"""

import importlib
from typing import TYPE_CHECKING, Any

# Keras finds the classes of a saved file among those that are registered, so the rooms that hold Keras objects come in
# with the package. Everything else waits until it is asked for.
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
        CategoricalGaussianProcess,
        LatentRegressionClassifier,
        SimplexGaussianProcess,
        load,
    )

__version__ = "0.1.0"

__all__ = [  # noqa: RUF022, by letters: a test holds it
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
