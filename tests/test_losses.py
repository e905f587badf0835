"""Losses of (observation, latent) against scipy's densities."""

import keras
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

import deepsimplex as ds
from deepsimplex.latent import LatentGaussian
from deepsimplex.losses import Composition, Hybrid, LatentNLL, get_loss
from deepsimplex.losses.readout_losses import CrossEntropy, ProbabilityLoss

N, L = 6, 4
RNG = np.random.default_rng(2)
OBSERVED = RNG.normal(size=(N, L)).astype("float32")
LOC = RNG.normal(size=(N, L)).astype("float32")
SCALES = {
    "isotropic": RNG.uniform(0.2, 2.0, size=(N, 1)).astype("float32"),
    "diagonal": RNG.uniform(0.2, 2.0, size=(N, L)).astype("float32"),
    "full": (np.tril(RNG.normal(size=(N, L, L)), -1) + 0.7 * np.eye(L)).astype("float32"),
}
NOISES = {
    "none": np.zeros((N, 1), "float32"),
    "isotropic": np.full((N, 1), 0.3, "float32"),
    "diagonal": RNG.uniform(0.1, 1.0, size=(N, L)).astype("float32"),
}


def covariance(scale: np.ndarray, noise: np.ndarray) -> np.ndarray:
    full = scale.astype(float) if scale.ndim == 3 else np.eye(L) * np.broadcast_to(scale, (N, L))[:, None, :]
    return full @ np.swapaxes(full, 1, 2) + np.eye(L) * np.square(np.broadcast_to(noise, (N, L)))[:, None, :]


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("scale", SCALES)
def test_latent_nll_is_negative_log_density(scale, noise):
    loss = LatentNLL(reduction=None)({"loc": OBSERVED, "scale": NOISES[noise]}, {"loc": LOC, "scale": SCALES[scale]})
    expected = [
        -scipy.stats.multivariate_normal.logpdf(*arguments)
        for arguments in zip(OBSERVED, LOC, covariance(SCALES[scale], NOISES[noise]), strict=True)
    ]
    np.testing.assert_allclose(loss, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_narrow_full_covariance_is_accurate_in_float32(noise):
    """L L^T would square the condition: its Cholesky factor in float32 is wrong by far, or NaN."""
    factor = np.array([[5, 0, 0], [5, 1e-3, 0], [3, 2, 1e-3]])
    total = factor @ factor.T + noise**2 * np.eye(3)
    whitened = np.linalg.solve(np.linalg.cholesky(total) if noise else factor, np.full(3, 0.002))
    expected = 0.5 * (whitened @ whitened + np.linalg.slogdet(total)[1] + 3 * np.log(2 * np.pi))
    observation = {"loc": np.full((1, 3), 0.002, "float32"), "scale": np.full((1, 1), noise, "float32")}
    scale = tf.Variable(factor[None].astype("float32"))
    with tf.GradientTape() as tape:
        loss = LatentNLL()(observation, {"loc": np.zeros((1, 3), "float32"), "scale": scale})
    np.testing.assert_allclose(loss, expected, rtol=5e-3)
    assert np.isfinite(tape.gradient(loss, scale)).all()


@pytest.mark.parametrize("scale", ["isotropic", "diagonal"])
def test_beta_scales_mean_gradient_by_power_of_variance(scale):
    loc = tf.Variable(LOC)

    def gradient(beta):
        with tf.GradientTape() as tape:
            loss = LatentNLL(beta)({"loc": OBSERVED, "scale": NOISES["none"]}, {"loc": loc, "scale": SCALES[scale]})
        return tape.gradient(loss, loc).numpy()

    np.testing.assert_allclose(gradient(0.5), gradient(0.0) * SCALES[scale], rtol=1e-4)
    # beta = 1: the gradient of half the squared error, whatever the variance.
    np.testing.assert_allclose(gradient(1.0), (LOC - OBSERVED) / N, rtol=1e-4)


def test_beta_weight_has_no_gradient():
    scale = tf.Variable(SCALES["diagonal"])
    with tf.GradientTape() as tape:
        loss = LatentNLL(1.0)({"loc": OBSERVED, "scale": NOISES["none"]}, {"loc": LOC, "scale": scale})
    gradient = tape.gradient(loss, scale).numpy()
    s = SCALES["diagonal"]
    np.testing.assert_allclose(gradient, s**2 * (1 / s - (OBSERVED - LOC) ** 2 / s**3) / N, rtol=1e-3, atol=1e-5)


def test_invalid_beta_raises():
    with pytest.raises(ValueError, match=r"beta must.*found 2"):
        LatentNLL(beta=2)
    observation, latent = {"loc": OBSERVED, "scale": NOISES["none"]}, {"loc": LOC, "scale": SCALES["full"]}
    with pytest.raises(ValueError, match=r"beta must.*found 0\.5"):
        LatentNLL(beta=0.5)(observation, latent)


def test_losses_round_trip_through_their_config():
    loss = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(LatentNLL(beta=0.25)))
    assert isinstance(loss, LatentNLL)
    assert loss.beta == 0.25


@keras.saving.register_keras_serializable(package=__name__)  # the module is imported by its name, too
class SquaredError(ds.losses.LatentLoss):
    def call(self, observation, latent):
        return tf.reduce_sum(tf.square(observation["loc"] - latent["loc"]), axis=-1)


def test_custom_latent_loss():
    loss = SquaredError()
    twin = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert isinstance(twin, SquaredError)
    observation = LatentGaussian(OBSERVED, NOISES["none"]).as_dict()
    latent = LatentGaussian(LOC, SCALES["diagonal"]).as_dict()
    expected = np.mean(np.sum((OBSERVED - LOC) ** 2, axis=1))
    np.testing.assert_allclose([loss(observation, latent), twin.compute(observation, latent)], expected, rtol=1e-5)


@pytest.mark.parametrize("soft", [False, True])
def test_cross_entropy_equals_formula(soft):
    rng = np.random.default_rng(3)
    log_p = np.log(rng.dirichlet(np.ones(L), size=N))
    memberships = rng.dirichlet(np.ones(L), size=N) if soft else np.eye(L)[np.arange(N) % L]
    expected = -np.sum(memberships * log_p, axis=1)
    label = memberships if soft else np.arange(N) % L
    np.testing.assert_allclose(CrossEntropy(reduction=None)(label, log_p), expected, rtol=1e-5)
    weights = np.arange(N, dtype="float32")
    np.testing.assert_allclose(
        CrossEntropy()(label, log_p, sample_weight=weights), np.mean(weights * expected), rtol=1e-5
    )
    np.testing.assert_allclose(CrossEntropy(reduction="sum")(label, log_p), expected.sum(), rtol=1e-5)
    if not soft:
        for form in (label[:, None], memberships):
            np.testing.assert_allclose(CrossEntropy(reduction=None)(form, log_p), expected, rtol=1e-5)


def test_cross_entropy_of_a_certain_prediction_is_zero():
    log_p = tf.Variable([[0.0, -np.inf]])
    for label in (np.array([0]), np.array([[1.0, 0.0]])):
        with tf.GradientTape() as tape:
            loss = CrossEntropy()(label, log_p)
        assert float(loss) == 0.0
        assert np.isfinite(tf.convert_to_tensor(tape.gradient(loss, log_p))).all()


def test_cross_entropy_round_trips_through_its_config():
    loss = CrossEntropy(reduction="sum", name="through_the_readout")
    twin = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert isinstance(twin, CrossEntropy)
    assert (twin.reduction, twin.name) == ("sum", "through_the_readout")


def both_forms(loss, labels, p, **options):
    """A loss of Keras on probabilities, and as the classifier computes it from log-probabilities."""
    kind = type(loss).__name__
    y = labels if kind.startswith("Sparse") else np.eye(L)[labels]
    expected = loss(y, p.astype("float32"), **options)
    outputs = {"log_probabilities": tf.constant(np.log(p), tf.float32)}
    return expected, ProbabilityLoss(loss, L).compute({"label": tf.constant(labels)}, outputs, **options)


@pytest.mark.parametrize(
    "loss",
    [
        keras.losses.SparseCategoricalCrossentropy(),
        keras.losses.SparseCategoricalCrossentropy(ignore_class=1),
        keras.losses.CategoricalCrossentropy(label_smoothing=0.1, reduction="sum"),
        keras.losses.CategoricalFocalCrossentropy(gamma=1.5),
        keras.losses.CategoricalFocalCrossentropy(alpha=1.0, gamma=0.0, label_smoothing=0.2),
        keras.losses.KLDivergence(),
        keras.losses.MeanSquaredError(),
        keras.losses.CategoricalHinge(),
    ],
    ids=lambda loss: loss.name,
)
def test_keras_losses_agree_with_keras(loss):
    rng = np.random.default_rng(3)
    p, labels = rng.dirichlet(np.ones(L), size=N), np.arange(N) % L
    expected, value = both_forms(loss, labels, p)
    np.testing.assert_allclose(value, expected, rtol=1e-4)
    weighted = both_forms(loss, labels, p, sample_weight=np.arange(N, dtype="float32"))
    np.testing.assert_allclose(*weighted, rtol=1e-4)


@pytest.mark.parametrize("loss", ["categorical_crossentropy", keras.losses.CategoricalFocalCrossentropy()])
def test_cross_entropies_are_accurate_if_probabilities_underflow(loss):
    log_p = tf.Variable([[-1000.0, 0.0]])
    with tf.GradientTape() as tape:
        value = ProbabilityLoss(get_loss(loss), 2).compute({"label": tf.constant([0])}, {"log_probabilities": log_p})
    assert float(value) == pytest.approx(1000.0 * getattr(loss, "alpha", 1.0))
    assert float(tape.gradient(value, log_p)[0, 0]) == pytest.approx(-getattr(loss, "alpha", 1.0))


@pytest.mark.parametrize(
    ("identifier", "kind"),
    [
        ("sparse_categorical_crossentropy", keras.losses.SparseCategoricalCrossentropy),
        (keras.losses.categorical_crossentropy, keras.losses.CategoricalCrossentropy),
        ({"name": "categorical_focal_crossentropy", "gamma": 3.0}, keras.losses.CategoricalFocalCrossentropy),
        ("mse", keras.losses.MeanSquaredError),
        ("crossentropy", keras.losses.CategoricalCrossentropy),
        ("hybrid", Hybrid),
        ({"name": "composition", "mass": 0.9}, Composition),
        ({"name": "latent_nll", "beta": 0.5}, LatentNLL),
        ({"name": "tests.test_losses:SquaredError"}, ds.losses.LatentLoss),
    ],
)
def test_losses_by_name_and_configuration(identifier, kind):
    loss = get_loss(identifier)
    assert isinstance(loss, kind)
    for key, value in identifier.items() if isinstance(identifier, dict) else ():
        assert key == "name" or getattr(loss, key) == value
    again = get_loss(keras.saving.serialize_keras_object(loss))
    assert again.get_config() == loss.get_config()


def test_function_as_loss_receives_labels_and_probabilities():
    labels, p = tf.constant([0, 1]), tf.constant([[0.5, 0.5], [0.2, 0.8]])
    loss = ProbabilityLoss(lambda y, p: 1.0 - tf.gather(p, y, batch_dims=1), 2)
    value = loss.compute({"label": labels}, {"log_probabilities": tf.math.log(p)}, tf.constant([1.0, 2.0]))
    assert float(value) == pytest.approx((0.5 + 2 * 0.2) / 2)


@pytest.mark.parametrize(
    ("identifier", "message"),
    [
        ("sparse_crossentropy", r"loss must.*found 'sparse_crossentropy'"),
        ("hybird", "did you mean 'hybrid'"),
        (["mse"], r"loss must.*found \['mse'\]"),
        (3, r"loss must.*found 3"),
        (keras.losses.CategoricalCrossentropy(from_logits=True), "not of logits"),
    ],
)
def test_invalid_loss_raises(identifier, message):
    with pytest.raises((TypeError, ValueError), match=message):
        ProbabilityLoss(get_loss(identifier), 2)
