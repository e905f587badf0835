"""Net benefit as published, decision curves, and mean costs of decisions."""

import numpy as np
import pytest

from deepsimplex import evaluation
from deepsimplex.calibration import ExpectedCost

rng = np.random.default_rng(0)
P = rng.dirichlet(np.ones(3), 80)
Y = np.argmax(np.log(P) + rng.gumbel(size=P.shape), axis=1)
THRESHOLDS = [0.05, 0.2, 0.5, 0.9]


def published(y, risk, threshold):
    """As in the packages dcurves: the rates of true and of false positives, each among all samples."""
    positive = [r >= threshold for r in risk]
    test_positives = sum(positive) / len(y)
    pos_rate = sum(y) / len(y)
    true_rate = sum(t and k for t, k in zip(positive, y, strict=True)) / sum(y) * pos_rate
    false_rate = test_positives - true_rate
    return true_rate - threshold / (1 - threshold) * false_rate


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("positive", [0, 1, 2])
def test_net_benefit_matches_published_formula(positive, dtype):
    y, p = positive == Y, P.astype(dtype)
    curve = evaluation.decision_curve(Y, p, THRESHOLDS, positive=positive)
    for t, benefit, treat_all in zip(THRESHOLDS, curve.net_benefit, curve.treat_all, strict=True):
        assert benefit == pytest.approx(published(y, p[:, positive], t))
        assert evaluation.net_benefit(Y, p, t, positive=positive) == pytest.approx(benefit)
        assert treat_all == pytest.approx(published(y, np.ones(len(y)), t))
    names = np.array(["a", "b", "c"])
    named = {"classes": names, "positive": names[positive]}
    np.testing.assert_array_equal(
        evaluation.decision_curve(names[Y], p, THRESHOLDS, **named).net_benefit, curve.net_benefit
    )
    assert len(evaluation.decision_curve(Y, p, positive=0).thresholds) == 99


def test_net_benefit_has_intervals():
    options = {"threshold": 0.2, "positive": 1}
    lower, upper = evaluation.bootstrap_interval(evaluation.net_benefit, Y, P, **options)
    assert lower < evaluation.net_benefit(Y, P, **options) < upper


def test_mean_cost_is_that_of_the_rule():
    costs = rng.uniform(size=(3, 3))
    for abstention in (0.2, [0.1, 0.5, 0.2]):
        decided = ExpectedCost(costs, abstention).decide(P)
        each = [np.broadcast_to(abstention, 3)[k] if d == -1 else costs[k, d] for k, d in zip(Y, decided, strict=True)]
        assert (decided == -1).any()
        assert evaluation.mean_cost(Y, decided, costs, abstention) == pytest.approx(np.mean(each))
        names = np.array(["a", "b", "c"])
        named = evaluation.mean_cost(names[Y], decided, costs, abstention, classes=names)
        assert named == pytest.approx(np.mean(each))


@pytest.mark.parametrize(
    ("names", "abstention"),
    [
        (["a", "b", "c"], "unknown"),
        (["a", "b", "c"], -1),
        (["unknown", "b", "c"], "ask"),
        ([7, 5, 9], -1),
        ([2, 0, 1], 8),
    ],
)
def test_mean_cost_takes_named_decisions_of_classifiers(names, abstention):
    costs = rng.uniform(size=(3, 3))
    decided = ExpectedCost(costs, 0.2).decide(P)
    named = np.array([*names, abstention], dtype=object)[decided]
    expected = evaluation.mean_cost(Y, decided, costs, 0.2)
    for decisions in (named, named.tolist()):
        cost = evaluation.mean_cost(np.array(names)[Y], decisions, costs, 0.2, classes=names)
        assert cost == pytest.approx(expected)
    with pytest.raises(ValueError, match=f"abstention must be given: decisions hold {abstention!r}"):
        evaluation.mean_cost(np.array(names)[Y], named, costs, classes=names)
    with pytest.raises(ValueError, match=r"one other value for abstentions; found .*'typo'"):
        evaluation.mean_cost(np.array(names)[Y], ["typo", *named[1:]], costs, 0.2, classes=names)


def test_named_decisions_without_classes_raise():
    with pytest.raises(TypeError, match=r"decisions must be class numbers.*classes=model.classes_"):
        evaluation.mean_cost(Y, np.array(["a", "b", "c"])[Y], np.eye(3))


def test_invalid_decision_arguments_raise():
    for call, message in [
        (lambda: evaluation.net_benefit(Y, P, 1.0), r"threshold must.*found 1\.0"),
        (
            lambda: evaluation.net_benefit(Y, P, 0.5, positive=3),
            "positive must be one of 0, 1, 2; found 3",
        ),
        (
            lambda: evaluation.decision_curve(Y, P, [0.0, 0.5], positive=1),
            "thresholds must be above 0 and below 1; found 0 to 0.5",
        ),
        (lambda: evaluation.mean_cost(Y, np.full(80, -1), np.eye(3)), "abstention must be given"),
        (
            lambda: evaluation.mean_cost(Y, np.full(80, -2), np.eye(3)),
            "decisions must be class numbers below 3.*found -2",
        ),
        (lambda: evaluation.mean_cost(Y, np.full(80, 0.5), np.eye(3)), r"decisions must be class numbers.*found 0\.5"),
        (lambda: evaluation.mean_cost(Y, Y[1:], np.eye(3)), "y must .*79"),
        (lambda: evaluation.mean_cost(Y, Y, np.eye(2)), "y must hold class numbers"),
        (lambda: evaluation.mean_cost(Y, Y, np.ones((3, 4))), r"costs must have shape \[n, n\]; found \(3, 4\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
