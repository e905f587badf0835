"""Arguments of all scores: forms of labels and probabilities, checks, limits, independence of the order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepsimplex import evaluation
from deepsimplex._utils.validation import SUM_TOLERANCE, check_labels_and_probabilities
from tests.labeled_probabilities import labeled_probabilities

few = settings(max_examples=40, deadline=None)


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


def test_labels_as_columns_of_any_dtype_or_one_hot():
    p = [[0.2, 0.8], [0.7, 0.3]]
    for y in ([1, 0], [[1], [0]], [1.0, 0.0], [True, False], np.array([1, 0], np.uint8), [[0, 1], [1, 0]]):
        assert evaluation.accuracy(y, p) == 1.0


OF_PREDICTIONS = [
    "accuracy",
    "accuracy_at_coverage",
    "adaptive_calibration_error",
    "area_deviation",
    "area_under_risk_coverage",
    "average_precision",
    "balanced_accuracy",
    "brier_decomposition",
    "brier_score",
    "class_scores",
    "classwise_calibration_error",
    "expected_calibration_error",
    "maximum_calibration_error",
    "negative_log_likelihood",
    "precision_recall_curve",
    "proba_loss",
    "reliability_curve",
    "report",
    "risk_coverage_curve",
    "roc_auc",
    "roc_curve",
    "weighted_f1",
    "weighted_precision",
    "weighted_recall",
]


@pytest.mark.parametrize(
    ("y", "p", "error", "message"),
    [
        ([0, 1], [[0.5, 0.5]], ValueError, r"^y must.*found shape \(2,\)"),
        ([[0.2, 0.8]], [[0.5, 0.5]], ValueError, r"^y must.*found soft labels, row 0"),
        ([[1, 0, 0]], [[0.5, 0.5]], ValueError, r"^y must.*found shape \(1, 3\)"),
        ([2], [[0.5, 0.5]], ValueError, r"^y must.*found 2 in row 0"),
        ([0, -1], [[0.5, 0.5]] * 2, ValueError, r"^y must.*found -1 in row 1"),
        ([0.5], [[0.5, 0.5]], ValueError, r"^y must.*found 0.5 in row 0"),
        ([np.nan], [[0.5, 0.5]], ValueError, r"^y must.*found nan in row 0"),
        (["cat"], [[0.5, 0.5]], TypeError, r"^y must.*found dtype <U3"),
        ([0], [["a", "b"]], TypeError, r"^p must.*found dtype <U1"),
        ([0], [[0.5 + 0.1j, 0.5]], TypeError, r"^p must.*found dtype complex128"),
        ([0, 1], [[0.5, 0.5], [1.0]], ValueError, "p must be an array, its rows of one length"),
        ([[0], [0, 1]], [[0.5, 0.5]] * 2, ValueError, "y must be an array, its rows of one length"),
        ([0], np.array([["a", 0.5]], object), TypeError, r"^p must.*found objects: 'a'"),
        ([0, 1], np.ma.masked_less([[0.5, 0.5], [0.3, 0.7]], 0.4), ValueError, r"^p must.*found 1.*row 1"),
        (np.ma.masked_equal([1, 0], 0), [[0.5, 0.5]] * 2, ValueError, r"^y must.*found 1.*first in row 1"),
        ([0, 0], [[0.5, 0.5], [1.00001, -1e-5]], ValueError, r"^p must.*found -1e-05 in row 1"),
        ([0], [0.5], ValueError, r"p must have shape \[N, n\].*column_stack"),
        ([0], [[1.0]], ValueError, r"^p must.*found shape \(1, 1\)"),
        ([], np.zeros((0, 3)), ValueError, r"^p must.*found none"),
        ([0, 0], [[0.5, 0.5], [np.nan, 0.5]], ValueError, "p must be finite.*first at index 1"),
        ([0, 0], [[0.5, 0.5], [1.2, -0.2]], ValueError, r"^p must.*found -0.2 in row 1"),
        ([0, 0], [[0.5, 0.5], [0.6, 0.5]], ValueError, "row 1 sums to 1.1.*not logits"),
    ],
)
def test_invalid_input_raises_in_every_function(y, p, error, message):
    for name in OF_PREDICTIONS:
        with pytest.raises(error, match=message):
            getattr(evaluation, name)(y, p)


@given(case=labeled_probabilities(), seed=st.integers(0, 2**32 - 1))
@few
def test_scores_do_not_depend_on_the_order_of_samples(case, seed):
    y, p = case
    order = np.random.default_rng(seed).permutation(len(y))
    ours, shuffled = evaluation.report(y, p).as_dict(), evaluation.report(y[order], p[order]).as_dict()
    assert ours == pytest.approx(shuffled, abs=1e-9, nan_ok=True)


def test_hint_for_named_labels_is_right_with_absent_class():
    y, p = np.array(["b", "c", "c"]), np.eye(3)[[1, 2, 2]]
    with pytest.raises(TypeError, match=r"classes=model\.classes_"):
        evaluation.accuracy(y, p)
    assert evaluation.accuracy(y, p, classes=["a", "b", "c"]) == 1.0


def test_numbers_of_object_dtype():
    p = np.array([[0.2, 0.8], [0.7, 0.3]])
    for y in ([1, 0], [1.0, 0.0], [np.int64(1), 0]):
        assert evaluation.accuracy(np.array(y, object), p.astype(object)) == 1.0
    with pytest.raises(ValueError, match=r"^y must.*found 2\.0 in row 1"):
        evaluation.accuracy(np.array([1, 2], object), p)
    with pytest.raises(ValueError, match=r"^y must not be missing; found None in row 1"):
        evaluation.accuracy(np.array([1, None], object), p)


def test_rounding_below_zero_counts_as_zero():
    q = np.array([0.2, 1.0000001], np.float32)
    p = np.column_stack([1 - q, q])
    assert -1e-6 < p.min() < 0
    assert check_labels_and_probabilities([0, 1], p)[1].min() == 0
    assert evaluation.negative_log_likelihood([0, 0], p) == np.inf
    assert evaluation.reliability_curve([0, 1], p, class_index=0).counts.sum() == 2
    assert p.min() < 0  # the caller's array stays as it was


def test_float32_scores_are_close():
    rng = np.random.default_rng(0)
    y, p = rng.integers(0, 4, 200), rng.dirichlet(np.ones(4), 200)
    ours, double = evaluation.report(y, p.astype(np.float32)).as_dict(), evaluation.report(y, p).as_dict()
    assert ours == pytest.approx(double, abs=1e-5)
    assert {type(value) for value in ours.values()} == {int, float}


def test_sums_are_checked_within_tolerance():
    just_inside = np.array([[0.5, 0.5 + 0.9 * SUM_TOLERANCE]])
    just_outside = np.array([[0.5, 0.5 + 1.1 * SUM_TOLERANCE]])
    assert evaluation.accuracy([1], just_inside) == 1.0
    with pytest.raises(ValueError, match=r"must sum to 1 within 0\.001"):
        evaluation.accuracy([1], just_outside)
