"""Inducing points, Cholesky factors, kernels and noise."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepsimplex.gp import ExactGaussianProcess
from deepsimplex.gp.cholesky import cholesky, inverse_triangle
from deepsimplex.gp.gpflow_kernels import gpflow, make_kernel
from deepsimplex.gp.inducing_points import choose_points
from deepsimplex.latent import LatentGaussian


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    extra=st.integers(0, 60),
    seed=st.integers(0, 100),
)
def test_every_class_has_an_inducing_point_and_large_ones_have_more(sizes, extra, seed):
    y = np.repeat(np.arange(len(sizes)), sizes)
    X = np.random.default_rng(seed).normal(size=(len(y), 2))
    number = len(sizes) + extra
    points = choose_points(X, number, np.random.default_rng(seed), y)
    assert len(points) == min(number, len(y))
    assert len(np.unique(points, axis=0)) == len(points)
    owners = y[[int(np.flatnonzero((point == X).all(axis=1))[0]) for point in points]]
    counts = np.bincount(owners, minlength=len(sizes))
    assert counts.min() >= 1
    for a, size in enumerate(sizes):
        assert all(counts[a] >= counts[b] for b, other in enumerate(sizes) if size > other)


def test_duplicated_rows_are_one_inducing_point():
    X = np.repeat(np.arange(4.0)[:, None], 3, axis=0)
    np.testing.assert_array_equal(choose_points(X, 9, np.random.default_rng(0)), np.arange(4.0)[:, None])


def test_equal_rows_of_several_classes_do_not_depend_on_order():
    rng = np.random.default_rng(0)
    X, y = np.repeat(rng.normal(size=(20, 2)), 3, axis=0), rng.integers(0, 3, 60)
    order = rng.permutation(60)
    one, other = (choose_points(X[rows], 7, np.random.default_rng(1), y[rows]) for rows in (np.arange(60), order))
    np.testing.assert_array_equal(one, other)


def test_fewer_inducing_points_than_classes_raise():
    with pytest.raises(ValueError, match=r"inducing must.*found 2"):
        choose_points(np.arange(6.0)[:, None], 2, np.random.default_rng(0), [0, 0, 1, 1, 2, 2])


def test_singular_matrix_warns_of_jitter():
    A = np.ones((5, 5))
    with pytest.warns(RuntimeWarning, match="added 1e-0?6"):
        L = cholesky(A - 1e-7 * np.eye(5), warn=True)
    np.testing.assert_allclose(L @ L.T, A, atol=2e-6)


def test_indefinite_matrix_raises():
    with pytest.raises(ValueError, match="not positive definite"):
        cholesky(np.array([[1.0, 2.0], [2.0, 1.0]]))
    with pytest.raises(ValueError, match="not finite"):
        cholesky(np.array([[np.nan, 0.0], [0.0, 1.0]]))
    for size in (2, 300):  # LAPACK factorizes small and large matrices in different ways
        A = np.eye(size)
        A[-1, 0] = A[0, -1] = np.nan
        with pytest.raises(ValueError, match=r"not finite|not positive definite"):
            cholesky(A)


def test_inverse_triangle_equals_factor_of_inverse():
    B = np.random.default_rng(0).normal(size=(6, 8))
    A = B @ B.T
    np.testing.assert_allclose(inverse_triangle(cholesky(A)), np.tril(np.linalg.inv(A)), rtol=1e-9)


def test_duplicated_rows_without_noise_warn_and_fit():
    X = np.repeat(np.linspace(0.0, 1.0, 10)[:, None], 4, axis=0)
    kernel = gpflow.kernels.SquaredExponential(variance=1e10, lengthscales=50.0)
    with pytest.warns(RuntimeWarning, match="singular"):
        process = ExactGaussianProcess(kernel, noise="target", max_iter=0).fit(
            X, LatentGaussian(np.sin(X), np.full((40, 1), 1e-8))
        )
    assert np.isfinite(process.predict(X).loc).all()


def test_constant_features_are_left_out_of_distances():
    X = np.column_stack([np.linspace(0.0, 6.0, 30), np.full(30, 0.1)])
    observation = LatentGaussian(np.sin(X[:, :1]), np.full((30, 1), 0.01))
    with_constant = ExactGaussianProcess().fit(X, observation).predict(X)
    without = ExactGaussianProcess().fit(X[:, :1], observation).predict(X[:, :1])
    np.testing.assert_allclose(with_constant.loc, without.loc, atol=1e-10)


def test_given_kernels_are_copied():
    kernel = gpflow.kernels.Matern12() + gpflow.kernels.White()
    X = np.linspace(0.0, 6.0, 30)[:, None]
    before = gpflow.utilities.read_values(kernel)
    process = ExactGaussianProcess(kernel).fit(X, LatentGaussian(np.sin(X), np.zeros((30, 1))))
    assert gpflow.utilities.read_values(kernel) == before
    assert abs(process.predict(X).loc - np.sin(X)).max() < 0.1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"kernel": "rfb"}, ValueError, "did you mean"),
        ({"kernel": 3}, TypeError, r"kernel must.*found int"),
        ({"noise": "none"}, ValueError, r"noise must.*found 'none'"),
        ({"noise": "target"}, ValueError, "states its noise"),
    ],
)
def test_invalid_kernel_or_noise_raises(arguments, error, message):
    X = np.arange(4.0)[:, None]
    with pytest.raises(error, match=message):
        ExactGaussianProcess(**arguments).fit(X, LatentGaussian(X, np.zeros((4, 1))))


def test_initial_lengthscale_is_median_distance():
    X = np.random.default_rng(0).normal(size=(2000, 3))
    kernel, start = make_kernel("matern52", X, ard=True, rng=np.random.default_rng(0))
    lengthscales = kernel.at(start).lengthscales
    assert lengthscales.shape == (3,)
    np.testing.assert_allclose(lengthscales.numpy(), 2.2, rtol=0.1)
