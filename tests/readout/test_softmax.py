import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, logsumexp
from scipy.special import softmax as softmax_of

from deepsimplex.geometry import helmert, vertices
from deepsimplex.latent import LatentGaussian
from deepsimplex.readout import gumbel, method_for, softmax
from deepsimplex.readout.sobol import gaussian
from tests.readout.test_argmax import latents
from tests.reference.readout import softmax_by_averaging, softmax_independent, softmax_two


def at_once(latent, scores=None, **arguments):
    """The readout of tensors, computed step by step: arrays would have a graph traced for every setting."""
    tensors = {name: tf.constant(part) for name, part in LatentGaussian.of(latent).as_dict().items()}
    return softmax(tensors, scores, **arguments).numpy()


@pytest.mark.parametrize("s", [0.0, 0.01, 1.0, 1.99, 2.01, 10.0, 300.0])
@pytest.mark.parametrize("m", [-6.0, 0.0, 0.7, 40.0])
def test_two_classes_agree_with_adaptive_quadrature(m, s):
    p = softmax({"loc": np.array([[m]]), "scale": np.array([[s]])}, [[0.5], [-0.5]])
    expected = softmax_two(m, s) if s > 0 else 1 / (1 + np.exp(-m))
    np.testing.assert_allclose(p, [[expected, 1 - expected]], rtol=0, atol=1e-11)


@pytest.mark.parametrize("n", [2, 3, 10, 100])
def test_symmetric_input_gives_equal_probabilities(n):
    scale = np.array([[0.3], [2.0], [20.0]])
    np.testing.assert_allclose(at_once({"loc": np.zeros((3, n - 1)), "scale": scale}), 1 / n, rtol=0, atol=1e-12)
    spread = {"loc": np.zeros((3, n)), "scale": np.broadcast_to(scale, (3, n))}
    np.testing.assert_allclose(at_once(spread, np.eye(n)), 1 / n, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("smallest", "largest"), [(0.01, 0.4), (0.3, 0.7), (0.5, 2.0), (2.0, 8.0), (0.02, 8.0)])
def test_independent_scores_agree_with_a_dense_quadrature(smallest, largest):
    rng = np.random.default_rng(7)
    loc, scale = 2.0 * rng.normal(size=(1, 6)), np.exp(rng.uniform(np.log(smallest), np.log(largest), (1, 6)))
    expected = softmax_independent(loc[0], scale[0])
    latent = LatentGaussian(loc, scale)
    assert method_for(latent, np.eye(6), readout="softmax") == "exact"
    np.testing.assert_allclose(softmax(latent, np.eye(6))[0], expected, atol=3e-10)
    np.testing.assert_allclose(softmax(latent, np.eye(6))[0], expected, rtol=1e-7)
    single = LatentGaussian(loc.astype("float32"), scale.astype("float32"))
    np.testing.assert_allclose(at_once(single, np.eye(6))[0], expected, atol=1e-6)


@pytest.mark.parametrize(("wide", "double", "single"), [(8.0, 1e-9, 1e-6), (50.0, 1e-8, 1e-5), (400.0, 1e-6, 1e-4)])
def test_one_wide_score_among_certain_ones(wide, double, single):
    latent = LatentGaussian(np.array([[0.5, 0.0, -1.0, 2.0, 0.3, 1.0]]), np.array([[0.0, 0.0, 0.0, 0.0, 0.0, wide]]))
    # The certain ones share what is left by their softmax, given the wide one: an integral over it alone.
    x = np.linspace(-9.0, 9.0, 100_001)
    g, density = 1.0 + wide * x, np.exp(-0.5 * x**2)
    p = softmax_of(np.stack([np.broadcast_to(m, g.shape) for m in latent.loc[0, :5]] + [g]), axis=0)
    expected = p @ density / density.sum()
    np.testing.assert_allclose(softmax(latent, np.eye(6))[0], expected, atol=double)
    p32 = at_once(LatentGaussian(latent.loc.astype("float32"), latent.scale.astype("float32")), np.eye(6))
    np.testing.assert_allclose(p32[0], expected, atol=single)


@pytest.mark.parametrize(
    ("s", "m"), [(0.5, -60.0), (3.0, -200.0), (5.0, -60.0), (5.0, -100.0), (8.0, -300.0), (5.0, 7.0)]
)
def test_log_probabilities_of_two_classes_are_accurate_in_the_tail(s, m):
    log_p = softmax({"loc": np.array([[m]]), "scale": np.array([[s]])}, [[0.5], [-0.5]], log=True)[0, 0]
    x = np.linspace(m - 45 * s, m + 45 * s, 400_001)
    logs = -0.5 * ((x - m) / s) ** 2 - np.log(s * np.sqrt(2 * np.pi)) - np.logaddexp(0.0, -x)
    np.testing.assert_allclose(log_p, logsumexp(logs) + np.log(x[1] - x[0]), rtol=1e-8)


def test_isotropic_scores_of_a_simplex_agree_with_independent_ones():
    rng = np.random.default_rng(8)
    loc, s, V = rng.normal(size=(5, 3)), rng.uniform(0.2, 3.0, (5, 1)), helmert(4)
    p = at_once({"loc": loc, "scale": s}, V.T)
    expected = at_once({"loc": loc @ V, "scale": np.broadcast_to(s, (5, 4))}, np.eye(4))
    np.testing.assert_allclose(p, expected, atol=1e-13)
    tripled = at_once({"loc": loc / 3, "scale": s / 3}, 3 * V.T)
    np.testing.assert_allclose(tripled, p, atol=1e-13)


@pytest.mark.slow
@given(seed=st.integers(0, 10**6), n=st.integers(3, 8), log_s=st.floats(-3, 1.5))
@settings(max_examples=8, deadline=None)
def test_permuting_classes_permutes_probabilities(seed, n, log_s):
    rng = np.random.default_rng(seed)
    latent = {"loc": 3 * rng.normal(size=(4, n - 1)), "scale": np.full((4, 1), 10.0**log_s)}
    order = rng.permutation(n)
    p = at_once(latent)
    permuted = at_once(latent, vertices(n)[order])
    np.testing.assert_allclose(permuted, p[:, order], atol=1e-13)
    np.testing.assert_allclose(p.sum(1), 1.0, atol=1e-12)
    assert (p > 0).all()


@pytest.mark.parametrize("dims", [1, 3])
@pytest.mark.parametrize("kind", ["isotropic", "diagonal"])
def test_log_probabilities_do_not_underflow_and_rows_are_independent(dims, kind):
    rng = np.random.default_rng(9)
    loc, scale = rng.normal(size=(4, dims)), rng.uniform(0.2, 1.5, (4, 1 if kind == "isotropic" else dims))
    near = LatentGaussian(loc, scale)
    np.testing.assert_allclose(np.exp(at_once(near, log=True)), at_once(near), rtol=1e-11)
    far = LatentGaussian(np.concatenate([loc, 500 * loc]), np.concatenate([scale, 1e-3 * scale]))
    log_p = at_once(far, log=True)
    np.testing.assert_allclose(log_p[:4], at_once(near, log=True), rtol=1e-12)
    expected = log_softmax(500 * loc @ vertices(dims + 1).T, axis=1)
    assert expected.min() < -300
    np.testing.assert_allclose(log_p[4:], expected, rtol=1e-3)


def test_gradient_is_nonzero_at_any_margin():
    rng = np.random.default_rng(10)
    for scale in (np.ones((4, 1)), np.ones((4, 3)), np.ones((4, 1, 1)) * np.eye(3)):
        loc, scale = tf.constant(500 * rng.normal(size=(4, 3)), tf.float32), tf.constant(scale, tf.float32)
        with tf.GradientTape() as tape:
            tape.watch([loc, scale])
            loss = -tf.reduce_sum(softmax({"loc": loc, "scale": scale}, log=True))
        by_loc, by_scale = tape.gradient(loss, [loc, scale])
        assert np.isfinite(by_scale).all()
        assert np.isfinite(by_loc).all()
        assert np.abs(by_loc).max(axis=1).min() > 0.1


def test_zero_scale_gives_softmax_of_mean():
    loc = np.random.default_rng(0).normal(size=(4, 5))
    for scale in (np.zeros((4, 1)), np.zeros((4, 5)), np.zeros((4, 5, 5))):
        np.testing.assert_allclose(
            at_once({"loc": loc, "scale": scale}), softmax_of(loc @ vertices(6).T, axis=1), atol=1e-14
        )


@pytest.mark.parametrize("kind", ["isotropic", "diagonal", "full"])
def test_many_classes_agree_with_averaging(kind):
    rng = np.random.default_rng(2)
    loc = rng.normal(size=(3, 4))
    shape = {"isotropic": (3, 1), "diagonal": (3, 4), "full": (3, 4, 4)}[kind]
    scale = np.tril(rng.uniform(0.2, 1.5, shape)) if kind == "full" else rng.uniform(0.2, 1.5, shape)
    S = 2.0 * helmert(5).T
    p = at_once(LatentGaussian(loc, scale), S)
    for row in range(3):
        factor = scale[row] if kind == "full" else np.diag(np.broadcast_to(scale[row], 4))
        mean, error = softmax_by_averaging(loc[row], factor, S, 200_000, seed=row)
        assert (np.abs(p[row] - mean) < 5 * error + 2e-3).all()
    np.testing.assert_allclose(p.sum(1), 1.0, atol=1e-12)


def test_more_points_converge():
    rng = np.random.default_rng(3)
    latent = LatentGaussian(rng.normal(size=(20, 9)), rng.uniform(0.2, 1.5, (20, 9)))
    reference = at_once(latent, helmert(10).T, num_points=2**14)
    coarse, fine = (np.abs(at_once(latent, helmert(10).T, num_points=q) - reference).max() for q in (64, 1024))
    assert fine < 1e-3
    assert fine < 0.5 * coarse


@pytest.mark.parametrize(
    ("dims", "spread", "scores", "jit_compile"),
    [(1, 1, None, False), (3, 3, None, False), (3, 1, None, True), (3, 3, np.eye(3), True)],
)
def test_gradients_in_graphs_and_xla_agree_with_finite_differences(dims, spread, scores, jit_compile):
    rng = np.random.default_rng(4)
    loc, scale = tf.constant(rng.normal(size=(3, dims))), tf.constant(rng.uniform(0.3, 1.5, (3, spread)))

    @tf.function(jit_compile=jit_compile, autograph=False)
    def both(loc, scale):
        with tf.GradientTape() as tape:
            tape.watch([loc, scale])
            value = tf.reduce_sum(tf.math.log(softmax({"loc": loc, "scale": scale}, scores)[:, 0]))
        return value, tape.gradient(value, [loc, scale])

    _, gradients = both(loc, scale)
    a, b, h = rng.normal(size=loc.shape), rng.normal(size=scale.shape), 1e-5
    numeric = (both(loc + h * a, scale + h * b)[0] - both(loc - h * a, scale - h * b)[0]) / (2 * h)
    expected = tf.reduce_sum(gradients[0] * a) + tf.reduce_sum(gradients[1] * b)
    np.testing.assert_allclose(numeric, expected, rtol=1e-6)


def test_gradient_is_finite_at_zero_scale():
    for dims, spread in ((1, 1), (3, 3), (3, 1)):
        loc, scale = tf.ones((2, dims)), tf.zeros((2, spread))
        with tf.GradientTape() as tape:
            tape.watch([loc, scale])
            value = tf.reduce_sum(softmax({"loc": loc, "scale": scale})[:, 0])
        for gradient in tape.gradient(value, [loc, scale]):
            assert np.isfinite(gradient).all()


def test_calls_are_reproducible():
    latent = {"loc": np.ones((3, 4), "float32"), "scale": np.ones((3, 4), "float32")}
    first = softmax(latent)
    assert first.dtype == np.float32
    np.testing.assert_array_equal(first, softmax(latent))
    assert np.abs(at_once(latent) - at_once(latent, seed=1)).max() > 0


def test_invalid_num_points_raises():
    with pytest.raises(ValueError, match=r"num_points must.*found 100"):
        softmax({"loc": np.zeros((1, 2)), "scale": np.ones((1, 2))}, num_points=100)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"method": "exact"}, "method='exact' needs two classes"),
    ({"method": "monte_carlo"}, r"method must.*found 'monte_carlo'"),
])  # fmt: skip
def test_invalid_method_raises(arguments, message):
    with pytest.raises(ValueError, match=message):
        softmax({"loc": np.zeros((1, 2)), "scale": np.ones((1, 2))}, **arguments)


def test_unknown_readout_raises():
    with pytest.raises(ValueError, match=r"readout must.*found 'probit'"):
        method_for({"loc": np.zeros((1, 2)), "scale": np.ones((1, 2))}, readout="probit")


@pytest.mark.parametrize(("num_points", "dims"), [(64, 2), (1024, 9)])
def test_points_have_the_moments_of_the_gaussian(num_points, dims):
    points = gaussian(num_points, dims, seed=3)
    np.testing.assert_allclose(points.mean(axis=0), 0.0, atol=1e-14)
    np.testing.assert_allclose(points.T @ points / num_points, np.eye(dims), atol=1e-13)


@pytest.mark.slow
def test_narrow_gaussians_need_few_points():
    """Two terms of the Taylor series are exact; the rest is of the order of the standard deviation cubed."""
    latent = latents(20, 9, "diagonal")
    narrow = LatentGaussian(latent.loc, 0.1 * latent.scale)
    error = at_once(narrow, method="quasi_monte_carlo", num_points=128) - at_once(narrow, num_points=2**17)
    assert np.abs(error).max() < 5e-5


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("deviation", [0.0, 0.3, 0.49, 0.51, 2.0, 30.0])
def test_interpolation_table_agrees_with_sums(deviation, dtype):
    rng = np.random.default_rng(3)
    spread = np.repeat([1.0, 10.0, 100.0], 3)[:, None]
    mean = tf.constant(spread * rng.normal(size=(9, 7)), dtype)
    shared = tf.fill((9, 1), tf.constant(deviation, dtype))
    upstream = tf.constant(rng.normal(size=(9, 7)), dtype)
    answers = []
    for deviations in (shared, tf.repeat(shared, 7, axis=1)):
        with tf.GradientTape() as tape:
            tape.watch([mean, deviations])
            p = gumbel.probabilities(mean, deviations, 128)
        by_mean, by_deviations = tape.gradient(p, [mean, deviations], upstream)
        answers.append((p, by_mean, tf.reduce_sum(by_deviations, axis=1)))
    (p, *gradients), (expected, *expected_gradients) = answers
    error = {"float32": 2e-6, "float64": 1e-9}[dtype]
    np.testing.assert_allclose(p, expected, rtol=0, atol=error)
    likely = expected.numpy() > 1e-12
    np.testing.assert_allclose(p[likely], expected[likely], rtol=1e3 * error)
    for gradient, wanted in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-3, atol=20 * error)


@pytest.mark.slow
@pytest.mark.parametrize("spread", [1, 4])
def test_tape_keeps_no_tensor_of_a_row_batch(spread, monkeypatch):
    rng = np.random.default_rng(6)
    loc, scale = tf.constant(rng.normal(size=(3, 4))), tf.constant(rng.uniform(0.2, 2.0, (3, spread)))
    kept = []

    def watched(function):
        def call(*arguments):
            answers = function(*arguments)
            kept.extend(weakref.ref(answer) for answer in answers)
            return answers

        return call

    def gradient():
        with tf.GradientTape() as tape:
            tape.watch([loc, scale])
            p = softmax({"loc": loc, "scale": scale}, np.eye(4), num_points=16)
            value = tf.reduce_sum(p[:, 0])
        if kept:
            gc.collect()
            assert not [reference for reference in kept if reference() is not None]
        return tape.gradient(value, [loc, scale])

    whole = gradient()
    monkeypatch.setattr("deepsimplex._utils.batching._BUDGET", 1)
    for name in ("_log_cdf_and_hazard", "convolution"):
        monkeypatch.setattr(gumbel, name, watched(getattr(gumbel, name)))
    for batched, expected in zip(gradient(), whole, strict=True):
        np.testing.assert_allclose(batched, expected, rtol=1e-12, atol=1e-14)
    assert kept
