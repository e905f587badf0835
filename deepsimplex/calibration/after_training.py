"""What is fitted to a trained classifier, from its density to its rule of decision, as one object."""

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.archives import with_prefix
from deepsimplex._utils.array_operations import keras, tf
from deepsimplex._utils.messages import guided, listed, warn_caller
from deepsimplex._utils.registry import Registry
from deepsimplex._utils.validation import check_array, check_class_names, check_flag, check_groups, check_sample_weight
from deepsimplex.calibration.automatic_choice import AutomaticCalibration
from deepsimplex.calibration.calibrator import Calibration
from deepsimplex.calibration.conformal_sets import ConformalMethod, ConformalSets
from deepsimplex.calibration.decision_rule import DecisionRule
from deepsimplex.calibration.feature_density import FeatureDensity
from deepsimplex.calibration.gaussian_density import GaussianDensity, RelativeMahalanobis
from deepsimplex.calibration.isotonic import IsotonicCalibration
from deepsimplex.calibration.jackknife_plus import MOST_LEFT_OUT, JackknifePlusSets
from deepsimplex.calibration.latent_scaling import LatentScaling
from deepsimplex.calibration.logistic_scaling import BiasCorrectedTemperature, MatrixScaling, VectorScaling
from deepsimplex.calibration.neighbor_distance import NeighborDistance
from deepsimplex.calibration.platt import PlattScaling
from deepsimplex.calibration.prior_shift import PriorShift
from deepsimplex.calibration.temperature import TemperatureScaling
from deepsimplex.calibration.venn_abers import VennAbers
from deepsimplex.evaluation import Report, report

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
COMPONENTS: dict[str, tuple[type[Any], str, str, str]] = {
    "density": (FeatureDensity, "features", "their density", "fit_density"),
    "calibration": (Calibration, "outputs", "the calibration that was fitted to them", "calibrate"),
    "priors": (PriorShift, "probabilities", "the class frequencies that were set for them", "set_priors"),
    "prediction_sets": (ConformalSets, "probabilities", "the sets that were fitted to them", "conformalize"),
    "decision_rule": (DecisionRule, "probabilities", "the rule that was fitted to them", "set_decision"),
}
# Rows whose sets are computed together, where every left-out sample has its own predictions of them.
SET_ROWS = 64
# Samples, the first ones, among which those of training are looked for.
RECOGNIZED_ROWS = 1000
# What to do without held-out samples, of a classifier that left-out training samples have calibrated.
_LEFT_OUT = "pass left_out=True, by which each training sample is predicted without it"
_CALIBRATED_BY_FIT = "leave out calibrate: fit has calibrated the probabilities by left-out training samples"
# Those that are fitted to calibrated probabilities.
_ON_PROBABILITIES = ("priors", "prediction_sets", "decision_rule")


class TrainedClassifier(Protocol):
    """Interface of the classifiers that ``FittedComponents`` is fitted to; ``options`` are those of their predictions.

    Names begin with an underscore because users of the classifiers do not call them.
    """

    # Argument of ``FeatureDensity.fit``.
    _variance_share: ClassVar[float | None]

    @property
    def _density_changes_probabilities(self) -> bool:
        """Whether class probabilities depend on the scale of latent Gaussians, which a density widens."""

    def _labeled_arrays(self, x: Any, y: Any, sample_weight: Any) -> tuple[Any, NDArray[np.int64], Any]:
        """Return samples, their class numbers [N] and their weights."""

    def _uncalibrated_outputs(self, x: Any, **options: Any) -> dict[str, Any]:
        """Return the outputs that ``Calibration.fit_outputs`` takes, by name."""

    def _density_features(self, x: Any, **options: Any) -> NDArray[Any]:
        """Return the features [N, d] that a density is fitted to."""

    def _left_out_outputs(
        self, x: Any, y: Any, most: int | None = None, seed: int = 0
    ) -> tuple[dict[str, Any], NDArray[np.int64], Any]:
        """Return uncalibrated outputs for training samples, each left out, and their class numbers [N], or raise.

        With ``most``, for as many of them at random, and the arrays by which ``_latents_without`` leaves them out.
        """

    def _training_samples(self, x: Any) -> NDArray[np.bool_]:
        """Return which of the first samples are recognized as those that it was solved with, [M].

        M is ``RECOGNIZED_ROWS`` at most, and 0 where that is not known.
        """

    def _latents_without(self, features: Any, influence: Any, residuals: Any) -> tuple[Any, Any]:
        """Return latent means [N, m, L] of features [N, d], a tensor, without each left-out sample, and the readout."""

    def _without_priors(self, x: Any, **options: Any) -> NDArray[Any]:
        """Return class probabilities [N, n] that are calibrated, for the frequencies of the classes in training."""

    def _class_labels(self) -> Sequence[Any]:
        """Return the names of the classes."""

    def _class_numbers(self, labels: Any, rows: int) -> NDArray[np.int64]:
        """Return the class numbers of the argument ``labels``, as many as rows."""

    def predict_proba(self, x: Any, **options: Any) -> NDArray[Any]:
        """Return class probabilities [N, n], calibrated, and for other frequencies of the classes if set."""


@dataclass(eq=False)
class FittedComponents:
    """Feature density, calibration, class frequencies, prediction sets and rule of decision of a trained classifier.

    Each depends on those before it: the density widens latents, the calibration is fitted to probabilities that are
    read out of them, class frequencies reweight calibrated ones, sets and rules are fitted to the result. A change of
    one removes those after it, with a warning; a rule that is fitted to no samples stays. ``SimplexClassifier`` and the
    scikit-learn classifiers delegate to it, and document its methods.

    Parameters
    ----------
    classifier : TrainedClassifier
    density, calibration, priors, prediction_sets, decision_rule : optional
        A FeatureDensity, a Calibration, a PriorShift, ConformalSets and a DecisionRule that are fitted. Default None.
    """

    classifier: TrainedClassifier
    density: FeatureDensity | None = None
    calibration: Calibration | None = None
    priors: PriorShift | None = None
    prediction_sets: ConformalSets | None = None
    decision_rule: DecisionRule | None = None

    def fit_density(
        self, x: Any, y: Any = None, method: Any = "nearest_neighbors", *, groups: Any = None, **options: Any
    ) -> Self:
        """Fit a density to the features of training samples, or remove it if x is None."""
        density = None
        if not _removes(x, y, "fit_density"):
            density = copy.deepcopy(DENSITIES.get(method))
            x, labels, _ = self.classifier._labeled_arrays(x, y, None)
            features = self.classifier._density_features(x, **options)
            density.fit(features, labels, self.classifier._variance_share, groups)
        return self.set_density(density)

    def set_density(self, density: FeatureDensity | None) -> Self:
        """Set a fitted density. If it changes class probabilities, calibration and sets are removed."""
        if self.classifier._density_changes_probabilities:
            self.remove("fit_density", *[name for name in COMPONENTS if name != "density"])
        self.density = density
        return self

    def calibrate(
        self,
        x: Any,
        y: Any = None,
        method: Any = "temperature",
        sample_weight: Any = None,
        *,
        groups: Any = None,
        **options: Any,
    ) -> Self:
        """Fit a calibration to uncalibrated outputs of held-out samples, or remove it if x is None."""
        calibration = None
        if not _removes(x, y, "calibrate"):
            calibration = copy.deepcopy(CALIBRATIONS.get(method))
            x, labels, weights = self.classifier._labeled_arrays(x, y, sample_weight)
            warn_of_training_samples("calibrate", self.classifier._training_samples(x), _CALIBRATED_BY_FIT)
            outputs = self.classifier._uncalibrated_outputs(x, **options)
            together = None if groups is None else check_groups(groups, len(labels), "row of x")
            further = {} if together is None or not calibration.divides_samples else {"groups": together}
            calibration.fit_outputs(labels, **outputs, sample_weight=weights, **further)
            p, counted = calibration.apply_outputs(**outputs), check_sample_weight(weights, len(labels))
            calibration.mean_probabilities_ = np.average(p, axis=0, weights=counted)
            calibration.held_out_ = int(np.count_nonzero(counted))
        self.remove("calibrate", *_ON_PROBABILITIES)
        self.calibration = calibration
        return self

    def estimate_priors(self, x: Any, trained: Any = None, *, seed: int = 0, **options: Any) -> PriorShift:
        """Estimate class frequencies from unlabeled samples; the classifier stays as it is."""
        shift = self._shift(trained, "estimate_priors", seed=seed)
        return shift.fit(self.classifier._without_priors(x, **options))

    def set_priors(self, frequencies: Any, trained: Any = None) -> Self:
        """Set class frequencies, or remove them if None."""
        priors = frequencies
        if isinstance(frequencies, PriorShift):
            frequencies._check_fitted()
            check_class_names(self.classifier._class_labels(), len(frequencies.trained), of="frequencies")
        elif frequencies is not None:
            priors = self._shift(
                trained, "set_priors", _in_order(frequencies, self.classifier._class_labels(), "frequencies")
            )
        self.remove("set_priors", "prediction_sets", "decision_rule")
        self.priors = priors
        return self

    def _shift(self, trained: Any, method: str, frequencies: Any = None, **options: Any) -> PriorShift:
        """Return class frequencies to set, or without frequencies ones to estimate."""
        if trained is not None:
            return PriorShift(_in_order(trained, self.classifier._class_labels(), "trained"), frequencies, **options)
        if not hasattr(self.calibration, "mean_probabilities_"):
            raise guided(
                "priors.md",
                f"{method} needs the frequencies that probabilities are calibrated for: call calibrate with held-out "
                "samples first, method='bias_corrected_temperature', or give those of the training samples as trained",
            )
        calibration: Any = self.calibration
        return PriorShift(calibration.mean_probabilities_, frequencies, calibration.held_out_, **options)

    def conformalize(
        self,
        x: Any,
        y: Any = None,
        coverage: float = 0.9,
        method: ConformalMethod = "lac",
        by_class: bool = False,
        *,
        groups: Any = None,
        left_out: bool = False,
        allow_empty: bool = True,
        seed: int = 0,
        **options: Any,
    ) -> Self:
        """Fit prediction sets to probabilities of held-out samples, or remove them if x is None."""
        sets: ConformalSets | None = None
        if not _removes(x, y, "conformalize"):
            further: dict[str, Any] = {"seed": seed, "allow_empty": allow_empty}
            if check_flag(left_out, "left_out"):
                outputs, labels, update = self.classifier._left_out_outputs(x, y, MOST_LEFT_OUT, seed)
                sets = JackknifePlusSets(coverage, method, by_class, **further).without(*update)
                sets.fit(self._calibrated(outputs), labels, groups=groups)
            else:
                sets = ConformalSets(coverage, method, by_class, **further)
                sets.fit(*self._held_out(x, y, False, options, "conformalize"), groups=groups)
        self.prediction_sets = sets
        return self

    def set_decision(
        self, rule: DecisionRule | None, x: Any = None, y: Any = None, *, left_out: bool = False, **options: Any
    ) -> Self:
        """Set a rule, of which a copy is fitted to samples if they are given, or remove it if None."""
        if rule is not None and not isinstance(rule, DecisionRule):
            raise TypeError(f"rule must be a DecisionRule of deepsimplex.calibration, or None; found {rule!r}")
        names = [*self.classifier._class_labels()]
        if rule is None or not rule.fitted_attributes:
            if x is not None or y is not None:
                raise ValueError(f"x and y must not be given for {rule!r}, which is fitted to no samples")
        elif x is not None:
            p, labels = self._held_out(x, y, left_out, options, "set_decision")
            rule = copy.deepcopy(rule).fit(p, [names[label] for label in labels], classes=names)
        else:
            rule._check_fitted("set_decision(rule, X, y) fits it to held-out samples")
        if rule is not None:
            rule.decide(np.full((1, len(names)), 1.0 / len(names)))  # raises for a rule that is not fitted, or unfit
        self.decision_rule = rule
        return self

    def decide(self, x: Any, **options: Any) -> NDArray[np.int64]:
        """Return class numbers [N], and -1 for abstentions, by the rule."""
        if self.decision_rule is None:
            raise guided(
                "decisions.md#weigh-the-errors",
                "decide needs set_decision with a rule first, such as calibration.ExpectedCost(costs)",
            )
        return self.decision_rule.decide(self.classifier.predict_proba(x, **options))

    def _held_out(
        self, x: Any, y: Any, left_out: bool, options: Any, method: str
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return probabilities [N, n] and class numbers [N] of held-out samples, or of left-out training samples."""
        if check_flag(left_out, "left_out"):
            outputs, labels, _ = self.classifier._left_out_outputs(x, y)
            return self._calibrated(outputs), labels
        x, labels, _ = self.classifier._labeled_arrays(x, y, None)
        warn_of_training_samples(method, self.classifier._training_samples(x), _LEFT_OUT)
        return self.classifier.predict_proba(x, **options), labels

    def _calibrated(self, outputs: dict[str, Any]) -> NDArray[Any]:
        """Return class probabilities [N, n] of uncalibrated outputs."""
        calibration = self.calibration
        p = outputs["probabilities"] if calibration is None else calibration.apply_outputs(**outputs)
        return p if self.priors is None else self.priors.apply_probabilities(p)

    def remove(self, cause: str, *names: str) -> bool:
        """Remove components, by default all, with a warning for each; return whether there were any."""
        rule = self.decision_rule
        stays = rule is None or not rule.fitted_attributes  # a rule that is fitted to no samples
        fitted = [name for name in names or COMPONENTS if getattr(self, name) is not None]
        fitted = [name for name in fitted if not (stays and name == "decision_rule")]
        for name in fitted:
            _, changed, removed, method = COMPONENTS[name]
            warn_caller(f"{cause} changes the {changed}, and removes {removed}: call {method} again afterwards")
            setattr(self, name, None)
        return bool(fitted)

    def predict_set(self, x: Any, groups: Any = None, *, p: Any = None, **options: Any) -> NDArray[np.bool_]:
        """Return whether each class is in the set of each sample, bool [N, n]; p are their probabilities, if known."""
        if self.prediction_sets is None:
            raise guided("decisions.md#return-a-set", "predict_set needs conformalize with held-out samples first")
        if isinstance(self.prediction_sets, JackknifePlusSets):
            features = self.classifier._density_features(x, **options)
            parts = np.array_split(features, -(-len(features) // SET_ROWS))
            return np.concatenate([self._sets(None, tf.constant(part), groups).numpy() for part in parts])
        return self.prediction_sets.predict(self.classifier.predict_proba(x, **options) if p is None else p, groups)

    def report(
        self,
        x: Any,
        y: Any,
        *,
        set_groups: Any = None,
        outside: Any = None,
        sample_weight: Any = None,
        options: Mapping[str, Any] | None = None,
        **scoring: Any,
    ) -> Report:
        """Score predictions of samples, and sets if they are fitted; ``options`` are those of the predictions."""
        has_sets = scoring.get("sets") is not None
        if set_groups is not None and (has_sets or self.prediction_sets is None):
            remedy = "leave them out beside sets" if has_sets else "call conformalize with held-out samples first"
            raise guided("decisions.md#return-a-set", f"set_groups are those of fitted prediction sets: {remedy}")
        given, names = dict(options or {}), [*self.classifier._class_labels()]
        x, labels, weights = self.classifier._labeled_arrays(x, y, sample_weight)
        p = self.classifier.predict_proba(x, **given)
        if self.prediction_sets is not None and not has_sets:
            scoring["sets"] = self.predict_set(x, set_groups, p=p, **given)
        if outside is not None:
            scoring["outside"] = self.classifier.predict_proba(outside, **given)
        y = [names[label] for label in labels]
        return report(y, p, classes=names, sample_weight=weights, **scoring)

    def familiarity(self, x: Any, **options: Any) -> NDArray[np.float64]:
        """Return the share of training samples that are less typical than each sample, [N]."""
        if self.density is None:
            raise guided(
                "decisions.md#flag-the-unfamiliar", "familiarity needs fit_density with the training samples first"
            )
        return self.density.familiarity(self.classifier._density_features(x, **options))

    @property
    def probability_maps(self) -> list[Calibration | PriorShift]:
        """What maps class probabilities after the readout, in its order."""
        maps = [self.calibration] if self.calibration is not None and self.calibration.maps_probabilities else []
        return [*maps, *([] if self.priors is None else [self.priors])]

    def apply_probabilities(self, p: Any) -> Any:
        """Apply calibration and class frequencies to class probabilities [N, n], an array or a tensor."""
        for part in self.probability_maps:
            p = part.apply_probabilities(p)
        return p

    @property
    def differentiable(self) -> Self:
        """The same without a calibration by steps, which has no gradient."""
        return self if getattr(self.calibration, "has_gradient", True) else replace(self, calibration=None)

    def served(self, p: Any, features: Any) -> dict[str, Any]:
        """Return "prediction_set", "decision" and "familiarity", outputs of an exported classifier, as far as fitted.

        Parameters
        ----------
        p, features : tensor, shapes [N, n] and [N, d]
            Class probabilities, and the features that the density was fitted to.
        """
        outputs = {} if self.prediction_sets is None else {"prediction_set": self._sets(p, features)}
        if self.decision_rule is not None:
            outputs["decision"] = self.decision_rule.decide(p)
        return outputs if self.density is None else {**outputs, "familiarity": self.density.familiarity(features)}

    def _sets(self, p: Any, features: Any, groups: Any = None) -> Any:
        """Return sets, bool [N, n], of class probabilities, or of features where these left training samples out."""
        sets = self.prediction_sets
        assert sets is not None
        if isinstance(sets, JackknifePlusSets):
            loc, readout = self.classifier._latents_without(features, sets.influence_, sets.residuals_)
            m, L = loc.shape[1:]
            loc = tf.reshape(loc, (-1, L))
            latent = {"loc": loc, "scale": tf.ones_like(loc[:, :1])}
            latent = latent if self.calibration is None else self.calibration.apply_latent(latent)
            p = self.apply_probabilities(readout(latent))
            p = tf.reshape(p, (-1, m, p.shape[1]))
        return sets.predict(p, groups)

    def components(self) -> dict[str, Any]:
        """Return all of them by name, None for those that are not fitted."""
        return {name: getattr(self, name) for name in COMPONENTS}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what is fitted as arrays by name, which Keras saves with the weights; none if nothing is fitted."""
        fitted = {name: component for name, component in self.components().items() if component is not None}
        density = {} if self.density is None else self.density.state()
        sets = self.prediction_sets.state() if isinstance(self.prediction_sets, JackknifePlusSets) else {}
        text = json.dumps(keras.saving.serialize_keras_object(fitted))
        members = {"after_training": np.frombuffer(text.encode(), np.uint8)} if fitted else {}
        arrays = {f"density_{name}": array for name, array in density.items()}
        arrays |= {f"sets_{name}": array for name, array in sets.items()}
        return members | {name: np.asarray(array) for name, array in arrays.items()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore what ``state`` returned; raise ValueError for a component of another type."""
        members = json.loads(state["after_training"].astype(np.uint8).tobytes())
        for name, (kind, *_) in COMPONENTS.items():
            component = keras.saving.deserialize_keras_object(members.get(name))
            if not isinstance(component, kind | None):
                raise ValueError(f"{name} must be a {kind.__name__}; found {component!r}")
            setattr(self, name, component)
        if self.density is not None:
            self.density.load_state({name: state[f"density_{name}"] for name in self.density.fitted_attributes})
        if isinstance(self.prediction_sets, JackknifePlusSets):
            self.prediction_sets.load_state(with_prefix(state, "sets_"))


def warn_of_training_samples(method: str, recognized: NDArray[np.bool_], instead: str) -> None:
    """Warn if most samples are recognized [M] as training samples: few are where a table holds equal rows."""
    if 2 * (found := np.count_nonzero(recognized)) > recognized.size:
        warn_caller(
            f"{method} needs samples that were held out of training; found {found} training samples among the first "
            f"{recognized.size}, whose classes the classifier was told: hold samples out, or {instead}"
        )


def _in_order(frequencies: Any, names: Sequence[Any], argument: str) -> Any:
    """Return frequencies of the classes, of which a mapping holds them by name, in their order."""
    if isinstance(frequencies, Mapping):
        if set(frequencies) != set(names):
            raise ValueError(f"{argument} must hold every class, {listed(names)}; found {[*frequencies]}")
        return [frequencies[name] for name in names]
    return check_array(frequencies, argument, "[n]", rows=len(names), of="classes")


def _removes(x: Any, y: Any, method: str) -> bool:
    """Return True for ``method(None)``, which removes what the method fitted; raise ValueError if labels are given."""
    if x is None and y is not None:
        raise ValueError(f"y must not be given without samples; {method}(None) removes what {method} has fitted")
    return x is None
