"""Bootstrap intervals: equal to calling the score on every resample, and their coverage."""

import time

import numpy as np
import pytest
from scipy import stats

from deepsimplex import evaluation
from deepsimplex.evaluation.bootstrap import SCORES, draws
from tests.labeled_probabilities import sure_predictions

OF_PREDICTIONS = [metric for metric in SCORES if metric is not evaluation.out_of_distribution_auroc]
BIASED = [
    evaluation.expected_calibration_error,
    evaluation.adaptive_calibration_error,
    evaluation.classwise_calibration_error,
    evaluation.maximum_calibration_error,
    evaluation.area_deviation,
]
OPTIONS = {
    evaluation.top_k_accuracy: {"k": 1},
    evaluation.accuracy_at_coverage: {"coverage": 0.5},
}


def predictions(samples: int, n: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(n, 0.5), samples)
    y = (p.cumsum(axis=1) < rng.uniform(size=(samples, 1))).sum(axis=1).clip(max=n - 1)
    return y, p


@pytest.mark.parametrize("metric", OF_PREDICTIONS, ids=lambda metric: metric.__name__)
@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("stratified", [False, True])
def test_prepared_scores_give_the_intervals_of_the_score(metric, n, stratified):
    y, p = predictions(50, n)
    options = OPTIONS.get(metric, {})
    given = {"resamples": 40, "seed": 3, "stratified": stratified}
    quick = evaluation.bootstrap_interval(metric, y, p, **given, **options)
    limits = (0, 0.5 if metric is evaluation.area_deviation else 1) if metric in BIASED else None
    slow = evaluation.bootstrap_interval(lambda y, p: metric(y, p, **options), y, p, limits=limits, **given)
    assert tuple(quick) == pytest.approx(tuple(slow), abs=1e-12)
    assert quick.lower < quick.upper


def test_auroc_resamples_inside_and_outside_separately():
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(size=60), rng.normal(1, 1, size=7)
    ours = evaluation.bootstrap_interval(evaluation.out_of_distribution_auroc, inside, outside, resamples=50)
    strata = np.repeat([0, 1], [60, 7])
    both = np.concatenate([inside, outside])
    values = sorted(
        evaluation.out_of_distribution_auroc(both[index[:60]], both[index[60:]]) for index in draws(67, strata, 50, 0)
    )
    assert ours == (values[1], values[48])
    assert ours.lower < evaluation.out_of_distribution_auroc(inside, outside) < ours.upper


def test_resamples_keep_their_strata_and_their_seed():
    strata = np.array([5, 2, 2, 5, 5])
    for index in draws(5, strata, 20, 0):
        assert (np.sort(strata[index]) == [2, 2, 5, 5, 5]).all()
    assert np.array(list(draws(5, None, 20, 0))).max() == 4
    y, p = predictions(30, 3)
    first, again, other = (evaluation.bootstrap_interval(evaluation.brier_score, y, p, seed=s) for s in (1, 1, 2))
    assert first == again != other
    # More resamples begin with the same ones.
    np.testing.assert_array_equal(list(draws(9, None, 3, 4)), list(draws(9, None, 5, 4))[:3])


@pytest.mark.slow
def test_interval_of_accuracy_equals_binomial():
    """About 180 of 200 intervals at 90% contain the true accuracy, and their width is about right."""
    rng = np.random.default_rng(0)
    p = np.tile([0.7, 0.3], (200, 1))
    intervals = [
        evaluation.bootstrap_interval(evaluation.accuracy, rng.uniform(size=200) < 0.3, p, level=0.9, resamples=100)
        for _ in range(200)
    ]
    held = sum(interval.lower <= 0.7 <= interval.upper for interval in intervals)
    assert 165 <= held <= 195
    width = np.mean([interval.upper - interval.lower for interval in intervals])
    lower, upper = stats.binom(200, 0.7).ppf([0.05, 0.95]) / 200
    assert width == pytest.approx(upper - lower, rel=0.1)


def brier_reliability(y, p):
    return evaluation.brier_decomposition(y, p).reliability


@pytest.mark.parametrize(
    ("metric", "limits"), [(evaluation.classwise_calibration_error, None), (brier_reliability, (0, 2))]
)
def test_intervals_of_biased_scores_cover_the_true_value(metric, limits):
    """The true value is that of 100 000 samples; scores of 500 samples exceed it, those of resamples even more."""
    truth = metric(*sure_predictions(5, 100_000, 1))
    sets = [sure_predictions(5, 500, seed) for seed in range(2, 18)]
    assert np.mean([metric(y, p) for y, p in sets]) > 1.1 * truth
    given = {"resamples": 60, "limits": limits}
    bounds = [evaluation.bootstrap_interval(metric, y, p, **given) for y, p in sets]
    assert sum(lower <= truth <= upper for lower, upper in bounds) >= 13
    # Percentiles, which a score has of which nothing is known, lie too high.
    plain = [evaluation.bootstrap_interval(lambda y, p: metric(y, p), y, p, resamples=60) for y, p in sets[:4]]
    assert np.median([lower for lower, _ in plain]) > truth


@pytest.mark.parametrize("metric", BIASED, ids=lambda metric: metric.__name__)
def test_basic_bootstrap_mirrors_percentiles_within_range(metric):
    y, p = predictions(60, 3)
    basic = evaluation.bootstrap_interval(metric, y, p, resamples=99)
    percentiles = evaluation.bootstrap_interval(lambda y, p: metric(y, p), y, p, resamples=99)
    mirrored = 2 * metric(y, p) - np.array(percentiles)[::-1]
    assert tuple(basic) == pytest.approx(np.clip(mirrored, 0, 0.5 if metric is evaluation.area_deviation else 1))


def test_bounds_stay_within_range():
    y, p = np.arange(400) % 2, np.tile([0.51, 0.49], (400, 1))
    lower, upper = evaluation.bootstrap_interval(evaluation.expected_calibration_error, y, p)
    assert lower == 0 < upper < 0.05


def test_higher_level_contains_lower_level():
    y, p = predictions(100, 3)
    bounds = [evaluation.bootstrap_interval(evaluation.brier_score, y, p, level) for level in (0.5, 0.9, 0.99)]
    assert bounds[2].lower < bounds[1].lower < bounds[0].lower < bounds[0].upper < bounds[1].upper < bounds[2].upper


@pytest.mark.parametrize("metric", OF_PREDICTIONS, ids=lambda metric: metric.__name__)
def test_single_sample_bounds_equal_score(metric):
    options, p = OPTIONS.get(metric, {}), [[0.2, 0.5, 0.3]]
    value = metric([1], p, **options)
    interval = evaluation.bootstrap_interval(metric, [1], p, resamples=5, **options)
    np.testing.assert_array_equal(interval, (value, value))  # also NaN, for the area under a ROC curve
    interval = evaluation.bootstrap_interval(metric, [[1]], p, resamples=5, stratified=True, **options)
    np.testing.assert_array_equal(interval, (value, value))


def test_infinite_scores_have_infinite_bounds():
    lower, upper = evaluation.bootstrap_interval(evaluation.negative_log_likelihood, [0, 1], [[0.5, 0.5], [1.0, 0.0]])
    assert (lower, upper) == (pytest.approx(np.log(2)), np.inf)


def test_user_defined_score_takes_options_and_strata():
    y, p = np.array([0] * 30 + [1]), np.tile([0.5, 0.5], (31, 1))

    def share_of_class(y, p, of):
        return float(np.mean(y == of))

    lower, upper = evaluation.bootstrap_interval(share_of_class, y, p, of=1)
    assert lower == 0 < upper < 0.2
    assert evaluation.bootstrap_interval(share_of_class, y, p, stratified=True, of=1) == (1 / 31, 1 / 31)

    def undefined_without_class_1(y, p):
        return float(p[y == 1, 1].sum() / (y == 1).sum()) if (y == 1).any() else np.nan

    with pytest.raises(ValueError, match=r"metric must.*found NaN on \d+ of 1000.*strat"):
        evaluation.bootstrap_interval(undefined_without_class_1, y, p)
    assert evaluation.bootstrap_interval(undefined_without_class_1, y, p, stratified=True) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"level": 1.0}, ValueError, r"level must.*found 1.0"),
        ({"level": 95}, ValueError, r"level must.*found 95"),
        ({"resamples": 0}, ValueError, r"resamples must.*found 0"),
        ({"seed": -1}, ValueError, r"seed must.*found -1"),
        ({"stratified": "no"}, TypeError, r"stratified must.*found 'no'"),
        ({"metric": "accuracy"}, TypeError, r"metric must.*found 'accuracy'"),
        (
            {"metric": evaluation.brier_decomposition},
            TypeError,
            r"metric must.*found BrierDecomposition.*lambda y, p: brier",
        ),
        ({"bin": 3}, TypeError, r"^accuracy\(\) got an unexpected keyword argument 'bin'"),
        ({"limits": (1, 0)}, ValueError, r"limits must.*found \(1, 0\)"),
        ({"limits": 1}, ValueError, r"limits must.*found 1"),
        (
            {"metric": lambda y, p: p.mean(axis=0)},
            ValueError,
            r"metric must.*found an array of shape",
        ),
        ({"p": [[0.5, 0.6]]}, ValueError, "every row of p must sum to 1"),
        ({"y": [2]}, ValueError, r"^y must.*found 2 in row 0"),
    ],
)
def test_invalid_arguments_raise(arguments, error, message):
    given = {"metric": evaluation.accuracy, "y": [0], "p": [[0.5, 0.5]], "resamples": 10, **arguments}
    with pytest.raises(error, match=message):
        evaluation.bootstrap_interval(**given)


@pytest.mark.slow
def test_large_bootstrap_takes_seconds():
    y, p = predictions(10_000, 10)
    start = time.process_time()
    evaluation.bootstrap_interval(evaluation.expected_calibration_error, y, p)
    assert time.process_time() - start < 10
