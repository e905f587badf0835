"""Likelihood, Brier score and its decomposition, and proba-loss, against slow oracles and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from deepsimplex import evaluation
from tests.labeled_probabilities import labeled_probabilities, sure_predictions
from tests.reference import evaluation as oracle

few = settings(max_examples=40, deadline=None)


@given(case=labeled_probabilities())
@few
def test_likelihood_and_brier_score_equal_oracle_and_scikit_learn(case):
    y, p = case
    n = p.shape[1]
    if np.all(p[np.arange(len(y)), y] > 0):
        assert evaluation.negative_log_likelihood(y, p) == pytest.approx(oracle.negative_log_likelihood(y, p))
        if np.all(p > 1e-9):  # scikit-learn clips
            theirs = sklearn_metrics.log_loss(y, p, labels=np.arange(n))
            assert evaluation.negative_log_likelihood(y, p) == pytest.approx(theirs, rel=1e-9)
    theirs = sklearn_metrics.brier_score_loss(y, p[:, 1] if n == 2 else p, labels=np.arange(n))
    assert evaluation.brier_score(y, p) == pytest.approx(theirs, rel=1e-9, abs=1e-12)


@given(case=labeled_probabilities())
@few
def test_proba_loss_is_one_minus_true_class_probability(case):
    y, p = case
    assert evaluation.proba_loss(y, p) == pytest.approx(np.mean([1 - p[i, y[i]] for i in range(len(y))]), abs=1e-12)
    assert evaluation.proba_loss(y, np.eye(p.shape[1])[y]) == 0


@given(case=labeled_probabilities(), bins=st.none() | st.integers(1, 20))
@few
def test_brier_decomposition_equals_oracle_and_sums_to_the_score(case, bins):
    y, p = case
    parts = evaluation.brier_decomposition(y, p, bins)
    three = (parts.reliability, parts.resolution, parts.uncertainty)
    assert three == pytest.approx(oracle.brier_decomposition(y, p, bins), abs=1e-12)
    assert parts.brier_score == pytest.approx(evaluation.brier_score(y, p), abs=1e-12)
    assert min(three) >= 0
    if bins is None:
        assert parts.remainder == pytest.approx(0, abs=1e-12)


def test_brier_remainder_vanishes_for_equal_probabilities():
    y, p = sure_predictions(4)
    assert abs(evaluation.brier_decomposition(y, p, bins=5).remainder) > 1e-3
    centers = np.array([[0.1, 0.9], [0.3, 0.7], [0.5, 0.5]])[np.arange(60) % 3]
    exact = evaluation.brier_decomposition(np.arange(60) % 2, centers, bins=5)
    assert exact.remainder == pytest.approx(0, abs=1e-15)


def test_constant_forecast_has_zero_reliability_and_resolution():
    y = np.array([0, 0, 1, 2])
    parts = evaluation.brier_decomposition(y, np.tile([0.5, 0.25, 0.25], (4, 1)))
    assert (parts.reliability, parts.resolution) == pytest.approx((0, 0), abs=1e-15)
    assert parts.uncertainty == pytest.approx(0.25 + 2 * 3 / 16)
