"""Classifiers compared on the same resamples, against a loop over them."""

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from deepsimplex import evaluation
from deepsimplex.evaluation.bootstrap import draws
from deepsimplex.evaluation.report_comparison import HIGHER_IS_BETTER


@pytest.fixture(scope="module")
def wine():
    """Labels, and class probabilities of two classifiers that saw three features."""
    X, y = load_wine(return_X_y=True)
    X = X[:, :3]
    models = {"bayes": GaussianNB(), "logistic": LogisticRegression(max_iter=5000)}
    return y[1::2], {name: model.fit(X[::2], y[::2]).predict_proba(X[1::2]) for name, model in models.items()}


def test_comparison_contains_single_reports(wine):
    y, probabilities = wine
    comparison = evaluation.compare_reports(y, probabilities, bins=10, resamples=30, seed=3, level=0.9)
    for name, p in probabilities.items():
        alone = evaluation.report(y, p, 10, intervals=0.9, resamples=30, seed=3)
        assert comparison.reports[name].as_dict() == alone.as_dict()


@pytest.mark.parametrize("score", ["accuracy", "brier_score", "expected_calibration_error"])
def test_differences_use_the_same_resamples(wine, score):
    y, probabilities = wine
    comparison = evaluation.compare_reports(y, probabilities, resamples=41, seed=1)
    metric = getattr(evaluation, score)
    best, other = comparison.best[score], next(name for name in probabilities if name != comparison.best[score])
    differences = [
        metric(y[rows], probabilities[other][rows]) - metric(y[rows], probabilities[best][rows])
        for rows in draws(len(y), None, 41, 1)
    ]
    expected = np.sort(differences)[[1, 39]]
    if score == "expected_calibration_error":  # biased by few samples: mirrored at the difference of all samples
        expected = 2 * (metric(y, probabilities[other]) - metric(y, probabilities[best])) - expected[::-1]
    np.testing.assert_allclose(comparison.differences[other][score], expected, atol=1e-12)
    assert comparison.differences[best][score] == (0, 0)
    assert not comparison.differs(best, score)


def test_best_is_highest_or_lowest_by_score(wine):
    y, probabilities = wine
    comparison = evaluation.compare_reports(y, probabilities, resamples=5)
    assert comparison.best.keys() == HIGHER_IS_BETTER.keys()
    for score, higher in HIGHER_IS_BETTER.items():
        values = {name: getattr(scores, score) for name, scores in comparison.reports.items()}
        assert values[comparison.best[score]] == (max if higher else min)(values.values())


def test_every_score_has_a_direction_or_describes_the_test_set(wine):
    y, probabilities = wine
    scored = evaluation.report(y, probabilities["bayes"], intervals=0.9, resamples=2).intervals
    assert scored.keys() - HIGHER_IS_BETTER.keys() == {"brier_uncertainty", "brier_remainder"}


def test_paired_difference_is_significant_despite_overlapping_intervals():
    """Two classifiers that differ on few samples: their own intervals overlap widely, the difference is sure."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    confidence = np.where(rng.random(400) < 0.7, 0.8, 0.2)
    p = np.where(np.arange(2) == y[:, None], confidence[:, None], 1 - confidence[:, None])
    better = 0.95 * p + 0.05 * np.eye(2)[y]
    comparison = evaluation.compare_reports(y, {"one": p, "better": better}, resamples=200)
    one, other = (comparison.reports[name].intervals["brier_score"] for name in ("one", "better"))
    assert one.lower < other.upper
    assert comparison.best["brier_score"] == "better"
    assert comparison.differs("one", "brier_score")
    assert comparison.best["accuracy"] == "one"
    assert not comparison.differs("better", "accuracy")


def test_two_infinite_scores_do_not_differ():
    y, sure = [0, 1, 0], [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
    comparison = evaluation.compare_reports(y, {"one": sure, "two": sure, "fair": [[0.5, 0.5]] * 3}, resamples=20)
    assert comparison.reports["one"].negative_log_likelihood == np.inf
    assert comparison.best["negative_log_likelihood"] == "fair"
    assert comparison.differs("one", "negative_log_likelihood")
    both = evaluation.compare_reports(y, {"one": sure, "two": sure}, resamples=20)
    assert not both.differs("two", "negative_log_likelihood")


@pytest.mark.parametrize(
    ("probabilities", "options", "message"),
    [
        ({}, {}, r"probabilities must.*found \{\}"),
        ([[0.5, 0.5]], {}, r"probabilities must.*found \["),
        ({"a": [[0.5, 0.6]]}, {}, "classifier 'a': every row of p must sum to 1"),
        ({"a": [[0.5, 0.5]], "b": [[0.5, 0.25, 0.25]]}, {"resamples": 2}, r"probabilities must.*found columns \{'a'"),
        ({"a": [[0.5, 0.5]]}, {"level": 95}, r"level must.*found 95"),
        ({"a": [[0.5, 0.5]]}, {"resamples": 0}, r"resamples must.*found 0"),
    ],
)
def test_invalid_arguments_raise(probabilities, options, message):
    with pytest.raises(ValueError, match=message):
        evaluation.compare_reports([0], probabilities, **options)
