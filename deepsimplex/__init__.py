"""deepsimplex: classification by regression on the probability simplex, with calibrated class probabilities.

A classifier combines a target, a regressor and a readout, whose interface is a Gaussian over latent space.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from wrapt import register_post_import_hook

if TYPE_CHECKING:
    from deepsimplex import (
        backbones,
        calibration,
        datasets,
        distances,
        estimators,
        evaluation,
        experiments,
        export,
        geometry,
        gp,
        heads,
        losses,
        metrics,
        monitoring,
        plots,
        prototypes,
        readout,
        targets,
    )
    from deepsimplex.classifier import SimplexClassifier
    from deepsimplex.estimators import (
        GLVQ,
        GMLVQ,
        GPLVQ,
        LGMLVQ,
        LVQ1,
        LVQ2,
        AfterTraining,
        CategoricalGaussianProcess,
        LatentRegressionClassifier,
        SimplexGaussianProcess,
        load,
    )
    from deepsimplex.latent import LatentGaussian

__version__ = "0.1.0"

__all__ = [  # noqa: RUF022, alphabetical, ignoring case: checked by a test
    "AfterTraining",
    "CategoricalGaussianProcess",
    "GLVQ",
    "GMLVQ",
    "GPLVQ",
    "LGMLVQ",
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


_ORIGINS = {"SimplexClassifier": "classifier", "LatentGaussian": "latent"}
# With what Keras loads by its registered name.
_REGISTERED = ("backbones", "readout", "losses", "metrics", "heads", "targets", "calibration", "classifier")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'deepsimplex' has no attribute {name!r}")
    if name.islower() and name != "load":
        return importlib.import_module(f"deepsimplex.{name}")
    return getattr(importlib.import_module(f"deepsimplex.{_ORIGINS.get(name, 'estimators')}"), name)


def __dir__() -> list[str]:
    return __all__


def _register(_: Any) -> None:
    """Import what Keras loads by name, if Keras is there, at the end of the user's import statement."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_name == "<module>" and frame.f_globals["__name__"].startswith("deepsimplex."):
            return  # a module of the package is being imported, whose end calls again
    if "keras" in sys.modules:
        for name in _REGISTERED:
            importlib.import_module(f"deepsimplex.{name}")


# Evaluation and the command line need no Keras, which takes seconds: subpackages are imported on first use, and as soon
# as Keras is there, which loads saved objects by their registered names.
for _name in ("keras", *(f"deepsimplex.{name}" for name in (*__all__, *_REGISTERED, "kernels", "latent", "samples"))):
    register_post_import_hook(_register, _name)
