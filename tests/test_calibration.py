"""Post-hoc calibration: against fine grids, scikit-learn, and known results for simulated samples."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, log_softmax, logit, ndtr, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

import deepsimplex as ds
from deepsimplex.calibration import (
    AutomaticCalibration,
    BiasCorrectedTemperature,
    IsotonicCalibration,
    LatentScaling,
    MatrixScaling,
    PlattScaling,
    TemperatureScaling,
    VectorScaling,
    VennAbers,
)
from deepsimplex.latent import LatentGaussian

few = settings(max_examples=25, deadline=None)
MAPS = [
    TemperatureScaling,
    BiasCorrectedTemperature,
    VectorScaling,
    MatrixScaling,
    PlattScaling,
    IsotonicCalibration,
    VennAbers,
    AutomaticCalibration,
]
each_map = pytest.mark.parametrize("kind", MAPS)


def simulated(n: int, samples: int, seed: int, temperature: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Labels drawn from softmax(z), and the probabilities softmax(temperature z): calibrated where that is 1."""
    rng = np.random.default_rng(seed)
    z = 2.0 * rng.normal(size=(samples, n))
    y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    return softmax(temperature * z, axis=1), y


def nll_at(p: np.ndarray, y: np.ndarray, temperature: float, weights: np.ndarray | None = None) -> float:
    nll = -log_softmax(np.log(p) / temperature, axis=1)[np.arange(len(y)), y]
    return float(np.average(nll, weights=weights))


@pytest.mark.slow
@given(n=st.integers(2, 8), seed=st.integers(0, 2**32 - 1), hotness=st.floats(0.2, 5.0))
@few
def test_temperature_minimizes_nll_on_fine_grid(n, seed, hotness):
    p, y = simulated(n, 200, seed, hotness)
    weights = np.random.default_rng(seed).uniform(size=200)
    T = TemperatureScaling().fit(p, y, weights).temperature_
    best = nll_at(p, y, T, weights)
    grid = T * np.geomspace(0.2, 5.0, 401)
    values = np.array([nll_at(p, y, temperature, weights) for temperature in grid])
    assert best <= values.min() + 1e-12
    assert np.all(np.diff(values)[grid[:-1] >= T] > 0)
    assert np.all(np.diff(values)[grid[1:] <= T] < 0)


@pytest.mark.parametrize("temperature", [1.0, 0.4, 3.0])
def test_temperature_of_simulated_labels_is_recovered(temperature):
    p, y = simulated(5, 4000, seed=1, temperature=temperature)
    logits = np.log(p) / temperature
    shares = softmax(logits, axis=1)
    # Fisher's information about 1 / T, in units of the true one: the variance of log p under p.
    information = np.sum(np.sum(shares * logits**2, axis=1) - np.sum(shares * logits, axis=1) ** 2)
    fitted = TemperatureScaling().fit(p, y).temperature_
    assert abs(temperature / fitted - 1) < 3 / np.sqrt(information)
    assert 3 / np.sqrt(information) < 0.06


def test_zero_probabilities_count_as_smallest_number():
    p = np.array([[0.9, 0.1, 0.0], [0.8, 0.2, 0.0], [0.0, 0.7, 0.3], [1.0, 0.0, 0.0]], np.float32)
    y = np.array([0, 1, 1, 0])
    scaling = TemperatureScaling().fit(p, y)
    expected = TemperatureScaling().fit(np.where(p == 0, 1e-300, p.astype(float)), y)
    assert scaling.temperature_ == pytest.approx(expected.temperature_, rel=1e-6)
    calibrated = scaling.transform(p)
    np.testing.assert_array_equal(calibrated == 0, p == 0)
    assert calibrated.dtype == np.float32
    np.testing.assert_allclose(calibrated.sum(axis=1), 1, rtol=1e-6)
    # The true class of one more underflowed: finite, and warmer.
    many_p, many_y = np.tile(p, (500, 1)), np.tile(y, 500)
    many_y[-1] = 2
    assert scaling.temperature_ < TemperatureScaling().fit(many_p, many_y).temperature_ < np.inf


@pytest.mark.parametrize("p", [np.full((60, 3), 1 / 3), np.tile([[0.5, 0.5, 0.0]], (60, 1)), [[0.6, 0.4, 0.0]] * 60])
def test_temperature_of_uninformative_probabilities_raises(p):
    """Equal probabilities are ties, not right answers."""
    y = np.arange(60) % 2 if np.max(p) < 0.6 else np.ones(60, int)
    with pytest.raises(ValueError, match="no likelier under their probabilities than by chance"):
        TemperatureScaling().fit(p, y)
    with pytest.raises(ValueError, match="no likelier under their probabilities than by chance"):
        TemperatureScaling().fit(np.asarray(p, np.float32), y)


Y3 = np.arange(150) % 3
RIGHT = {
    "underconfident": 0.3 * np.eye(3)[Y3] + 0.7 / 3,
    "certain": np.eye(3)[Y3],
    "with zeros": np.where(np.eye(3)[Y3], 0.6, np.where(np.eye(3)[(Y3 + 1) % 3], 0.4, 0.0)),
    "ties": np.where(np.eye(3)[(Y3 + 1) % 3], 0.2, 0.4),
}


@pytest.mark.parametrize("p", RIGHT.values(), ids=RIGHT)
def test_temperature_of_right_answers_is_finite_and_warns(p):
    """A class of 50 samples counts as one of 51 more, of any label: a third of it is right."""
    with pytest.warns(UserWarning, match="none of the 150 held-out samples has a class"):
        scaling = TemperatureScaling().fit(p, Y3)
    calibrated = scaling.transform(p)
    np.testing.assert_array_equal(np.argmax(calibrated, axis=1), np.argmax(p, axis=1))
    if p is RIGHT["underconfident"]:
        np.testing.assert_allclose(calibrated[range(150), Y3], (50 + 1 / 3) / 51, rtol=1e-6)
    assert 0 < scaling.temperature_ <= 1


def test_samples_without_weight_do_not_count_as_wrong():
    with pytest.warns(UserWarning, match="none of the 1 held-out samples"):
        TemperatureScaling().fit([[0.6, 0.4], [0.9, 0.1]], [0, 1], sample_weight=[1, 0])


@pytest.mark.slow
def test_temperature_improves_overtrained_network():
    """Cross-entropy on 100 digits until all are learned by heart; 600 others to calibrate with, the rest to judge."""
    (X, Y), _ = ds.datasets.load("digits")
    keras.utils.set_random_seed(0)
    network = keras.Sequential([ds.backbones.mlp([64]), keras.layers.Dense(10, activation="softmax")])
    network.compile(keras.optimizers.Adam(0.03), "sparse_categorical_crossentropy")
    many_times = np.tile(X[:100], (100, 1, 1)), np.tile(Y[:100], 100)  # in batches of all
    network.fit(*many_times, batch_size=100, shuffle=False, verbose=0)
    held_out, p = (np.asarray(network(part)) for part in (X[300:900], X[900:]))
    y = Y[900:]
    calibrated = TemperatureScaling().fit(held_out, Y[300:900]).transform(p)
    nll, ece = ds.evaluation.negative_log_likelihood, ds.evaluation.expected_calibration_error
    assert nll(y, calibrated) < 0.8 * nll(y, p)
    assert ece(y, calibrated) < ece(y, p)


class Stub(ClassifierMixin, BaseEstimator):
    """A fitted classifier that gives its features as decisions."""

    def __init__(self, n):
        self.n = n
        self.classes_ = np.arange(n)

    def fit(self, X, y, sample_weight=None):
        return self

    def decision_function(self, X):
        return X[:, 0] if self.n == 2 else X


def peer(decisions, y, n, method, weights=None):
    rows = np.arange(len(y))
    fitted = FrozenEstimator(Stub(n)) if weights is None else Stub(n)  # a frozen one takes no weights
    calibrated = CalibratedClassifierCV(fitted, method=method, cv=[(rows, rows)], ensemble=True)
    return calibrated.fit(decisions, y, sample_weight=weights).predict_proba(decisions)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [2, 3, 7])
def test_platt_scaling_matches_scikit_learn(n, weighted):
    p, y = simulated(n, 300, seed=2, temperature=2.5)
    weights = np.random.default_rng(0).uniform(0.1, 2, size=300) if weighted else None
    odds = logit(p[:, 1:] if n == 2 else p)
    expected = peer(odds, y, n, "sigmoid", weights)
    platt = PlattScaling().fit(p, y, weights)
    np.testing.assert_allclose(platt.transform(p), expected, atol=2e-5)  # the tolerance of its L-BFGS
    # Its objective is no less than at the optimum of scikit-learn's.
    k = n - 1
    F, t = logit(p[:, k]), y == k
    w = np.ones(300) if weights is None else weights
    target = np.where(t, (w[t].sum() + 1) / (w[t].sum() + 2), 1 / (w[~t].sum() + 2))
    q = expit(platt.slopes_[-1] * F + platt.intercepts_[-1])
    assert abs(np.sum(w * (q - target))) < 1e-6 * len(y)
    assert abs(np.sum(w * (q - target) * F)) < 1e-6 * len(y)


def test_platt_scaling_of_equal_probabilities_gives_the_smoothed_share():
    p = np.full((6, 2), 0.5)
    y = np.array([0, 0, 1, 1, 1, 1])
    target = (4 * 5 / 6 + 2 * 1 / 4) / 6
    np.testing.assert_allclose(PlattScaling().fit(p, y).transform(p)[:, 1], target)


def test_platt_scaling_accepts_zero_and_one():
    p = np.array([[1.0, 0.0], [0.7, 0.3], [0.4, 0.6], [0.0, 1.0], [0.0, 1.0]])
    calibrated = PlattScaling().fit(p, [0, 0, 1, 1, 0]).transform(p)
    assert np.isfinite(np.log(calibrated)).all()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [2, 3, 7])
def test_isotonic_calibration_matches_scikit_learn(n, weighted):
    p, y = simulated(n, 300, seed=3, temperature=2.0)
    weights = np.random.default_rng(0).uniform(0.1, 2, size=300) if weighted else None
    isotonic = IsotonicCalibration().fit(p, y, weights)
    expected = peer(p[:, 1:] if n == 2 else p, y, n, "isotonic", weights)
    np.testing.assert_allclose(isotonic.transform(p), expected, atol=1e-12)
    others = simulated(n, 500, seed=4, temperature=3.0)[0]  # beyond the ends of the curves too
    columns = [
        IsotonicRegression(out_of_bounds="clip").fit(p[:, k], y == k, weights).predict(others[:, k]) for k in range(n)
    ]
    mapped = np.stack(columns, axis=1)
    if n == 2:
        np.testing.assert_allclose(isotonic.transform(others)[:, 1], mapped[:, 1], atol=1e-12)
    else:
        np.testing.assert_allclose(isotonic.transform(others), mapped / mapped.sum(axis=1, keepdims=True), atol=1e-12)


def test_isotonic_row_of_zeros_becomes_uniform():
    p = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.4, 0.3, 0.3]])
    isotonic = IsotonicCalibration().fit(p[:3], [0, 1, 2])
    assert [curve.tolist() for curve in isotonic.outputs_] == [[0.0, 1.0]] * 3
    np.testing.assert_allclose(isotonic.transform([[0.1, 0.1, 0.8], [0.8, 0.1, 0.1]]), [[0, 0, 1], [1, 0, 0]])
    for curve in isotonic.inputs_:
        curve[:] = [0.5, 0.8]
    np.testing.assert_allclose(isotonic.transform(p[3:]), 1 / 3)


@each_map
@pytest.mark.parametrize(("n", "jit_compile"), [(2, False), (4, True)])
def test_graphs_xla_and_half_precision_agree_with_arrays(kind, n, jit_compile):
    p, y = simulated(n, 200, seed=5, temperature=2.0)
    p = p.astype(np.float32)
    calibration = kind().fit(p, y)
    expected = calibration.transform(p)
    assert expected.dtype == np.float32
    np.testing.assert_allclose(expected.sum(axis=1), 1, atol=1e-6)
    signature = [tf.TensorSpec([None, n], tf.float32)]
    graph = tf.function(calibration.transform, jit_compile=jit_compile, input_signature=signature)
    for rows in (p[:7], p):
        np.testing.assert_allclose(graph(rows), expected[: len(rows)], atol=1e-6)
    np.testing.assert_allclose(calibration.transform(p.astype(float)), expected, atol=1e-6)
    assert calibration.transform(tf.cast(p, tf.float16)).dtype == tf.float32


@pytest.mark.parametrize("kind", MAPS[:-1])  # the folds of the last are others
def test_integer_weights_equal_repeated_samples(kind):
    p, y = simulated(3, 150, seed=6, temperature=2.0)
    repeats = np.random.default_rng(7).integers(0, 4, 150)
    weighted = kind().fit(p, y, repeats).transform(p)
    repeated = kind().fit(np.repeat(p, repeats, axis=0), np.repeat(y, repeats)).transform(p)
    np.testing.assert_allclose(weighted, repeated, atol=1e-7)


@each_map
def test_calibration_config_round_trip(kind):
    p, y = simulated(3, 150, seed=8, temperature=2.0)
    fitted = kind().fit(p, y)
    written = json.dumps(keras.saving.serialize_keras_object(fitted))
    again = keras.saving.deserialize_keras_object(json.loads(written))
    assert type(again) is kind
    np.testing.assert_array_equal(again.transform(p), fitted.transform(p))
    assert keras.saving.get_registered_name(kind) == f"deepsimplex>{kind.__name__}"
    assert not kind.from_config(kind().get_config()).is_fitted


@each_map
def test_invalid_input_raises(kind):
    p, y = simulated(3, 60, seed=9)
    with pytest.raises(NotFittedError, match=f"this {kind.__name__} is not fitted; call fit with held-out samples"):
        kind().transform(p)
    for change, message in [
        ({"p": np.log(p)}, "p must not be negative"),
        ({"p": np.where(p == p.max(), np.nan, p)}, "p must be finite"),
        ({"p": p[:0], "y": y[:0]}, r"^p must.*found none"),
        ({"y": y[1:]}, r"^y must.*found shape \(59,\)"),
        ({"y": y + 1}, r"^y must.*found 3 in row 3"),
        ({"sample_weight": np.ones(3)}, r"sample_weight must.*found shape \(3,\)"),
        ({"sample_weight": -np.ones(60)}, "sample_weight must be finite, not negative and not all zero"),
        ({"sample_weight": np.zeros(60)}, "sample_weight must be finite, not negative and not all zero"),
    ]:
        with pytest.raises(ValueError, match=message):
            kind().fit(**{"p": p, "y": y, **change})
    with pytest.raises(ValueError, match="every row of p must sum to 1"):
        kind().fit(p, y).transform(2 * p)


@pytest.mark.parametrize("kind", [BiasCorrectedTemperature, PlattScaling, IsotonicCalibration, VennAbers])
def test_missing_class_raises(kind):
    p, y = simulated(4, 60, seed=10)
    present = y != 2
    message = rf"{kind.__name__} needs held-out samples of every class; found none of \[2\] among {present.sum()}"
    with pytest.raises(ValueError, match=message):
        kind().fit(p[present], y[present])
    with pytest.raises(ValueError, match=message):
        kind().fit(p, y, sample_weight=present)
    with pytest.raises(ValueError, match=r"found none of \[1\] among 1"):
        kind().fit([[0.4, 0.6]], [0])
    with pytest.raises(ValueError, match=r"^p must.*found \(9, 3\)"):
        kind().fit(p, y).transform(np.full((9, 3), 1 / 3))


# Latents


def drawn_latents(n: int, samples: int, seed: int, factor: float, covariance: str) -> tuple[LatentGaussian, np.ndarray]:
    """Labels of latents drawn ``factor`` times as wide as they say."""
    rng = np.random.default_rng(seed)
    loc = rng.normal(size=(samples, n - 1))
    dims = {"isotropic": 1, "diagonal": n - 1}[covariance]
    scale = rng.uniform(0.2, 0.5, size=(samples, dims))
    f = loc + factor * scale * rng.normal(size=loc.shape)
    return LatentGaussian(loc, scale), (f @ ds.geometry.vertices(n).T).argmax(axis=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "covariance", "factor"),
    [(2, "isotropic", 0.5), (4, "isotropic", 2.0), (3, "diagonal", 0.5)],
)
def test_scale_of_simulated_latents_is_recovered(n, covariance, factor):
    latent, y = drawn_latents(n, 1500, 11, factor, covariance)
    scaling = LatentScaling().fit(latent, y)
    assert scaling.mean_factor_ == 1.0
    assert scaling.scale_factor_ == pytest.approx(factor, rel=0.15)
    calibrated = scaling.transform(latent)
    assert isinstance(calibrated, LatentGaussian)
    np.testing.assert_allclose(calibrated.scale, scaling.scale_factor_ * latent.scale)
    np.testing.assert_array_equal(calibrated.loc, latent.loc)
    nll = [
        ds.evaluation.negative_log_likelihood(y, ds.readout.argmax(LatentGaussian(latent.loc, c * latent.scale)))
        for c in scaling.scale_factor_ * np.array([0.7, 0.9, 0.99, 1.0, 1.01, 1.1, 1.4])
    ]
    assert np.argmin(nll) in (2, 3, 4)
    assert nll[0] > nll[1] > nll[3] < nll[5] < nll[6]


def test_latent_scale_of_two_classes_maximizes_likelihood():
    latent, y = drawn_latents(2, 400, 12, 2.0, "isotropic")
    weights = np.random.default_rng(0).uniform(size=400)
    factor = LatentScaling().fit(latent, y, sample_weight=weights).scale_factor_
    z = np.where(y == 0, 1, -1)[:, None] * latent.loc / latent.scale
    grid = np.geomspace(0.5, 8, 2001)
    likelihood = weights @ np.log(ndtr(z / grid))
    assert factor == pytest.approx(grid[likelihood.argmax()], rel=5e-3)


@pytest.mark.slow
def test_softmax_fits_factors_of_mean_and_scale():
    rng = np.random.default_rng(13)
    loc, scale = rng.normal(size=(150, 2)), np.full((150, 1), 0.5)
    scores = ds.targets.ILR().scores(3)
    f = 4.0 * loc + 0.25 * scale * rng.normal(size=loc.shape)
    y = (f @ scores.T + rng.gumbel(size=(150, 3))).argmax(axis=1)
    latent = LatentGaussian(loc, scale)

    def nll(given: LatentGaussian) -> float:
        return ds.evaluation.negative_log_likelihood(y, ds.readout.softmax(given, scores))

    scaling = LatentScaling().fit(latent, y, scores, "softmax")
    best = nll(scaling.transform(latent))
    mean, width = scaling.mean_factor_, scaling.scale_factor_
    assert 2.5 < mean < 6.0
    for other_mean in (0.8, 1.0, 1.25):
        for other_width in (0.3, 1.0, 3.0):
            other = LatentGaussian(other_mean * mean * loc, other_width * width * scale)
            assert best < nll(other) + 1e-4
    assert best < nll(latent) - 0.05


def test_latent_scaling_in_graphs_and_config_round_trip():
    latent, y = drawn_latents(3, 200, 14, 2.0, "isotropic")
    scaling = LatentScaling().fit(latent.as_dict(), y)
    again = keras.saving.deserialize_keras_object(json.loads(json.dumps(keras.saving.serialize_keras_object(scaling))))
    graph = tf.function(lambda given: again.transform(given).as_dict(), jit_compile=True)
    scaled = graph({"loc": tf.constant(latent.loc), "scale": tf.constant(latent.scale)})
    np.testing.assert_allclose(scaled["scale"], scaling.transform(latent).scale, rtol=1e-12)
    full = LatentGaussian(np.zeros((2, 2)), np.tile(np.eye(2), (2, 1, 1)))
    np.testing.assert_allclose(scaling.transform(full).scale[0], scaling.scale_factor_ * np.eye(2))


def test_uninformative_latents_raise():
    latent, _ = drawn_latents(3, 40, 15, 1.0, "isotropic")
    right = ds.readout.argmax(latent).argmax(axis=1)
    with pytest.raises(ValueError, match=r"factor must.*no likelier than by chance"):
        LatentScaling().fit(LatentGaussian(np.zeros((40, 2)), np.ones((40, 1))), right)
    with pytest.raises(ValueError, match=r"factor must.*found one outside for the 40"):
        LatentScaling().fit(latent, (right + 1) % 3)
    with pytest.raises(ValueError, match=r"^y must.*found 5 in row 0"):
        LatentScaling().fit(latent, right + 3)
    with pytest.raises(ValueError, match=r"^y must.*found shape \(39,\)"):
        LatentScaling().fit(latent, right[1:])
    with pytest.raises(NotFittedError):
        LatentScaling().transform(latent)


@pytest.mark.parametrize(("readout", "scale"), [("argmax", 0.01), ("softmax", 3.0)])
def test_latent_scaling_of_right_answers_is_finite_and_warns(readout, scale):
    """Smoothed labels are the frequencies to which probabilities are calibrated, whatever the latents' scale was."""
    latent = LatentGaussian(ds.geometry.vertices(3)[Y3], np.full((150, 1), scale))
    with pytest.warns(UserWarning, match="none of the 150 held-out samples has a class"):
        scaling = LatentScaling().fit(latent, Y3, readout=readout)
    p = getattr(ds.readout, readout)(scaling.transform(latent))
    np.testing.assert_allclose(p[range(150), Y3], (50 + 1 / 3) / 51, atol=2e-3)


@pytest.mark.parametrize("weighted", [False, True])
def test_bias_corrected_temperature_of_two_classes_is_logistic_regression(weighted):
    p, y = simulated(2, 300, seed=3, temperature=2.0)
    weights = np.random.default_rng(0).uniform(size=300) if weighted else None
    scaling = BiasCorrectedTemperature().fit(p, y, weights)
    peer = LogisticRegression(C=np.inf, tol=1e-10, solver="newton-cholesky").fit(logit(p[:, 1:]), y, weights)
    assert 1.0 / scaling.temperature_ == pytest.approx(peer.coef_[0, 0], rel=1e-4)
    assert scaling.biases_[1] - scaling.biases_[0] == pytest.approx(peer.intercept_[0], rel=1e-3, abs=1e-4)


def test_bias_corrected_temperature_recovers_class_weights_and_temperature():
    """Of probabilities that are tilted by weights of the classes; a temperature alone leaves most of the error."""
    p, y = simulated(4, 20000, seed=4)
    w = np.array([1.0, 4.0, 0.5, 2.0])
    tilted = softmax(np.log(p * w) * 2.0, axis=1)
    scaling = BiasCorrectedTemperature().fit(tilted, y)
    assert scaling.temperature_ == pytest.approx(2.0, rel=0.05)
    np.testing.assert_allclose(scaling.biases_, np.mean(np.log(w)) - np.log(w), atol=0.07)
    corrected = scaling.transform(tilted)
    np.testing.assert_allclose(corrected.mean(axis=0), np.bincount(y) / len(y), atol=1e-5)
    error = ds.evaluation.classwise_calibration_error
    assert error(y, corrected) < 0.01 < 0.05 < error(y, TemperatureScaling().fit(tilted, y).transform(tilted))


def test_bias_corrected_temperature_of_extreme_probabilities():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 60)
    with pytest.warns(UserWarning, match="none of the 60 held-out samples has a class"):
        right = BiasCorrectedTemperature().fit(np.eye(3)[y], y).transform(np.eye(3))
    assert np.isfinite(right).all()
    assert right.diagonal().min() > 0.9
    constant = BiasCorrectedTemperature().fit(np.full((60, 3), 1 / 3), y).transform(np.full((1, 3), 1 / 3))
    np.testing.assert_allclose(constant[0], np.bincount(y) / 60, atol=1e-6)
    opposite = 0.3 + 0.1 * (y[:, None] != np.arange(3)) - 0.03 * rng.random((60, 3))
    with pytest.raises(ValueError, match="the likeliest temperature is infinite"):
        BiasCorrectedTemperature().fit(opposite / opposite.sum(axis=1, keepdims=True), y)


def test_unknown_calibration_raises():
    names = (
        "temperature",
        "bias_corrected_temperature",
        "vector",
        "matrix",
        "latent",
        "platt",
        "isotonic",
        "venn_abers",
        "auto",
    )
    assert tuple(ds.calibration.CALIBRATIONS) == names
    with pytest.raises(ValueError, match=r"method must.*found 'plat'; did you mean 'platt'"):
        ds.calibration.CALIBRATIONS.get("plat")
    with pytest.raises(TypeError, match=r"method must.*found 3"):
        ds.calibration.CALIBRATIONS.get(3)
    given = TemperatureScaling()
    assert ds.calibration.CALIBRATIONS.get(given) is given


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*MAPS, LatentScaling])
def test_fit_outputs_equals_fit(kind):
    latent, y = drawn_latents(3, 100, 15, 2.0, "isotropic")
    layer, weights = ds.readout.SoftmaxReadout(), np.random.default_rng(0).uniform(size=100)
    p = layer.predict(latent)
    calibration = kind().fit_outputs(y, probabilities=p, latent=latent, readout=layer, sample_weight=weights)
    if kind is LatentScaling:
        assert calibration.get_config() == kind().fit(latent, y, readout=layer, sample_weight=weights).get_config()
        np.testing.assert_array_equal(calibration.apply_latent(latent).scale, calibration.transform(latent).scale)
        np.testing.assert_array_equal(
            calibration.apply_latent(latent.as_dict())["scale"], calibration.transform(latent).scale
        )
        assert calibration.apply_probabilities(p) is p
        with pytest.raises(ValueError, match="method 'latent' scales latent Gaussians"):
            kind().fit_outputs(y, probabilities=p)
    else:
        assert calibration.get_config() == kind().fit(p, y, weights).get_config()
        np.testing.assert_array_equal(calibration.apply_probabilities(p), calibration.transform(p))
        assert calibration.apply_latent(latent) is latent
    assert calibration.maps_probabilities is (kind is not LatentScaling)
