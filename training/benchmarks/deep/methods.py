"""The compared methods: how each is trained, and how it predicts."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

import deepsimplex as ds
from training.benchmarks.deep.images import Data, Images, Size
from training.benchmarks.deep.sngp import RandomFeatureGaussianProcess
from training.benchmarks.resources import EpochSeconds

Array = NDArray[Any]
BATCH, RATE, HELD_OUT, DROPOUT_PASSES, SPECTRAL_BOUND = 128, 2e-3, 0.05, 10, 0.95
SHIFT = 1 / 8  # of an image's side: 4 of 32 pixels
AS_THEY_ARE = {"name": "variational", "normalize_features": False}


class Trained(NamedTuple):
    """A trained classifier: class probabilities and features of images, seconds of an epoch, number of weights.

    ``familiarity`` is that of a classifier with a density.
    """

    probabilities: Callable[[Images], Array]
    features: Callable[[Images], Array] | None
    seconds: float
    weights: int
    model: keras.Model
    familiarity: Callable[[Images], Array] | None = None


def backbone(name: str, spectral_bound: float | None = None) -> keras.Model:
    """The backbones of the comparison, by name."""
    if name == "mlp":
        if spectral_bound is not None:
            raise ValueError("the mlp has no convolution to bound: take --backbone cnn or resnet")
        return ds.backbones.mlp([100], activation="sigmoid")
    if name == "cnn":
        return ds.backbones.cnn([32, 64], units=128, dropout=0.3, spectral_bound=spectral_bound)
    if name == "cnn3":
        return ds.backbones.cnn([32, 64, 128], spectral_bound=spectral_bound)
    return ds.backbones.resnet(spectral_bound=spectral_bound)


def augmentation(size: Size, seed: int) -> list[keras.Layer]:
    """Layers before the backbone that mirror and shift images while it is trained, if the size says so."""
    if not size.augmented:
        return []
    return [keras.layers.RandomFlip("horizontal", seed=seed), keras.layers.RandomTranslation(SHIFT, SHIFT, seed=seed)]


def optimizer(rows: int, epochs: int, averaged: float | None = None, rate: float = RATE) -> keras.optimizers.Optimizer:
    """Adam whose rate falls by a cosine to zero; ``averaged``: the momentum of exponentially averaged weights."""
    falling = keras.optimizers.schedules.CosineDecay(rate, -(-rows // BATCH) * epochs)
    return keras.optimizers.Adam(falling, use_ema=averaged is not None, ema_momentum=averaged or 0.99)


def normalized_features(body: keras.Model) -> keras.Model:
    """A backbone whose features pass batch normalization, as they do in the default head of this package."""
    return keras.Sequential([body, keras.layers.BatchNormalization(momentum=0.9)])


def softmax_network(layers: list[keras.Layer], shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """A backbone, and layers before it, with a softmax layer in single precision whatever the backbone's is."""
    softmax = keras.layers.Dense(num_classes, "softmax", dtype="float32")
    return keras.Sequential([keras.Input(shape), *layers, softmax])


def _predicted(model: keras.Model, x: Images) -> Array:
    return np.asarray(model.predict(x, batch_size=500, verbose=0))


def _features(body: keras.Model) -> Callable[[Images], Array]:
    features = keras.Sequential([body])
    return lambda x: _predicted(features, x)


def augmented(layer: keras.Layer | None) -> Callable[[Images, Array], tuple[Array, Array]]:
    """Return a function that augments batches of images and one-hot labels by a layer of Keras."""
    if layer is None:
        return lambda x, y: (x, y)

    @tf.function(reduce_retracing=True)
    def augment(x: Any, y: Any) -> tuple[Any, Any]:
        channels = x if len(x.shape) == 4 else x[..., tf.newaxis]
        augmented = layer({"images": channels, "labels": y}, training=True)
        return tf.reshape(augmented["images"], tf.shape(x)), augmented["labels"]

    return lambda x, y: tuple(part.numpy() for part in augment(x, y))


class Shuffled(keras.utils.PyDataset):
    """Batches in the order that ``SimplexClassifier.fit`` draws from the seed and the step at which an epoch begins."""

    def __init__(self, x: Images, y: Array, seed: int, augment: keras.Layer | None = None) -> None:
        super().__init__()
        self.x, self.y, self.seed, self.step = x, y, seed, 0
        self.augmented = augmented(augment)
        self.on_epoch_begin()

    def __len__(self) -> int:
        return -(-len(self.x) // BATCH)

    def __getitem__(self, index: int) -> tuple[Array, Array]:
        rows = self.order[index * BATCH : (index + 1) * BATCH]
        return self.augmented(self.x[rows], self.y[rows])

    def on_epoch_begin(self) -> None:
        self.order = np.random.default_rng([self.seed, self.step]).permutation(len(self.x))

    def on_epoch_end(self) -> None:
        self.step += len(self)


def plain(
    data: Data,
    size: Size,
    name: str,
    seed: int,
    *,
    loss: Any = "sparse_categorical_crossentropy",
    rate: float = RATE,
    averaged: float | None = None,
    spectral_bound: float | None = None,
    normalized: bool = False,
    share: float = 1.0,
    one_hot: bool = False,
    augment: Callable[..., keras.Layer] | None = None,
) -> Trained:
    """A softmax network; ``share`` of the images, from the start, is trained on.

    ``normalized``: see ``normalized_features``.
    ``augment`` makes a layer, from its seed, that every batch of training passes.
    """
    rows = round(share * len(data.x))
    body = backbone(name, spectral_bound)
    if normalized:
        body = normalized_features(body)
    model = softmax_network([*augmentation(size, seed), body], data.x.shape[1:], data.num_classes)
    labels = np.eye(data.num_classes, dtype="float32")[data.y[:rows]] if one_hot else data.y[:rows]
    model.compile(optimizer(rows, size.epochs, averaged, rate), loss)
    layer = None if augment is None else augment(seed=seed)
    seconds = _fit(model, data.x[:rows], labels, size.epochs, seed, layer)
    return Trained(partial(_predicted, model), _features(body), seconds, model.count_params(), model)


def _fit(
    model: keras.Model, x: Images, labels: Array, epochs: int, seed: int, augment: keras.Layer | None = None
) -> float:
    """Train in the order in which ``SimplexClassifier.fit`` does, and return the median seconds of an epoch."""
    watch = EpochSeconds()
    model.fit(Shuffled(x, labels, seed, augment), epochs=epochs, shuffle=False, verbose=0, callbacks=[watch])
    return float(np.median(watch.seconds))


def temperature(data: Data, size: Size, name: str, seed: int, **options: Any) -> Trained:
    """Cross-entropy on 95% of the images, with options of ``plain``; the temperature is fitted to the others."""
    trained = plain(data, size, name, seed, share=1 - HELD_OUT, **options)
    cut = round((1 - HELD_OUT) * len(data.x))
    scaling = ds.calibration.TemperatureScaling().fit(trained.probabilities(data.x[cut:]), data.y[cut:])
    return trained._replace(probabilities=lambda x: np.asarray(scaling.transform(trained.probabilities(x))))


def with_density(trained: Trained, data: Data) -> Trained:
    """The same classifier after ``fit_density``: less confident where images are unfamiliar."""
    model = trained.model.fit_density(data.x, data.y, batch_size=500)
    return trained._replace(familiarity=lambda x: model.familiarity(x, batch_size=500))


def dropout(trained: Trained, data: Data) -> Trained:
    """The mean over passes with dropout, of a network that has been trained (Gal and Ghahramani, 2016)."""
    *_, body, last = trained.model.layers

    @tf.function
    def one_pass(x: Any) -> Any:
        for layer in body.layers:
            x = layer(x, training=isinstance(layer, keras.layers.Dropout))
        return last(x)

    def probabilities(x: Images) -> Array:
        parts = np.array_split(x, -(-len(x) // 500))
        return np.concatenate([np.mean([one_pass(part) for _ in range(DROPOUT_PASSES)], axis=0) for part in parts])

    return trained._replace(probabilities=probabilities, features=None)


def sngp(data: Data, size: Size, name: str, seed: int, *, spectral_bound: float = SPECTRAL_BOUND) -> Trained:
    """SNGP with a bounded backbone."""
    body, head = backbone(name, spectral_bound), RandomFeatureGaussianProcess(data.num_classes, seed)
    model = keras.Sequential([keras.Input(data.x.shape[1:]), *augmentation(size, seed), body, head])
    model.compile(optimizer(len(data.x), size.epochs), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    seconds, features = _fit(model, data.x, data.y, size.epochs, seed), _features(body)
    head.set_covariance(features(data.x))
    model = keras.Sequential([model, keras.layers.Softmax()])
    return Trained(partial(_predicted, model), features, seconds, model.count_params(), model)


def deepsimplex(
    data: Data,
    size: Size,
    name: str,
    seed: int,
    *,
    loss: Any = None,
    averaged: float | None = None,
    spectral_bound: float | None = None,
    augment: Callable[..., keras.Layer] | None = None,
    **options: Any,
) -> Trained:
    """The classifier of this package; ``options`` are arguments of it that differ from their defaults.

    ``augment``: see ``plain``.
    """
    body = backbone(name, spectral_bound)
    if size.augmented:
        body = keras.Sequential([*augmentation(size, seed), body])
    model = ds.SimplexClassifier(body, num_classes=data.num_classes, seed=seed, **options)
    model.compile(optimizer(len(data.x), size.epochs, averaged), loss)
    watch = EpochSeconds()
    if augment is None:
        model.fit(data.x, data.y, batch_size=BATCH, epochs=size.epochs, verbose=0, callbacks=[watch])
    else:
        batches = Shuffled(data.x, np.eye(data.num_classes, dtype="float32")[data.y], seed, augment(seed=seed))
        model.fit(batches, epochs=size.epochs, shuffle=False, verbose=0, callbacks=[watch])
    seconds = float(np.median(watch.seconds))
    return Trained(
        lambda x: model.predict_proba(x, batch_size=500),
        lambda x: model.predict_features(x, batch_size=500),
        seconds,
        model.count_params(),
        model,
    )


distances = partial(deepsimplex, target="casimac")


class Setting(NamedTuple):
    """Setting of a method that ``training.benchmarks.deep.selection`` chooses from six trials by name."""

    name: str
    trials: dict[str, Callable[..., Trained]]
    chosen: str


def _values(method: Callable[[float], Callable[..., Trained]], *values: float) -> dict[str, Callable[..., Trained]]:
    return {f"{value:g}": method(value) for value in values}


def _smoothed(smoothing: float) -> Callable[..., Trained]:
    return partial(plain, loss=keras.losses.CategoricalCrossentropy(label_smoothing=smoothing), one_hot=True)


def _focal(gamma: float) -> Callable[..., Trained]:
    return partial(plain, loss=keras.losses.CategoricalFocalCrossentropy(alpha=1.0, gamma=gamma), one_hot=True)


def _augmented(layer: Callable[..., keras.Layer], **options: Any) -> Callable[..., Trained]:
    return partial(plain, loss="categorical_crossentropy", one_hot=True, augment=partial(layer, **options))


def _counted(samples: float, mass: float | None = None) -> Callable[..., Trained]:
    head = {"name": "variational", "effective_samples": int(samples)}
    return partial(distances, head=head, loss=ds.losses.Composition(mass))


SETTINGS: dict[str, Setting] = {
    "cross-entropy": Setting(
        "learning rate", _values(lambda rate: partial(plain, rate=rate), 5e-4, 1e-3, 1.5e-3, 2e-3, 3e-3, 4e-3), "0.0015"
    ),
    "label smoothing": Setting("smoothing", _values(_smoothed, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2), "0.005"),
    "focal loss": Setting("gamma", _values(_focal, 0.25, 0.5, 1, 2, 3, 5), "0.25"),
    "averaged weights": Setting(
        "momentum", _values(lambda m: partial(plain, averaged=m), 0.9, 0.95, 0.99, 0.995, 0.998, 0.999), "0.9"
    ),
    "mixup": Setting(
        "alpha", _values(lambda a: _augmented(keras.layers.MixUp, alpha=a), 0.05, 0.1, 0.2, 0.4, 0.8, 1.6), "0.05"
    ),
    "AugMix": Setting(
        "factor",
        _values(lambda f: _augmented(keras.layers.AugMix, value_range=(0, 1), factor=f), 0.05, 0.1, 0.2, 0.3, 0.5, 0.7),
        "0.05",
    ),
    "SNGP": Setting(
        "spectral bound", _values(lambda b: partial(sngp, spectral_bound=b), 0.5, SPECTRAL_BOUND, 1.3, 2, 4, 6), "0.5"
    ),
    "deepsimplex, distances": Setting(
        "effective samples, mass",
        _values(_counted, 150, 300, 600, 1200) | {f"600, mass {mass:g}": _counted(600, mass) for mass in (0.97, 0.995)},
        "600",
    ),
}
"""Settings of the methods: the best trial, of ours the default of the head with distances between images."""

CHOSEN = {name: setting.trials[setting.chosen] for name, setting in SETTINGS.items()}
METHODS: dict[str, Callable[..., Trained]] = {
    "cross-entropy": CHOSEN["cross-entropy"],
    "temperature": partial(temperature, rate=float(SETTINGS["cross-entropy"].chosen)),
    **{name: method for name, method in CHOSEN.items() if name != "deepsimplex, distances"},
    "cross-entropy, spectral bound": partial(plain, spectral_bound=SPECTRAL_BOUND),
    "cross-entropy, normalized features": partial(plain, normalized=True),
    "temperature, normalized features": partial(temperature, normalized=True),
    "temperature, label smoothing": partial(
        temperature, loss=keras.losses.CategoricalCrossentropy(label_smoothing=0.05), one_hot=True
    ),
    "deepsimplex": deepsimplex,
    "deepsimplex, features as they are": partial(deepsimplex, head=AS_THEY_ARE),
    "deepsimplex, distances": distances,
    "deepsimplex, AugMix": partial(
        deepsimplex, augment=partial(keras.layers.AugMix, value_range=(0, 1), factor=float(SETTINGS["AugMix"].chosen))
    ),
    "deepsimplex, distances, spectral bound": partial(distances, spectral_bound=SPECTRAL_BOUND),
    "deepsimplex, distances, averaged weights": partial(distances, averaged=float(SETTINGS["averaged weights"].chosen)),
    "deepsimplex, distances, features as they are": partial(distances, head=AS_THEY_ARE),
    "deepsimplex, distances, Gaussian head": partial(distances, head="gaussian"),
    "deepsimplex, distances, Gaussian head, softmax readout": partial(distances, head="gaussian", readout="softmax"),
    "deepsimplex, cross-entropy on vertices": partial(deepsimplex, loss="sparse_categorical_crossentropy"),
}
BOUNDED = {"cross-entropy, spectral bound", "SNGP", "deepsimplex, distances, spectral bound"}
"""Methods whose backbone has bounded convolutions."""
FOLLOWING: dict[str, dict[str, Callable[[Trained, Data], Trained]]] = {
    "cross-entropy": {"dropout": dropout},
    "deepsimplex": {"deepsimplex, density": with_density},
    "deepsimplex, distances": {"deepsimplex, distances, density": with_density},
}
"""Methods that are made from a trained classifier, by its method."""


def train(
    method: Callable[..., Trained], data: Data, size: Size, backbone: str, seed: int, **options: float
) -> Trained:
    """Train a classifier from a seed, independently of those trained before."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    return method(data, size, backbone, seed, **options)


def run_path(folder: Path, name: str, seed: int) -> Path:
    """The file of a run's measures."""
    return folder / f"{name.replace(', ', '-').replace(' ', '-')}-{seed}.json"
