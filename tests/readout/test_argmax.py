import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from deepsimplex.geometry import helmert, vertices
from deepsimplex.latent import LatentGaussian
from deepsimplex.readout import argmax, method_for, monte_carlo_standard_error, orthant_probabilities
from tests.reference.readout import (
    argmax_by_counting,
    argmax_independent,
    argmax_isotropic,
    argmax_three,
    log_argmax_independent,
)


def latents(rows, dims, kind, seed=0, dtype="float64"):
    """Random latents of one kind of covariance, wide enough that every class has a chance."""
    rng = np.random.default_rng(seed)
    loc = rng.normal(size=(rows, dims)) * 0.7
    scale = np.exp(rng.uniform(np.log(0.2), 0.0, (rows, 1 if kind == "isotropic" else dims)))
    if kind == "full":
        scale = np.tril(rng.normal(size=(rows, dims, dims)) * 0.3, -1) + np.eye(dims) * scale[:, None, :]
    return LatentGaussian(loc.astype(dtype), scale.astype(dtype))


def tf_latent(loc, scale):
    return {"loc": tf.constant(loc), "scale": tf.constant(scale)}


def at_once(latent, scores=None, **arguments):
    """The readout of tensors, computed step by step: arrays would have a graph traced for every setting."""
    latent = LatentGaussian.of(latent)
    return argmax(tf_latent(latent.loc, latent.scale), scores, **arguments).numpy()


@pytest.mark.parametrize("kind", ["isotropic", "diagonal", "full"])
def test_two_classes_equal_normal_cdf(kind):
    latent = latents(20, 1, kind)
    expected = ndtr(latent.loc[:, 0] / latent.scale.reshape(-1))
    np.testing.assert_allclose(argmax(latent), np.stack([expected, 1 - expected], 1), atol=1e-15)


def test_two_classes_in_many_dimensions_project_on_score_difference():
    latent, S = latents(5, 3, "full"), np.array([[1.0, 2.0, -1.0], [0.5, 0.0, 1.0]])
    d = S[0] - S[1]
    z = latent.loc @ d / np.linalg.norm(np.einsum("l,nlm->nm", d, latent.scale), axis=1)
    np.testing.assert_allclose(argmax(latent, S)[:, 0], ndtr(z), atol=1e-14)


@pytest.mark.parametrize(("n", "s"), [(3, 0.02), (3, 1.0), (10, 0.1), (10, 1.0), (10, 8.0), (40, 0.5)])
def test_isotropic_scale_agrees_with_adaptive_quadrature(n, s):
    loc = np.random.default_rng(n).normal(size=(1, n - 1)).astype("float32")
    expected = argmax_isotropic(loc[0].astype(float), float(np.float32(s)), vertices(n))
    p = at_once({"loc": loc.astype(float), "scale": np.full((1, 1), np.float32(s), float)})
    np.testing.assert_allclose(p[0], expected, atol=1e-12)
    seen = expected > 1e-100
    np.testing.assert_allclose(p[0][seen], expected[seen], rtol=1e-8)
    p32 = at_once({"loc": loc, "scale": np.full((1, 1), s, "float32")})
    # The scores themselves carry round-off of 1e-7, which a small scale magnifies.
    np.testing.assert_allclose(p32[0], expected, atol=1e-6 * max(1.0, 0.1 / s))


@pytest.mark.slow
@pytest.mark.parametrize(("n", "smallest", "largest"), [(3, 0.5, 2.0), (10, 0.01, 3.0), (10, 0.5, 1.0)])
def test_independent_components_agree_with_adaptive_quadrature(n, smallest, largest):
    rng = np.random.default_rng(n)
    loc = rng.normal(size=(1, n))
    scale = np.exp(rng.uniform(np.log(smallest), np.log(largest), (1, n)))
    expected = argmax_independent(loc[0], scale[0])
    latent = LatentGaussian(loc, scale)
    assert method_for(latent, np.eye(n)) == "exact"
    np.testing.assert_allclose(argmax(latent, np.eye(n))[0], expected, atol=1e-11)
    np.testing.assert_allclose(at_once(latent, 3.0 * np.eye(n))[0], expected, atol=1e-11)
    single = LatentGaussian(loc.astype("float32"), scale.astype("float32"))
    np.testing.assert_allclose(at_once(single, np.eye(n))[0], expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["diagonal", "full"])
@pytest.mark.parametrize("far", [0.3, 3.0])
def test_three_classes_agree_with_adaptive_quadrature(kind, far):
    latent, S = latents(12, 2, kind, seed=3), np.random.default_rng(0).normal(size=(3, 2))
    latent.loc[...] *= far
    assert method_for(latent, S) == "exact"
    factors = latent.scale if kind == "full" else latent.scale[:, :, None] * np.eye(2)
    for scores in (S, vertices(3)):
        expected = [argmax_three(loc, factor, scores) for loc, factor in zip(latent.loc, factors, strict=True)]
        np.testing.assert_allclose(at_once(latent, scores), expected, atol=1e-12)
        single = LatentGaussian(latent.loc.astype("float32"), latent.scale.astype("float32"))
        np.testing.assert_allclose(at_once(single, scores), expected, atol=2e-6)


def test_three_classes_agree_with_isotropic_formula():
    loc = np.random.default_rng(2).normal(size=(30, 2)) * np.geomspace(0.01, 80.0, 30)[:, None]
    isotropic, spread = {"loc": loc, "scale": np.ones((30, 1))}, {"loc": loc, "scale": np.ones((30, 2))}
    expected = at_once(isotropic, log=True)
    near = expected > -1500  # margins beyond 80 standard deviations are too far for the isotropic formula
    np.testing.assert_allclose(at_once(spread, log=True)[near], expected[near], rtol=1e-9, atol=1e-13)


def test_equal_variances_are_the_limit_of_unequal_variances():
    latent = latents(10, 6, "isotropic")
    spread = LatentGaussian(latent.loc, np.repeat(latent.scale, 6, axis=1))
    np.testing.assert_allclose(at_once(latent, np.eye(6)), at_once(spread, np.eye(6)), atol=1e-12)


@pytest.mark.parametrize(("n", "single", "double"), [(10, 1e-6, 1e-10), (100, 1e-6, 1e-10), (1000, 1e-6, 1e-8)])
def test_negligible_class_does_not_affect_others(n, single, double):
    rng = np.random.default_rng(n)
    scores = (rng.normal(size=(12, n)) * rng.uniform(0.1, 2.0, (12, 1)))[:5]
    scores[:, 0] = -60.0
    latent = {"loc": scores, "scale": np.ones((5, 1))}
    exact = at_once(latent, np.eye(n), num_points=2048)
    np.testing.assert_allclose(at_once(latent, np.eye(n)), exact, rtol=0, atol=double)
    p = at_once({key: value.astype("float32") for key, value in latent.items()}, np.eye(n))
    np.testing.assert_allclose(p, exact, rtol=0, atol=single)


@pytest.mark.parametrize("ratio", [1e-2, 1e-3])
def test_three_classes_with_narrow_directions(ratio):
    latent = latents(20, 2, "full", seed=5)
    latent.scale[:, 1] *= ratio
    latent.loc[...] *= 0.1
    expected = [argmax_three(*row, vertices(3)) for row in zip(latent.loc, latent.scale, strict=True)]
    np.testing.assert_allclose(at_once(latent), expected, atol=1e-10)
    single = LatentGaussian(latent.loc.astype("float32"), latent.scale.astype("float32"))
    np.testing.assert_allclose(at_once(single), expected, atol=2e-6 / ratio)  # round-off of the means themselves


@pytest.mark.parametrize(("dims", "kind", "scores"), [(1, "isotropic", None), (2, "diagonal", None),
                                                      (3, "isotropic", None), (3, "diagonal", None),
                                                      (4, "diagonal", np.eye(4))])  # fmt: skip
def test_nan_in_tensor_stays_in_its_row(dims, kind, scores):
    latent = latents(3, dims, kind)
    expected = at_once(latent, scores)
    np.testing.assert_allclose(argmax(tf_latent(latent.loc, -latent.scale), scores), expected, atol=1e-12)
    latent.loc[1, 0] = np.nan
    p = argmax(tf_latent(latent.loc, latent.scale), scores).numpy()
    assert np.isnan(p[1]).all()
    np.testing.assert_allclose(p[[0, 2]], expected[[0, 2]], atol=1e-12)


def test_single_class_raises():
    with pytest.raises(ValueError, match=r"scores must.*found 1"):
        argmax({"loc": np.zeros((1, 1)), "scale": np.ones((1, 1))}, np.ones((1, 1)))


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-6)])
@pytest.mark.parametrize("n", [3, 10, 40])
def test_log_probabilities_are_accurate_at_any_margin(n, dtype, tolerance):
    rng = np.random.default_rng(n)
    margins = np.concatenate([[0.0], rng.uniform(0.0, 40.0, n - 2), [40.0]])
    expected = log_argmax_independent(-margins, np.ones(n))
    latent = LatentGaussian(-margins[None].astype(dtype), np.ones((1, 1), dtype))
    log_p = at_once(latent, np.eye(n), log=True)
    np.testing.assert_allclose(log_p[0], expected, rtol=tolerance, atol=tolerance)
    spread = LatentGaussian(latent.loc, np.ones((1, n), dtype))
    np.testing.assert_allclose(at_once(spread, np.eye(n), log=True)[0], expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("dims", "kind"), [(1, "isotropic"), (2, "diagonal"), (3, "isotropic"), (3, "diagonal")])
def test_log_probabilities_agree_with_probabilities_and_rows_are_independent(dims, kind):
    latent = latents(6, dims, kind)
    np.testing.assert_allclose(np.exp(at_once(latent, log=True)), at_once(latent), rtol=1e-12)
    far = LatentGaussian(np.concatenate([latent.loc, 300 * latent.loc]), np.concatenate([latent.scale] * 2))
    both = at_once(far, log=True)
    np.testing.assert_allclose(both[:6], at_once(latent, log=True), rtol=1e-12)
    assert np.isfinite(both).all()
    assert both.min() < -800  # no probability of float64 is as small


@pytest.mark.parametrize("kind", ["isotropic", "diagonal", "full"])
@pytest.mark.parametrize("dims", [1, 2, 4])
def test_gradient_is_nonzero_at_any_margin(dims, kind):
    latent = latents(4, dims, kind, dtype="float32")
    loc, scale = tf.constant(1e3 * latent.loc), tf.constant(latent.scale)
    with tf.GradientTape() as tape:
        tape.watch([loc, scale])
        loss = -tf.reduce_sum(argmax({"loc": loc, "scale": scale}, log=True))
    by_loc, by_scale = tape.gradient(loss, [loc, scale])
    assert np.isfinite(by_loc).all()
    assert np.isfinite(by_scale).all()
    assert np.abs(by_loc).max(axis=1).min() > 1.0  # every sample is still told where to go


def test_monte_carlo_log_probability_of_undrawn_class_is_infinite():
    latent = {"loc": np.array([[9.0, 0.0, 0.0]]), "scale": np.full((1, 1), 0.1)}
    assert argmax(latent, method="monte_carlo", log=True)[0].tolist() == [0.0, -np.inf, -np.inf, -np.inf]


@pytest.mark.parametrize("n", [3, 10, 100])
def test_symmetric_input_gives_equal_probabilities(n):
    scale = np.array([[0.1], [1.0], [50.0]])
    np.testing.assert_allclose(at_once({"loc": np.zeros((3, n - 1)), "scale": scale}), 1 / n, rtol=0, atol=1e-12)
    spread = np.broadcast_to(scale, (3, n))
    np.testing.assert_allclose(at_once({"loc": np.zeros((3, n)), "scale": spread}, np.eye(n)), 1 / n, atol=1e-12)


@given(seed=st.integers(0, 10**6), n=st.integers(3, 12), log_s=st.floats(-3, 2))
@settings(max_examples=8, deadline=None)
def test_permuting_classes_permutes_probabilities(seed, n, log_s):
    rng = np.random.default_rng(seed)
    loc, scale, order = rng.normal(size=(4, n - 1)), np.full((4, 1), 10.0**log_s), rng.permutation(n)
    p = at_once({"loc": loc, "scale": scale})
    permuted = argmax(tf_latent(loc, scale), vertices(n)[order]).numpy()
    np.testing.assert_allclose(permuted, p[:, order], atol=1e-13)
    np.testing.assert_allclose(p.sum(1), 1.0, atol=1e-12)
    assert (p > 0).all()


each_case = pytest.mark.parametrize(
    ("dims", "kind", "scores"),
    [
        (1, "isotropic", None),
        (2, "diagonal", None),
        (2, "full", None),
        (3, "isotropic", None),
        (3, "diagonal", None),
        (3, "full", None),
        (4, "diagonal", np.eye(4)),
    ],
)


def test_probabilities_are_invariant_to_construction_and_scale_of_scores():
    scores = np.random.default_rng(3).normal(size=(6, 5))
    for S in (vertices(5), 7.0 * vertices(5), vertices(5, "helmert"), helmert(5).T):
        # The latent of given scores: S has orthogonal columns, so that S^T S = alpha I.
        alpha = (S**2).sum() / 4
        loc = scores @ S / alpha
        p = at_once({"loc": loc, "scale": np.full((6, 1), 0.4 / np.sqrt(alpha))}, S)
        expected = at_once({"loc": scores - scores.mean(1, keepdims=True), "scale": np.full((6, 1), 0.4)}, np.eye(5))
        np.testing.assert_allclose(p, expected, atol=1e-12)


@pytest.mark.parametrize(("num_points", "tolerance"), [(128, 3e-3), (1024, 1e-4)])
def test_quasi_monte_carlo_converges_to_isotropic_formula(num_points, tolerance):
    latent = latents(10, 9, "isotropic")
    exact = argmax(latent)
    p = at_once(latent, method="quasi_monte_carlo", num_points=num_points)
    np.testing.assert_allclose(p, exact, atol=tolerance)
    np.testing.assert_allclose(p.sum(1), 1.0, atol=1e-12)
    assert (p > 0).all()


@pytest.mark.slow
def test_default_number_of_points_is_accurate_to_0_002():
    latent = latents(10, 9, "diagonal", seed=2)
    reference = at_once(latent, num_points=2**11)  # errs by 6e-5
    assert method_for(latent) == "quasi_monte_carlo"
    assert np.abs(at_once(latent) - reference).max() < 2e-3
    single = LatentGaussian(latent.loc.astype("float32"), latent.scale.astype("float32"))
    assert np.abs(at_once(single) - reference).max() < 2e-3


@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_quasi_monte_carlo_agrees_with_counting(kind):
    latent, S = latents(3, 4, kind, seed=5), np.random.default_rng(1).normal(size=(6, 4))
    p = at_once(latent, S, num_points=2048)
    for row in range(3):
        factor = np.diag(latent.scale[row]) if kind == "diagonal" else latent.scale[row]
        counted = argmax_by_counting(latent.loc[row], factor, S, 200_000, seed=row)
        error = monte_carlo_standard_error(np.clip(counted, 1e-5, 1), 200_000)
        assert (np.abs(p[row] - counted) < 5 * error + 3e-4).all()


def test_full_scale_agrees_with_diagonal_scale():
    latent = latents(20, 5, "diagonal")
    full = LatentGaussian(latent.loc, latent.scale[:, :, None] * np.eye(5))
    np.testing.assert_allclose(at_once(full), at_once(latent), atol=1e-12)


def test_quasi_monte_carlo_of_two_classes_equals_closed_form():
    latent = latents(7, 1, "isotropic")
    np.testing.assert_allclose(at_once(latent, method="quasi_monte_carlo"), at_once(latent), atol=1e-12)


def test_monte_carlo_error_matches_standard_error():
    latent = latents(40, 9, "isotropic")
    exact = argmax(latent)
    p = argmax(latent, method="monte_carlo", num_points=2000, seed=4)
    deviations = (p - exact) / monte_carlo_standard_error(exact, 2000)
    assert 0.7 < deviations.std() < 1.3
    # Eq. 38-39 is the unbiased variance of n Bernoulli draws, p (1 - p) / (n - 1).
    np.testing.assert_allclose(monte_carlo_standard_error([0.3], 11), np.sqrt(0.3 * 0.7 / 10))


@pytest.mark.parametrize("method", ["auto", "quasi_monte_carlo", "monte_carlo"])
def test_rows_are_reproducible_and_independent(method):
    latent = latents(9, 3, "diagonal")
    first = argmax(latent, method=method)
    np.testing.assert_array_equal(first, argmax(latent, method=method))
    np.testing.assert_allclose(first[3:5], argmax(latent[3:5], method=method), atol=1e-13)


def test_seed_changes_samples():
    latent = latents(5, 4, "diagonal")
    assert np.abs(at_once(latent, seed=0) - at_once(latent, seed=1)).max() > 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@each_case
def test_zero_scale_gives_nearest_vertex_and_splits_ties(dims, kind, scores, dtype):
    S = vertices(dims + 1) if scores is None else scores
    # A vertex itself, the midpoint between two, and the origin where all tie.
    loc = np.stack([S[0], (S[0] + S[1]) / 2, 0 * S[0]]).astype(dtype)
    expected = np.zeros((3, len(S)))
    expected[0, 0], expected[1, :2], expected[2] = 1.0, 0.5, 1 / len(S)
    shape = {"isotropic": (3, 1), "diagonal": (3, dims), "full": (3, dims, dims)}[kind]
    latent = {"loc": tf.constant(loc), "scale": tf.zeros(shape, dtype)}
    with tf.GradientTape() as tape:
        tape.watch(list(latent.values()))
        p = argmax(latent, scores)
        loss = tf.reduce_sum(p * tf.range(len(S), dtype=dtype))
    np.testing.assert_allclose(p, expected, atol=0.02)  # two scores that tie may differ by their round-off
    for gradient in tape.gradient(loss, list(latent.values())):
        assert np.isfinite(gradient).all()


def test_singular_covariances():
    latent = latents(4, 3, "diagonal", dtype="float32")
    latent.scale[:, 1:] = 0
    narrow = LatentGaussian(latent.loc.astype("float64"), latent.scale + 1e-3 * (latent.scale == 0))
    np.testing.assert_allclose(at_once(latent), at_once(narrow, num_points=4096), atol=5e-3)


@each_case
def test_gradients_agree_with_finite_differences(dims, kind, scores):
    latent = latents(2, dims, kind, seed=7)
    weights = np.random.default_rng(0).normal(size=dims + 1 if scores is None else len(scores))

    def loss(loc, scale):
        return tf.reduce_sum(tf.math.log(argmax({"loc": loc, "scale": scale}, scores)) * weights)

    loc, scale = tf.constant(latent.loc), tf.constant(latent.scale)
    with tf.GradientTape() as tape:
        tape.watch([loc, scale])
        value = loss(loc, scale)
    analytic = tape.gradient(value, [loc, scale])
    rng = np.random.default_rng(1)
    for direction in range(3):
        a, b = rng.normal(size=loc.shape), rng.normal(size=scale.shape)
        if kind == "full":
            b = np.tril(b)
        h = 1e-5
        numeric = (loss(loc + h * a, scale + h * b) - loss(loc - h * a, scale - h * b)) / (2 * h)
        expected = tf.reduce_sum(analytic[0] * a) + tf.reduce_sum(analytic[1] * b)
        np.testing.assert_allclose(numeric, expected, rtol=1e-5, err_msg=str(direction))


@pytest.mark.slow
@pytest.mark.parametrize(
    # XLA compiles the formula of one variance in pieces of rows, below.
    ("dims", "kind", "method"),
    [(2, "full", "exact"), (2, "full", "quasi_monte_carlo")],
)
def test_graphs_that_xla_compiles_agree_with_eager(dims, kind, method, monkeypatch):
    # A continued fraction cut short is as good a program as a precise one, and compiles in half of the time.
    monkeypatch.setitem(orthant_probabilities._LEVELS, "float64", 3)
    latent = latents(6, dims, kind)
    loc, scale = tf.constant(latent.loc), tf.constant(latent.scale)

    def both(loc, scale):
        with tf.GradientTape() as tape:
            tape.watch(scale)
            log_p = argmax({"loc": loc, "scale": scale}, method=method, num_points=32, log=True)
            top = tf.reduce_sum(log_p[:, 0])
        return log_p, tape.gradient(top, scale)

    graph = tf.function(both, jit_compile=True, autograph=False)
    for eager, compiled in zip(both(loc, scale), graph(loc, scale), strict=True):
        np.testing.assert_allclose(compiled, eager, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dims", "method", "row_size", "known_rows"),
    # XLA compiles the loop over pieces around one method: that it compiles either is shown above.
    [(3, "exact", 4 * 32, True), (3, "exact", 4 * 32, False), (2, "quasi_monte_carlo", 3 * 2 * 32, False)],
)
def test_row_batches_agree_with_single_batch(monkeypatch, dims, method, row_size, known_rows):
    latent = latents(11, dims, "isotropic" if method == "exact" else "diagonal")
    loc, scale = tf.constant(latent.loc), tf.constant(latent.scale)

    def gradient(loc, scale):
        with tf.GradientTape() as tape:
            tape.watch([loc, scale])
            p = argmax({"loc": loc, "scale": scale}, method=method, num_points=32)
            top = tf.reduce_sum(tf.math.log(p[:, 1]))
        return [p, *tape.gradient(top, [loc, scale])]

    whole = gradient(loc, scale)
    monkeypatch.setattr("deepsimplex._utils.batching._BUDGET", 3 * row_size)
    rows = 11 if known_rows else None
    signature = [tf.TensorSpec([rows, *x.shape[1:]], x.dtype) for x in (loc, scale)]
    compiled = tf.function(gradient, input_signature=signature, jit_compile=known_rows, autograph=False)
    for a, b in zip(compiled(loc, scale), whole, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_monte_carlo_gradient_raises(monkeypatch):
    monkeypatch.setattr("deepsimplex._utils.batching._BUDGET", 1)
    loc, scale = tf.constant(np.zeros((5, 3))), tf.constant(np.ones((5, 1)))
    with tf.GradientTape() as tape:
        tape.watch(loc)
        p = argmax({"loc": loc, "scale": scale}, method="monte_carlo", num_points=8)
    with pytest.raises(ValueError, match="have no derivatives: take another method"):
        tape.gradient(p, loc)


def test_empty_input():
    assert argmax({"loc": np.zeros((0, 3)), "scale": np.zeros((0, 1))}).shape == (0, 4)


def test_dtypes_and_types_of_input_are_kept():
    loc, scale = np.zeros((2, 3), "float32"), np.ones((2, 1), "float32")
    assert isinstance(argmax({"loc": loc, "scale": scale}), np.ndarray)
    assert argmax({"loc": loc, "scale": scale}).dtype == np.float32
    assert argmax(LatentGaussian(loc.astype(float), scale)).dtype == np.float64
    assert argmax({"loc": tf.cast(loc, tf.bfloat16), "scale": tf.cast(scale, tf.bfloat16)}).dtype == tf.float32


@pytest.mark.parametrize(("arguments", "message"), [
    ({"method": "exact"}, "method='exact' needs two classes"),
    ({"method": "guess"}, r"method must.*found 'guess'"),
    ({"scores": np.ones((4, 5))}, r"scores must.*found \(4, 5\)"),
    ({"scores": np.full((4, 3), np.nan)}, "scores must be finite"),
    ({"num_points": 100}, r"num_points must.*found 100"),
    ({"num_points": 0}, r"num_points must.*found 0"),
    ({"seed": -1}, r"seed must.*found -1"),
])  # fmt: skip
def test_invalid_arguments_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        argmax(latents(2, 3, "diagonal"), **arguments)
