"""Sample weights in every score: as repeated rows, as removed rows, as in scikit-learn, in resamples and in data."""

import dataclasses
import inspect
from collections.abc import Mapping

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics
from sklearn.linear_model import LogisticRegression

from deepsimplex import evaluation
from deepsimplex import metrics as keras_metrics
from deepsimplex.evaluation.bootstrap import SCORES
from tests.evaluation.test_score_arguments import few
from tests.labeled_probabilities import labeled_probabilities

rng = np.random.default_rng(0)
Y, P, W = rng.integers(0, 3, 60), rng.dirichlet(np.ones(3), 60), rng.uniform(0.1, 3, 60)
# What a function takes beside labels and class probabilities.
CALLS = {
    "ability_to_separate": lambda y, p, **weights: evaluation.ability_to_separate(p, y, **weights),
    "compare_reports": lambda y, p, **weights: (
        evaluation.compare_reports(y, {"one": p, "other": p[:, ::-1]}, resamples=1, **weights).reports
    ),
    "decision_curve": lambda y, p, **weights: evaluation.decision_curve(y, p, positive=1, **weights),
    "mean_cost": lambda y, p, **weights: evaluation.mean_cost(y, p.argmax(axis=1), 1 - np.eye(p.shape[1]), **weights),
    "net_benefit": lambda y, p, **weights: evaluation.net_benefit(y, p, 0.3, positive=1, **weights),
    "reliability_band": lambda y, p, **weights: evaluation.reliability_band(y, p, 0.9 * p, p, **weights),
    "report": lambda y, p, **weights: evaluation.report(
        y, p, sets=p > 0.3, outside=np.full((1, p.shape[1]), 1 / p.shape[1]), **weights
    ),
    "top_k_accuracy": lambda y, p, **weights: evaluation.top_k_accuracy(y, p, 1, **weights),
    **{
        name: lambda y, p, name=name, **weights: getattr(evaluation, name)(y, p > 0.3, **weights)
        for name in ("coverage", "coverage_by_class", "coverage_by_size", "set_size")
    },
}
# They depend on how many samples there are: counted twice, samples give another number, or region, or no number at all.
UNWEIGHTED = {
    "accuracy_at_coverage",
    "area_under_risk_coverage",
    "compare_partitions",
    "risk_coverage_curve",
    "standardized_partition",
    "uncertainty",
}
WEIGHTED = sorted(
    name
    for name in evaluation.__all__
    if inspect.isfunction(function := getattr(evaluation, name))
    and "sample_weight" in inspect.signature(function).parameters
    and name != "bootstrap_interval"
)
METRICS = [metric for metric, functions in SCORES.items() if functions.weighted]


def call(name, y, p, **options):
    """Call a function, and return its numbers as one array; without numbers of samples, which do not count weights."""
    result = CALLS.get(name, getattr(evaluation, name))(y, p, **options)
    return np.concatenate([np.ravel(np.asarray(value, float)) for value in numbers_of(result)])


def numbers_of(result):
    if dataclasses.is_dataclass(result):
        result = {
            field.name: getattr(result, field.name)
            for field in dataclasses.fields(result)
            if field.name not in ("samples", "classes", "intervals", "area_under_risk_coverage", "accuracy_at_coverage")
        }
    if isinstance(result, Mapping):
        return [number for value in result.values() for number in numbers_of(value)]
    return [] if result is None or isinstance(result, str) else [result]


def test_every_function_of_labels_takes_weights():
    of_labels = {
        name
        for name in evaluation.__all__
        if inspect.isfunction(function := getattr(evaluation, name)) and "y" in inspect.signature(function).parameters
    }
    assert of_labels - {*WEIGHTED, "bootstrap_interval"} == UNWEIGHTED
    assert len(WEIGHTED) > 25


@pytest.mark.parametrize("name", WEIGHTED)
def test_whole_weights_equal_repeated_and_removed_rows(name):
    @given(case=labeled_probabilities(), data=st.data())
    @few
    def check(case, data):
        y, p = case
        w = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(y), max_size=len(y))))
        w[0] += not w.any()
        expected = call(name, np.repeat(y, w), np.repeat(p, w, axis=0))
        np.testing.assert_allclose(call(name, y, p, sample_weight=w), expected, rtol=1e-6, atol=1e-9)
        removed = call(name, y[w > 0], p[w > 0], sample_weight=w[w > 0])
        np.testing.assert_allclose(call(name, y, p, sample_weight=w), removed, rtol=1e-12, atol=1e-12)

    check()


# Without those that have points for every sample, or sums of weights for every bin.
OF_ANY_SCALE = [name for name in WEIGHTED if not name.startswith(("reliability", "roc_curve", "precision_recall"))]


@pytest.mark.parametrize("name", OF_ANY_SCALE)
def test_scale_of_weights_does_not_matter(name):
    weighted, unweighted = call(name, Y, P, sample_weight=W), call(name, Y, P)
    np.testing.assert_allclose(call(name, Y, P, sample_weight=W / W.sum()), weighted, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(call(name, Y, P, sample_weight=np.full(60, 0.1)), unweighted, rtol=1e-9, atol=1e-12)
    assert not np.array_equal(weighted, unweighted, equal_nan=True) or name == "maximum_calibration_error"


def test_scores_equal_scikit_learn():
    assigned, options = P.argmax(axis=1), {"sample_weight": W}
    two = np.column_stack([1 - P[:, 1], P[:, 1]])
    averaged = {"average": "weighted", "zero_division": 0, **options}
    pairs = {
        "accuracy": metrics.accuracy_score(Y, assigned, **options),
        "balanced_accuracy": metrics.balanced_accuracy_score(Y, assigned, **options),
        "negative_log_likelihood": metrics.log_loss(Y, P, **options),
        "weighted_precision": metrics.precision_score(Y, assigned, **averaged),
        "weighted_recall": metrics.recall_score(Y, assigned, **averaged),
        "weighted_f1": metrics.f1_score(Y, assigned, **averaged),
    }
    report = evaluation.report(Y, P, k=2, outside=P[:7], sample_weight=W)
    for name, expected in pairs.items():
        assert getattr(evaluation, name)(Y, P, **options) == pytest.approx(expected), name
        assert getattr(report, name) == pytest.approx(expected), name
    expected = metrics.top_k_accuracy_score(Y, P, k=2, **options)
    assert report.top_k_accuracy == evaluation.top_k_accuracy(Y, P, 2, **options) == pytest.approx(expected)
    brier = metrics.brier_score_loss(Y == 1, P[:, 1], **options)
    assert evaluation.brier_score(Y == 1, two, **options) == pytest.approx(brier)
    assert report.brier_score == pytest.approx(
        sum(metrics.brier_score_loss(k == Y, P[:, k], **options) for k in range(3))
    )
    outside, both = np.repeat([0, 1], [60, 7]), 1 - np.concatenate([P, P[:7]]).max(axis=1)
    weights = np.append(W, np.ones(7))
    expected = metrics.roc_auc_score(outside, both, sample_weight=weights)
    assert report.out_of_distribution_auroc == pytest.approx(expected)
    assert (report.samples, report.area_under_risk_coverage, report.accuracy_at_coverage) == (60, None, None)


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        (keras_metrics.NegativeLogLikelihood, "negative_log_likelihood"),
        (keras_metrics.BrierScore, "brier_score"),
        (keras_metrics.ExpectedCalibrationError, "expected_calibration_error"),
        (keras_metrics.ClasswiseCalibrationError, "classwise_calibration_error"),
    ],
)
@pytest.mark.parametrize("n", [2, 3])
def test_keras_metrics_equal_weighted_scores(metric, name, n):
    y, p = Y % n, P[:, :n] / P[:, :n].sum(axis=1, keepdims=True)
    w, accumulated = W * (np.arange(60) % 4 > 0), metric(dtype="float64")
    for rows in np.array_split(np.arange(60), 3):
        accumulated.update_state(y[rows], p[rows], w[rows])
    expected = getattr(evaluation, name)(y, p, sample_weight=w)
    assert float(accumulated.result()) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    "metric", [score for score, one in SCORES.items() if one.weighted], ids=lambda one: one.__name__
)
@pytest.mark.parametrize("grouped", [False, True], ids=["rows", "groups"])
def test_resamples_keep_weights_with_rows(metric, grouped):
    w, groups = np.where(np.arange(60) % 5 == 0, 0, W), np.arange(60) // 3 if grouped else None
    more = {"k": 2} if metric is evaluation.top_k_accuracy else {}
    options = {"resamples": 30, "groups": groups, "sample_weight": w, "classes": [0, 1, 2], **more}
    limits = (0.0, 0.75 if metric is evaluation.area_deviation else 1.0)
    biased = {} if "error" not in metric.__name__ and "deviation" not in metric.__name__ else {"limits": limits}

    def user(y, p, sample_weight, **options):
        return metric(y, p, sample_weight=sample_weight, **options)

    ours = evaluation.bootstrap_interval(metric, Y, P, **options)
    assert ours == pytest.approx(evaluation.bootstrap_interval(user, Y, P, **options, **biased))
    kept = {**options, "sample_weight": w[w > 0], "groups": groups if groups is None else groups[w > 0]}
    assert ours == evaluation.bootstrap_interval(metric, Y[w > 0], P[w > 0], **kept)
    assert ours != evaluation.bootstrap_interval(metric, Y, P, **{**options, "sample_weight": None})


def test_intervals_of_reports_keep_weights_with_rows():
    options = {"resamples": 20, "groups": np.arange(60) // 2, "sample_weight": W}
    report = evaluation.report(Y, P, intervals=0.9, **options)
    by_class = evaluation.class_scores(Y, P, intervals=0.9, **options)
    compared = evaluation.compare_reports(
        Y, {"one": P, "other": P**2 / (P**2).sum(axis=1)[:, None]}, level=0.9, **options
    )
    assert report.intervals == compared.reports["one"].intervals
    assert "area_under_risk_coverage" not in {*report.intervals, *compared.best}
    for name in ("accuracy", "negative_log_likelihood", "expected_calibration_error", "roc_auc"):
        expected = evaluation.bootstrap_interval(getattr(evaluation, name), Y, P, 0.9, **options)
        assert report.intervals[name] == expected
    assert report.by_class.intervals == by_class.intervals
    assert "nan" not in str(report)


def weighted_dataset():
    return tf.data.Dataset.from_tensor_slices((P, Y, W)).shuffle(60, seed=1).batch(13)


class WeightedBatches(keras.utils.PyDataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        rows = np.s_[10 * index : 10 * index + 10]
        return P[rows], Y[rows], W[rows]


SOURCES = {
    "arrays": lambda: (P, Y, W),
    "column": lambda: (P, Y, W[:, None]),
    "dataset": weighted_dataset,
    "PyDataset": WeightedBatches,
    "generator": lambda: ((P[rows], Y[rows], W[rows]) for rows in np.array_split(rng.permutation(60), 4)),
}


@pytest.fixture(scope="module")
def classifier():
    return LogisticRegression().fit(P, Y)


@pytest.mark.parametrize("source", SOURCES)
def test_weights_of_data_are_used(source, classifier):
    expected = evaluation.report(Y, classifier.predict_proba(P), sample_weight=W)
    assert evaluation.report(classifier, SOURCES[source]()).as_dict() == pytest.approx(expected.as_dict())
    predicted = evaluation.labeled_predictions(classifier, SOURCES[source]())
    assert np.sort(predicted.sample_weight).tolist() == np.sort(W).tolist()


def test_weights_beside_arrays_are_used(classifier):
    expected = evaluation.report(classifier, (P, Y, W))
    assert evaluation.report(classifier, (P, Y), sample_weight=W) == expected
    assert evaluation.report(classifier, (P, Y)) != expected


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: evaluation.report(model, (P, Y, W), sample_weight=W), "sample_weight must not.*data that hold"),
        (
            lambda model: evaluation.report(model, weighted_dataset(), sample_weight=W),
            "sample_weight must not.*batches",
        ),
        (lambda model: evaluation.report(Y, P, sample_weight=W[:5]), r"sample_weight must have shape \[60\]"),
        (lambda model: evaluation.accuracy(Y, P, sample_weight=-W), "sample_weight must be finite, not negative"),
        (lambda model: evaluation.coverage(Y, P > 0, sample_weight=0 * W), "not all zero; found zeros"),
        (
            lambda model: evaluation.bootstrap_interval(evaluation.area_under_risk_coverage, Y, P, sample_weight=W),
            "sample_weight must not be given for area_under_risk_coverage",
        ),
    ],
)
def test_invalid_weights_raise(call, message, classifier):
    with pytest.raises(ValueError, match=message):
        call(classifier)
