"""The compared classifiers of features: how each is fitted, and how it predicts."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import keras
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors

import deepsimplex as ds
from training.benchmarks.deep.methods import BATCH, RATE, optimizer

Array = NDArray[Any]
EPOCHS, HELD_OUT = 20, 0.1
# Inverse penalties and prior precisions of features whose distance from their mean is one.
PENALTIES, PRIORS = (0.6, 2.5, 10.0, 40.0), (0.1, 0.4, 1.6, 6.4)
DECAYS = (3.0, 10.0, 30.0, 100.0)
NEIGHBORS = (5, 10, 20, 50, 100)
MISSING_CLASS = -50.0  # logit of a class without training rows


class Training(NamedTuple):
    """Features [N, d], class numbers, the number of classes, and the seed of all draws."""

    x: Array
    y: NDArray[np.int64]
    num_classes: int
    seed: int


class Seconds(NamedTuple):
    """Wall-clock and processor seconds."""

    wall: float
    cpu: float

    @classmethod
    def since(cls, begun: "Seconds") -> "Seconds":
        """Seconds since the clocks showed ``begun``; those of the clocks for zeros."""
        return cls(time.perf_counter() - begun.wall, time.process_time() - begun.cpu)


class Classifier(NamedTuple):
    """A fitted classifier: class probabilities of features, seconds of its last fit, what was chosen, its model."""

    probabilities: Callable[[Array], Array]
    last_fit: Seconds
    choice: str = ""
    model: Any = None


class Linear(NamedTuple):
    """A linear layer: kernel [d, n], bias [n] and the temperature of its softmax; variances of its logits, if known."""

    kernel: Array
    bias: Array
    temperature: float = 1.0
    variance: Callable[[Array], Array] | None = None

    def probabilities(self, x: Array) -> Array:
        """Class probabilities [N, n], float64, by the probit approximation if variances are known."""
        logits = (x @ self.kernel + self.bias).astype(np.float64)
        if self.variance is not None:
            logits /= np.sqrt(1.0 + np.pi / 8.0 * self.variance(x))
        return softmax(logits / self.temperature, axis=1)


def clocks() -> Seconds:
    """The clocks now."""
    return Seconds.since(Seconds(0.0, 0.0))


def total_variance(x: Array) -> float:
    """Mean square distance of rows from their mean."""
    return float(np.mean(np.sum(np.square(x - x.mean(axis=0)), axis=1)))


def logistic_regression(data: Training, penalty: float) -> Linear:
    """Fit scikit-learn's logistic regression; the penalty is that of features centered and scaled to length one."""
    fitted = LogisticRegression(C=penalty / total_variance(data.x), max_iter=1000).fit(data.x, data.y)
    kernel, bias = np.zeros((data.x.shape[1], data.num_classes)), np.full(data.num_classes, MISSING_CLASS)
    present = fitted.classes_[-len(fitted.coef_) :]  # of two classes, the second
    kernel[:, present], bias[fitted.classes_] = fitted.coef_.T, 0.0
    bias[present] = fitted.intercept_
    return Linear(kernel, bias)


def softmax_layer(data: Training, decay: float = 0.0, dropout: float = 0.0) -> Linear:
    """Train a softmax layer in Keras, with dropout before it or weight decay."""
    keras.utils.set_random_seed(data.seed)
    layer = keras.layers.Dense(data.num_classes)
    network = keras.Sequential([keras.Input(data.x.shape[1:]), keras.layers.Dropout(dropout), layer])
    steps = optimizer(len(data.x), EPOCHS)
    if decay:
        steps = keras.optimizers.AdamW(
            keras.optimizers.schedules.CosineDecay(RATE, -(-len(data.x) // BATCH) * EPOCHS), weight_decay=decay
        )
    network.compile(steps, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    network.fit(data.x, data.y, batch_size=BATCH, epochs=EPOCHS, verbose=0)
    return Linear(*layer.get_weights())


def best_temperature(y: Array, p: Array) -> tuple[float, float]:
    """NLL at the likeliest temperature between exp(-3) and exp(3), and the temperature."""
    logits = np.log(np.maximum(p, np.finfo(np.float64).tiny))

    def nll(log_temperature: float) -> float:
        return float(-np.mean(log_softmax(logits / np.exp(log_temperature), axis=1)[np.arange(len(y)), y]))

    best = minimize_scalar(nll, bounds=(-3.0, 3.0), method="bounded")
    return float(best.fun), float(np.exp(best.x))


def with_temperature(data: Training, fit: Callable[[Training, float], Linear], settings: Sequence[float]) -> Classifier:
    """Choose a setting and the temperature by a held-out tenth of the rows, then fit all rows with the setting."""
    order = np.random.default_rng([data.seed, 1]).permutation(len(data.x))
    held, rest = np.split(order, [max(1, round(HELD_OUT * len(order)))])
    part = data._replace(x=data.x[rest], y=data.y[rest])
    trials = []
    for setting in settings:
        nll, temperature = best_temperature(data.y[held], fit(part, setting).probabilities(data.x[held]))
        trials.append((nll, setting, temperature))
    _, setting, temperature = min(trials)
    begun = clocks()
    layer = fit(data, setting)
    return Classifier(
        layer._replace(temperature=temperature).probabilities,
        Seconds.since(begun),
        f"{setting:g}, temperature {temperature:.3f}",
    )


def laplace(data: Training, inverse_precision: float) -> Linear:
    """Last-layer Laplace approximation around the softmax layer, with Kronecker factors and probit predictions.

    The Hessian of the NLL is approximated by the product of N^-1 sum (diag p - p p^T) and sum x x^T, x with a constant
    for the bias. Daxberger et al.: *Laplace Redux*, 2021.
    """
    layer = softmax_layer(data)
    p, x = layer.probabilities(data.x), _with_constant(data.x)
    outputs, U = np.linalg.eigh((np.diag(p.sum(axis=0)) - p.T @ p) / len(p))  # [n], [n, n]
    inputs, V = np.linalg.eigh(x.T @ x)  # [d + 1], [d + 1, d + 1]
    prior = total_variance(data.x) / inverse_precision
    variances = 1.0 / (np.maximum(np.outer(inputs, outputs), 0.0) + prior)  # [d + 1, n]
    return layer._replace(variance=lambda x: np.square(_with_constant(x) @ V) @ variances @ np.square(U).T)


def _with_constant(x: Array) -> Array:
    return np.column_stack([x, np.ones(len(x))]).astype(np.float64)


def nearest_neighbors(data: Training) -> Classifier:
    """Nearest neighbors by cosine, their number chosen by leave-one-out; one more neighbor is of every class alike."""
    begun = clocks()
    ks = [k for k in NEIGHBORS if k < len(data.x)]
    search = NearestNeighbors(n_neighbors=max(ks), metric="cosine").fit(data.x)
    labels = np.eye(data.num_classes)[data.y]

    def probabilities(neighbors: Array, k: int) -> Array:
        return (labels[neighbors[:, :k]].sum(axis=1) + 1.0 / data.num_classes) / (k + 1)

    left_out = search.kneighbors(return_distance=False)
    nll = {k: ds.evaluation.negative_log_likelihood(data.y, probabilities(left_out, k)) for k in ks}
    k = min(nll, key=nll.__getitem__)
    return Classifier(
        lambda x: probabilities(search.kneighbors(x, return_distance=False), k), Seconds.since(begun), f"k = {k}"
    )


def features_classifier(num_features: int, num_classes: int, seed: int = 0) -> ds.SimplexClassifier:
    """The default classifier of this package on features, compiled."""
    model = ds.SimplexClassifier(keras.Sequential([keras.Input((num_features,))]), num_classes=num_classes, seed=seed)
    model.compile()
    return model


def deepsimplex(data: Training) -> Classifier:
    """The default of this package."""
    begun = clocks()
    model = features_classifier(data.x.shape[1], data.num_classes, data.seed)
    model.fit(data.x, data.y, verbose=0)
    return Classifier(lambda x: np.asarray(model.predict_proba(x, batch_size=500)), Seconds.since(begun), "", model)


LOGISTIC, SOFTMAX, OURS = "logistic regression", "softmax", "deepsimplex"
METHODS: dict[str, Callable[[Training], Classifier]] = {
    LOGISTIC: partial(with_temperature, fit=logistic_regression, settings=PENALTIES),
    SOFTMAX: partial(with_temperature, fit=softmax_layer, settings=[0.0]),
    **{
        f"{SOFTMAX}, dropout {rate}": partial(
            with_temperature, fit=partial(softmax_layer, dropout=rate), settings=[0.0]
        )
        for rate in (0.3, 0.5)
    },
    f"{SOFTMAX}, weight decay": partial(with_temperature, fit=softmax_layer, settings=DECAYS),
    "last-layer Laplace": partial(with_temperature, fit=laplace, settings=PRIORS),
    "nearest neighbors": nearest_neighbors,
    OURS: deepsimplex,
}
