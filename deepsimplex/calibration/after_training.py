"""Calibration, conformal prediction sets and feature density of a trained classifier, as one object."""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import keras
import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.messages import warn_caller
from deepsimplex._utils.registry import Registry
from deepsimplex.calibration.automatic_choice import AutomaticCalibration
from deepsimplex.calibration.calibrator import Calibration
from deepsimplex.calibration.conformal_sets import ConformalMethod, ConformalSets
from deepsimplex.calibration.feature_density import FeatureDensity
from deepsimplex.calibration.gaussian_density import GaussianDensity, RelativeMahalanobis
from deepsimplex.calibration.isotonic import IsotonicCalibration
from deepsimplex.calibration.latent_scaling import LatentScaling
from deepsimplex.calibration.logistic_scaling import BiasCorrectedTemperature, MatrixScaling, VectorScaling
from deepsimplex.calibration.neighbor_distance import NeighborDistance
from deepsimplex.calibration.platt import PlattScaling
from deepsimplex.calibration.temperature import TemperatureScaling
from deepsimplex.calibration.venn_abers import VennAbers

CALIBRATIONS: Registry[Calibration] = Registry(
    "method",
    Calibration,
    {
        "temperature": TemperatureScaling,
        "bias_corrected_temperature": BiasCorrectedTemperature,
        "vector": VectorScaling,
        "matrix": MatrixScaling,
        "latent": LatentScaling,
        "platt": PlattScaling,
        "isotonic": IsotonicCalibration,
        "venn_abers": VennAbers,
        "auto": AutomaticCalibration,
    },
)

DENSITIES: Registry[FeatureDensity] = Registry(
    "method",
    FeatureDensity,
    {"nearest_neighbors": NeighborDistance, "gaussian": GaussianDensity, "relative_mahalanobis": RelativeMahalanobis},
)


# In the order of dependence: the class, what it is fitted to, its name in a warning, and the method that fits it.
_COMPONENTS: dict[str, tuple[type[Any], str, str, str]] = {
    "density": (FeatureDensity, "features", "their density", "fit_density"),
    "calibration": (Calibration, "outputs", "the calibration that was fitted to them", "calibrate"),
    "prediction_sets": (ConformalSets, "probabilities", "the sets that were fitted to them", "conformalize"),
}


class TrainedClassifier(Protocol):
    """Interface of the classifiers that ``FittedComponents`` is fitted to; ``options`` are those of their predictions.

    Names begin with an underscore because users of the classifiers do not call them.
    """

    # Whether class probabilities are read out of latent Gaussians, which a density widens.
    _has_latents: ClassVar[bool]
    # Argument of ``FeatureDensity.fit``.
    _variance_share: ClassVar[float | None]

    def _labeled_arrays(self, x: Any, y: Any, sample_weight: Any) -> tuple[Any, NDArray[np.int64], Any]:
        """Return samples, their class numbers [N] and their weights."""

    def _uncalibrated_outputs(self, x: Any, **options: Any) -> dict[str, Any]:
        """Return the outputs that ``Calibration.fit_outputs`` takes, by name."""

    def _density_features(self, x: Any, **options: Any) -> NDArray[Any]:
        """Return the features [N, d] that a density is fitted to."""

    def predict_proba(self, x: Any, **options: Any) -> NDArray[Any]:
        """Return calibrated class probabilities [N, n]."""


@dataclass(eq=False)
class FittedComponents:
    """Feature density, calibration and conformal prediction sets of a trained classifier.

    Each depends on those before it: the density widens latents, the calibration is fitted to probabilities that are
    read out of them, the sets are fitted to calibrated probabilities. A change of one removes those after it, with a
    warning. ``SimplexClassifier`` and the scikit-learn classifiers delegate to it, and document its methods.

    Parameters
    ----------
    classifier : TrainedClassifier
    density, calibration, prediction_sets : FeatureDensity, Calibration, ConformalSets, optional
        Fitted ones. Default None.
    """

    classifier: TrainedClassifier
    density: FeatureDensity | None = None
    calibration: Calibration | None = None
    prediction_sets: ConformalSets | None = None

    def fit_density(self, x: Any, y: Any = None, method: Any = "nearest_neighbors", **options: Any) -> Self:
        """Fit a density to the features of training samples, or remove it if x is None."""
        density = None
        if not _removes(x, y, "fit_density"):
            density = copy.deepcopy(DENSITIES.get(method))
            x, labels, _ = self.classifier._labeled_arrays(x, y, None)
            features = self.classifier._density_features(x, **options)
            density.fit(features, labels, self.classifier._variance_share)
        return self.set_density(density)

    def set_density(self, density: FeatureDensity | None) -> Self:
        """Set a fitted density. If it widens latents, calibration and sets are removed."""
        if self.classifier._has_latents:
            self.remove("fit_density", "calibration", "prediction_sets")
        self.density = density
        return self

    def calibrate(
        self, x: Any, y: Any = None, method: Any = "temperature", sample_weight: Any = None, **options: Any
    ) -> Self:
        """Fit a calibration to uncalibrated outputs of held-out samples, or remove it if x is None."""
        calibration = None
        if not _removes(x, y, "calibrate"):
            calibration = copy.deepcopy(CALIBRATIONS.get(method))
            x, labels, weights = self.classifier._labeled_arrays(x, y, sample_weight)
            outputs = self.classifier._uncalibrated_outputs(x, **options)
            calibration.fit_outputs(labels, **outputs, sample_weight=weights)
        self.remove("calibrate", "prediction_sets")
        self.calibration = calibration
        return self

    def conformalize(
        self,
        x: Any,
        y: Any = None,
        coverage: float = 0.9,
        method: ConformalMethod = "lac",
        by_class: bool = False,
        *,
        groups: Any = None,
        seed: int = 0,
        **options: Any,
    ) -> Self:
        """Fit prediction sets to calibrated probabilities of held-out samples, or remove them if x is None."""
        sets = None
        if not _removes(x, y, "conformalize"):
            sets = ConformalSets(coverage, method, by_class, seed=seed)
            x, labels, _ = self.classifier._labeled_arrays(x, y, None)
            sets.fit(self.classifier.predict_proba(x, **options), labels, groups=groups)
        self.prediction_sets = sets
        return self

    def remove(self, cause: str, *names: str) -> bool:
        """Remove components, by default all, with a warning for each; return whether there were any."""
        fitted = [name for name in names or _COMPONENTS if getattr(self, name) is not None]
        for name in fitted:
            _, changed, removed, method = _COMPONENTS[name]
            warn_caller(f"{cause} changes the {changed}, and removes {removed}: call {method} again afterwards")
            setattr(self, name, None)
        return bool(fitted)

    def predict_set(self, x: Any, groups: Any = None, **options: Any) -> NDArray[np.bool_]:
        """Return whether each class is in the set of each sample, bool [N, n]."""
        if self.prediction_sets is None:
            raise ValueError("predict_set needs conformalize with held-out samples first")
        return self.prediction_sets.predict(self.classifier.predict_proba(x, **options), groups)

    def familiarity(self, x: Any, **options: Any) -> NDArray[np.float64]:
        """Return the share of training samples that are less typical than each sample, [N]."""
        if self.density is None:
            raise ValueError("familiarity needs fit_density with the training samples first")
        return self.density.familiarity(self.classifier._density_features(x, **options))

    @property
    def maps_probabilities(self) -> bool:
        """Whether the calibration maps class probabilities, rather than latents."""
        return self.calibration is not None and self.calibration.maps_probabilities

    def served(self, p: Any, features: Any) -> dict[str, Any]:
        """Return the outputs "prediction_set" and "familiarity" of an exported classifier, as far as they are fitted.

        Parameters
        ----------
        p, features : tensor, shapes [N, n] and [N, d]
            Calibrated class probabilities, and the features that the density was fitted to.
        """
        sets = {} if self.prediction_sets is None else {"prediction_set": self.prediction_sets.predict(p)}
        return sets if self.density is None else {**sets, "familiarity": self.density.familiarity(features)}

    def components(self) -> dict[str, Any]:
        """Return density, calibration and sets by name, None for those that are not fitted."""
        return {name: getattr(self, name) for name in _COMPONENTS}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what is fitted as arrays by name, which Keras saves with the weights; none if nothing is fitted."""
        fitted = {name: component for name, component in self.components().items() if component is not None}
        density = {} if self.density is None else self.density.state()
        text = json.dumps(keras.saving.serialize_keras_object(fitted))
        members = {"after_training": np.frombuffer(text.encode(), np.uint8)} if fitted else {}
        return {**members, **{f"density_{name}": np.asarray(array) for name, array in density.items()}}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore what ``state`` returned; raise ValueError for a component of another type."""
        members = json.loads(state["after_training"].astype(np.uint8).tobytes())
        for name, (kind, *_) in _COMPONENTS.items():
            component = keras.saving.deserialize_keras_object(members.get(name))
            if not isinstance(component, kind | None):
                raise ValueError(f"{name} must be a {kind.__name__}; found {component!r}")
            setattr(self, name, component)
        if self.density is not None:
            self.density.load_state({name: state[f"density_{name}"] for name in self.density.fitted_attributes})


def _removes(x: Any, y: Any, method: str) -> bool:
    """Return True for ``method(None)``, which removes what the method fitted; raise ValueError if labels are given."""
    if x is None and y is not None:
        raise ValueError(f"y must not be given without samples; {method}(None) removes what {method} has fitted")
    return x is None
