import numpy as np
import pytest
import tensorflow as tf
from scipy import special

from deepsimplex.readout.normal import log_ndtr


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-6), ("float64", 1e-11)])
def test_log_of_the_distribution_function_is_right_in_both_tails(dtype, tolerance):
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
