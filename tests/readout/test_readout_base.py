"""Custom readouts: the base class, and readouts by name."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from deepsimplex.geometry import helmert
from deepsimplex.latent import LatentGaussian
from deepsimplex.readout import READOUTS, ArgmaxReadout, Readout, SoftmaxReadout, class_intervals, softmax
from deepsimplex.readout.layers import readout_layer
from tests.readout.test_argmax import latents

V = helmert(4).T


@keras.saving.register_keras_serializable(package="tests.readout_base")
class PowerReadout(Readout):
    """Softmax of the scores times ``power``."""

    def __init__(self, power=1.0, **kwargs):
        super().__init__(**kwargs)
        self.power = power

    def class_probabilities(self, points):
        return tf.nn.softmax(self.power * self.score(points), axis=-1)

    def get_config(self):
        return {**super().get_config(), "power": self.power}


@keras.saving.register_keras_serializable(package="tests.readout_base")
class MeanReadout(Readout):
    """Softmax of the mean, which has no probabilities at latent points."""

    def call(self, latent, training=None):
        return tf.nn.softmax(self.score(latent["loc"]), axis=-1)


class NearestReadout(Readout):
    """One-hot of the class whose score of the mean is highest."""

    def call(self, latent, training=None):
        scores = self.score(latent["loc"])
        return tf.one_hot(tf.argmax(scores, axis=1), scores.shape[1])


class PlainLayer(keras.layers.Layer):
    def call(self, latent):
        return tf.nn.softmax(latent["loc"])


@pytest.mark.parametrize("kind", ["isotropic", "diagonal", "full"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_custom_readout_needs_class_probabilities_only(kind, dtype):
    latent = latents(5, 3, kind, dtype=dtype)
    ours, expected = PowerReadout(scores=V), SoftmaxReadout(V)
    tensors = {name: tf.constant(part) for name, part in latent.as_dict().items()}
    p = ours(tensors)
    assert p.dtype.name == dtype
    np.testing.assert_allclose(p, expected(tensors), atol=5e-3)
    np.testing.assert_allclose(p, softmax(latent, V, method="quasi_monte_carlo"), atol=1e-5)
    np.testing.assert_allclose(ours.log_probabilities(tensors), np.log(p), atol=1e-5)
    np.testing.assert_array_equal(ours.predict(latent), p)
    np.testing.assert_allclose(ours.predict(latent, log=True), np.log(p), atol=1e-5)
    np.testing.assert_allclose(ours.intervals(latent, 0.9), expected.intervals(latent, 0.9), atol=1e-6)
    np.testing.assert_array_equal(class_intervals(latent, 0.9, V, PowerReadout()), ours.intervals(latent, 0.9))
    coarse = ours(tensors, training=True)
    assert 1e-5 < np.abs(coarse - p).max() < 0.05


def test_custom_readout_in_a_model(tmp_path):
    inputs = {"loc": keras.Input((3,), name="loc"), "scale": keras.Input((1,), name="scale")}
    layer = PowerReadout(power=2.0, num_points=64, seed=3).with_scores(V)
    model = keras.Model(inputs, layer(inputs))
    assert model.output.shape == (None, 4)
    latent = latents(5, 3, "isotropic", dtype="float32").as_dict()
    expected = model.predict(latent, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.predict(latent, verbose=0), expected)
    with tf.GradientTape() as tape:
        loc = tf.constant(latent["loc"])
        tape.watch(loc)
        log_p = layer.log_probabilities({"loc": loc, "scale": latent["scale"]})[:, 0]
    assert np.abs(tape.gradient(log_p, loc)).min() > 0


def test_readout_attributes_and_their_defaults():
    ours, mean, argmax, softmax = PowerReadout(), MeanReadout(), ArgmaxReadout(), SoftmaxReadout()
    assert [layer.credible_intervals for layer in (ours, mean, argmax, softmax)] == [True, False, False, True]
    assert [layer.scale_invariant for layer in (ours, mean, argmax, softmax)] == [False, False, True, False]
    assert all(layer.differentiable for layer in (ours, mean, argmax, softmax))
    assert not ArgmaxReadout(method="monte_carlo").differentiable
    points = tf.constant(np.random.default_rng(0).normal(size=(2, 5, 3)))
    p = argmax.class_probabilities(points)
    np.testing.assert_array_equal(p.numpy().argmax(axis=-1), softmax.class_probabilities(points).numpy().argmax(-1))
    latent = LatentGaussian(np.zeros((2, 3)), np.ones((2, 1)))
    np.testing.assert_allclose(mean.predict(latent), 0.25)
    with pytest.raises(NotImplementedError, match=r"MeanReadout must define class_probabilities\(points\)"):
        mean.intervals(latent)


def test_readouts_by_name_keep_given_scores():
    name = f"{__name__}:PowerReadout"
    assert READOUTS.name_of(PowerReadout()) == name
    assert READOUTS.get({"name": name, "power": 3.0}).power == 3.0
    assert readout_layer(name, V).scores.shape == V.shape
    given = SoftmaxReadout(V)
    assert readout_layer(given, np.eye(4)) is given
    other = readout_layer(PowerReadout(power=0.5, seed=2), V)
    assert (other.power, other.seed, other.scores.shape) == (0.5, 2, V.shape)
    with pytest.raises(ValueError, match=r"readout must.*did you mean 'softmax'"):
        readout_layer("softmx")


def test_zero_probabilities_have_finite_logarithms():
    latent = {"loc": tf.eye(3), "scale": tf.ones((3, 1))}
    logarithms = NearestReadout(scores=np.eye(3)).log_probabilities(latent)
    assert np.isfinite(logarithms).all()
    np.testing.assert_array_equal(np.diag(logarithms), 0)


@pytest.mark.parametrize(
    "use", [readout_layer, lambda layer: class_intervals(latents(2, 2, "isotropic"), readout=layer)]
)
def test_other_layers_are_not_readouts(use):
    with pytest.raises(TypeError, match=r"readout must.*found <PlainLayer"):
        use(PlainLayer())
