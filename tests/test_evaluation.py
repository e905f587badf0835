"""The evaluation room against slow oracles, scikit-learn and cases worked by hand."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from deepsimplex import evaluation
from deepsimplex._utils.validation import SUM_TOLERANCE, check_labels_and_probabilities
from tests.labeled_probabilities import labeled_probabilities
from tests.reference import evaluation as oracle

few = settings(max_examples=40, deadline=None)


@given(case=labeled_probabilities(), bins=st.integers(1, 30))
@few
def test_ece_is_the_oracles(case, bins):
    y, p = case
    ours = evaluation.expected_calibration_error(y, p, bins)
    assert ours == pytest.approx(oracle.expected_calibration_error(y, p, bins), abs=1e-12)
    assert 0 <= ours <= 1


@given(case=labeled_probabilities())
@few
def test_accuracies_are_the_oracles(case):
    y, p = case
    n = p.shape[1]
    by_k = [evaluation.top_k_accuracy(y, p, k) for k in range(1, n + 1)]
    assert by_k == [oracle.top_k_accuracy(y, p, k) for k in range(1, n + 1)]
    assert by_k[0] == evaluation.accuracy(y, p)
    assert by_k[-1] == 1.0


@given(case=labeled_probabilities())
@few
def test_likelihood_and_brier_score_are_the_oracles_and_scikit_learns(case):
    y, p = case
    n = p.shape[1]
    if np.all(p[np.arange(len(y)), y] > 0):
        assert evaluation.negative_log_likelihood(y, p) == pytest.approx(oracle.negative_log_likelihood(y, p))
        if np.all(p > 1e-9):  # scikit-learn clips
            theirs = sklearn_metrics.log_loss(y, p, labels=np.arange(n))
            assert evaluation.negative_log_likelihood(y, p) == pytest.approx(theirs, rel=1e-9)
    theirs = sklearn_metrics.brier_score_loss(y, p[:, 1] if n == 2 else p, labels=np.arange(n))
    assert evaluation.brier_score(y, p) == pytest.approx(theirs, rel=1e-9, abs=1e-12)


def test_a_confidence_on_an_edge_belongs_to_the_bin_below():
    # Class-1 probabilities 0, 0.5 and 1 in two bins: (0 and 0.5] hold two samples, (0.5, 1] holds one.
    curve = evaluation.reliability_curve([0, 1, 1], [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]], bins=2)
    np.testing.assert_array_equal(curve.counts, [2, 1])
    np.testing.assert_allclose(curve.confidence, [0.25, 1.0])
    np.testing.assert_allclose(curve.frequency, [0.5, 1.0])
    assert curve.expected_calibration_error == pytest.approx(2 / 3 * 0.25)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bins", [5, 10, 15])
def test_every_edge_closes_its_bin_in_the_precision_of_p(dtype, bins):
    q = (np.arange(1, bins + 1) / bins).astype(dtype)
    curve = evaluation.reliability_curve(np.ones(bins, int), np.column_stack([1 - q, q]), bins)
    np.testing.assert_array_equal(curve.counts, 1)


def test_empty_bins_weigh_nothing_and_show_no_numbers():
    curve = evaluation.reliability_curve([0, 0], [[0.95, 0.05]] * 2, bins=10)
    np.testing.assert_array_equal(curve.counts, [2] + [0] * 9)
    assert np.isnan(curve.confidence[1:]).all()
    assert np.isnan(curve.frequency[1:]).all()
    assert curve.expected_calibration_error == pytest.approx(0.05)


def test_two_classes_use_class_one_and_the_top_label_on_request():
    y, p = [0, 0, 1], [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]
    assert evaluation.reliability_curve(y, p).event == "class 1"
    top = evaluation.reliability_curve(y, p, bins=1, top_label=True)
    assert top.event == "top label"
    np.testing.assert_allclose([top.confidence[0], top.frequency[0]], [(0.9 + 0.6 + 0.8) / 3, 1.0])
    assert evaluation.expected_calibration_error(y, p, bins=1) == pytest.approx(0.1)


def test_samples_drawn_from_the_probabilities_are_calibrated():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), 40_000)
    y = (p.cumsum(axis=1) < rng.uniform(size=(len(p), 1))).sum(axis=1)
    # The mean absolute error of 15 frequencies: at most sum_b sqrt(c_b / 4) / N, about 0.01.
    assert evaluation.expected_calibration_error(y, p) < 0.012
    assert evaluation.expected_calibration_error(y, p**3 / (p**3).sum(axis=1, keepdims=True)) > 0.1


def test_limits():
    p = np.eye(3)
    perfect, worst = evaluation.report([0, 1, 2], p), evaluation.report([1, 2, 0], p)
    assert (perfect.accuracy, perfect.negative_log_likelihood, perfect.brier_score) == (1, 0, 0)
    assert perfect.expected_calibration_error == 0
    assert (worst.accuracy, worst.negative_log_likelihood, worst.brier_score) == (0, np.inf, 2)
    assert worst.expected_calibration_error == 1
    uniform = np.full((1, 5), 0.2)
    assert evaluation.negative_log_likelihood([3], uniform) == pytest.approx(np.log(5))
    assert evaluation.brier_score([0], [[0.0, 1.0]]) == 1.0


def test_labels_may_be_a_column_of_any_number_type_or_one_hot():
    p = [[0.2, 0.8], [0.7, 0.3]]
    for y in ([1, 0], [[1], [0]], [1.0, 0.0], [True, False], np.array([1, 0], np.uint8), [[0, 1], [1, 0]]):
        assert evaluation.accuracy(y, p) == 1.0


OF_PREDICTIONS = [
    "accuracy",
    "accuracy_at_coverage",
    "adaptive_calibration_error",
    "area_deviation",
    "area_under_risk_coverage",
    "brier_decomposition",
    "brier_score",
    "classwise_calibration_error",
    "expected_calibration_error",
    "maximum_calibration_error",
    "negative_log_likelihood",
    "proba_loss",
    "reliability_curve",
    "report",
    "risk_coverage_curve",
    "weighted_f1",
    "weighted_precision",
    "weighted_recall",
]


@pytest.mark.parametrize("name", OF_PREDICTIONS)
@pytest.mark.parametrize(
    ("y", "p", "error", "message"),
    [
        ([0, 1], [[0.5, 0.5]], ValueError, r"y must hold one label for each of the 1 rows of p; found shape \(2,\)"),
        ([[0.2, 0.8]], [[0.5, 0.5]], ValueError, "y must name one class per sample.*soft labels, row 0"),
        ([[1, 0, 0]], [[0.5, 0.5]], ValueError, r"y must have shape \[N, 2\].*found shape \(1, 3\)"),
        ([2], [[0.5, 0.5]], ValueError, r"y must hold class numbers 0\.\.1.*found 2 in row 0"),
        ([0, -1], [[0.5, 0.5]] * 2, ValueError, "found -1 in row 1"),
        ([0.5], [[0.5, 0.5]], ValueError, "found 0.5 in row 0"),
        ([np.nan], [[0.5, 0.5]], ValueError, "found nan in row 0"),
        (["cat"], [[0.5, 0.5]], TypeError, r"y must hold class numbers 0\.\.1; found dtype <U3"),
        ([0], [["a", "b"]], TypeError, "p must hold real numbers; found dtype <U1"),
        ([0], [[0.5 + 0.1j, 0.5]], TypeError, "p must hold real numbers; found dtype complex128"),
        ([0, 1], [[0.5, 0.5], [1.0]], ValueError, "p must be an array, its rows of one length"),
        ([[0], [0, 1]], [[0.5, 0.5]] * 2, ValueError, "y must be an array, its rows of one length"),
        ([0], np.array([["a", 0.5]], object), TypeError, "p must hold real numbers; found objects: could not convert"),
        ([0, 1], np.ma.masked_less([[0.5, 0.5], [0.3, 0.7]], 0.4), ValueError, "p must not be masked; found 1.*row 1"),
        (np.ma.masked_equal([1, 0], 0), [[0.5, 0.5]] * 2, ValueError, "y must not be masked; found 1.*first in row 1"),
        ([0, 0], [[0.5, 0.5], [1.00001, -1e-5]], ValueError, "p must not be negative; found -1e-05 in row 1"),
        ([0], [0.5], ValueError, r"p must have shape \[N, n\].*column_stack"),
        ([0], [[1.0]], ValueError, "n >= 2 classes"),
        ([], np.zeros((0, 3)), ValueError, "at least one sample"),
        ([0, 0], [[0.5, 0.5], [np.nan, 0.5]], ValueError, "p must be finite.*first is row 1"),
        ([0, 0], [[0.5, 0.5], [1.2, -0.2]], ValueError, "p must not be negative; found -0.2 in row 1"),
        ([0, 0], [[0.5, 0.5], [0.6, 0.5]], ValueError, "row 1 sums to 1.1.*not logits"),
    ],
)
def test_bad_input_is_named_by_every_function(name, y, p, error, message):
    with pytest.raises(error, match=message):
        getattr(evaluation, name)(y, p)


@given(case=labeled_probabilities(), seed=st.integers(0, 2**32 - 1))
@few
def test_no_score_knows_the_order_of_samples(case, seed):
    y, p = case
    order = np.random.default_rng(seed).permutation(len(y))
    ours, shuffled = evaluation.report(y, p).as_dict(), evaluation.report(y[order], p[order]).as_dict()
    assert ours == pytest.approx(shuffled, abs=1e-9)


def test_the_hint_for_names_gives_the_right_numbers_where_a_class_is_absent():
    y = np.array(["b", "c", "c"])
    with pytest.raises(TypeError) as caught:
        evaluation.accuracy(y, np.eye(3)[[1, 2, 2]])
    told = re.search(r"\[names.*?\]", str(caught.value))[0]
    numbers = eval(told, {"names": ["a", "b", "c"], "y": y})
    assert evaluation.accuracy(numbers, np.eye(3)[[1, 2, 2]]) == 1.0


def test_numbers_may_come_as_objects():
    p = np.array([[0.2, 0.8], [0.7, 0.3]])
    for y in ([1, 0], [1.0, 0.0], [np.int64(1), 0]):
        assert evaluation.accuracy(np.array(y, object), p.astype(object)) == 1.0
    with pytest.raises(ValueError, match=r"found 2\.0 in row 1"):
        evaluation.accuracy(np.array([1, 2], object), p)
    with pytest.raises(TypeError, match="found dtype object"):
        evaluation.accuracy(np.array([1, None], object), p)


def test_what_rounding_left_below_zero_counts_as_zero():
    q = np.array([0.2, 1.0000001], np.float32)
    p = np.column_stack([1 - q, q])
    assert -1e-6 < p.min() < 0
    assert check_labels_and_probabilities([0, 1], p)[1].min() == 0
    assert evaluation.negative_log_likelihood([0, 0], p) == np.inf
    assert evaluation.reliability_curve([0, 1], p, of_class=0).counts.sum() == 2
    assert p.min() < 0  # the caller's array stays as it was


def test_single_precision_is_near_enough():
    rng = np.random.default_rng(0)
    y, p = rng.integers(0, 4, 200), rng.dirichlet(np.ones(4), 200)
    ours, double = evaluation.report(y, p.astype(np.float32)).as_dict(), evaluation.report(y, p).as_dict()
    assert ours == pytest.approx(double, abs=1e-5)
    assert {type(value) for value in ours.values()} == {int, float}


def test_sums_are_checked_within_the_stated_tolerance():
    just_inside = np.array([[0.5, 0.5 + 0.9 * SUM_TOLERANCE]])
    just_outside = np.array([[0.5, 0.5 + 1.1 * SUM_TOLERANCE]])
    assert evaluation.accuracy([1], just_inside) == 1.0
    with pytest.raises(ValueError, match=r"must sum to 1 within 0\.001"):
        evaluation.accuracy([1], just_outside)


@pytest.mark.parametrize("k", [0, 3, 1.5, 1.0, True, None])
def test_k_outside_the_classes_is_refused(k):
    with pytest.raises(ValueError, match=r"k must be (a whole number, at least 1|at most the .* 2); found"):
        evaluation.top_k_accuracy([0], [[0.5, 0.5]], k)


@pytest.mark.parametrize("bins", [0, 2.5, 10.0, True, np.True_, None, np.nan, np.inf, [5], "5"])
def test_bins_that_are_no_number_of_bins_are_refused(bins):
    with pytest.raises(ValueError, match="bins must be a whole number"):
        evaluation.expected_calibration_error([0], [[0.5, 0.5]], bins)
