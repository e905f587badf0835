"""Scores and curves of every class against the rest, by the values of scikit-learn."""

import json
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics
from sklearn.exceptions import UndefinedMetricWarning

from deepsimplex import evaluation
from deepsimplex.evaluation.one_versus_rest import CLASS_SCORES
from tests.labeled_probabilities import labeled_probabilities

few = settings(max_examples=40, deadline=None)
rng = np.random.default_rng(3)
Y, P, W = rng.integers(0, 3, 80), rng.dirichlet(np.ones(3), 80), rng.uniform(size=80)
NAMES = ["cat", "dog", "<eel>"]


def peer(function, *args, **options):
    """A value of scikit-learn, which warns where it is not defined."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        warnings.filterwarnings("ignore", "y_pred contains classes not in y_true")
        warnings.filterwarnings("ignore", "A single label was found")
        warnings.filterwarnings("ignore", "No positive class found in y_true")
        return function(*args, **options)


@st.composite
def weighted_cases(draw):
    """Labels, probabilities with ties, and weights: none, some of them 0, or fractions."""
    y, p = draw(labeled_probabilities(max_classes=5))
    kind = draw(st.sampled_from(["none", "counts", "fractions"]))
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    weights = {"counts": generator.integers(0, 3, len(y)) + 0.0, "fractions": generator.uniform(0.1, 1, len(y))}
    w = weights.get(kind)
    return y, p, w if w is None or w.any() else None


@given(case=weighted_cases())
@few
def test_scores_of_each_class_equal_scikit_learn(case):
    y, p, w = case
    scores, n = evaluation.class_scores(y, p, sample_weight=w), p.shape[1]
    assigned = p.argmax(axis=1)
    total = np.ones(len(y)) if w is None else w
    for k in range(n):
        true, chosen, one = y == k, assigned == k, scores[k]
        (tn, fp), (fn, tp) = metrics.confusion_matrix(true, chosen, labels=[False, True], sample_weight=w)
        expected = {
            "sensitivity": (tp, tp + fn),
            "specificity": (tn, tn + fp),
            "positive_predictive_value": (tp, tp + fp),
            "negative_predictive_value": (tn, tn + fn),
        }
        for name, (part, whole) in expected.items():
            assert one[name] == pytest.approx(part / whole if whole else np.nan, abs=1e-12, nan_ok=True), name
        if total[true].any() and total[~true].any():
            ratios = peer(metrics.class_likelihood_ratios, true, chosen, labels=[False, True], sample_weight=w)
            for name, ratio in zip(("positive", "negative"), ratios, strict=True):
                ours = one[f"{name}_likelihood_ratio"]
                # Not a number in scikit-learn where a denominator alone is 0.
                assert ours == pytest.approx(ratio, nan_ok=True) or (np.isnan(ratio) and ours == np.inf), name
            assert one["roc_auc"] == pytest.approx(metrics.roc_auc_score(true, p[:, k], sample_weight=w))
        else:
            assert np.isnan(one["roc_auc"])
        if total[true].any():
            expected_precision = metrics.average_precision_score(true, p[:, k], sample_weight=w)
            assert one["average_precision"] == pytest.approx(expected_precision)
        else:
            assert np.isnan(one["average_precision"])


@given(case=weighted_cases())
@few
def test_means_over_classes_equal_scikit_learn(case):
    y, p, w = case
    n, total = p.shape[1], np.ones(len(y)) if w is None else w
    present = [k for k in range(n) if total[y == k].any()]
    expected = peer(metrics.balanced_accuracy_score, y, p.argmax(axis=1), sample_weight=w)
    assert evaluation.balanced_accuracy(y, p, sample_weight=w) == pytest.approx(expected)
    ours = evaluation.roc_auc(y, p, sample_weight=w), evaluation.average_precision(y, p, sample_weight=w)
    if len(present) == 1:
        assert np.isnan(ours[0])
        return
    areas = [metrics.roc_auc_score(y == k, p[:, k], sample_weight=w) for k in present]
    precisions = [metrics.average_precision_score(y == k, p[:, k], sample_weight=w) for k in present]
    assert ours == pytest.approx((np.mean(areas), precisions[1] if n == 2 else np.mean(precisions)))


@pytest.mark.parametrize("w", [None, W], ids=["unweighted", "weighted"])
def test_means_equal_scikit_learn_multiclass(w):
    p = P / P.sum(axis=1, keepdims=True)
    expected = metrics.roc_auc_score(Y, p, multi_class="ovr", sample_weight=w)
    assert evaluation.roc_auc(Y, p, sample_weight=w) == pytest.approx(expected)
    expected = metrics.average_precision_score(np.eye(3)[Y], p, average="macro", sample_weight=w)
    assert evaluation.average_precision(Y, p, sample_weight=w) == pytest.approx(expected)
    two = np.column_stack([1 - p[:, 0], p[:, 0]])
    expected = metrics.roc_auc_score(Y == 0, two[:, 1], sample_weight=w)
    assert evaluation.roc_auc(Y == 0, two, sample_weight=w) == pytest.approx(expected)


@given(case=weighted_cases())
@few
def test_curves_equal_scikit_learn(case):
    y, p, w = case
    for k in range(p.shape[1]):
        roc = evaluation.roc_curve(y, p, k, sample_weight=w)
        expected = peer(metrics.roc_curve, y == k, p[:, k], sample_weight=w)
        for ours, theirs in zip(
            (roc.false_positive_rate, roc.true_positive_rate, roc.thresholds), expected, strict=True
        ):
            np.testing.assert_allclose(ours, theirs)
        np.testing.assert_allclose(
            roc.area, np.trapezoid(roc.true_positive_rate, roc.false_positive_rate), atol=1e-12, equal_nan=True
        )
        recall = evaluation.precision_recall_curve(y, p, k, sample_weight=w)
        if not np.isnan(recall.average_precision):
            precisions, recalls, thresholds = metrics.precision_recall_curve(y == k, p[:, k], sample_weight=w)
            np.testing.assert_allclose(recall.precision, precisions)
            np.testing.assert_allclose(recall.recall, recalls)
            np.testing.assert_allclose(recall.thresholds, thresholds)
            assert recall.area == pytest.approx(metrics.auc(recalls, precisions))
        else:
            assert np.isnan(recall.recall).all()


@given(case=weighted_cases())
@few
def test_areas_under_mean_curves_are_mean_areas(case):
    y, p, w = case
    roc = evaluation.roc_curve(y, p, sample_weight=w)
    recall = evaluation.precision_recall_curve(y, p, sample_weight=w)
    assert (np.diff(roc.false_positive_rate) >= 0).all() or np.isnan(roc.area)
    under = np.trapezoid(roc.true_positive_rate, roc.false_positive_rate)
    assert under == pytest.approx(evaluation.roc_auc(y, p, sample_weight=w), nan_ok=True)
    steps = -np.sum(np.diff(recall.recall) * recall.precision[:-1])
    assert steps == pytest.approx(evaluation.average_precision(y, p, sample_weight=w), nan_ok=True)


def test_classes_are_named_in_arguments_and_results():
    labels = [NAMES[k] for k in Y]
    scores = evaluation.class_scores(labels, P, classes=NAMES)
    assert list(scores.as_dict()) == NAMES
    assert scores["dog"] == evaluation.class_scores(Y, P)[1]
    for function in (evaluation.roc_auc, evaluation.average_precision):
        assert function(labels, P, "dog", classes=NAMES) == function(Y, P, 1) == scores["dog"][function.__name__]
        interval = evaluation.bootstrap_interval(function, labels, P, positive="dog", classes=NAMES, resamples=20)
        assert interval == evaluation.bootstrap_interval(function, Y, P, positive=1, resamples=20)
    for function in (evaluation.roc_curve, evaluation.precision_recall_curve):
        assert function(labels, P, positive="dog", classes=NAMES).area == function(Y, P, positive=1).area
    assert [line.split()[0] for line in str(scores).splitlines()[1:]] == NAMES
    report = evaluation.report(labels, P, classes=np.array(NAMES))
    assert report.by_class["<eel>"] == scores["<eel>"]
    assert "<eel>" in str(report)


@pytest.mark.parametrize("positive", ["cow", 7, True, 1.5, None])
def test_unknown_class_raises(positive):
    functions = [evaluation.roc_auc, evaluation.average_precision, evaluation.roc_curve]
    for function in [*functions, evaluation.precision_recall_curve] if positive is not None else []:
        with pytest.raises(ValueError, match=r"positive must be one of 0, 1, 2; found"):
            function(Y, P, positive)
    with pytest.raises(ValueError, match=r"the class must be one of 0, 1, 2; found"):
        evaluation.class_scores(Y, P)[positive]


def test_thresholds_assign_several_classes_or_none():
    scores = evaluation.class_scores(Y, P, threshold=[0.2, 0.5, 1.0])
    for k, threshold in enumerate([0.2, 0.5, 1.0]):
        assigned = P[:, k] >= threshold
        assert scores[k]["sensitivity"] == assigned[k == Y].mean()
        assert scores[k]["specificity"] == (~assigned)[k != Y].mean()
    assert "No sample is assigned to class 2" in scores.note
    for wrong in ([0.5], [[0.5]], "half"):
        with pytest.raises((TypeError, ValueError), match="threshold must"):
            evaluation.class_scores(Y, P, threshold=wrong)


def test_missing_class_and_single_class_are_explained():
    y = np.where(Y == 2, 0, Y)
    missing = evaluation.class_scores([NAMES[k] for k in y], P, classes=NAMES, intervals=0.9, resamples=20)
    assert np.isnan(missing["<eel>"]["sensitivity"])
    assert missing["<eel>"]["specificity"] == np.mean(P.argmax(axis=1) != 2)
    assert np.isnan(missing["<eel>"]["intervals"]["roc_auc"]).all()
    assert "No sample is of class '<eel>': without sensitivity" in str(missing)
    assert json.loads(missing.to_json())["<eel>"]["sensitivity"] is None
    single = evaluation.class_scores(np.zeros(80, int), P)
    assert "All samples are of one class" in single.note
    assert np.isnan(single.roc_auc).all()
    assert single[0]["sensitivity"] == np.mean(P.argmax(axis=1) == 0)
    assert evaluation.class_scores(Y, P).note == ""
    comparison = evaluation.compare_reports(np.zeros(80, int), {"a": P, "b": P[::-1]}, resamples=10)
    assert "roc_auc" not in comparison.best
    assert "accuracy" in comparison.best


def test_resamples_without_a_rare_class_are_left_out():
    y = np.zeros(40, int)
    y[:2] = 1
    p = np.column_stack([np.linspace(0.3, 0.9, 40), np.linspace(0.7, 0.1, 40)])
    lower, upper = evaluation.class_scores(y, p, intervals=0.9, resamples=200)[1]["intervals"]["sensitivity"]
    assert 0 <= lower <= upper <= 1
    lower, upper = evaluation.bootstrap_interval(evaluation.roc_auc, y, p, resamples=200)
    assert lower <= evaluation.roc_auc(y, p) <= upper


def test_infinite_likelihood_ratio_has_an_interval():
    y = np.array([0] * 20 + [1] * 20)
    p = np.eye(2)[y]
    scores = evaluation.class_scores(y, p, intervals=0.9, resamples=20)
    assert scores[1]["positive_likelihood_ratio"] == np.inf
    assert scores[1]["intervals"]["positive_likelihood_ratio"] == (np.inf, np.inf)
    assert scores[1]["negative_likelihood_ratio"] == 0
    assert json.loads(scores.to_json())["1"]["positive_likelihood_ratio"] == "Infinity"


@pytest.mark.parametrize("dtype", [str, object])
def test_groups_of_text_are_those_of_numbers(dtype):
    numbers, (y, p) = np.repeat(np.arange(80), 5), (np.repeat(part, 5, axis=0) for part in (Y, P))
    groups = np.array([f"patient {k:02}" for k in numbers], dtype)
    one, other = (
        evaluation.bootstrap_interval(evaluation.accuracy, y, p, groups=given, resamples=30, seed=1)
        for given in (groups, numbers)
    )
    assert one == other


def test_groups_are_resampled_whole():
    """Each sample copied five times: intervals over groups are those of the single samples."""
    groups = np.repeat(np.arange(80), 5)
    y, p = np.repeat(Y, 5), np.repeat(P, 5, axis=0)
    options = {"resamples": 300, "seed": 1}
    for metric in (evaluation.accuracy, evaluation.roc_auc, evaluation.expected_calibration_error):
        whole = np.array(evaluation.bootstrap_interval(metric, y, p, groups=groups, **options))
        alone = np.array(evaluation.bootstrap_interval(metric, Y, P, **options))
        narrow = np.array(evaluation.bootstrap_interval(metric, y, p, **options))
        assert np.ptp(whole) == pytest.approx(np.ptp(alone), rel=0.25)
        assert np.ptp(narrow) < 0.65 * np.ptp(whole)
    report = evaluation.report(y, p, intervals=0.9, groups=groups, outside=P[:9], **options)
    assert report.intervals["accuracy"] == evaluation.bootstrap_interval(
        evaluation.accuracy, y, p, 0.9, groups=groups, **options
    )
    assert report.by_class.intervals == evaluation.class_scores(y, p, intervals=0.9, groups=groups, **options).intervals
    lower, upper = report.intervals["out_of_distribution_auroc"]
    assert lower < report.out_of_distribution_auroc < upper
    compared = evaluation.compare_reports(y, {"a": p, "b": p[::-1]}, level=0.9, groups=groups, **options)
    assert compared.reports["a"].intervals["accuracy"] == report.intervals["accuracy"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": [1, 2]}, r"groups must.*found shape \(2,\)"),
        ({"groups": np.zeros(80)}, r"groups must hold at least two.*found.*0\.0"),
        ({"groups": [None] * 80}, r"groups must not be missing"),
        ({"groups": np.arange(80), "stratified": True}, r"stratified must be False with groups"),
    ],
)
def test_invalid_groups_raise(options, message):
    for function in (evaluation.report, evaluation.class_scores):
        with pytest.raises(ValueError, match=message):
            function(Y, P, intervals=0.9, **options)
    with pytest.raises(ValueError, match=message):
        evaluation.bootstrap_interval(evaluation.accuracy, Y, P, **options)


def test_invalid_weights_raise():
    for function in (evaluation.class_scores, evaluation.roc_auc, evaluation.balanced_accuracy, evaluation.roc_curve):
        for weights in (np.ones(3), -np.ones(80), np.zeros(80)):
            with pytest.raises(ValueError, match="sample_weight must"):
                function(Y, P, sample_weight=weights)


def test_table_has_intervals_below_the_scores():
    scores = evaluation.class_scores(Y, P, intervals=0.9, resamples=20)
    lines = str(scores).splitlines()
    assert len(lines) == 7
    lower, upper = scores[0]["intervals"]["sensitivity"]
    assert "90% interval  " in lines[2]
    assert f"{lower:.3f} to {upper:.3f}" in lines[2]
    assert len({len(line) for line in lines}) == 1
    assert set(scores[0]["intervals"]) == set(CLASS_SCORES)


def test_saturated_probabilities_of_the_first_class_lose_no_ranks():
    y, q = np.array([0, 0, 0, 1, 1]), np.array([1e-9, 2e-9, 4e-9, 3e-9, 5e-9], np.float32)
    p = np.stack([1 - q, q], axis=1)
    expected = metrics.roc_auc_score(y, q)
    scores = evaluation.class_scores(y, p)
    assert evaluation.roc_auc(y, p) == evaluation.report(y, p).roc_auc == pytest.approx(expected)
    np.testing.assert_allclose(scores.roc_auc, expected)
    assert scores.average_precision[0] == pytest.approx(metrics.average_precision_score(1 - y, -q))
