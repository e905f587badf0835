"""Intervals of class probabilities: credible intervals and numerical error."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import expit, ndtri
from scipy.special import softmax as softmax_of

from deepsimplex.geometry import helmert, vertices
from deepsimplex.latent import LatentGaussian
from deepsimplex.readout import argmax, argmax_error, class_intervals, softmax
from tests.readout.test_argmax import latents, tf_latent

each_kind = pytest.mark.parametrize("kind", ["isotropic", "diagonal", "full"])


def factors(latent):
    """Lower-triangular factors [N, L, L] of any kind of scale."""
    if latent.covariance == "full":
        return latent.scale
    return np.eye(latent.latent_dim) * np.broadcast_to(latent.scale, latent.loc.shape)[:, None, :]


def share_inside(latent, S, intervals, draws):
    """Share of independent draws of every class probability [N, n] inside its interval."""
    rng = np.random.default_rng(11)
    noise = rng.standard_normal((draws, latent.latent_dim))
    inside = []
    for loc, factor, lower, upper in zip(latent.loc, factors(latent), *intervals, strict=True):
        p = softmax_of((loc + noise @ factor.T) @ S.T, axis=1)
        inside.append(((p >= lower) & (p <= upper)).mean(axis=0))
    return np.array(inside)


# The softmax readout: quantiles


@each_kind
@pytest.mark.parametrize("n", [2, 3, 10])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_interval_coverage(n, kind, level):
    latent, S, draws = latents(5, n - 1, kind, seed=n), 3.0 * helmert(n).T, 40_000
    inside = share_inside(latent, S, class_intervals(latent, level, S), draws)
    binomial = np.sqrt(level * (1 - level) / draws)
    # 4096 Sobol points know a share of themselves about as well as so many draws, at worst.
    sampled = 0.0 if n == 2 else np.sqrt(level * (1 - level) / 4096)
    np.testing.assert_allclose(inside, level, rtol=0, atol=4 * np.hypot(binomial, sampled))


@each_kind
def test_two_classes_are_exact(kind):
    latent = latents(20, 1, kind)
    m, s = 2 * latent.loc, 2 * latent.scale.reshape(-1, 1)
    lower, upper = class_intervals(latent, 0.9)
    z = ndtri(0.95)
    np.testing.assert_allclose(lower, np.hstack([expit(m - z * s), expit(-m - z * s)]), rtol=1e-13)
    np.testing.assert_allclose(upper, np.hstack([expit(m + z * s), expit(-m + z * s)]), rtol=1e-13)


def test_two_classes_in_many_dimensions_are_exact():
    latent, S = latents(5, 3, "full"), np.array([[1.0, 2.0, -1.0], [0.5, 0.0, 1.0]])
    d = S[0] - S[1]
    m, s = latent.loc @ d, np.linalg.norm(np.einsum("l,nlm->nm", d, latent.scale), axis=1)
    lower, upper = class_intervals(latent, 0.5, S)
    np.testing.assert_allclose(lower[:, 0], expit(m + ndtri(0.25) * s), rtol=1e-13)
    np.testing.assert_allclose(upper[:, 0], expit(m + ndtri(0.75) * s), rtol=1e-13)


def test_intervals_of_one_noise_direction_equal_monotone_quantiles():
    """Along the first vertex the probability of its class grows, and that of the others falls."""
    loc, s = np.array([[0.3, 0.0]]), 0.8
    lower, upper = class_intervals({"loc": loc, "scale": np.array([[s, 0.0]])}, 0.9)
    ends = softmax_of((loc + ndtri([[0.05], [0.95]]) * [[s, 0.0]]) @ vertices(3).T, axis=1)
    np.testing.assert_allclose(lower[0], ends.min(axis=0), atol=1e-3)
    np.testing.assert_allclose(upper[0], ends.max(axis=0), atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "rms", "most"), [(1.0, 2e-3, 0.012), (3.0, 4e-3, 0.04)])
def test_error_of_the_default_number_of_points(width, rms, most):
    latent, S = latents(20, 9, "diagonal", seed=2), width * vertices(10)
    error = np.subtract(class_intervals(latent, scores=S), class_intervals(latent, scores=S, num_points=2**16, seed=1))
    assert np.sqrt(np.mean(error**2)) < rms
    assert np.abs(error).max() < most


@each_kind
@pytest.mark.parametrize("n", [2, 5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_zero_scale_gives_softmax_of_mean(n, kind, dtype):
    latent = latents(4, n - 1, kind, dtype=dtype)
    lower, upper = class_intervals(LatentGaussian(latent.loc, 0 * latent.scale))
    assert lower.dtype == upper.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(lower, upper)
    np.testing.assert_allclose(lower, softmax_of(latent.loc @ vertices(n).T, axis=1), atol=10 * np.finfo(dtype).eps)


@pytest.mark.slow
def test_mean_lies_inside_interval_except_for_rare_outcomes():
    latent = latents(20, 4, "diagonal")
    lower, upper = class_intervals(latent)
    p = softmax(latent)
    assert ((lower < p) & (p < upper)).all()
    rare = {"loc": np.array([[-6.0]]), "scale": np.array([[1.0]])}
    steep = [[50.0], [-50.0]]
    assert class_intervals(rare, 0.5, steep).upper[0, 0] < softmax(rare, steep)[0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("readout", ["softmax", "argmax"])
@pytest.mark.parametrize("n", [2, 4])
def test_rows_are_reproducible_and_independent(monkeypatch, n, readout):
    latent = latents(9, n - 1, "diagonal")
    first = class_intervals(latent, readout=readout)
    np.testing.assert_array_equal(first, class_intervals(latent, readout=readout))
    np.testing.assert_allclose(
        np.array(first)[:, 3:5], class_intervals(latent[3:5], readout=readout), rtol=0, atol=1e-13
    )
    monkeypatch.setattr("deepsimplex._utils.batching._BUDGET", 2 * n * 4096)  # pieces of two rows
    np.testing.assert_allclose(first, class_intervals(latent, readout=readout), rtol=0, atol=1e-13)


def test_seed_and_level_change_intervals():
    latent = latents(5, 4, "full")
    assert np.abs(np.subtract(class_intervals(latent), class_intervals(latent, seed=1))).max() > 0
    narrow, wide = class_intervals(latent, 0.5), class_intervals(latent, 0.95)
    assert (wide.lower < narrow.lower).all()
    assert (wide.upper > narrow.upper).all()


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("readout", ["softmax", "argmax"])
def test_tensors_and_empty_input(n, readout):
    latent = latents(3, n - 1, "isotropic", dtype="float32")
    tensors = tf_latent(latent.loc, latent.scale)
    np.testing.assert_allclose(
        class_intervals(tensors, readout=readout), class_intervals(latent, readout=readout), atol=1e-6
    )
    half = {key: tf.cast(value, tf.bfloat16) for key, value in tensors.items()}
    assert class_intervals(half, readout=readout).upper.dtype == np.float32
    assert class_intervals(latent[:0], readout=readout).lower.shape == (0, n)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"level": 1.0}, r"level must.*found 1\.0"),
    ({"level": 95}, r"level must.*found 95"),
    ({"level": "0.95"}, r"level must.*found '0\.95'"),
    ({"level": float("nan")}, r"level must.*found nan"),
    ({"level": 0.9999}, r"num_points must.*found 4096"),
    ({"readout": "softmin"}, r"readout must.*found 'softmin'; did you mean 'softmax'"),
    ({"method": "monte_carlo"}, "method is one of readout='argmax'"),
    ({"num_points": 100}, r"num_points must.*found 100"),
    ({"seed": -1}, r"seed must.*found -1"),
    ({"scores": np.ones((4, 5))}, r"scores must.*found \(4, 5\)"),
    ({"readout": "argmax", "method": "exact"}, "method='exact' needs two classes"),
])  # fmt: skip
def test_invalid_arguments_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        class_intervals(latents(2, 3, "diagonal"), **arguments)


@pytest.mark.slow
def test_graph_tensors_raise():
    @tf.function
    def traced(loc):
        return class_intervals({"loc": loc, "scale": tf.ones((2, 1))}).lower

    with pytest.raises(TypeError, match="latent must hold values"):
        traced(tf.zeros((2, 3)))


# The argmax readout: numerical error


@pytest.mark.slow
@each_kind
def test_argmax_intervals_contain_argmax_probabilities(kind):
    latent = latents(5, 3, kind)
    p, error = argmax(latent), argmax_error(latent)
    lower, upper = class_intervals(latent, 0.95, readout="argmax")
    np.testing.assert_allclose(lower, np.maximum(p - 1.959964 * error, 0.0), atol=1e-8)
    np.testing.assert_allclose(upper, np.minimum(p + 1.959964 * error, 1.0), atol=1e-8)
    assert (lower >= 0).all()
    assert (upper <= 1).all()


def test_two_classes_have_quantiles_of_any_level():
    latent = LatentGaussian(np.array([[0.3]]), np.array([[0.5]]))
    lower, upper = class_intervals(latent, 0.999999)
    z = ndtri(0.9999995)
    np.testing.assert_allclose([lower[0, 0], upper[0, 0]], expit(2 * (0.3 + np.array([-0.5, 0.5]) * z)), rtol=1e-9)
    with pytest.raises(ValueError, match=r"num_points must.*found -7"):
        class_intervals(latent, num_points=-7)
