"""Batches and labels of unusual form: each is used as Keras would, or raises an error that names the argument."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import deepsimplex as ds
import deepsimplex.samples.samples
from deepsimplex.samples import Samples

X, Y = np.random.default_rng(0).normal(size=(60, 4)).astype("float32"), np.arange(60) % 3


def batches(*columns):
    for first in range(0, len(X), 20):
        yield tuple(column[first : first + 20] for column in columns)


def make(target="vertices", loss=None):
    model = ds.SimplexClassifier(ds.backbones.mlp([8]), target, num_classes=3, head="gaussian")
    model.compile("sgd", loss, run_eagerly=True)
    return model


def test_invalid_batch_size_leaves_what_was_fitted():
    model = make()
    model.fit(X, Y, verbose=0)
    model.fit_density(X, Y)
    with pytest.raises(ValueError, match=r"batch_size must.*found 0"):
        model.fit(X, Y, batch_size=0)
    assert model.density is not None


def test_latents_may_be_tensors():
    latents = ds.targets.Vertices().fit_transform(None, Y, 3)
    tensors = ds.LatentGaussian(tf.constant(latents.loc), tf.ones((60, 1), tf.float64))
    history = make(loss=ds.losses.LatentNLL()).fit(X, tensors, verbose=0).history
    assert np.isfinite(history["loss"][0])


@pytest.mark.parametrize(
    "call",
    [
        lambda model: model.fit(batches(X), steps_per_epoch=3),
        lambda model: model.evaluate(batches(X)),
        lambda model: model.calibrate(batches(X)),
        lambda model: model.fit_density(batches(X)),
    ],
    ids=["fit", "evaluate", "calibrate", "fit_density"],
)
@pytest.mark.parametrize("target", ["vertices", "casimac"])
def test_stream_without_labels_raises(target, call):
    with pytest.raises(ValueError, match=r"generator must yield \(x, label\)"):
        call(make(target))


def test_batches_of_four_parts_raise():
    weights = np.ones(60)
    with pytest.raises(ValueError, match=r"batch must be.*found 4 parts"):
        make().fit(batches(X, Y, weights, weights), steps_per_epoch=3)


@pytest.mark.parametrize("method", ["train_on_batch", "test_on_batch"])
def test_one_batch_is_no_stream(method):
    stream = tf.data.Dataset.from_tensor_slices((X, Y)).batch(20)
    with pytest.raises(ValueError, match=r"x must be an array.*found \w*Dataset"):
        getattr(make(), method)(stream)


def test_explain_of_stream_raises():
    model = ds.SimplexClassifier(ds.backbones.mlp([8]), "vertices", num_classes=3, head="prototypes")
    with pytest.raises(ValueError, match=r"x must be an array.*found \w*Dataset"):
        model.explain(tf.data.Dataset.from_tensor_slices(X).batch(20))


def test_error_without_message_names_its_type():
    def failing():
        yield X[:20], Y[:20]
        raise ValueError

    with pytest.raises(ValueError, match=r"ValueError \(in batch 1 of the generator x\)"):
        make("casimac").fit(failing())


def test_class_weights_of_soft_labels_are_in_precision_of_layers():
    dtypes = []

    class Recording(ds.losses.LatentNLL):
        def compute(self, labels, outputs, sample_weight):
            dtypes.append(sample_weight.dtype)
            return super().compute(labels, outputs, sample_weight)

    stream = tf.data.Dataset.from_tensor_slices((X, np.eye(3, dtype="float32")[Y])).batch(20)
    make(loss=Recording()).fit(stream, class_weight={1: 2.0}, verbose=0)
    assert set(dtypes) == {tf.as_dtype(keras.config.floatx())}


def test_unfitted_calibration_raises():
    with pytest.raises(ValueError, match="TemperatureScaling"):
        ds.calibration.TemperatureScaling().apply_probabilities(np.eye(3))


def test_blocks_count_the_rows_of_a_batch_once(monkeypatch):
    """Thousands of small batches make one block: counting those held again with each would take quadratic time."""
    counts = []
    num_rows = deepsimplex.samples.samples.num_rows
    monkeypatch.setattr(deepsimplex.samples.samples, "num_rows", lambda *a: counts.append(a) or num_rows(*a))
    stream = Samples.of(tf.data.Dataset.from_tensor_slices((np.zeros((400, 4)), np.zeros(400, int))).batch(4))
    assert [len(x) for x, _ in stream.blocks()] == [400]
    assert len(counts) < 6 * 100
