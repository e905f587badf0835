"""The identities of math.md section 1, for any number of classes."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepsimplex import geometry
from deepsimplex.geometry.vertices import CONSTRUCTIONS
from tests.reference import geometry as oracle

constructions = pytest.mark.parametrize("construction", CONSTRUCTIONS)
class_counts = st.integers(2, 1000)
seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=25, deadline=None)


def compositions(n: int, samples: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(n, 3.0), samples) + 1e-6


@pytest.mark.slow
@constructions
@given(n=class_counts)
@few
def test_vertices_form_regular_simplex(construction, n):
    P = geometry.vertices(n, construction)
    assert P.shape == (n, n - 1)
    assert P.dtype == np.float64
    gram = np.full((n, n), -1 / (n - 1))
    np.fill_diagonal(gram, 1.0)
    np.testing.assert_allclose(P @ P.T, gram, atol=1e-12)
    np.testing.assert_allclose(P.sum(axis=0), 0, atol=1e-11)
    np.testing.assert_allclose(P.T @ P, n / (n - 1) * np.eye(n - 1), atol=1e-11)


@pytest.mark.parametrize("n", [2, 3, 4, 7, 30, 200])
def test_iterative_vertices_equal_recursion_of_the_paper(n):
    np.testing.assert_allclose(geometry.vertices(n), oracle.vertices_iterative(n), atol=1e-9)
    assert geometry.vertices(n)[0, 0] == pytest.approx(1.0)


@pytest.mark.slow
@given(n=class_counts)
@few
def test_helmert_is_orthonormal_with_zero_sums(n):
    V = geometry.helmert(n)
    np.testing.assert_allclose(V @ V.T, np.eye(n - 1), atol=1e-12)
    np.testing.assert_allclose(V.sum(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(V.T @ V, np.eye(n) - 1 / n, atol=1e-12)


@given(n=st.integers(2, 300))
@few
def test_constructions_differ_by_orthogonal_map(n):
    iterative, helmert = geometry.vertices(n), geometry.vertices(n, "helmert")
    R = (n - 1) / n * helmert.T @ iterative
    np.testing.assert_allclose(R @ R.T, np.eye(n - 1), atol=1e-11)
    np.testing.assert_allclose(helmert @ R, iterative, atol=1e-11)


@pytest.mark.parametrize("n", [1, 0, -3, 2.5, True, np.nan, np.inf, "three", None])
def test_invalid_number_of_classes_raises(n):
    with pytest.raises(ValueError, match=rf"^n must.*found {re.escape(repr(n))}"):
        geometry.vertices(n)


def test_unknown_construction_raises():
    with pytest.raises(ValueError, match=r"construction must.*found 'cube'"):
        geometry.vertices(3, "cube")


@constructions
@given(n=class_counts, seed=seeds)
@few
def test_nearest_vertex_has_the_smallest_distance(construction, n, seed):
    f = np.random.default_rng(seed).normal(size=(4, n - 1))
    distances = np.linalg.norm(f[:, None] - geometry.vertices(n, construction), axis=-1)
    np.testing.assert_array_equal(geometry.nearest_vertex(f, construction), distances.argmin(axis=1))
    np.testing.assert_array_equal(
        geometry.nearest_vertex(geometry.vertices(n, construction), construction), np.arange(n)
    )


@given(n=class_counts, seed=seeds)
@few
def test_log_ratios_invert_and_keep_inner_products(n, seed):
    x, y = compositions(n, 3, seed), compositions(n, 3, seed + 1)
    closed = geometry.closure(x)
    np.testing.assert_allclose(geometry.ilr_inverse(geometry.ilr(x)), closed, rtol=1e-9)
    np.testing.assert_allclose(geometry.alr_inverse(geometry.alr(x)), closed, rtol=1e-9)
    np.testing.assert_allclose(geometry.clr(x).sum(axis=1), 0, atol=1e-9)
    inner = np.sum(geometry.ilr(x) * geometry.ilr(y), axis=1)
    np.testing.assert_allclose(geometry.aitchison_inner(x, y), inner, rtol=1e-8, atol=1e-8)
    distance = np.linalg.norm(geometry.ilr(x) - geometry.ilr(y), axis=1)
    np.testing.assert_allclose(geometry.aitchison_distance(x, y), distance, rtol=1e-9)
    np.testing.assert_allclose(geometry.aitchison_norm(x) ** 2, geometry.aitchison_inner(x, x), rtol=1e-9)
    np.testing.assert_allclose(geometry.ilr(7.0 * x), geometry.ilr(x), atol=1e-9)


@pytest.mark.parametrize("n", [2, 3, 9])
def test_aitchison_inner_equals_double_sum_of_log_ratios(n):
    x, y = compositions(n, 2, seed=n)
    assert geometry.aitchison_inner(x, y) == pytest.approx(oracle.aitchison_inner(x, y), abs=1e-12)


def test_alr_divides_by_the_last_part():
    np.testing.assert_allclose(geometry.alr([2.0, 3.0, 4.0]), np.log([2 / 4, 3 / 4]))


PARTS = [0.1, 0.3, 0.4, 0.2]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (geometry.closure([[2, 2, 6], [4, 4, 2]]), [[0.2, 0.2, 0.6], [0.4, 0.4, 0.2]]),
        (geometry.clr(PARTS), [-0.79451346, 0.30409883, 0.5917809, -0.10136628]),
        (geometry.clr_inverse(PARTS), [0.21383822, 0.26118259, 0.28865141, 0.23632778]),
        (geometry.ilr(PARTS), [-0.7768362, -0.68339802, 0.11704769]),
        (geometry.alr(PARTS, reference=0), [1.09861229, 1.38629436, 0.69314718]),
        (geometry.alr_inverse([1.09861229, 1.38629436, 0.69314718], reference=0), PARTS),
        (geometry.perturb(PARTS, [1 / 6, 1 / 6, 1 / 3, 1 / 3]), [0.0625, 0.1875, 0.5, 0.25]),
        (
            geometry.multiplicative_replacement([[0.2, 0.4, 0.4, 0], [0, 0.5, 0.5, 0]]),
            [[0.1875, 0.375, 0.375, 0.0625], [0.0625, 0.4375, 0.4375, 0.0625]],
        ),
    ],
)
def test_values_of_scikit_bio(values, expected):
    """Those of the examples in its documentation."""
    np.testing.assert_allclose(values, expected, atol=5e-9)


WITH_AXIS = {
    "closure": geometry.closure,
    "clr": geometry.clr,
    "clr_inverse": geometry.clr_inverse,
    "ilr": geometry.ilr,
    "ilr_inverse": geometry.ilr_inverse,
    "alr": geometry.alr,
    "alr_inverse": geometry.alr_inverse,
    "multiplicative_replacement": geometry.multiplicative_replacement,
}


@pytest.mark.parametrize("function", WITH_AXIS.values(), ids=WITH_AXIS)
@pytest.mark.parametrize("axis", [0, 1, -2])
def test_axis_of_the_parts(function, axis):
    array = np.random.default_rng(0).gamma(1.0, size=(3, 4, 5))
    moved = np.moveaxis(function(np.moveaxis(array, axis, -1)), -1, axis)
    np.testing.assert_array_equal(function(array, axis=axis), moved)
    for wrong in (3, 0.5, None):
        with pytest.raises(ValueError, match=f"axis must.*found {wrong}"):
            function(array, axis=wrong)


@given(n=st.integers(2, 20), seed=seeds)
@few
def test_inverses_with_any_basis_and_reference(n, seed):
    rng = np.random.default_rng(seed)
    pi = geometry.closure(compositions(n, 4, seed))
    basis = np.linalg.qr(rng.normal(size=(n - 1, n - 1)))[0] @ geometry.helmert(n)
    z = geometry.ilr(pi, basis)
    np.testing.assert_allclose(np.linalg.norm(z, axis=1), geometry.aitchison_norm(pi), rtol=1e-9)
    np.testing.assert_allclose(geometry.ilr_inverse(z, basis), pi, rtol=1e-9)
    np.testing.assert_allclose(geometry.clr_inverse(geometry.clr(pi)), pi, rtol=1e-9)
    reference = int(rng.integers(-n, n))
    ratios = np.delete(np.log(pi / pi[:, [reference]]), reference, axis=1)
    np.testing.assert_allclose(geometry.alr(pi, reference), ratios, atol=1e-12)
    np.testing.assert_allclose(geometry.alr_inverse(ratios, reference), pi, rtol=1e-9)


@given(n=st.integers(2, 20), seed=seeds)
@few
def test_multiplicative_replacement_keeps_ratios_of_positive_parts(n, seed):
    rng = np.random.default_rng(seed)
    pi = compositions(n, 1, seed)[0]
    zeros = rng.random(n) < 0.5
    zeros[rng.integers(n)] = False
    delta = rng.uniform(0.1, 0.9, n) / n
    replaced = geometry.multiplicative_replacement(np.where(zeros, 0.0, pi), delta)
    np.testing.assert_allclose(replaced.sum(), 1.0)
    np.testing.assert_array_equal(replaced[zeros], delta[zeros])
    ratios = replaced[~zeros] / pi[~zeros]
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-9)


def test_closure_takes_zeros_and_extreme_parts():
    np.testing.assert_array_equal(geometry.closure([[0, 1, 3], [0, 0, 2]]), [[0, 0.25, 0.75], [0, 0, 1]])
    np.testing.assert_array_equal(geometry.closure([1e308, 1e308]), [0.5, 0.5])
    np.testing.assert_array_equal(geometry.closure([5e-324, 0.0]), [1.0, 0.0])


@given(n=st.integers(2, 100), seed=seeds, a=st.floats(-3, 3))
@few
def test_perturbation_and_powering_are_addition_and_scaling_in_ilr(n, seed, a):
    x, y = compositions(n, 2, seed), compositions(n, 2, seed + 1)
    np.testing.assert_allclose(geometry.ilr(geometry.perturb(x, y)), geometry.ilr(x) + geometry.ilr(y), atol=1e-9)
    np.testing.assert_allclose(geometry.ilr(geometry.power(x, a)), a * geometry.ilr(x), atol=1e-9)
    per_sample = np.array([a, 1.0])
    expected = per_sample[:, None] * geometry.ilr(x)
    np.testing.assert_allclose(geometry.ilr(geometry.power(x, per_sample)), expected, atol=1e-9)


@constructions
@given(n=class_counts, seed=seeds, tau=st.floats(0.05, 20))
@few
def test_simplex_map_round_trip_keeps_class(construction, n, seed, tau):
    f = np.random.default_rng(seed).normal(size=(3, n - 1)) / tau
    s = geometry.to_probability_simplex(f, tau, construction)
    np.testing.assert_allclose(s.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(geometry.from_probability_simplex(s, tau, construction), f, atol=1e-8 / tau)
    np.testing.assert_array_equal(s.argmax(axis=1), geometry.nearest_vertex(f, construction))


def test_simplex_map_of_two_classes_is_logistic():
    f = np.linspace(-4, 4, 9)[:, None]
    # P = (1, -1), so the logits differ by 2 tau f.
    np.testing.assert_allclose(geometry.to_probability_simplex(f, 1.5)[:, 0], 1 / (1 + np.exp(-3 * f[:, 0])))


def test_simplex_map_of_helmert_vertices_is_inverse_ilr():
    z = np.random.default_rng(0).normal(size=(5, 3))
    ours = geometry.to_probability_simplex(z, np.sqrt(3 / 4), "helmert")
    np.testing.assert_allclose(ours, geometry.ilr_inverse(z), rtol=1e-12)


def test_tau_is_inverse_of_smallest_standard_deviation():
    latents = np.random.default_rng(0).normal(size=(500, 3)) * [3.0, 0.5, 1.0]
    assert geometry.tau_from(latents) == pytest.approx(1 / latents[:, 1].std())


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e9 + 0.1])
def test_tau_of_a_constant_dimension_raises(constant):
    # The standard deviation of ten times 0.1 is 1e-17, not 0.
    latents = np.column_stack([np.arange(10.0), np.full(10, constant)])
    with pytest.raises(ValueError, match=r"latents must.*found one in which all are equal"):
        geometry.tau_from(latents)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: geometry.clr([0.5, 0.0, 0.5]), "pi must have positive parts.*multiplicative_replacement"),
        (lambda: geometry.ilr([0.5, np.nan]), "pi must be finite"),
        (lambda: geometry.alr([0.5, np.inf]), "pi must be finite"),
        (lambda: geometry.clr([1.0]), r"^pi must.*found shape \(1,\)"),
        (lambda: geometry.perturb([0.5, 0.5], [1.0, -1.0]), r"^y must.*found a smallest part of -1\.0"),
        (lambda: geometry.nearest_vertex([[np.nan, 0.0]]), "f must be finite"),
        (lambda: geometry.nearest_vertex(1.0), r"^f must.*found shape \(\)"),
        (lambda: geometry.to_probability_simplex([[np.inf, 0.0]]), "f must be finite"),
        (lambda: geometry.to_probability_simplex([[1.0]], tau=0.0), r"tau must.*found 0.0"),
        (lambda: geometry.from_probability_simplex([[0.0, 1.0]]), r"^s must.*found a smallest part of 0\.0"),
        (lambda: geometry.ilr_inverse(0.0), r"^z must.*found shape \(\)"),
        (lambda: geometry.alr_inverse(np.zeros((2, 0))), r"^a must.*found shape \(2, 0\)"),
        (lambda: geometry.closure([1.0, -1.0]), r"pi must not have negative parts.*found a smallest part of -1\.0"),
        (lambda: geometry.closure([0.0, 0.0]), "pi must not .* zeros alone"),
        (lambda: geometry.ilr([1.0, 2.0], np.eye(2)), r"basis must have shape \[1, 2\].*found shape \(2, 2\)"),
        (lambda: geometry.ilr_inverse([1.0], [[1.0, -1.0]]), "basis must have orthonormal rows"),
        (lambda: geometry.alr([1.0, 2.0], 2), "reference must.*found 2"),
        (lambda: geometry.alr_inverse([1.0], True), "reference must.*found True"),
        (lambda: geometry.multiplicative_replacement([0.0, 1.0], 1.0), r"delta must.*found 1\.0"),
        (lambda: geometry.multiplicative_replacement([0.0, 1.0], -0.1), r"delta must.*found -0\.1"),
        (lambda: geometry.multiplicative_replacement([0.0, 1.0], [0.1] * 3), r"delta must.*found \[0\.1, 0\.1, 0\.1\]"),
        (lambda: geometry.tau_from(np.zeros(3)), r"latents must.*found shape \(3,\)"),
        (lambda: geometry.tau_from(np.zeros((0, 3))), r"latents must.*found 0"),
    ],
)
def test_invalid_input_raises(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_extreme_latents_stay_on_the_simplex():
    s = geometry.to_probability_simplex([[1e6, -1e6]])
    np.testing.assert_allclose(s.sum(), 1)
    assert np.all(np.isfinite(s))
