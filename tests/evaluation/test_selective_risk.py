"""Risk and coverage against a slow oracle and at their limits."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepsimplex import evaluation
from tests.labeled_probabilities import labeled_probabilities
from tests.reference import evaluation as oracle

few = settings(max_examples=40, deadline=None)


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_risk_is_averaged_over_orders_of_ties(data):
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
def test_full_coverage_equals_accuracy_and_best_order_minimizes_area(case):
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
def test_invalid_coverage_raises(coverage):
    with pytest.raises(ValueError, match=rf"coverage must.*found {re.escape(repr(coverage))}"):
        evaluation.accuracy_at_coverage([0], [[0.5, 0.5]], coverage)


@pytest.mark.parametrize(
    ("confidence", "message"),
    [
        ([1.0, 2.0], r"confidence must.*found shape \(2,\). Leave it out"),
        (np.ma.masked_equal([1.0], 1.0), "confidence must not be masked"),
        ([np.nan], r"confidence must.*found 1, the first in row 0"),
    ],
)
def test_invalid_confidence_raises(confidence, message):
    with pytest.raises(ValueError, match=message):
        evaluation.risk_coverage_curve([0], [[0.5, 0.5]], confidence)
    with pytest.raises(TypeError, match=r"confidence must.*found dtype <U4"):
        evaluation.risk_coverage_curve([0], [[0.5, 0.5]], ["high"])
