import numpy as np
import pytest
import tensorflow as tf
from scipy import special

from deepsimplex._utils.portable_operations import smallest_normal
from deepsimplex.readout.normal import log_ndtr, log_ndtri, ndtri


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-6), ("float64", 1e-11)])
def test_log_cdf_is_accurate_in_both_tails(dtype, tolerance):
    z = np.concatenate([np.linspace(-40, 12, 1001), [-1e4, -1e3, 30.0, 1e4]]).astype(dtype)
    x = tf.constant(z)
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = log_ndtr(x)
    gradient = tape.gradient(value, x).numpy()
    expected = special.log_ndtr(z.astype("float64"))
    np.testing.assert_allclose(value, expected, rtol=tolerance, atol=0.01 * float(np.finfo(dtype).eps))
    hazard = np.exp(-0.5 * z.astype("float64") ** 2 - 0.5 * np.log(2 * np.pi) - expected)
    # The exponent is a difference of squares: its round-off is relative to them.
    near = np.abs(z) < 15
    np.testing.assert_allclose(gradient[near], hazard[near], rtol=100 * tolerance, atol=1e-37)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 4e-6), ("float64", 2e-12)])
def test_quantiles_are_accurate_in_both_tails(dtype, tolerance, jit):
    least = np.log(smallest_normal(tf.as_dtype(dtype)))
    p = np.concatenate([np.exp(np.linspace(least + 0.1, -1e-3, 5001)), 1.0 - np.logspace(-3, -6, 50)]).astype(dtype)
    x = tf.constant(p)

    def slopes(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            z = ndtri(x)
        return z, tape.gradient(z, x)

    z, gradient = tf.function(slopes, jit_compile=jit)(x)
    expected = special.ndtri(p.astype("float64"))
    np.testing.assert_allclose(z, expected, atol=tolerance)
    density = np.exp(-0.5 * expected**2) / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(gradient, 1.0 / density, rtol=20 * tolerance)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 3e-11)])
def test_log_quantiles_are_accurate_to_eighty_standard_deviations(dtype, tolerance, jit):
    z = np.concatenate([np.linspace(-80.0, 4.0, 5001), [4.5, 5.0]])
    log_p = special.log_ndtr(z).astype(dtype)
    z = tf.function(log_ndtri, jit_compile=jit)(tf.constant(log_p))
    # Logarithms near zero tell little in single precision: what they do tell is what counts.
    np.testing.assert_allclose(z, special.ndtri_exp(log_p.astype("float64")), atol=tolerance, rtol=1e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 1e-10)])
def test_log_quantiles_and_their_gradients_at_any_depth(dtype, tolerance):
    z = -np.geomspace(70.0, 1e6 if dtype == "float64" else 1e5, 200)
    log_p = tf.constant(special.log_ndtr(z).astype(dtype))
    with tf.GradientTape() as tape:
        tape.watch(log_p)
        quantiles = log_ndtri(log_p)
    np.testing.assert_allclose(quantiles, z, rtol=tolerance)
    ratio = special.erfcx(-z / np.sqrt(2)) * np.sqrt(np.pi / 2)  # Phi / phi
    np.testing.assert_allclose(tape.gradient(quantiles, log_p), ratio, rtol=1e-3)
