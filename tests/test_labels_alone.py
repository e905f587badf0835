"""The default target takes labels alone: streams and soft labels train as with softmax, and the mass is that of e."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.neighbors import KNeighborsClassifier

import deepsimplex as ds
from deepsimplex.classifier.given_features import augments
from deepsimplex.heads.features import feature_neighbor_error
from deepsimplex.losses.composition import default_mass
from deepsimplex.samples import Samples
from deepsimplex.samples.columns import row_keys

SHAPE = (6, 6)


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    x = rng.normal(size=(90, *SHAPE)) + 0.3 * y[:, None, None]
    return x.astype("float32"), y


def make(backbone=None, target=None, loss=None, **options):
    keras.utils.set_random_seed(0)
    model = ds.SimplexClassifier(backbone or ds.backbones.mlp([8]), target, 3, **options)
    model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"], run_eagerly=True)
    return model


def tau_of_error(error, n=3):
    vertices = ds.geometry.vertices(n)
    mass = default_mass(vertices, np.arange(n), vertices, error**1.5)
    return ds.losses.composition_tau(vertices, np.arange(n), vertices, mass)


def batched(x, y, size=45):
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(size)


def in_batches(x, y):
    while True:
        yield from batched(x, y).as_numpy_iterator()


def test_default_target_and_loss_need_no_samples():
    model = make()
    assert isinstance(model.target, ds.targets.Vertices)
    assert isinstance(model.training_loss, ds.losses.Composition)
    assert not model.target.needs_samples


@pytest.mark.parametrize("features", [1, 4])
def test_error_of_features_equals_scikit_learn(features):
    rng = np.random.default_rng(features)
    x, y = rng.normal(size=(50, features)), rng.integers(3, size=50)
    neighbors = KNeighborsClassifier(1).fit(x, y).kneighbors(return_distance=False)[:, 0]
    assert feature_neighbor_error(Samples.of(x, y), None, np.asarray) == pytest.approx(np.mean(y[neighbors] != y))


def test_error_counts_ties_by_their_shares():
    x, y = np.array([[0.0], [0.0], [0.0], [9.0]]), np.array([0, 0, 1, 1])
    error = feature_neighbor_error(Samples.of(x, y), None, np.asarray)
    assert error == pytest.approx((0.5 + 0.5 + 1 + 2 / 3) / 4)
    assert feature_neighbor_error(Samples.of(x[:1], y[:1]), None, np.asarray) == 0.0


@pytest.mark.parametrize(
    ("kind", "head"),
    [
        *(("arrays", head) for head in ("variational", "gaussian", "prototypes")),
        *((kind, "gaussian") for kind in ("tf.data", "endless", "generator", "soft", "soft tf.data")),
    ],
)
def test_mass_follows_error_of_untrained_features(kind, head, images):
    x, y = images
    soft = (np.eye(3)[y] * 0.7 + 0.1).astype("float32")
    dropped = keras.Sequential(
        [ds.backbones.mlp([8]), keras.layers.Dropout(0.5)]
    )  # which the error is computed without
    model = make(dropped, head={"name": head, **({"prototypes_per_class": 1} if head == "prototypes" else {})})
    model.build((None, *SHAPE))
    error = feature_neighbor_error(Samples.of(x, y), dropped, np.asarray)
    data = {
        "arrays": (x, y),
        "soft": (x, soft),
        "tf.data": (batched(x, y),),
        "soft tf.data": (batched(x, soft),),
        "endless": (batched(x, y).repeat(),),
        "generator": (in_batches(x, y),),
    }[kind]
    steps = 2 if kind in ("endless", "generator") else None
    batch = {} if steps or len(data) == 1 else {"batch_size": 45}
    model.fit(*data, epochs=1, steps_per_epoch=steps, verbose=0, **batch)
    assert 0.2 < error < 0.8
    assert model.training_loss.tau == pytest.approx(tau_of_error(error), rel=1e-9)


def test_mass_stays_as_features_are_trained(images):
    model = make()
    model.fit(*images, verbose=0)
    tau = model.training_loss.tau
    model.compile("sgd", run_eagerly=True)
    model.fit(*images, verbose=0)
    assert model.training_loss.tau == pytest.approx(tau, rel=1e-6)


def test_given_mass_needs_no_features(images, monkeypatch):
    monkeypatch.setattr("deepsimplex.heads.features.squared_distances", None)
    model = make(loss=ds.losses.Composition(0.9), head="gaussian")
    model.fit(*images, verbose=0)
    vertices = ds.geometry.vertices(3)
    assert model.training_loss.tau == pytest.approx(ds.losses.composition_tau(vertices, range(3), vertices, 0.9))


@pytest.mark.parametrize("is_endless", [True, False])
def test_every_epoch_sees_new_augmentations(is_endless, images):
    rng, seen = np.random.default_rng(0), []

    class Recorded(keras.layers.Layer):
        def call(self, x, training=False):
            if training:
                seen.append(float(tf.reduce_sum(x)))
            return x

    def noise(x, y):
        drawn = tf.numpy_function(lambda: rng.normal(), [], tf.float64)
        return x + tf.cast(tf.ensure_shape(drawn, []), tf.float32), y

    stream, steps = batched(*images, size=30).map(noise), 3 if is_endless else None
    model = make(keras.Sequential([Recorded(), keras.layers.Flatten()]), "vertices", head="gaussian")
    model.fit(stream.repeat() if is_endless else stream, epochs=3, steps_per_epoch=steps, verbose=0)
    assert len(set(seen)) == len(seen) == 9


def test_batches_of_images_of_several_sizes_train():
    rng = np.random.default_rng(0)
    batches = [(rng.random((4, side, side, 3)).astype("float32"), np.array([0, 1, 2, 0])) for side in (8, 12)]

    def generate():
        while True:
            yield from batches

    convolution = [keras.Input((None, None, 3)), keras.layers.Conv2D(4, 3), keras.layers.GlobalAveragePooling2D()]
    model = make(keras.Sequential(convolution))
    history = model.fit(generate(), epochs=2, steps_per_epoch=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all()


def test_features_that_are_not_finite_raise(images):
    model = make(keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(2), keras.layers.Rescaling(np.nan)]))
    with pytest.raises(ValueError, match="finite features; found NaN"):
        model.fit(*images, verbose=0)


def test_labels_out_of_range_raise(images):
    with pytest.raises(ValueError, match="found 3"):
        make().fit(images[0], images[1] + 1, verbose=0)


class Augmented(keras.utils.PyDataset):
    """Batches that add noise to the images as they are read, as augmentation does."""

    def __init__(self, x, y, noise):
        super().__init__()
        self.x, self.y, self.noise, self.rng = x, y, noise, np.random.default_rng(0)

    def __len__(self):
        return 2

    def __getitem__(self, index):
        rows = slice(45 * index, 45 * (index + 1))
        x = self.x[rows]
        return x + self.noise * self.rng.normal(size=x.shape).astype("float32"), self.y[rows]


@pytest.mark.parametrize(
    ("kind", "is_augmented"),
    [
        ("backbone", True),
        ("map", True),
        ("PyDataset", True),
        ("shuffled", False),
        ("PyDataset as it is", False),
    ],
)
def test_labels_are_as_they_are_with_augmentation(kind, is_augmented, images):
    x, y = images
    shuffled = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(90).batch(45)
    noisy = shuffled.map(lambda x, y: (x + tf.random.normal(tf.shape(x)), y))
    backbone = None
    if kind == "backbone":
        layers = [keras.layers.Reshape((*SHAPE, 1)), keras.layers.RandomFlip(seed=1), keras.layers.Flatten()]
        backbone = keras.Sequential([keras.Input(SHAPE), *layers, keras.layers.Dense(8, "relu")])
    data = {
        "backbone": (x, y),
        "map": (noisy,),
        "PyDataset": (Augmented(x, y, 0.1),),
        "shuffled": (shuffled,),
        "PyDataset as it is": (Augmented(x, y, 0.0),),
    }[kind]
    model = make(backbone)
    model.fit(*data, verbose=0)
    vertices = ds.geometry.vertices(3)
    tau = ds.losses.composition_tau(vertices, range(3), vertices, 0.999)
    assert (model.training_loss.tau == pytest.approx(tau, rel=1e-6)) == is_augmented


def test_random_layers_behind_weights_do_not_augment():
    def augment(*layers):
        network = keras.Sequential([keras.Input((8, 8, 1)), *layers])
        return augments(network)

    flip, convolution, dropout = keras.layers.RandomFlip(), keras.layers.Conv2D(2, 3), keras.layers.Dropout(0.5)
    assert augment(keras.layers.Rescaling(1 / 255), flip, convolution, dropout)
    assert augment(
        keras.layers.Normalization(), keras.Sequential([flip, keras.layers.RandomContrast(0.1)]), convolution
    )
    assert not augment(convolution, dropout)
    assert not augment(keras.Sequential([convolution]), flip)
    assert not augment(keras.layers.Flatten())


def test_comparison_of_epochs_leaves_a_stream_whole(images):
    x, y = images
    stream = Samples.of(Augmented(x, y, 0.0))
    assert stream.recur(set(row_keys(x[:50])))
    assert not stream.recur(set(row_keys(x[:50] + 1.0)))
    assert sum(len(batch[1]) for batch in stream.read()) == 90
    assert Samples.of(in_batches(x, y)).recur(set(row_keys(x + 1.0)))  # cannot be read again


def test_error_of_rows_of_several_lengths_in_a_stream():
    rows = tf.ragged.constant([[1.0], [2.0, 3.0], [1.0, 0.5]])
    stream = Samples.of(tf.data.Dataset.from_tensor_slices((rows, [0, 1, 1])).batch(3))
    assert feature_neighbor_error(stream, lambda x, training: x.to_tensor(), np.asarray) > 0
