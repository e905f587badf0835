"""The argmax readout's estimate of its numerical error, against the true error."""

import numpy as np
import pytest
import tensorflow as tf

from deepsimplex.geometry import vertices
from deepsimplex.latent import LatentGaussian
from deepsimplex.readout import argmax, argmax_error, monte_carlo_standard_error
from tests.readout.test_argmax import at_once, latents, tf_latent
from tests.reference.readout import argmax_independent, argmax_isotropic


def sampled(latent, num_points):
    """Answers by quasi-Monte Carlo with four scramblings [4, N, n], none of them among those of ``argmax_error``.

    All rows share one scrambling, which may be lucky with all of them: several tell the usual error.
    """
    latent = tf_latent(latent.loc, latent.scale)
    return np.stack(
        [argmax(latent, method="quasi_monte_carlo", num_points=num_points, seed=seed) for seed in range(100, 104)]
    )


@pytest.mark.slow
@pytest.mark.parametrize(("dims", "num_points"), [(5, None), (3, 512)])
def test_scrambling_standard_error_matches_true_error(dims, num_points):
    latent = latents(20, dims, "isotropic")
    true = sampled(latent, num_points) - argmax(latent)
    estimate = argmax_error(latent, method="quasi_monte_carlo", num_points=num_points)
    assert 0.3 < np.sqrt(np.mean(true**2) / np.mean(estimate**2)) < 3


@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_scrambling_standard_error_without_exact_classes(kind):
    latent = latents(15, 3, kind)
    true = sampled(latent, None) - at_once(latent, num_points=2**12, seed=200)
    assert 0.3 < np.sqrt(np.mean(true**2) / np.mean(argmax_error(latent) ** 2)) < 3


@pytest.mark.parametrize("num_points", [None, 4000])
def test_monte_carlo_standard_error_matches_true_error(num_points):
    latent = latents(40, 9, "isotropic")
    p = at_once(latent, method="monte_carlo", num_points=num_points)
    estimate = argmax_error(latent, method="monte_carlo", num_points=num_points)
    np.testing.assert_array_equal(estimate, monte_carlo_standard_error(p, num_points or 1000))
    assert 0.3 < np.sqrt(np.mean((p - argmax(latent)) ** 2) / np.mean(estimate**2)) < 3


def test_default_is_thousand_draws():
    latent = latents(3, 3, "isotropic")
    np.testing.assert_array_equal(
        argmax(latent, method="monte_carlo"), argmax(latent, method="monte_carlo", num_points=1000)
    )


# The oracle's own error is below this.
ORACLE = 2e-12


@pytest.mark.parametrize("num_points", [12, 16, 24, None])
@pytest.mark.parametrize(("n", "s"), [(3, 0.05), (3, 1.0), (10, 0.1), (10, 3.0)])
def test_equal_variances_bound_exceeds_true_error(n, s, num_points):
    loc = np.random.default_rng(n).normal(size=(1, n - 1))
    latent = LatentGaussian(loc, np.full((1, 1), s))
    error = np.abs(argmax(latent, num_points=num_points)[0] - argmax_isotropic(loc[0], s, vertices(n)))
    bound = argmax_error(latent, num_points=num_points)[0]
    assert (error <= bound + ORACLE).all()
    if num_points is None:
        assert bound.max() < 1e-10


@pytest.mark.parametrize("num_points", [4, 6, 8, None])
@pytest.mark.parametrize("smallest", [0.01, 0.5])
def test_unequal_variances_bound_exceeds_true_error(smallest, num_points):
    rng = np.random.default_rng(5)
    loc, scale = rng.normal(size=(1, 10)), np.exp(rng.uniform(np.log(smallest), 0.0, (1, 10)))
    latent = LatentGaussian(loc, scale)
    error = np.abs(argmax(latent, np.eye(10), num_points=num_points)[0] - argmax_independent(loc[0], scale[0]))
    bound = argmax_error(latent, np.eye(10), num_points=num_points)[0]
    assert (error <= bound + ORACLE).all()
    if num_points is None:
        assert bound.max() < 1e-10


@pytest.mark.parametrize("n", [2, 3, 10])
@pytest.mark.parametrize("size", [0.7, 30.0])
def test_float32_bound_exceeds_true_error(n, size):
    """With far means and a small scale, round-off of the scores is what counts."""
    latent = latents(200, n - 1, "isotropic", seed=n, dtype="float32")
    latent = LatentGaussian(np.float32(size) * latent.loc, latent.scale)
    double = LatentGaussian(latent.loc.astype(float), latent.scale.astype(float))
    error = np.abs(argmax(latent) - at_once(double))
    bound = argmax_error(latent)
    assert bound.dtype == np.float32
    assert (error <= bound).all()
    assert bound.max() < 1e-4 * size


def test_two_classes_error_is_round_off():
    latent = latents(50, 1, "isotropic")
    assert argmax_error(latent).max() < 1e-13
    assert argmax_error(latent, method="quasi_monte_carlo").max() < 1e-13


def test_graph_tensors_raise():
    with pytest.raises(TypeError, match=r"latent must.*found a tensor of a graph"):
        tf.function(argmax_error, autograph=False)(tf_latent(vertices(4), np.ones((4, 1))))


def test_zero_scale_has_an_error():
    latent = LatentGaussian(vertices(4), np.zeros((4, 1)))
    assert argmax_error(latent).max() < 1e-12
    tied = LatentGaussian((vertices(4)[:1] + vertices(4)[1:2]) / 2, np.zeros((1, 1)))
    assert np.isfinite(argmax_error(tied)).all()


@pytest.mark.slow
def test_bound_covers_narrow_directions_of_three_classes():
    """Where two scores are all but tied, round-off of their means is many of the deviations that part them."""
    rng = np.random.default_rng(0)
    loc, scale = rng.normal(size=(50, 2)), np.stack([np.full(50, 1.0), np.geomspace(1e-4, 1.0, 50)], axis=1)
    single = LatentGaussian(loc.astype("float32"), scale.astype("float32"))
    exact = at_once(LatentGaussian(single.loc.astype("float64"), single.scale.astype("float64")))
    assert (np.abs(argmax(single) - exact) <= argmax_error(single)).all()


def test_collinear_three_classes_have_a_bound():
    scores = np.array([[1.0], [0.0], [-1.0]])
    error = argmax_error(LatentGaussian(np.array([[0.3]]), np.array([[0.5]])), scores)
    assert np.isfinite(error).all()
    assert (error > 0).all()
