"""Accuracy, top-k accuracy, precision, recall and F1, against slow oracles and scikit-learn."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from sklearn import metrics as sklearn_metrics

from deepsimplex import evaluation
from tests.labeled_probabilities import labeled_probabilities
from tests.reference import evaluation as oracle

few = settings(max_examples=40, deadline=None)


@given(case=labeled_probabilities())
@few
def test_accuracies_equal_oracle(case):
    y, p = case
    n = p.shape[1]
    by_k = [evaluation.top_k_accuracy(y, p, k) for k in range(1, n + 1)]
    assert by_k == [oracle.top_k_accuracy(y, p, k) for k in range(1, n + 1)]
    assert by_k[0] == evaluation.accuracy(y, p)
    assert by_k[-1] == 1.0


@given(case=labeled_probabilities())
@settings(max_examples=20, deadline=None)
def test_precision_recall_and_f1_equal_scikit_learn(case):
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


@pytest.mark.parametrize("k", [0, 3, 1.5, 1.0, True, None])
def test_invalid_k_raises(k):
    with pytest.raises(ValueError, match=rf"^k must.*found {re.escape(repr(k))}"):
        evaluation.top_k_accuracy([0], [[0.5, 0.5]], k)
