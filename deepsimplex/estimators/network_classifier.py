"""SimplexClassifier as a scikit-learn classifier: for cross-validation, grid searches and pipelines."""

import copy
import copyreg
import random
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import keras
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.preprocessing import StandardScaler

from deepsimplex._utils.validation import check_flag
from deepsimplex.backbones import backbone
from deepsimplex.calibration.after_training import FittedComponents
from deepsimplex.calibration.feature_density import VARIANCE_SHARE
from deepsimplex.classifier import SimplexClassifier
from deepsimplex.classifier.keras_files import model_bytes, model_of_bytes
from deepsimplex.classifier.saliency_maps import Explained
from deepsimplex.estimators.calibrated_classifier import RandomState, seed_of
from deepsimplex.estimators.latent_classifier import LatentClassifier
from deepsimplex.export.rounding import warn_of_rounding
from deepsimplex.latent import LatentGaussian

# Arguments of ``SimplexClassifier.fit`` that the classifier gives itself.
_TAKEN = "x", "y", "sample_weight", "epochs", "batch_size"


@dataclass(eq=False, repr=False)
class SimplexNetworkClassifier(LatentClassifier):
    """A scikit-learn classifier that makes, compiles and fits a new ``SimplexClassifier`` at every fit.

    Parameters
    ----------
    backbone : str, dict or callable
        From features [N, d] to features: a name of ``deepsimplex.backbones.backbone``, a dict {"name": ..., arguments},
        or a function without arguments that returns a new keras.Model. Not a model: every fit would train it further.
        Default "mlp".
    target : Target, str or dict
        Default "ilr", made from labels alone: the units of the features do not matter.
    head : str, dict or keras.layers.Layer, optional
        See ``SimplexClassifier``. Default None: ``heads.GaussianHead``.
    readout : {"argmax", "softmax"}, optional
        Default None: the target's own.
    optimizer, loss
        See ``SimplexClassifier.compile``; Keras configuration dicts too. Objects are copied at every fit. Default
        "adam", and the target's own loss.
    epochs, batch_size : int
        Default 50 and 32.
    fit_options : dict, optional
        Further arguments of ``SimplexClassifier.fit``, such as ``callbacks`` and ``validation_split``. Default None.
    scale_features : bool
        Whether the network begins with a ``keras.layers.Normalization`` that standardizes the training features.
        Default True. A CASIMAC target's distances are those of the features as they are.
    classes : array_like, shape [n], optional
        All classes, if y may lack some, in any order, which is that of the columns of soft labels. Default None:
        those of y.
    random_state : int, numpy.random.RandomState or None
        Seed of the initial weights, the order of the samples and random layers; a generator (None: NumPy's global one)
        draws it at every fit. Default 0.

    Attributes
    ----------
    classes_ : ndarray, shape [n]
    model_ : SimplexClassifier
        Its ``save`` and ``export`` write the network, with the classes as ``class_names``.
    target_ : Target
    n_features_in_ : int

    Notes
    -----
    Unlike ``keras.wrappers.SKLearnClassifier``, it has ``predict_proba``, and clones keep the options of ``fit``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import cross_val_score
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = SimplexNetworkClassifier({"name": "mlp", "hidden": [8]}, epochs=2)
    >>> cross_val_score(classifier, X, y, cv=2, scoring="neg_log_loss").shape
    (2,)
    """

    backbone: Any = "mlp"
    target: Any = "ilr"
    head: Any = None
    _: KW_ONLY
    readout: str | None = None
    optimizer: Any = "adam"
    loss: Any = None
    epochs: int = 50
    batch_size: int = 32
    fit_options: dict[str, Any] | None = None
    scale_features: bool = True
    classes: ArrayLike | None = None
    random_state: RandomState = 0
    _fitted_attribute = "model_"
    _input_dtypes = ("float32",)

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit a new network to features X [N, d] and labels y.

        Parameters
        ----------
        X : array_like, shape [N, d]
        y : array_like, shape [N] or [N, n]
            Labels of any kind, or soft labels, for targets made from labels alone: rows that sum to one.
        sample_weight : array_like, shape [N], optional
            Weights of the samples in the loss. Samples of weight 0 are left out.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For NaN, labels that are not in ``classes``, a single class, a backbone that is a model, training that
            diverges, and what ``SimplexClassifier`` rejects.
        """
        with self._fitting():
            features, labels, weights = self._checked(X, y, sample_weight)
            lower, upper = self.feature_range_
            warn_of_rounding(lower, upper, names=getattr(self, "feature_names_in_", None))
            seed, state = seed_of(self.random_state), random.getstate()
            random.seed(seed)  # Keras draws the seeds of initial weights from Python's generator
            try:
                model = self._network(features, weights, [str(name) for name in labels.classes], seed)
            finally:
                random.setstate(state)
            given = self.optimizer
            if not isinstance(given, str | dict | keras.optimizers.Optimizer):
                raise TypeError(f"optimizer must be a Keras optimizer, its name or a dict; found {given!r}")
            if not isinstance(self.fit_options, dict | None):
                raise TypeError(f"fit_options must be a dict of arguments of fit; found {self.fit_options!r}")
            if taken := [name for name in self.fit_options or {} if name in _TAKEN]:
                raise ValueError(
                    f"fit_options must not hold {', '.join(taken)}: samples, labels and weights are arguments of fit, "
                    "epochs and batch_size of the classifier"
                )
            optimizer: Any = keras.optimizers.get(copy.deepcopy(given) if isinstance(given, dict) else given)
            model.compile(type(optimizer).from_config(optimizer.get_config()), copy.deepcopy(self.loss))
            options = {"verbose": 0, "sample_weight": weights, **(self.fit_options or {})}
            model.fit(features, labels.values, self.batch_size, self.epochs, **options)
            if not all(np.isfinite(part).all() for part in model.get_weights()):
                rate = float(model.optimizer.learning_rate)
                raise ValueError(
                    "optimizer must keep the network finite; found weights that are NaN or infinite after training at "
                    f"a learning rate of {rate:g}: lower it, or clip gradients with clipnorm=1"
                )
            model.target.num_classes_ = len(labels.classes)  # not set otherwise if the target is made from labels alone
            self.target_, self.model_ = model.target, model
        return self

    def _network(self, X: NDArray[np.float64], weights: Any, names: list[str], seed: int) -> SimplexClassifier:
        if isinstance(self.backbone, keras.layers.Layer):
            name = self.backbone.name
            raise ValueError(
                f"backbone must be a name, a dict or a function that makes a model; found the model {name!r}"
            )
        spec = {"name": self.backbone} if isinstance(self.backbone, str) else self.backbone
        layers = [spec() if callable(spec) else backbone(**spec)]
        if check_flag(self.scale_features, "scale_features"):
            scaler = StandardScaler().fit(X, sample_weight=weights)
            layers.insert(0, keras.layers.Normalization(mean=scaler.mean_, variance=np.square(scaler.scale_)))
        network = keras.Sequential([keras.Input(X.shape[1:]), *layers])
        target, head = copy.deepcopy((self.target, self.head))
        return SimplexClassifier(network, target, head=head, readout=self.readout, class_names=names, seed=seed)

    def _latents(self, X: NDArray[np.float64]) -> LatentGaussian:
        # Read out in double precision: the logarithms of probabilities near 1 are then those of the log route.
        latent = self.model_.predict_latent(X).numpy()
        return LatentGaussian(latent.loc.astype(np.float64), latent.scale.astype(np.float64))

    def _served_latents(self) -> tuple[Any, Any]:
        model = self.model_
        return model, lambda features: model.predictive_latent(model.latent_of_features(features), calibrated=True)

    def _export(self, *args: Any, **options: Any) -> None:
        super()._export(*args, **options, features=lambda X: self.model_.backbone(X, training=False))

    def _differentiable(self, of: Explained) -> Any:
        return self.model_.backbone, super()._differentiable(of)[1]

    def _store(self, after_training: FittedComponents) -> Self:
        """Set the attributes, and the density of the network, which widens its latents itself."""
        if hasattr(self, "model_") and self.model_.density is not after_training.density:
            self.model_.after_training.set_density(after_training.density)
            self.model_._retraced()
        return super()._store(after_training)

    def _widened(self, latent: Any, X: Any) -> Any:
        return latent  # by the network itself

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes, Keras' objects as bytes of a file or as configurations, which skops can write."""
        return {name: _without_keras(value) for name, value in super().__getstate__().items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({name: _with_keras(value) for name, value in state.items()})

    def __reduce__(self) -> Any:
        """Pickle Keras' objects as Keras does."""
        return copyreg.__newobj__, (type(self),), super().__getstate__()  # type: ignore[attr-defined]

    _variance_share = VARIANCE_SHARE

    def _density_features(self, X: ArrayLike) -> NDArray[Any]:
        return self.model_.predict_features(super()._density_features(X))


def _without_keras(value: Any) -> Any:
    if isinstance(value, keras.Model):
        return model_bytes(value)
    kinds = keras.layers.Layer, keras.optimizers.Optimizer, keras.losses.Loss
    return keras.saving.serialize_keras_object(value) if isinstance(value, kinds) else value


def _with_keras(value: Any) -> Any:
    if isinstance(value, bytes):
        return model_of_bytes(value)
    is_configuration = isinstance(value, dict) and "registered_name" in value
    return keras.saving.deserialize_keras_object(value) if is_configuration else value
