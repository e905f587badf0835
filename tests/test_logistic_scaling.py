"""Structured logistic scaling: against its loss written in loops, scikit-learn, and simulated confusions."""

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression

import deepsimplex as ds
from deepsimplex.calibration import MatrixScaling, TemperatureScaling, VectorScaling
from tests.test_calibration import simulated

each_kind = pytest.mark.parametrize("kind", [VectorScaling, MatrixScaling])


def slow_loss(parameters, z, y, weights, penalty):
    """The mean NLL with its penalties, sample by sample and number by number."""
    n, total = z.shape[1], weights.sum()
    W, b = parameters[: n * n].reshape(n, n), parameters[n * n :]
    loss = sum(w * -log_softmax(W @ row + b)[k] for row, k, w in zip(z, y, weights, strict=True)) / total
    for i in range(n):
        loss += penalty * n / total * ((W[i, i] - 1) ** 2 + b[i] ** 2)
        loss += sum(penalty * n * (n - 1) / total * W[i, j] ** 2 for j in range(n) if j != i)
    return loss


@each_kind
def test_parameters_minimize_penalized_nll(kind):
    p, y = simulated(3, 60, seed=17, temperature=2.0)
    weights, penalty = np.random.default_rng(1).uniform(0.5, 2.0, size=60), 0.3
    scaling = kind(penalty).fit(p, y, weights)
    s = 1 / (weights.sum() + 1)
    assert scaling.uniform_share_ == pytest.approx(s)
    z = np.log((1 - s) * softmax(np.log(p) / scaling.temperature_, axis=1) + s / 3)
    W = scaling.matrix_ if kind is MatrixScaling else np.diag(scaling.factors_)
    np.testing.assert_allclose(scaling.transform(p), softmax(z @ W.T + scaling.biases_, axis=1), atol=1e-12)
    best = np.append(W, scaling.biases_)
    loss = slow_loss(best, z, y, weights, penalty)
    for k in np.flatnonzero(best):
        for step in (-1e-3, 1e-3):
            assert slow_loss(best + step * (np.arange(12) == k), z, y, weights, penalty) > loss


def test_temperature_minimizes_nll_of_mixtures():
    p, y = simulated(4, 100, seed=18, temperature=3.0)
    p[0] = np.arange(4) == (y[0] + 1) % 4  # a true class of probability zero

    def nll(temperature):
        tempered = softmax(np.log(np.maximum(p, 1.1754944e-38)) / temperature, axis=1)
        return -np.sum(np.log(100 / 101 * tempered[range(100), y] + 1 / 101 / 4))

    assert nll(VectorScaling().fit(p, y).temperature_) <= min(nll(T) for T in np.geomspace(0.02, 50, 1001)) + 1e-6


def test_penalty_leads_from_logistic_regression_to_temperature():
    p, y = simulated(3, 300, seed=19, temperature=2.0)
    strong, weak = MatrixScaling(1e6).fit(p, y), MatrixScaling(1e-9).fit(p, y)
    tempered = 300 / 301 * softmax(np.log(p) / strong.temperature_, axis=1) + 1 / 301 / 3
    np.testing.assert_allclose(strong.transform(p), tempered, atol=1e-4)
    peer = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000).fit(np.log(tempered), y)
    np.testing.assert_allclose(weak.transform(p), peer.predict_proba(np.log(tempered)), atol=2e-3)


def test_matrix_corrects_confusions_that_factors_cannot():
    """Evidence of every class counts for the next one too: 400 samples to calibrate with, 4000 to judge."""
    p, y = simulated(4, 4400, seed=20)
    p = softmax(np.log(p) @ (np.eye(4) + 0.8 * np.roll(np.eye(4), 1, axis=1)), axis=1)
    temperature, vector, matrix = (
        ds.evaluation.negative_log_likelihood(y[400:], kind().fit(p[:400], y[:400]).transform(p[400:]))
        for kind in (TemperatureScaling, VectorScaling, MatrixScaling)
    )
    assert matrix < min(vector, temperature) - 0.1


@each_kind
@pytest.mark.filterwarnings("error")
def test_extreme_samples_give_probabilities_between_zero_and_one(kind):
    y, certain = np.arange(40) % 4, np.eye(4)[np.arange(40) % 4]
    cases = {
        "all right": (certain, y),
        "half wrong": (certain, np.where(np.arange(40) % 8 < 4, y, (y + 1) % 4)),
        "without class 3": (certain, np.minimum(y, 2)),
    }
    for name, (p, labels) in cases.items():
        scaling = kind().fit(p, labels)
        calibrated = scaling.transform(np.eye(4))
        assert np.all((calibrated > 0) & (calibrated < 1)), name
        assert np.mean(np.argmax(scaling.transform(p), axis=1) == labels) >= np.mean(np.argmax(p, axis=1) == labels)


@each_kind
def test_uninformative_probabilities_raise(kind):
    y = np.arange(40) % 4
    for p in (np.full((40, 4), 0.25), np.eye(4)[(y + 1) % 4], np.full((40, 4), np.float32(0.25))):
        with pytest.raises(
            ValueError, match="the 40 held-out samples are no likelier under their probabilities than by"
        ):
            kind().fit(p, y)


@each_kind
def test_invalid_penalty_and_columns_raise(kind):
    with pytest.raises(ValueError, match=r"penalty must.*found 0"):
        kind(0)
    p, y = simulated(4, 60, seed=10)
    with pytest.raises(ValueError, match=r"^p must.*found \(1, 3\)"):
        kind().fit(p, y).transform([[0.2, 0.3, 0.5]])
