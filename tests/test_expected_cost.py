"""Decisions of least expected cost: against a search written out, abstentions, errors."""

import json

import numpy as np
import pandas
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier

from deepsimplex.calibration import DecisionRule, ExpectedCost

rng = np.random.default_rng(0)
P = rng.dirichlet(np.ones(4), 300)
COSTS = rng.uniform(0.5, 1.5, (4, 4)) * (1 - np.eye(4))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("abstention", [None, 0.4, [0.3, 0.2, 0.4, 0.3]])
def test_decisions_have_least_expected_cost(abstention, dtype):
    rule = ExpectedCost(COSTS, abstention)
    again = ExpectedCost.from_config(json.loads(json.dumps(rule.get_config())))
    decided = rule.decide(P.astype(dtype))
    assert decided.dtype == np.int64
    np.testing.assert_array_equal(again.decide(P.astype(dtype)), decided)
    for p, decision in zip(P, decided, strict=True):
        expected = [sum(p[k] * COSTS[k, d] for k in range(4)) for d in range(4)]
        if abstention is not None:
            expected.append(sum(p * np.broadcast_to(abstention, 4)))
        assert expected[decision] == pytest.approx(min(expected))
    assert (abstention is not None) == (decided == -1).any()


def test_equal_costs_decide_for_the_likeliest_and_abstain_by_chow():
    np.testing.assert_array_equal(ExpectedCost(1 - np.eye(4)).decide(P), P.argmax(axis=1))
    decided = ExpectedCost(1 - np.eye(4), abstention=0.4).decide(P)
    np.testing.assert_array_equal(decided, np.where(P.max(axis=1) >= 0.6, P.argmax(axis=1), -1))
    np.testing.assert_array_equal(ExpectedCost(np.zeros((2, 2)), abstention=0).decide([[0.3, 0.7]]), [0])


def test_threshold_as_costs_is_that_of_scikit_learn():
    X = rng.normal(size=(200, 2))
    y = (X[:, 0] + rng.normal(size=200) > 0).astype(int)
    classifier = LogisticRegression().fit(X, y)
    expected = FixedThresholdClassifier(classifier, threshold=0.2).fit(X, y).predict(X)
    decided = ExpectedCost([[0, 0.2], [0.8, 0]]).decide(classifier.predict_proba(X))
    np.testing.assert_array_equal(decided, expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0, 1, 2], [1, 0, 2]],), r"costs must have a row for each class.*\(2, 3\)"),
        (([[0, np.nan], [1, 0]],), r"costs must be finite; found nan at \[0, 1\]"),
        (([[0]],), "costs must have at least 2 rows; found 1"),
        (([0, 1],), r"costs must have shape \[n, n\]"),
        ((np.eye(2), [1, 2, 3]), r"abstention must be a number, or hold one for each of the 2 classes; .*\(3,\)"),
        ((np.eye(2), np.inf), "abstention must be finite"),
    ],
)
def test_invalid_costs_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        ExpectedCost(*arguments)


def test_frames_with_names_raise():
    costs = pandas.DataFrame([[0, 20], [1, 0]], ["well", "ill"], ["well", "ill"])
    with pytest.raises(ValueError, match=r"costs must be an array in the order.*DataFrame with index well, ill"):
        ExpectedCost(costs)
    with pytest.raises(ValueError, match="DataFrame with columns well, ill"):
        ExpectedCost(costs.reset_index(drop=True))
    with pytest.raises(ValueError, match="abstention must be an array in the order"):
        ExpectedCost(costs.to_numpy(), costs["ill"])
    np.testing.assert_array_equal(ExpectedCost(pandas.DataFrame(costs.to_numpy())).costs, costs)


def test_other_classes_and_no_probabilities_raise():
    with pytest.raises(ValueError, match=r"costs must be those of the 4 classes of p, \[n, n\]; found 2 rows"):
        ExpectedCost(np.eye(2)).decide(P)
    with pytest.raises(ValueError, match="must sum to 1"):
        ExpectedCost(np.eye(4)).decide(2 * P)
    assert issubclass(ExpectedCost, DecisionRule)
