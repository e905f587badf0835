"""The logistic softmax of [ILR-GP]'s baselines: its bound, its probabilities, its limits."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.datasets import load_iris
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from training.tables.logistic_softmax import LogisticSoftmaxGaussianProcess

pytestmark = pytest.mark.slow
X, y = load_iris(return_X_y=True)
X = (X - X.mean(axis=0)) / X.std(axis=0)
# The last class of the bijective is the only one without a latent.
KINDS = pytest.mark.parametrize("bijective", [False, True])


def logistic_softmax(f, bijective):
    """Probabilities [..., C] of latents [..., L]."""
    weights = expit(f)
    if bijective:
        weights = np.concatenate([weights, np.full((*weights.shape[:-1], 1), 0.5)], axis=-1)
    return weights / weights.sum(axis=-1, keepdims=True)


def kernel_of(process):
    """The kernel of a fitted process, as scikit-learn has it."""
    variance, lengthscale = np.exp(process.kernel_)
    return ConstantKernel(variance) * RBF(lengthscale)


@KINDS
def test_bound_is_nondecreasing(bijective):
    bounds = LogisticSoftmaxGaussianProcess(bijective, rounds=4).fit(X, y).bounds_
    assert np.all(np.diff(bounds) > 0.0)


@KINDS
def test_bound_is_close_below_evidence(bijective):
    rows = np.array([0, 40, 60, 120])
    process = LogisticSoftmaxGaussianProcess(bijective, rounds=3).fit(X[rows], y[rows])
    factor = np.linalg.cholesky(kernel_of(process)(X[rows]))
    draws = np.random.default_rng(0).standard_normal((200_000, 3 - bijective, 4)) @ factor.T
    p = logistic_softmax(draws.swapaxes(1, 2), bijective)[:, np.arange(4), y[rows]].prod(axis=1)
    evidence, error = np.log(p.mean()), p.std() / p.mean() / np.sqrt(len(p))
    assert evidence - 1.0 < process.bounds_[-1] < evidence + 3.0 * error


@KINDS
def test_probabilities_are_expected_likelihood(bijective):
    flowers = y > 0
    process = LogisticSoftmaxGaussianProcess(bijective, inducing=20, rounds=2).fit(X[flowers], y[flowers])
    p = process.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    u = np.random.default_rng(1).standard_normal((20_000, 1, 20))
    factors, m = (of.numpy() for of in process.posterior_)
    Z, kernel = process.points_, kernel_of(process)
    A = np.linalg.solve(np.linalg.cholesky(kernel(Z) + 1e-6 * kernel.diag(Z).mean() * np.eye(20)), kernel(Z, X))
    residual = kernel.diag(X) - np.sum(A**2, axis=0)
    f = (m + np.linalg.solve(factors.swapaxes(1, 2), u.transpose(1, 2, 0)).transpose(2, 0, 1)) @ A
    f = f + np.sqrt(residual) * np.random.default_rng(2).standard_normal(f.shape)
    np.testing.assert_allclose(p, logistic_softmax(f.swapaxes(1, 2), bijective).mean(axis=0), atol=0.02)


def test_all_rows_as_inducing_points_equal_exact_process():
    exact = LogisticSoftmaxGaussianProcess(rounds=2).fit(X[::3], y[::3])
    distinct, first = np.unique(X[::3], axis=0, return_index=True)
    sparse = LogisticSoftmaxGaussianProcess(inducing=len(distinct), rounds=2).fit(X[::3], y[::3])
    assert len(first) == len(X[::3])
    assert sparse.bounds_[-1] == pytest.approx(exact.bounds_[-1], abs=1e-3)
    np.testing.assert_allclose(sparse.predict_proba(X), exact.predict_proba(X), atol=1e-3)


def test_bijective_probabilities_except_last_are_at_most_two_thirds():
    p = LogisticSoftmaxGaussianProcess(bijective=True, rounds=20).fit(X, y).predict_proba(X)
    assert 0.6 < p[:, :2].max() < 2 / 3 < p[:, 2].max()


@KINDS
def test_classifier_learns_classes(bijective):
    process = LogisticSoftmaxGaussianProcess(bijective, inducing=30, classes=[0, 1, 2, 3]).fit(X[::2], y[::2])
    p = process.predict_proba(X[1::2])
    assert p.shape == (75, 4)
    assert np.mean(p.argmax(axis=1) == y[1::2]) > 0.9
