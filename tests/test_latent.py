"""LatentGaussian: accepted inputs, and noise that is added to covariances."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from deepsimplex.latent import COVARIANCES, LatentGaussian

N, L = 4, 3


def make_scale(covariance: str, rng: np.random.Generator, samples: int = N, dims: int = L) -> np.ndarray:
    if covariance == "isotropic":
        return rng.uniform(0.1, 2, (samples, 1))
    if covariance == "diagonal":
        return rng.uniform(0.1, 2, (samples, dims))
    factor = np.tril(rng.normal(size=(samples, dims, dims)), k=-1)
    return factor + np.eye(dims) * rng.uniform(0.1, 2, (samples, 1, dims))


def covariance_matrices(latent: LatentGaussian) -> np.ndarray:
    scale = np.asarray(latent.scale)
    if scale.ndim == 3:
        return np.stack([S @ S.T for S in scale])
    return np.stack([np.diag(np.broadcast_to(s**2, latent.latent_dim)) for s in scale])


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_covariance_type_follows_from_shape(covariance):
    latent = LatentGaussian(np.zeros((N, L)), make_scale(covariance, np.random.default_rng(0)))
    assert (latent.covariance, latent.latent_dim, len(latent)) == (covariance, L, N)


@pytest.mark.parametrize("covariance", COVARIANCES)
@pytest.mark.parametrize("noise_shape", [(N, 1), (N, L), (1, 1), (1, L)])
@pytest.mark.parametrize("wrap", [np.asarray, tf.constant], ids=["numpy", "tensorflow"])
def test_noise_variances_are_added_to_covariance(covariance, noise_shape, wrap):
    rng = np.random.default_rng(1)
    latent = LatentGaussian(rng.normal(size=(N, L)), make_scale(covariance, rng))
    noise = rng.uniform(0, 2, noise_shape)
    noisy = LatentGaussian(wrap(latent.loc), wrap(latent.scale)).with_noise(wrap(noise))
    expected = covariance_matrices(latent) + np.stack([np.diag(s**2) for s in np.broadcast_to(noise, (N, L))])
    np.testing.assert_allclose(covariance_matrices(noisy), expected, rtol=1e-10, atol=1e-12)
    if covariance == "full":
        np.testing.assert_array_equal(np.triu(noisy.scale, k=1), 0)
        assert np.all(np.diagonal(noisy.scale, axis1=1, axis2=2) > 0)
    np.testing.assert_array_equal(noisy.loc, latent.loc)


@given(seed=st.integers(0, 2**32 - 1), dims=st.integers(2, 8), covariance=st.sampled_from(COVARIANCES))
@settings(max_examples=30, deadline=None)
def test_noise_is_commutative_and_zero_noise_is_neutral(seed, dims, covariance):
    rng = np.random.default_rng(seed)
    latent = LatentGaussian(np.zeros((2, dims)), make_scale(covariance, rng, 2, dims))
    one, other = rng.uniform(0, 3, (2, dims)), rng.uniform(0, 3, (1, 1))
    np.testing.assert_allclose(
        covariance_matrices(latent.with_noise(one).with_noise(other)),
        covariance_matrices(latent.with_noise(other).with_noise(one)),
        rtol=1e-9,
        atol=1e-10,
    )
    np.testing.assert_allclose(latent.with_noise(np.zeros((1, 1))).scale, latent.scale, rtol=1e-9, atol=1e-10)


def test_noise_is_added_to_singular_factor():
    observed = LatentGaussian(np.zeros((2, L)), np.zeros((2, L, L)))
    np.testing.assert_array_equal(observed.with_noise(np.zeros((1, 1))).scale, 0)
    np.testing.assert_allclose(observed.with_noise(np.full((1, 1), 2.0)).scale, np.stack([2 * np.eye(L)] * 2))


def test_float32_is_kept():
    latent = LatentGaussian(np.zeros((N, L), np.float32), np.ones((N, L, L), np.float32) * np.eye(L, dtype=np.float32))
    assert latent.with_noise(np.ones((N, 1))).scale.dtype == np.float32
    assert LatentGaussian(np.zeros((N, L), np.int32), np.ones((N, 1), np.float32)).loc.dtype == np.float64


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_distribution_has_density_of_covariance(covariance):
    from scipy.stats import multivariate_normal

    rng = np.random.default_rng(2)
    latent = LatentGaussian(rng.normal(size=(N, L)), make_scale(covariance, rng))
    x = rng.normal(size=(N, L))
    expected = [
        multivariate_normal(m, S).logpdf(v) for m, S, v in zip(latent.loc, covariance_matrices(latent), x, strict=True)
    ]
    distribution = latent.distribution()
    assert (distribution.batch_shape.as_list(), distribution.event_shape.as_list()) == ([N], [L])
    np.testing.assert_allclose(distribution.log_prob(x), expected, rtol=1e-10)


def test_noise_in_graph_of_unknown_batch_size():
    @tf.function(input_signature=[tf.TensorSpec([None, L]), tf.TensorSpec([None, L, L]), tf.TensorSpec([None, 1])])
    def add(loc, scale, noise):
        return LatentGaussian(loc, scale).with_noise(noise).scale

    rng = np.random.default_rng(3)
    scale = make_scale("full", rng).astype(np.float32)
    noise = np.ones((N, 1), np.float32)
    expected = LatentGaussian(np.zeros((N, L)), scale).with_noise(noise).scale
    np.testing.assert_allclose(add(np.zeros((N, L), np.float32), scale, noise), expected, rtol=1e-4, atol=1e-5)


def test_dict_numpy_rows_and_variables():
    latent = LatentGaussian(np.arange(12.0).reshape(N, L), np.ones((N, 1)))
    assert LatentGaussian.of(latent) is latent
    again = LatentGaussian.of({key: tf.constant(value) for key, value in latent.as_dict().items()}).numpy()
    np.testing.assert_array_equal(again.loc, latent.loc)
    np.testing.assert_array_equal(latent[1:3].loc, latent.loc[1:3])
    np.testing.assert_array_equal(latent[np.array([True, False, False, True])].loc, latent.loc[[0, 3]])
    variable = LatentGaussian(keras.Variable(latent.loc), tf.Variable(latent.scale))
    np.testing.assert_allclose(variable.numpy().loc, latent.loc)


@pytest.mark.parametrize(
    ("loc", "scale", "message"),
    [
        (np.zeros(L), np.ones((N, 1)), r"loc must.*found \(3,\)"),
        (np.zeros((N, L)), np.ones((N, 2)), r"scale must.*found \(4, 2\) for loc of shape \(4, 3\)"),
        (np.zeros((N, L)), np.ones((N + 1, 1)), r"scale must.*found \(5, 1\) for loc of shape \(4, 3\)"),
        (np.zeros((N, L)), np.ones(N), r"scale must.*found \(4,\) for loc of shape \(4, 3\)"),
        (np.zeros((N, L)), 0.5, r"scale must.*found \(\) for loc of shape \(4, 3\)"),
        (np.zeros((N, L)), np.zeros((N, L, 1)), r"scale must.*found \(4, 3, 1\) for loc of shape \(4, 3\)"),
        (np.full((N, L), np.nan), np.ones((N, 1)), "loc must be finite"),
        (np.zeros((N, L)), np.full((N, 1), np.inf), "scale must be finite"),
        (np.zeros((N, L)), np.full((N, 1), -1.0), "scale must not be negative.*found -1.0"),
        (np.zeros((N, L)), np.stack([-np.eye(L)] * N), "scale must not be negative"),
        (np.zeros((N, L)), np.ones((N, L, L)), r"scale must.*found 1\.0 above a diagonal"),
    ],
)
def test_invalid_values_raise(loc, scale, message):
    with pytest.raises(ValueError, match=message):
        LatentGaussian(loc, scale)


def test_invalid_types_raise():
    with pytest.raises(TypeError, match=r"loc must.*found dtype"):
        LatentGaussian(np.array([["a"]]), np.ones((1, 1)))
    with pytest.raises(TypeError, match=r"latent must.*found \['mean'\]"):
        LatentGaussian.of({"mean": 0})


@pytest.mark.parametrize("shape", [(L,), (N + 1, 1), (N, 2), (N, L, L)])
def test_invalid_noise_shape_raises(shape):
    latent = LatentGaussian(np.zeros((N, L)), np.ones((N, 1)))
    with pytest.raises(ValueError, match=rf"noise must.*found {re.escape(repr(shape))}"):
        latent.with_noise(np.ones(shape))
