"""Moments by which the head normalizes features: those of training samples as every epoch ends."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import deepsimplex as ds
from deepsimplex.heads.features import FeatureMoments


class Compared(keras.callbacks.Callback):
    """Compare the moments at the end of every epoch with those of all training samples."""

    def __init__(self, x):
        super().__init__()
        self.x, self.differences = x, []

    def on_epoch_end(self, epoch, logs=None):
        features = np.asarray(self.model.backbone(self.x))
        normalization = self.model.head.normalization
        shift = (features.mean(axis=0) - normalization.moving_mean) / features.std(axis=0)
        ratio = normalization.moving_variance / features.var(axis=0)
        self.differences.append([np.abs(shift).max(), np.abs(ratio - 1).max()])


def made(**options):
    keras.utils.set_random_seed(0)
    backbone = keras.Sequential([keras.Input((8, 8)), keras.layers.Flatten(), keras.layers.Dense(16, "tanh")])
    model = ds.SimplexClassifier(backbone, num_classes=10, **options)
    model.compile(keras.optimizers.Adam(0.05))
    return model


@pytest.fixture(scope="module")
def digits():
    (x, y), (x_test, y_test) = ds.datasets.load("digits")
    return x[:400], y[:400], x_test, y_test


@pytest.mark.parametrize("kind", ["arrays", "stream", "list of callbacks"])
def test_moments_are_those_of_training_samples_as_epochs_end(kind, digits):
    x, y, *_ = digits
    model, compared = made(), Compared(x)
    callbacks = [compared]
    if kind == "list of callbacks":
        callbacks = keras.callbacks.CallbackList(callbacks, model=model, epochs=2)
    if kind == "stream":
        model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(100), epochs=2, verbose=0, callbacks=callbacks)
    else:
        model.fit(x, y, batch_size=100, epochs=2, verbose=0, callbacks=callbacks)
    assert len(compared.differences) == 2
    assert np.max(compared.differences) < 1e-4

    model.train_on_batch(x[:100], y[:100])
    compared.on_epoch_end(2)
    assert compared.differences[-1][0] > 0.1  # moving averages lag


@pytest.mark.parametrize("wrapped", [lambda optimizer: optimizer, keras.optimizers.LossScaleOptimizer])
def test_moments_are_those_of_averaged_weights(wrapped, digits):
    x, y, *_ = digits
    model, compared = made(), Compared(x)
    model.compile(wrapped(keras.optimizers.Adam(0.05, use_ema=True, ema_momentum=0.9)))
    model.fit(x, y, batch_size=100, epochs=2, verbose=0)
    compared.set_model(model)
    compared.on_epoch_end(2)
    assert np.max(compared.differences) < 1e-4


def test_validation_is_that_of_the_network_as_it_is_saved(digits):
    x, y, *held_out = digits
    model = made()
    history = model.fit(x, y, batch_size=100, epochs=2, verbose=0, validation_data=tuple(held_out))
    np.testing.assert_allclose(model.evaluate(*held_out, verbose=0), history.history["val_loss"][-1], rtol=1e-6)


def test_training_does_not_depend_on_moments(digits, monkeypatch):
    x, y, *_ = digits
    weights = []
    for _ in range(2):
        model = made()
        model.fit(x, y, epochs=2, verbose=0)
        weights.append([np.asarray(weight) for weight in model.trainable_weights])
        monkeypatch.setattr(FeatureMoments, "_features", lambda _: {})
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_streams_of_images_of_several_sizes_keep_their_moving_averages():
    images = [np.ones((2, size, size, 1), "float32") for size in (4, 4, 6, 6)]
    stream = tf.data.Dataset.from_generator(
        lambda: ((x, np.array([0, 1])) for x in images),
        output_signature=(tf.TensorSpec((None, None, None, 1)), tf.TensorSpec((None,), tf.int64)),
    )
    stream = stream.apply(tf.data.experimental.assert_cardinality(4))
    layers = [keras.Input((None, None, 1)), keras.layers.Conv2D(4, 3), keras.layers.GlobalAveragePooling2D()]
    model = ds.SimplexClassifier(keras.Sequential(layers), num_classes=2)
    model.compile()
    model.fit(stream, epochs=1, verbose=0)
    assert model._kept_rows is None
