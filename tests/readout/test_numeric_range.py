"""Readouts of latents of any size: rows of scales from 1e-12 to 1e12 in one batch, against Monte Carlo."""

import numpy as np
import pytest
import tensorflow as tf

from deepsimplex.geometry import vertices
from deepsimplex.readout import argmax, softmax

SIZES = 10.0 ** np.arange(-12, 13, 4)
MARGINS = (0.0, 1.0, 4.0, 1e3)
DRAWS = 4000


def latents(n, covariance, seed=0):
    """A row for every size and margin, whose means are about so many standard deviations from the origin."""
    rng = np.random.default_rng(seed)
    size, margin = (part.ravel() for part in np.meshgrid(SIZES, MARGINS))
    rows, dims = len(size), n - 1
    loc = rng.normal(size=(rows, dims))
    loc *= (margin * size / np.linalg.norm(loc, axis=1))[:, None]
    if covariance == "full":
        factor = np.tril(0.3 * rng.normal(size=(rows, dims, dims)), -1)
        return loc, size[:, None, None] * (factor + np.eye(dims) * rng.uniform(0.5, 1.5, (rows, 1, dims)))
    return loc, size[:, None] * rng.uniform(0.5, 1.5, (rows, 1 if covariance == "isotropic" else dims))


def counted(readout, loc, scale, scores):
    """Shares of draws in which a class scores highest, its Gumbel variable added under the softmax."""
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(loc.shape[1], DRAWS))
    drawn = loc[:, :, None] + (scale @ noise if scale.ndim == 3 else scale[:, :, None] * noise)
    sums = np.einsum("kl,nld->nkd", scores, drawn)
    if readout is softmax:
        sums = sums + rng.gumbel(size=(1, len(scores), DRAWS))
    return (sums.argmax(axis=1)[:, :, None] == np.arange(len(scores))).mean(axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("covariance", ["isotropic", "diagonal", "full"])
@pytest.mark.parametrize("n", [2, 3, 4, 10])
@pytest.mark.parametrize("readout", [argmax, softmax])
def test_probabilities_and_gradients_over_the_numeric_range(readout, n, covariance, dtype):
    loc, scale = latents(n, covariance)
    latent = {"loc": tf.constant(loc.astype(dtype)), "scale": tf.constant(scale.astype(dtype))}
    with tf.GradientTape() as tape:
        tape.watch(latent)
        p = readout(latent)
        value = tf.reduce_sum(p * tf.range(n, dtype=dtype))
    for gradient in tape.gradient(value, latent).values():
        assert np.isfinite(gradient).all()
    assert np.isfinite(p).all()
    np.testing.assert_allclose(np.sum(p, axis=1), 1.0, atol=1e-6)
    np.testing.assert_allclose(p, counted(readout, loc, scale, vertices(n)), atol=0.05)
    log_p = readout(latent, log=True).numpy()
    assert not np.isnan(log_p).any()
    np.testing.assert_allclose(np.exp(log_p.astype(float)), p, atol=2e-5)


@pytest.mark.parametrize("covariance", ["isotropic", "diagonal", "full"])
@pytest.mark.parametrize("size", [1e-30, 1e-6, 1e6, 1e30])
def test_argmax_is_invariant_to_scale(size, covariance):
    loc, scale = latents(4, covariance)
    loc, scale = (part[SIZES.size // 2 :: SIZES.size] for part in (loc, scale))  # rows of size one
    expected = argmax({"loc": tf.constant(loc), "scale": tf.constant(scale)})
    p = argmax({"loc": tf.constant(size * loc, "float32"), "scale": tf.constant(size * scale, "float32")})
    np.testing.assert_allclose(p, expected, atol=1e-5)


@pytest.mark.parametrize("readout", [argmax, softmax])
@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("n", [2, 3, 10])
def test_probability_increases_with_the_score(readout, size, n):
    steps = np.linspace(-6.0, 6.0, 60)[:, None]
    loc = size * steps * vertices(n)[:1]
    p = readout({"loc": tf.constant(loc), "scale": tf.fill([60, 1], tf.constant(size, "float64"))}).numpy()
    assert np.all(np.diff(p[:, 0]) > -1e-12)
    assert np.all(np.diff(p[:, 1:], axis=0) < 1e-12)


@pytest.mark.parametrize("readout", [argmax, softmax])
@pytest.mark.parametrize("n", [100, 1000])
def test_many_classes_over_the_numeric_range(readout, n):
    rng = np.random.default_rng(n)
    loc = rng.normal(size=(3, n - 1)) * np.array([[1e-9], [1.0], [1e9]])
    scale = np.array([[1e-9], [0.5], [3e9]])
    latent = {"loc": tf.constant(loc, "float32"), "scale": tf.constant(scale, "float32")}
    with tf.GradientTape() as tape:
        tape.watch(latent)
        p = readout(latent)
        first = tf.reduce_sum(p[:, 0])
    assert all(np.isfinite(gradient).all() for gradient in tape.gradient(first, latent).values())
    assert np.isfinite(p).all()
    np.testing.assert_allclose(np.sum(p, axis=1), 1.0, atol=1e-6)


TEN = [1.0, -0.5, 0.2, 0.0, 0.3, 0.0, 0.0, -0.1, 0.4]
OF_TEN = [-0.7368221518991323, -4.4253904977874556, -2.3840671655906453]


@pytest.mark.parametrize(
    ("readout", "loc", "scale", "expected"),
    [
        (argmax, [1.0, -0.5], 0.3, [-0.020273309822794001, -9.6611779894265138, -3.9117491137379276]),
        (argmax, [6.0, 2.0], 0.5, [-2.3835144649352464e-17, -38.275370516475239, -80.231994181242732]),
        (argmax, TEN, 0.7, OF_TEN),
        (softmax, [0.3], 0.5, [-0.47518928813016932]),
        (softmax, [5.0], 2.0, [-0.011653073985114022]),
        (softmax, [1.0], 1e4, [-0.69306739528725564]),
        (softmax, [-40.0], 3.0, [-62.000000000004594]),
    ],
)
def test_log_probabilities_agree_with_high_precision(readout, loc, scale, expected):
    """The reference is mpmath's: integrals over the common part of the scores, and over the logit of two classes."""
    log_p = readout({"loc": tf.constant([loc], "float64"), "scale": tf.constant([[scale]], "float64")}, log=True)
    np.testing.assert_allclose(log_p[0, : len(expected)], expected, rtol=1e-6, atol=1e-15)
