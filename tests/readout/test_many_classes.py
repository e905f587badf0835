"""Argmax readout of many classes in single precision: tables in place of nodes for every class."""

import numpy as np
import pytest
import tensorflow as tf

from deepsimplex._utils.portable_operations import portable_operations
from deepsimplex.geometry import helmert, vertices
from deepsimplex.readout import ArgmaxReadout, argmax, argmax_error
from deepsimplex.readout.exact_quadrature import equal_variances
from deepsimplex.readout.score_matrix import Scores
from tests.reference.readout import argmax_isotropic


def scores(n, seed=0):
    """Rows of scores: alike, spread out, one ahead of the others, in groups, and in a row."""
    rng = np.random.default_rng(seed)
    spread = [sd * rng.normal(size=n) for sd in (0.0, 0.1, 1.0, 3.0)]
    ahead = [np.where(np.arange(n) == 1, 0.0, -gap) for gap in (1.0, 3.05, 6.0, 9.3)]
    groups = np.select([np.arange(n) < 2, np.arange(n) < n // 2], [0.0, -2.5], -5.0)
    return np.stack([*spread, *ahead, groups, -np.linspace(0.0, 11.0, n)]).astype("float32")


def far_scores(n, margins=(14.0, 40.0, 80.0)):
    """Rows whose worst class is up to 80 standard deviations behind."""
    rng = np.random.default_rng(1)
    rows = []
    for margin in margins:
        rows += [
            -np.linspace(0.0, margin, n),
            -rng.uniform(0.0, margin, n),
            np.where(np.arange(n) < n - 5, 0.0, -margin),
        ]
    return np.stack(rows).astype("float32")


def in_double_precision(g, num_points=None, **arguments):
    """The same by nodes for every class."""
    ones = tf.ones((len(g), 1), tf.float64)
    return equal_variances(tf.constant(g, tf.float64), ones, num_points or 400, **arguments)


def ours(g, **arguments):
    return equal_variances(tf.constant(g), tf.ones((len(g), 1)), 48 if g.shape[1] <= 100 else 64, **arguments)


@pytest.mark.parametrize("n", [64, 100, 1000])
def test_probabilities_and_logarithms_agree_with_nodes_for_every_class(n):
    g = scores(n)
    np.testing.assert_allclose(ours(g), in_double_precision(g), rtol=0, atol=1e-6)
    np.testing.assert_allclose(ours(g, log=True), in_double_precision(g, log=True), rtol=1e-6, atol=3e-6)
    np.testing.assert_allclose(np.sum(ours(g), axis=1), 1.0, atol=1e-6)


def test_ten_thousand_classes():
    g = scores(10_000)[[0, 2, 5, 6]]
    np.testing.assert_allclose(ours(g), in_double_precision(g, 208), rtol=0, atol=2e-6)
    np.testing.assert_allclose(ours(g, log=True), in_double_precision(g, 208, log=True), rtol=2e-6, atol=1e-5)


@pytest.mark.parametrize("n", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_logarithms_at_any_margin(n):
    g = far_scores(n, (14.0, 40.0, 80.0) if n <= 100 else (80.0,))
    expected = in_double_precision(g, 2500, log=True)
    np.testing.assert_allclose(ours(g, log=True), expected, rtol=3e-5, atol=1e-5)
    assert np.min(expected) < -3000


def test_adaptive_quadrature_agrees():
    loc = np.random.default_rng(6).normal(size=(1, 99)).astype("float32")
    p = argmax({"loc": tf.constant(loc), "scale": tf.constant([[0.5]])})
    np.testing.assert_allclose(p[0], argmax_isotropic(loc[0].astype(float), 0.5, vertices(100)), atol=1e-6)


@pytest.mark.parametrize(("n", "rows"), [(100, scores), (100, far_scores), (1000, scores)])
def test_gradients_agree_with_nodes_for_every_class(n, rows):
    g = rows(n)
    shares = np.full(g.shape, 0.03 / (n - 1))
    shares[np.arange(len(g)), np.random.default_rng(2).integers(0, n, len(g))] = 0.97

    def gradients(function, g, **arguments):
        loc, scale = tf.constant(g), tf.ones((len(g), 1), g.dtype)
        with tf.GradientTape() as tape:
            tape.watch([loc, scale])
            log_p = equal_variances(loc, scale, *arguments.values(), log=True)
            loss = tf.reduce_sum(log_p * tf.constant(shares, loc.dtype))
        return tape.gradient(loss, [loc, scale])

    single = gradients(ours, g, num_points=48 if n <= 100 else 64)
    double = gradients(in_double_precision, g.astype("float64"), num_points=400 if rows is scores else 2500)
    for ours_, expected in zip(single, double, strict=True):
        # By the scale it is a difference of larger numbers.
        largest = np.maximum(np.abs(expected).max(axis=1, keepdims=True), 0.1)
        np.testing.assert_allclose(ours_ / largest, expected / largest, atol=2e-4)


def test_nan_stays_in_its_row_and_scale_zero_is_the_limit():
    loc = np.random.default_rng(0).normal(size=(3, 99)).astype("float32")
    loc[1, 4] = np.nan
    scale = tf.constant([[0.5], [0.5], [0.0]])
    for log in (False, True):
        p = argmax({"loc": tf.constant(loc), "scale": scale}, log=log).numpy()
        assert np.isnan(p[1]).all()
        assert np.isfinite(p[[0, 2]]).all()
    p = argmax({"loc": tf.constant(loc), "scale": scale}).numpy()
    assert p[2].argmax() == (vertices(100) @ loc[2]).argmax()
    assert p[2].max() == pytest.approx(1.0)
    assert p[2].min() > 0


def test_no_tensor_has_classes_times_nodes():
    n, rows = 4000, 2

    def gradient(g):
        with tf.GradientTape() as tape:
            tape.watch(g)
            value = tf.reduce_sum(equal_variances(g, tf.ones((rows, 1)), 64, log=True)[:, 0])
        return tape.gradient(value, g)

    graph = tf.function(gradient, autograph=False).get_concrete_function(tf.TensorSpec([rows, n], tf.float32)).graph
    outputs = [output for op in graph.get_operations() if op.type != "Const" for output in op.outputs]
    assert max(output.shape.num_elements() or 0 for output in outputs) <= 5 * rows * n


def test_error_bound_exceeds_the_error():
    loc = np.random.default_rng(0).normal(size=(4, 99)).astype("float32")
    latent = {"loc": loc, "scale": np.full((4, 1), 0.3, "float32")}
    exact = argmax({"loc": tf.constant(loc, tf.float64), "scale": tf.constant(latent["scale"], tf.float64)})
    assert (np.abs(argmax(latent) - exact) <= argmax_error(latent)).all()


@pytest.mark.slow
def test_xla_agrees():
    g = np.concatenate([scores(100), far_scores(100)])

    def both(g):
        with tf.GradientTape() as tape:
            tape.watch(g)
            log_p = equal_variances(g, tf.ones((g.shape[0], 1)), 48, log=True)
            value = tf.reduce_mean(log_p)
        return log_p, tape.gradient(value, g)

    compiled = tf.function(both, autograph=False, jit_compile=True)(tf.constant(g))
    for ours_, expected in zip(compiled, both(tf.constant(g)), strict=True):
        np.testing.assert_allclose(ours_, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [64, 75, 300])
def test_scores_of_many_classes_agree_with_the_matrix(n, dtype):
    f = np.random.default_rng(n).normal(size=(5, n - 1))
    weights = np.random.default_rng(1).normal(size=(5, n))
    for S in (vertices(n), 3.0 * vertices(n, "helmert"), helmert(n).T):
        loc = tf.constant(f, dtype)
        with tf.GradientTape() as tape:
            tape.watch(loc)
            mean = Scores(S, n - 1).mean(loc)
            value = tf.reduce_sum(mean * weights.astype(dtype))
        tolerance = 1e-12 if dtype == "float64" else 1e-4
        np.testing.assert_allclose(mean, f @ S.T, atol=tolerance)
        np.testing.assert_allclose(tape.gradient(value, loc), weights @ S, atol=tolerance)


def test_independent_variance_of_many_classes():
    n = 80
    assert Scores(None, n - 1).independent_variance == pytest.approx(n / (n - 1))
    assert Scores(helmert(n).T, n - 1).independent_variance == pytest.approx(1.0)
    assert Scores(np.eye(n), n).independent_variance == pytest.approx(1.0)
    assert Scores(vertices(n) * np.linspace(1.0, 2.0, n - 1), n - 1).independent_variance is None
    assert Scores(np.random.default_rng(0).normal(size=(n, n - 1)), n - 1).independent_variance is None


def test_rows_at_once_are_those_of_the_current_format():
    """Exports, whose operations need more memory, leave no number of rows behind, and take none over."""
    latent, readout = (tf.zeros([1, 69]), tf.ones([1, 1])), ArgmaxReadout()
    with portable_operations("onnx"):
        exported = readout.formula_for(*latent).most_rows
    assert readout.formula_for(*latent).most_rows == ArgmaxReadout().formula_for(*latent).most_rows > exported
    with portable_operations("onnx"):
        assert readout.formula_for(*latent).most_rows == exported
