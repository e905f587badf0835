"""Standardized partition spaces against published numbers, a slow oracle, and the properties stated in the paper."""

import json
import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deepsimplex.evaluation import (
    ability_to_separate,
    compare_partitions,
    partition_accuracy,
    standardized_memberships,
    standardized_partition,
)
from deepsimplex.evaluation.partition_scaling import far_quantile, log_lower_tail, move
from tests.local_data import LOCAL_DATA
from tests.reference import partition as oracle

CASES = sorted(path for path in (LOCAL_DATA.parent / "reference").glob("*.json") if "paper_moment" in path.read_text())

few = settings(max_examples=60, deadline=None)
# Most tests are of few samples. Of the warning: test_partition_comparison.py.
pytestmark = pytest.mark.filterwarnings("ignore:.*alone in their region:UserWarning")


@st.composite
def labeled_memberships(draw, max_classes: int = 6, tied: bool = True):
    """Labels and memberships, good and bad, some tied and some exactly 0 or 1, and a depth."""
    n, samples = draw(st.integers(2, max_classes)), draw(st.integers(1, 50))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m = rng.dirichlet(np.full(n, draw(st.sampled_from([0.2, 1.0, 20.0]))), samples)
    if tied and draw(st.booleans()):
        m = rng.multinomial(draw(st.sampled_from([2, 4, 9])), m).astype(float)
        m = m / m.sum(axis=1, keepdims=True)
    y = rng.integers(0, n, samples)
    knows = rng.uniform(size=samples) < draw(st.sampled_from([0.0, 0.5, 0.9]))
    return np.where(knows, m.argmax(axis=1), y), m, draw(st.integers(1, n - 1))


def region_with_smallest_membership(smallest: float):
    """Labels, memberships and depth of a region whose share of rank 2 is 1, less ``smallest`` divided by 0.16."""
    m = [
        [0.539175146, 0.459810238, 0.00101461651],
        [0.968267229, 0.0317173857, 1.53854638e-05],
        [0.838853403, 0.161146597, smallest],
        [0.621825927, 0.300843845, 0.0773302279],
    ]
    return np.array([2, 1, 1, 1]), np.array(m), 2


# Shares of rank 3 so near 1 that their mean and variance are in the complements alone.
NARROW_REGION = (
    np.array([0, 2]),
    np.array(
        [
            [7.47965701e-12, 0.999999977669661, 2.10243649e-23, 2.23228590e-08],
            [1.84527481e-03, 0.761416055306225, 5.49548163e-17, 0.236738669887143],
        ]
    ),
    3,
)


@pytest.mark.skipif(not CASES, reason="needs DEEPSIMPLEX_TEST_DATA: the reference values of the authors' group")
@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_reference_values_of_the_authors(path):
    case = json.loads(path.read_text())
    m, y, unscaled, scaled = np.array(case["m"]), case["true_class"], case["ucpm"], case["paper_moment"]
    partition = standardized_partition(y, m)
    np.testing.assert_array_equal(partition.assigned, case["assigned_class"])
    tight = {"rel": 0, "abs": 1e-9}
    assert partition.correctness == pytest.approx(unscaled["CR"], **tight)
    assert partition.unscaled_accuracy == pytest.approx(unscaled["AC"], **tight)
    assert partition.unscaled_ability_to_separate == pytest.approx(unscaled["AS"], **tight)
    assert partition.unscaled_confidence == pytest.approx(case["CF_assigned"], **tight)
    assert partition_accuracy(y, m) == partition.unscaled_accuracy
    assert ability_to_separate(m) == partition.unscaled_ability_to_separate
    # Theirs takes plain distribution functions, which lose up to 3e-8 near 1.
    loss = {"rel": 0, "abs": 1e-9 + 2 * scaled["max_abs_diff_to_upper_tail_evaluation"]}
    assert partition.accuracy == pytest.approx(scaled["AC_sqrt"], **loss)
    assert partition.ability_to_separate == pytest.approx(scaled["AS_sqrt"], **loss)
    if "member" in scaled:
        np.testing.assert_allclose(partition.membership, scaled["member"], rtol=0, atol=loss["abs"])
    for region, theirs in zip(partition.regions, scaled["params"], strict=True):
        assert region.samples == theirs["N_T"]
        assert region.correctness == pytest.approx(theirs["p"])
        if theirs["p"] < 1:  # their 1 - mean has few digits where the mean is 1 - 2e-12
            ours = [getattr(region.levels[0], name) for name in ("alpha", "beta", "scaled_alpha", "scaled_beta")]
            assert ours == pytest.approx([theirs[key] for key in ("alpha", "beta", "alpha_s", "beta_s")])


@pytest.mark.parametrize(
    ("smallest", "expected"),
    [
        # mpmath, 400 digits.
        (1.07784706e-16, 3.49447489022131633e-4),
        (1e-30, 4.32632699492510127e-7),
        (1e-300, 5.01521123387263688e-63),
    ],
)
def test_share_near_one_keeps_its_complement(smallest, expected):
    y, m, depth = region_with_smallest_membership(smallest)
    scaled = standardized_partition(y, m, depth=depth).membership[2]
    np.testing.assert_allclose(scaled, [0, 1 - expected, expected], rtol=1e-12)
    np.testing.assert_allclose(scaled, oracle.scaled_memberships(y, m, depth)[2], rtol=0, atol=1e-12)


@given(case=labeled_memberships())
@example(case=region_with_smallest_membership(1.07784706e-16))
@example(case=NARROW_REGION)
@few
def test_every_depth_equals_oracle(case):
    y, m, depth = case
    partition = standardized_partition(y, m, depth=depth)
    expected = oracle.scaled_memberships(y, m, depth)
    np.testing.assert_allclose(partition.membership, expected, rtol=0, atol=1e-8)
    corners = [oracle.ranking(row)[0] for row in m]
    assert partition.assigned.tolist() == corners
    assert partition.accuracy == pytest.approx(oracle.closeness(expected, y.tolist()), abs=1e-6)
    assert partition.ability_to_separate == pytest.approx(oracle.closeness(expected, corners), abs=1e-6)
    assert partition.unscaled_accuracy == pytest.approx(oracle.closeness(m, y.tolist()), abs=1e-12)


@pytest.mark.slow
@given(case=labeled_memberships(tied=False))
@few
def test_scaling_keeps_order_and_ratios(case):
    y, m, depth = case
    n = m.shape[1]
    partition = standardized_partition(y, m, depth=depth)
    scaled = partition.membership
    assert scaled.min() >= 0
    np.testing.assert_allclose(scaled.sum(axis=1), 1, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(partition.assigned, m.argmax(axis=1))
    assert sum(region.samples for region in partition.regions) == len(y)
    for region in partition.regions:
        # By confidence: the scaled confidences of a region rise with the given ones.
        rows = np.argsort(-m, axis=1)[:, :depth].tolist()
        inside = np.array([tuple(row) == region.order for row in rows])
        by_confidence = np.argsort(m[inside, region.label])
        assert np.all(np.diff(scaled[inside, region.label][by_confidence]) >= -1e-12)
    # The classes beyond the depth keep their ratios.
    for i in range(len(m)):
        rest = np.argsort(-m[i])[depth:]
        np.testing.assert_allclose(
            scaled[i, rest] * m[i, rest].sum(), m[i, rest] * scaled[i, rest].sum(), rtol=1e-9, atol=1e-300
        )
    # Nothing depends on the order of the samples.
    shuffled = np.random.default_rng(0).permutation(len(y))
    again = standardized_partition(y[shuffled], m[shuffled], depth=depth)
    np.testing.assert_array_equal(again.membership, scaled[shuffled])
    assert again.accuracy == pytest.approx(partition.accuracy, abs=1e-12)
    # Nor on which class is which.
    swapped = np.random.default_rng(1).permutation(n)
    renamed = standardized_partition(np.argsort(swapped)[y], m[:, swapped], depth=depth)
    np.testing.assert_allclose(renamed.membership, scaled[:, swapped], rtol=0, atol=1e-7)


@pytest.mark.slow
@given(
    seed=st.integers(0, 2**32 - 1),
    spread=st.floats(-12, 2.5),
    outlier=st.sampled_from([1, 50]),
    dtype=st.sampled_from([np.float32, np.float64]),
    given_assignment=st.booleans(),
)
@few
def test_extreme_memberships_stay_finite_and_in_the_simplex(seed, spread, outlier, dtype, given_assignment):
    rng = np.random.default_rng(seed)
    n, samples = rng.integers(2, 7), rng.integers(1, 300)
    scores = rng.normal(size=(samples, n)) * 10**spread + 3 * rng.normal(size=n)
    scores[0] *= outlier
    m = standardized_memberships(np.maximum(scores, scores.max(axis=1, keepdims=True) - 700), "softmax").astype(dtype)
    y = np.where(rng.uniform(size=samples) < 0.9, m.argmax(axis=1), rng.integers(0, n, samples))
    assigned = rng.integers(0, n, samples) if given_assignment else None
    partition = standardized_partition(y, m, assigned, depth=int(rng.integers(1, n)))
    assert partition.membership.min() >= 0
    np.testing.assert_allclose(partition.membership.sum(axis=1)[(m > 0).all(axis=1)], 1, atol=1e-12)
    assert np.isfinite(list(partition.measures().values())).all()


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_region_means_approximate_class_frequencies(depth):
    rng = np.random.default_rng(4)
    p = rng.dirichlet(np.full(4, 0.7), 4000)
    y = (p.cumsum(axis=1) < rng.uniform(size=(len(p), 1))).sum(axis=1)
    overconfident = p**3 / (p**3).sum(axis=1, keepdims=True)
    partition = standardized_partition(y, overconfident, depth=depth)
    order = np.argsort(-p, axis=1)[:, :depth]
    for region in partition.regions:
        inside = (order == region.order).all(axis=1)
        frequencies = np.bincount(y[inside], minlength=4) / inside.sum()
        means = partition.membership[inside].mean(axis=0)
        np.testing.assert_allclose(means[list(region.order)], frequencies[list(region.order)], atol=0.03)
    assert abs(partition.confidence - partition.correctness) < 0.01
    assert abs(overconfident.max(axis=1).mean() - partition.correctness) > 0.1


def test_calibrated_memberships_hardly_move():
    rng = np.random.default_rng(5)
    p = rng.dirichlet(np.ones(3), 20_000)
    y = (p.cumsum(axis=1) < rng.uniform(size=(len(p), 1))).sum(axis=1)
    assert np.abs(standardized_partition(y, p).membership - p).max() < 0.02


@pytest.mark.parametrize("n", [2, 3, 4, 10])
def test_corners_and_centroid_equal_paper(n):
    y, corners, centroid = np.arange(n), np.eye(n), np.full((n, n), 1 / n)
    perfect, uniform = standardized_partition(y, corners), standardized_partition(y, centroid)
    assert perfect.accuracy == perfect.ability_to_separate == perfect.correctness == perfect.confidence == 1
    np.testing.assert_array_equal(perfect.membership, corners)
    # All are assigned to class 0, and one in n is right.
    np.testing.assert_allclose(uniform.membership, centroid)
    assert [uniform.accuracy, uniform.ability_to_separate] == pytest.approx([0, 0], abs=1e-12)
    assert [region.label for region in uniform.regions] == [0]
    wrong = partition_accuracy((y + 1) % n, corners)
    assert wrong == pytest.approx(1 - np.sqrt(2 * n / (n - 1)))
    assert partition_accuracy(y, centroid) == pytest.approx(0, abs=1e-12)


def test_regions_of_correctness_zero_and_one():
    m = np.array([[0.9, 0.06, 0.04], [0.7, 0.1, 0.2], [0.1, 0.8, 0.1], [0.2, 0.6, 0.2]])
    partition = standardized_partition([0, 0, 2, 0], m)
    np.testing.assert_allclose(
        partition.membership, [[1, 0, 0], [1, 0, 0], [0.5, 0, 0.5], [0.5, 0, 0.5]], rtol=0, atol=1e-15
    )
    sure, never = partition.regions
    assert (sure.correctness, never.correctness) == (1, 0)
    assert not sure.note
    assert not never.note
    assert sure.levels[0].scaled_beta == never.levels[0].scaled_alpha == 0
    # The assignment is the given one, though class 1 is the least likely now.
    assert partition.assigned.tolist() == [0, 0, 1, 1]
    assert partition.ability_to_separate == ability_to_separate(partition.membership, [0, 0, 1, 1])


@pytest.mark.parametrize(
    ("m", "y", "note"),
    [
        ([[0.6, 0.3, 0.1]], [0], "a single value"),
        ([[0.6, 0.3, 0.1]], [1], "a single value"),
        ([[0.6, 0.3, 0.1], [0.6, 0.1, 0.3]], [0, 1], "equal values"),
        ([[0.6, 0.3, 0.1], [0.6 + 1e-16, 0.1, 0.3]], [0, 1], "equal values"),
        ([[1 / 3, 1 / 3, 1 / 3]] * 3, [0, 1, 1], "equal values"),
        ([[1, 0, 0], [0.34, 0.33, 0.33]], [0, 1], ""),
        ([[1, 0, 0, 0], [0.25, 0.25, 0.25, 0.25]], [0, 1], "a variance too large for a beta distribution"),
    ],
)
def test_regions_without_a_beta_distribution_take_their_correctness(m, y, note):
    partition = standardized_partition(y, m)
    (region,) = partition.regions
    assert region.note == note
    assert np.isnan(region.levels[0].alpha) == bool(note)
    if note:
        np.testing.assert_array_equal(partition.membership[:, 0], region.correctness)
        assert note in str(partition)
    json.dumps(partition.as_dict(), allow_nan=False)


def test_membership_one_keeps_other_memberships_zero():
    hard = standardized_partition([0, 0, 0, 1, 1], [[1, 0, 0]] * 4 + [[0, 1, 0]])
    np.testing.assert_allclose(hard.membership, [[0.75, 0, 0]] * 4 + [[0, 1, 0]])
    # With a beta distribution 1 stays 1.
    partition = standardized_partition([0, 1, 0], [[1, 0, 0], [0.8, 0.1, 0.1], [0.9, 0.1, 0]])
    np.testing.assert_array_equal(partition.membership[0], [1, 0, 0])
    np.testing.assert_allclose(partition.membership.sum(axis=1), 1)


def test_deeper_ranks_without_remaining_mass_are_zero():
    m = [[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.5, 0.3, 0.2, 0], [0.6, 0.3, 0.05, 0.05]]
    partition = standardized_partition([0, 1, 0, 1], m, depth=3)
    assert np.isfinite(partition.membership).all()
    np.testing.assert_array_equal(partition.membership[0], [1, 0, 0, 0])
    # Both classes of the first two ranks make up the whole region.
    np.testing.assert_allclose(partition.membership[:, 2:], 0, atol=1e-15)
    np.testing.assert_allclose(partition.membership.sum(axis=1), 1)
    (region,) = partition.regions
    assert region.order == (0, 1, 2)
    assert [(level.trials, level.successes) for level in region.levels] == [(4, 2), (2, 2), (0, 0)]
    assert region.levels[2].note == "no test sample of this class or a lower rank"
    json.dumps(partition.as_dict(), allow_nan=False)


def test_ties_take_the_lowest_class():
    partition = standardized_partition([0, 1, 2], [[0.5, 0.5, 0], [0, 0.5, 0.5], [0.4, 0.2, 0.4]], depth=2)
    assert [region.order for region in partition.regions] == [(0, 1), (0, 2), (1, 2)]
    assert partition.assigned.tolist() == [0, 1, 0]


def test_many_classes():
    rng = np.random.default_rng(6)
    m, y = rng.dirichlet(np.full(100, 0.1), 40), rng.integers(0, 100, 40)
    for depth in (1, 2, 99):
        partition = standardized_partition(y, m, depth=depth)
        np.testing.assert_allclose(partition.membership.sum(axis=1), 1, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_memberships_of_lower_precision(dtype):
    rng = np.random.default_rng(7)
    m, y = rng.dirichlet(np.ones(3), 200), rng.integers(0, 3, 200)
    partition = standardized_partition(y, m.astype(dtype))
    np.testing.assert_allclose(partition.membership, standardized_partition(y, m).membership, atol=5e-3)
    np.testing.assert_allclose(partition.membership.sum(axis=1), 1, atol=1e-12)
    nearly = np.array([[0.6, 0.4], [0.6 + 1e-7, 0.4], [0.6, 0.4], [0.6, 0.4]], dtype)
    note = standardized_partition([0, 1, 0, 1], nearly).regions[0].note
    assert note == ("" if dtype == np.float64 else "equal values")


def test_given_assignment():
    m = np.array([[0.5, 0.5, 0], [0.4, 0.35, 0.25], [0.1, 0.8, 0.1]])
    partition = standardized_partition([1, 1, 1], m, assigned=[1, 1, 1])
    assert partition.correctness == partition.accuracy == 1
    assert [region.label for region in partition.regions] == [1]
    assert partition.unscaled_confidence == pytest.approx(np.mean([0.5, 0.35, 0.8]))
    same = standardized_partition([1, 0, 1], m, assigned=m.argmax(axis=1), depth=2)
    np.testing.assert_array_equal(same.membership, standardized_partition([1, 0, 1], m, depth=2).membership)


@pytest.mark.parametrize("classes", [["cat", "dog", "eel"], np.array([7, 3, 5]), ("x", 2, None)])
def test_labels_of_any_kind(classes):
    rng = np.random.default_rng(8)
    m, numbers = rng.dirichlet(np.ones(3), 30), rng.integers(0, 3, 30)
    kind = object if isinstance(classes, tuple) else None
    y = np.array(classes, dtype=kind)[numbers]
    named = standardized_partition(y, m, assigned=np.array(classes, dtype=kind)[m.argmax(axis=1)], classes=classes)
    plain = standardized_partition(numbers, m)
    np.testing.assert_array_equal(named.membership, plain.membership)
    assert [region.label for region in named.regions] == list(named.classes) == list(classes)
    assert partition_accuracy(y[:, None], m, classes=classes) == plain.unscaled_accuracy
    assert partition_accuracy(y.tolist(), m, classes=classes) == plain.unscaled_accuracy
    json.dumps(named.as_dict(), allow_nan=False)
    assert str(classes[0]) in str(named)


def test_far_tails_keep_their_order():
    # 40 standard deviations and more: the tails are below 1e-308.
    rng = np.random.default_rng(9)
    confidence = np.concatenate([0.8 + 1e-3 * rng.standard_normal(20_000), [0.55, 0.6, 0.95, 0.99]])
    m = np.column_stack([confidence, 1 - confidence])
    y = (rng.uniform(size=len(m)) < 0.3).astype(int)
    scaled = standardized_partition(y, m).membership[-4:, 0]
    assert 0 < scaled[0] < scaled[1] < 0.65 < 0.75 < scaled[2] < scaled[3] < 1


def test_tails_equal_high_precision_reference():
    # mpmath, 60 digits: log of the regularized incomplete beta function.
    for a, b, x, expected in ((5000, 5000, 0.3, -876.3753029193824), (9999, 0.5, 0.8, -2235.585348162339)):
        tail = log_lower_tail(np.array([x]), a, b)
        assert tail[0] == pytest.approx(expected, rel=1e-12)
        np.testing.assert_allclose(far_quantile(tail, a, b), x, rtol=1e-12)


@pytest.mark.parametrize(("a", "b"), [(6e24, 4e24), (1e26, 0.02), (0.02, 1e26), (1e26, 1e4), (6e17, 3.9e17)])
def test_narrow_distributions_keep_order(a, b):
    deviation = np.sqrt(a / (a + b) * b / (a + b) / (a + b))
    complements = np.maximum(b / (a + b) + deviation * np.linspace(2, -2, 9), 0)
    moved, moved_complements = move(1 - complements, complements, a, b, 6.0, 4.0)
    assert np.all(np.diff(moved) >= 0)
    np.testing.assert_allclose(moved + moved_complements, 1)
    if min(a, b) > 1:
        # Normal quantiles, up to the rounding of the values and the skewness of Beta(6, 4).
        np.testing.assert_allclose(moved, 0.6 + np.sqrt(0.24 / 11) * np.linspace(-2, 2, 9), atol=0.06)


@pytest.mark.parametrize("kind", ["ranks", "shift", "softmax"])
def test_standardized_memberships_lie_in_the_simplex_and_keep_the_order(kind):
    rng = np.random.default_rng(10)
    scores = rng.integers(-5, 6, (50, 4)) / 2
    m = standardized_memberships(scores, kind)
    assert m.min() >= 0
    np.testing.assert_allclose(m.sum(axis=1), 1, atol=1e-12)
    for row, given_row in zip(m, scores, strict=True):
        np.testing.assert_array_equal(
            np.sign(np.round(row[:, None] - row, 12)), np.sign(given_row[:, None] - given_row)
        )
    standardized_partition(rng.integers(0, 4, 50), m)


def test_standardized_memberships_worked_by_hand():
    np.testing.assert_allclose(standardized_memberships([[3, 1, 1, 9]], "ranks"), [[0.3, 0.15, 0.15, 0.4]])
    np.testing.assert_allclose(standardized_memberships([[3, 1], [1, 1]], "shift"), [[1, 0], [0.5, 0.5]])
    np.testing.assert_allclose(standardized_memberships([[3, 1]], "shift", zero=0), [[0.75, 0.25]])
    np.testing.assert_allclose(standardized_memberships(np.log([[0.2, 0.8]]), "softmax"), [[0.2, 0.8]])
    np.testing.assert_allclose(standardized_memberships([[-1e308, 1e308, 0]], "shift"), [[0, 2 / 3, 1 / 3]])


P = [[0.5, 0.5], [0.2, 0.8]]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: standardized_partition([0, 1], [[0.5, 0.6]] * 2), ValueError, "membership must sum.*standardized_mem"),
        (lambda: standardized_partition([0, 1], [[np.nan, 0.6]] * 2), ValueError, "membership must be finite"),
        (lambda: standardized_partition([0, 1], [[-0.1, 1.1]] * 2), ValueError, "membership must not be negative"),
        (lambda: standardized_partition([], np.zeros((0, 2))), ValueError, "membership must.*found none"),
        (lambda: standardized_partition([0], [[1.0]]), ValueError, r"membership must.*found shape \(1, 1\)"),
        (lambda: standardized_partition([0], P), ValueError, r"^y must.*found shape \(1,\)"),
        (
            lambda: standardized_partition([0, 2], P),
            ValueError,
            r"^y must.*found 2 in row 1",
        ),
        (lambda: standardized_partition(["a", "b"], P), TypeError, "Pass the names of the classes"),
        (lambda: standardized_partition([0, 1], P, [0, 5]), ValueError, "assigned must.*found 5"),
        (lambda: standardized_partition([0, 1], P, [0]), ValueError, r"assigned must.*found shape \(1,\)"),
        (lambda: standardized_partition([0, 1], P, depth=2), ValueError, "depth must.*found 2"),
        (lambda: standardized_partition([0, 1], P, depth=0), ValueError, "depth must.*found 0"),
        (
            lambda: standardized_partition([0, 1], P, classes="ab"),
            ValueError,
            "classes must.*found 'ab'",
        ),
        (
            lambda: standardized_partition([0, 1], P, classes=["a", "a"]),
            ValueError,
            r"classes must.*found \['a', 'a'\]",
        ),
        (lambda: standardized_partition([0, 1], P, classes=["a"]), ValueError, r"classes must.*found \['a'\]"),
        (lambda: standardized_partition(["a", "c"], P, classes=["a", "b"]), ValueError, "y must.*found 'c' in row 1"),
        (lambda: standardized_partition([["a", "b"]], P, classes=["a", "b"]), ValueError, r"found shape \(1, 2\)"),
        (lambda: ability_to_separate(P, [0, 3]), ValueError, "assigned must.*found 3"),
        (lambda: standardized_memberships(P, "rank"), ValueError, "did you mean 'ranks'"),
        (
            lambda: standardized_memberships([1.0, 2.0], "ranks"),
            ValueError,
            r"scores must.*found shape \(2,\)",
        ),
        (
            lambda: standardized_memberships([[1j, 2.0]], "ranks"),
            TypeError,
            "scores must.*found dtype",
        ),
        (
            lambda: standardized_memberships([[1.0, np.inf]], "ranks"),
            ValueError,
            r"scores must be finite; found inf at \[0, 1\]",
        ),
        (
            lambda: standardized_memberships(P, "shift", zero=0.3),
            ValueError,
            "zero must.*0.2 in row 1",
        ),
        (lambda: standardized_memberships(P, "shift", zero=np.nan), ValueError, "zero must.*found nan"),
        (lambda: standardized_memberships(P, "ranks", zero=0.0), ValueError, "zero belongs to kind='shift'"),
        (lambda: compare_partitions([0, 1], {}), ValueError, r"memberships must.*found \{\}"),
        (lambda: compare_partitions([0, 1], P), ValueError, r"memberships must.*found \[\["),
        (lambda: compare_partitions([0, 1], {1: P, "1": P}), ValueError, "names that differ as text; found 1, '1'"),
        (lambda: compare_partitions([0, 1], {"a": P}, {"b": [0, 1]}), ValueError, "assigned must.*'b'"),
        (lambda: compare_partitions([0, 1], {"a": P, "b": [[1.0]]}), ValueError, "classifier 'b': membership must"),
        (lambda: compare_partitions([0, 1], {"a": P, "b": np.eye(3)[:2]}), ValueError, "'a': 2, 'b': 3"),
    ],
)
def test_invalid_input_raises(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert re.search(message, str(caught.value), re.DOTALL), str(caught.value)
