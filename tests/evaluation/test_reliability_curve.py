"""Reliability curves and their bins, worked by hand; bands in closed form, at their limits and against loops."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, ndtri

from deepsimplex import evaluation, readout
from tests.labeled_probabilities import labeled_probabilities, sure_predictions

few = settings(max_examples=40, deadline=None)


def test_confidence_on_edge_belongs_to_lower_bin():
    # Class-1 probabilities 0, 0.5 and 1 in two bins: (0 and 0.5] hold two samples, (0.5, 1] holds one.
    curve = evaluation.reliability_curve([0, 1, 1], [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]], bins=2)
    np.testing.assert_array_equal(curve.counts, [2, 1])
    np.testing.assert_allclose(curve.confidence, [0.25, 1.0])
    np.testing.assert_allclose(curve.frequency, [0.5, 1.0])
    assert curve.expected_calibration_error == pytest.approx(2 / 3 * 0.25)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bins", [5, 10, 15])
def test_edges_close_bins_in_precision_of_p(dtype, bins):
    q = (np.arange(1, bins + 1) / bins).astype(dtype)
    curve = evaluation.reliability_curve(np.ones(bins, int), np.column_stack([1 - q, q]), bins)
    np.testing.assert_array_equal(curve.counts, 1)


def test_empty_bins_have_zero_weight_and_nan():
    curve = evaluation.reliability_curve([0, 0], [[0.95, 0.05]] * 2, bins=10)
    np.testing.assert_array_equal(curve.counts, [2] + [0] * 9)
    assert np.isnan(curve.confidence[1:]).all()
    assert np.isnan(curve.frequency[1:]).all()
    assert curve.expected_calibration_error == pytest.approx(0.05)


def test_binary_curve_uses_class_one_by_default():
    y, p = [0, 0, 1], [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]
    assert evaluation.reliability_curve(y, p).event == "class 1"
    top = evaluation.reliability_curve(y, p, bins=1, top_label=True)
    assert top.event == "top label"
    np.testing.assert_allclose([top.confidence[0], top.frequency[0]], [(0.9 + 0.6 + 0.8) / 3, 1.0])
    assert evaluation.expected_calibration_error(y, p, bins=1) == pytest.approx(0.1)


def test_bins_of_equal_mass_hold_equally_many():
    y, p = sure_predictions(3, samples=101)
    curve = evaluation.reliability_curve(y, p, bins=10, binning="mass")
    assert set(curve.counts.tolist()) == {10, 11}
    assert (curve.edges[0], curve.edges[-1]) == (0, 1)
    assert (np.diff(curve.edges) > 0).all()
    # Each inner edge is the largest confidence of the bin it closes.
    confidences = np.sort(p.max(axis=1))
    np.testing.assert_array_equal(curve.edges[1:-1], confidences[curve.counts.cumsum()[:-1] - 1])


def test_ties_share_a_bin():
    p = np.array([[0.8, 0.2]] * 7 + [[0.4, 0.6]] * 3)
    y = np.arange(10) % 2
    curve = evaluation.reliability_curve(y, p, bins=4, binning="mass")
    assert sorted(curve.counts.tolist()) == [0, 0, 3, 7]
    turned = evaluation.adaptive_calibration_error(y[::-1], p[::-1], bins=4)
    assert evaluation.adaptive_calibration_error(y, p, bins=4) == pytest.approx(turned, abs=1e-15)


def test_curve_of_one_class_against_the_rest():
    y, p = sure_predictions(5)
    curves = [evaluation.reliability_curve(y, p, class_index=k) for k in range(5)]
    errors = [curve.expected_calibration_error for curve in curves]
    np.testing.assert_allclose(evaluation.calibration_error_by_class(y, p), errors, atol=1e-15)
    assert [curve.event for curve in curves] == [f"class {k}" for k in range(5)]
    mean = np.mean([curve.expected_calibration_error for curve in curves])
    assert evaluation.classwise_calibration_error(y, p) == pytest.approx(mean, abs=1e-15)
    two = evaluation.reliability_curve(
        y > 2, np.column_stack([p[:, :3].sum(axis=1), p[:, 3:].sum(axis=1)]), class_index=1
    )
    assert two.event == "class 1"


@pytest.mark.parametrize("class_index", [-1, 3, 0.5, 1.0, True, "a"])
def test_unknown_class_index_raises(class_index):
    y, p = sure_predictions(3, samples=5)
    with pytest.raises(ValueError, match=rf"class_index must.*found {re.escape(repr(class_index))}"):
        evaluation.reliability_curve(y, p, class_index=class_index)


def same(ours, theirs):
    np.testing.assert_array_equal(ours.counts, theirs.counts)
    np.testing.assert_allclose(ours.confidence, theirs.confidence)
    np.testing.assert_allclose(ours.frequency, theirs.frequency)
    assert ours.event == theirs.event


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("class_index", [None, 0])
def test_zero_scale_band_equals_curve(n, class_index):
    rng = np.random.default_rng(n)
    latent = {"loc": rng.normal(size=(50, n - 1)), "scale": np.zeros((50, 1))}
    p, y = readout.softmax(latent), rng.integers(0, n, 50)
    band = evaluation.reliability_band(y, p, *readout.class_intervals(latent), 10, class_index=class_index)
    curve = evaluation.reliability_curve(y, p, 10, class_index=class_index)
    same(band.lower, curve)
    same(band.upper, curve)
    filled = curve.counts > 0
    confidence, frequency = curve.confidence[filled], curve.frequency[filled]
    np.testing.assert_allclose(band.frequencies(confidence), [frequency, frequency], atol=1e-12)
    assert band.reach == pytest.approx((confidence.min(), confidence.max()))


def test_two_classes_in_closed_form():
    """All samples alike: the ends are the logistic function of the Gaussian's quantiles, the frequency is shared."""
    loc, scale, level = 0.7, 0.4, 0.8
    latent = {"loc": np.full((8, 1), loc), "scale": np.full((8, 1), scale)}
    p = readout.softmax(latent)
    lower, upper = readout.class_intervals(latent, level)
    band = evaluation.reliability_band([1, 1, 0, 0, 0, 0, 0, 0], p, lower, upper, bins=1)
    # The vertices of two classes are 1 and -1: the difference of the scores of class 1 and 0 is -2 f.
    ends = expit(-2 * (loc + scale * ndtri([0.9, 0.1])))
    for curve, end in ((band.lower, ends[0]), (band.upper, ends[1])):
        np.testing.assert_allclose([curve.confidence, curve.frequency], [[end], [0.25]])
    np.testing.assert_allclose(band.reach, ends)
    # Straight from (0, 0) through the one point of each curve to (1, 1).
    middle = ends.mean()
    rising, falling = 0.25 * middle / ends[1], 1 - 0.75 * (1 - middle) / (1 - ends[0])
    np.testing.assert_allclose(band.frequencies(middle), [rising, falling])
    np.testing.assert_allclose(band.frequencies([0.0, 1.0]), [[0, 1], [0, 1]])


def test_band_curves_equal_curves_of_interval_ends():
    """Two columns that sum to one make each end a classifier that reliability_curve can draw."""
    rng = np.random.default_rng(0)
    q, y = rng.uniform(size=300), rng.integers(0, 2, 300)
    low, high = q * rng.uniform(size=300), 1 - (1 - q) * rng.uniform(size=300)
    pairs = [np.column_stack([1 - value, value]) for value in (q, low, high)]
    lower, upper = np.column_stack([1 - high, low]), np.column_stack([1 - low, high])
    band = evaluation.reliability_band(y, pairs[0], lower, upper, 12)
    same(band.lower, evaluation.reliability_curve(y, pairs[1], 12))
    same(band.upper, evaluation.reliability_curve(y, pairs[2], 12))


@given(case=labeled_probabilities(), seed=st.integers(0, 2**32 - 1), bins=st.integers(1, 20))
@few
def test_top_label_is_that_of_the_mean(case, seed, bins):
    y, p = case
    rng = np.random.default_rng(seed)
    lower, upper = p * rng.uniform(size=p.shape), p + (1 - p) * rng.uniform(size=p.shape)
    band = evaluation.reliability_band(y, p, lower, upper, bins, top_label=True)
    for curve, ends in ((band.lower, lower), (band.upper, upper)):
        assert curve.event == "top label"
        for b in range(bins):
            members = []
            for row, label in enumerate(y):
                top = int(np.argmax(p[row]))
                inside = b / bins < ends[row, top] <= (b + 1) / bins or (b == 0 and ends[row, top] == 0)
                if inside:
                    members.append((ends[row, top], top == label))
            assert curve.counts[b] == len(members)
            if members:
                assert curve.confidence[b] == pytest.approx(np.mean([value for value, _ in members]))
                assert curve.frequency[b] == pytest.approx(np.mean([right for _, right in members]))
    low, high = band.frequencies(np.linspace(0, 1, 21))
    assert np.all((low >= 0) & (low <= high) & (high <= 1))


def test_higher_level_widens_band():
    rng = np.random.default_rng(1)
    latent = {"loc": rng.normal(size=(50, 2)), "scale": np.full((50, 1), 0.6)}
    p, y = readout.softmax(latent), rng.integers(0, 3, 50)
    means = []
    for level in (0.5, 0.9, 0.99):
        band = evaluation.reliability_band(y, p, *readout.class_intervals(latent, level), bins=1)
        means.append([band.lower.confidence[0], band.upper.confidence[0]])
    (a, b), (c, d), (e, f) = means
    assert e < c < a < p.max(axis=1).mean() < b < d < f


def test_single_sample_and_single_class():
    band = evaluation.reliability_band([1], [[0.3, 0.7]], [[0.1, 0.5]], [[0.5, 0.9]])
    assert (band.reach, band.lower.frequency[7], band.upper.frequency[13]) == ((0.5, 0.9), 1.0, 1.0)
    np.testing.assert_allclose(band.frequencies([0.5, 0.9]), [[0.5 / 0.9, 1], [1, 1]])
    sure = np.tile([[0.0, 1.0]], (5, 1))
    band = evaluation.reliability_band(np.ones(5), sure, sure, sure)
    np.testing.assert_allclose(band.frequencies([0.5, 1.0]), [[0.5, 1.0], [0.5, 1.0]])
    # A curve that ends at confidence 1 keeps the frequency that it has there.
    wrong = evaluation.reliability_band(np.zeros(5), sure, sure, sure)
    np.testing.assert_allclose(wrong.frequencies([0.5, 1.0]), 0.0)


P = np.array([[0.4, 0.6], [0.7, 0.3]])


@pytest.mark.parametrize(
    ("lower", "upper", "message"),
    [
        (P[:1], P, r"lower must.*found \(1, 2\)"),
        (P, P[:, 0], r"upper must.*found \(2,\)"),
        (P, P + np.array([[0.0], [0.5]]), r"upper must.*found 1.2 in row 1"),
        (P * np.nan, P, r"lower must.*found nan in row 0"),
        (P, P - np.array([[0.0], [0.1]]), "lower must not exceed upper; it does in 1 rows, first 1"),
    ],
)
def test_invalid_interval_ends_raise(lower, upper, message):
    with pytest.raises(ValueError, match=message):
        evaluation.reliability_band([0, 1], P, lower, upper)


def test_invalid_band_arguments_raise():
    for options, message in (
        ({"class_index": 2}, r"class_index must.*found 2"),
        ({"class_index": 1, "top_label": True}, "exclude each other"),
        ({"bins": 0}, r"bins must.*found 0"),
        ({"binning": "adaptive"}, r"binning must.*found 'adaptive'"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluation.reliability_band([0, 1], P, P, P, **options)
    with pytest.raises(ValueError, match=r"^y must.*found 2 in row 1"):
        evaluation.reliability_band([0, 2], P, P, P)
