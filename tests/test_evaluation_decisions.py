"""Scores of decisions and of knowing when not to take them, against scikit-learn and slow oracles."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from deepsimplex import evaluation
from tests.labeled_probabilities import labeled_probabilities
from tests.reference import evaluation as oracle

few = settings(max_examples=40, deadline=None)


@given(case=labeled_probabilities())
@few
def test_precision_recall_and_f1_are_scikit_learns(case):
    y, p = case
    assigned, given_ = p.argmax(axis=1), {"average": "weighted", "zero_division": 0}
    labels = np.arange(p.shape[1])
    for name, theirs in {
        "weighted_precision": sklearn_metrics.precision_score,
        "weighted_recall": sklearn_metrics.recall_score,
        "weighted_f1": sklearn_metrics.f1_score,
    }.items():
        assert getattr(evaluation, name)(y, p) == pytest.approx(theirs(y, assigned, labels=labels, **given_), abs=1e-12)
    assert evaluation.weighted_recall(y, p) == pytest.approx(evaluation.accuracy(y, p), abs=1e-12)


def test_classes_without_samples_and_a_single_class_are_limits():
    p = np.array([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1]])
    assert evaluation.weighted_precision([0, 0], p) == evaluation.weighted_f1([0, 0], p) == 1
    assert evaluation.weighted_precision([2, 2], p) == evaluation.weighted_f1([2, 2], p) == 0
    assert evaluation.brier_decomposition([0, 0], p).uncertainty == 0


@given(case=labeled_probabilities())
@few
def test_proba_loss_is_what_the_true_class_lacks(case):
    y, p = case
    assert evaluation.proba_loss(y, p) == pytest.approx(np.mean([1 - p[i, y[i]] for i in range(len(y))]), abs=1e-12)
    assert evaluation.proba_loss(y, np.eye(p.shape[1])[y]) == 0


scores = st.lists(st.sampled_from([-np.inf, -1.0, 0.0, 0.25, 1.0, 7.0, np.inf]), min_size=1, max_size=12)


@given(inside=scores, outside=scores)
@few
def test_auroc_is_the_oracles_and_turns_with_its_arguments(inside, outside):
    ours = evaluation.out_of_distribution_auroc(inside, outside)
    assert ours == pytest.approx(oracle.auroc(inside, outside), abs=1e-12)
    assert evaluation.out_of_distribution_auroc(outside, inside) == pytest.approx(1 - ours, abs=1e-12)


@given(seed=st.integers(0, 2**32 - 1), ties=st.booleans())
@few
def test_auroc_is_scikit_learns(seed, ties):
    rng = np.random.default_rng(seed)
    inside, outside = rng.normal(size=80), rng.normal(0.5, 1, size=50)
    if ties:
        inside, outside = inside.round(), outside.round()
    theirs = sklearn_metrics.roc_auc_score(np.repeat([0, 1], [80, 50]), np.concatenate([inside, outside]))
    assert evaluation.out_of_distribution_auroc(inside, outside) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize(
    ("inside", "outside", "message"),
    [
        ([], [1.0], r"inside must hold one number for each sample, \[N\] with N >= 1; found shape \(0,\)"),
        ([1.0], [], r"outside must hold one number for each sample"),
        ([[0.5, 0.5]], [1.0], r"found shape \(1, 2\).*become scores with 1 - p.max"),
        ([1.0], [0.0, np.nan], "outside must not hold NaN; found 1, the first in row 1"),
    ],
)
def test_scores_that_are_none_are_refused(inside, outside, message):
    with pytest.raises(ValueError, match=message):
        evaluation.out_of_distribution_auroc(inside, outside)
    with pytest.raises(TypeError, match="inside must hold real numbers; found dtype <U1"):
        evaluation.out_of_distribution_auroc(["a"], outside)


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_risk_is_the_mean_over_the_orders_of_ties(data):
    samples = data.draw(st.integers(1, 6))
    confidence = np.array(data.draw(st.lists(st.sampled_from([1, 2, 3]), min_size=samples, max_size=samples)))
    wrong = np.array(data.draw(st.lists(st.booleans(), min_size=samples, max_size=samples)))
    p = np.tile([0.6, 0.4], (samples, 1))
    curve = evaluation.risk_coverage_curve(wrong, p, confidence)
    np.testing.assert_allclose(curve.risk, oracle.risks(confidence, wrong), atol=1e-12)
    assert (np.diff(curve.confidence) <= 0).all()
    assert evaluation.area_under_risk_coverage(wrong, p, confidence) == pytest.approx(np.mean(curve.risk), abs=1e-12)


@given(case=labeled_probabilities())
@few
def test_full_coverage_is_the_accuracy_and_the_best_order_has_the_least_area(case):
    y, p = case
    assert evaluation.accuracy_at_coverage(y, p, 1.0) == pytest.approx(evaluation.accuracy(y, p), abs=1e-12)
    wrong = p.argmax(axis=1) != y
    area = evaluation.area_under_risk_coverage(y, p)
    assert evaluation.area_under_risk_coverage(y, p, ~wrong) <= area + 1e-12
    assert area <= evaluation.area_under_risk_coverage(y, p, wrong) + 1e-12
    # Where all are equally sure nothing is gained: the risk is the error rate throughout.
    np.testing.assert_allclose(evaluation.risk_coverage_curve(y, p, np.ones(len(y))).risk, wrong.mean(), atol=1e-12)


def test_coverage_is_rounded_up_to_samples():
    p = np.column_stack([np.linspace(0.51, 0.99, 10), 1 - np.linspace(0.51, 0.99, 10)])
    y = (np.arange(10) < 3).astype(int)  # the three least sure ones are wrong
    curve = evaluation.risk_coverage_curve(y, p)
    assert [curve.accuracy_at(c) for c in (0.001, 0.1, 0.7, 0.1 * 7)] == [1, 1, 1, 1]
    assert curve.accuracy_at(0.71) == pytest.approx(7 / 8)
    assert evaluation.accuracy_at_coverage(y, p, 0.71) == curve.accuracy_at(0.71)


@pytest.mark.parametrize("coverage", [0, 1.1, -0.5, np.nan, True, "0.8"])
def test_a_coverage_that_is_no_share_is_refused(coverage):
    with pytest.raises(ValueError, match="coverage must be a number above 0 and at most 1; found"):
        evaluation.accuracy_at_coverage([0], [[0.5, 0.5]], coverage)


@pytest.mark.parametrize(
    ("confidence", "message"),
    [
        ([1.0, 2.0], r"confidence must hold one number for each of the 1 rows of p; found shape \(2,\). Leave it out"),
        (np.ma.masked_equal([1.0], 1.0), "confidence must not be masked"),
        ([np.nan], "confidence must not hold NaN; found 1, the first in row 0"),
    ],
)
def test_a_confidence_that_is_none_is_refused(confidence, message):
    with pytest.raises(ValueError, match=message):
        evaluation.risk_coverage_curve([0], [[0.5, 0.5]], confidence)
    with pytest.raises(TypeError, match="confidence must hold real numbers; found dtype <U4"):
        evaluation.risk_coverage_curve([0], [[0.5, 0.5]], ["high"])
