"""The report: every score by its name, as a table, as plain numbers and as JSON."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deepsimplex import evaluation

rng = np.random.default_rng(1)
LABELS, PROBABILITIES = rng.integers(0, 3, 50), rng.dirichlet(np.ones(3), 50)


def score_of(name: str):
    """The score named ``name`` in the report, as a function of labels and probabilities."""
    if name == "top_k_accuracy":
        return lambda y, p: evaluation.top_k_accuracy(y, p, k=2)
    if name.startswith("brier_") and name != "brier_score":
        return lambda y, p: getattr(evaluation.brier_decomposition(y, p), name.removeprefix("brier_"))
    return getattr(evaluation, name)


def test_report_contains_every_score():
    y, p = LABELS, PROBABILITIES
    report = evaluation.report(y, p, bins=7)
    parts = evaluation.brier_decomposition(y, p, bins=7)
    assert report.as_dict() == {
        "samples": 50,
        "classes": 3,
        "accuracy": evaluation.accuracy(y, p),
        "balanced_accuracy": evaluation.balanced_accuracy(y, p),
        "top_k_accuracy": evaluation.top_k_accuracy(y, p, k=2),
        "weighted_precision": evaluation.weighted_precision(y, p),
        "weighted_recall": evaluation.weighted_recall(y, p),
        "weighted_f1": evaluation.weighted_f1(y, p),
        "roc_auc": evaluation.roc_auc(y, p),
        "average_precision": evaluation.average_precision(y, p),
        "negative_log_likelihood": evaluation.negative_log_likelihood(y, p),
        "brier_score": evaluation.brier_score(y, p),
        "brier_reliability": parts.reliability,
        "brier_resolution": parts.resolution,
        "brier_uncertainty": parts.uncertainty,
        "brier_remainder": parts.remainder,
        "proba_loss": evaluation.proba_loss(y, p),
        "expected_calibration_error": evaluation.expected_calibration_error(y, p, 7),
        "adaptive_calibration_error": evaluation.adaptive_calibration_error(y, p, 7),
        "classwise_calibration_error": evaluation.classwise_calibration_error(y, p, 7),
        "maximum_calibration_error": evaluation.maximum_calibration_error(y, p, 7),
        "area_deviation": evaluation.area_deviation(y, p),
        "area_under_risk_coverage": evaluation.area_under_risk_coverage(y, p),
        "accuracy_at_coverage": evaluation.accuracy_at_coverage(y, p, 0.8),
        "bins": 7,
        "k": 2,
        "coverage": 0.8,
    }
    assert report.intervals is None
    assert report.out_of_distribution_auroc is None


def test_report_prints_aligned_table():
    report = evaluation.report(LABELS, PROBABILITIES, k=1, coverage=0.5)
    scores, by_class, note = str(report).split("\n\n")
    assert note == "What each score means: docs/guides/scores.md"
    lines = scores.splitlines()
    assert by_class == str(evaluation.class_scores(LABELS, PROBABILITIES))
    assert len({len(line) for line in lines}) == 1
    assert lines[2].split() == ["accuracy", f"{report.accuracy:.4f}"]
    assert lines[4].startswith("top 1 accuracy ")
    assert any(line.startswith("accuracy at coverage 0.5 ") for line in lines)


def test_guide_explains_every_line_of_a_report():
    sets = np.ones((50, 3), bool)
    report = evaluation.report(
        LABELS, PROBABILITIES, outside=PROBABILITIES, sets=sets, coverage=0.8, intervals=0.9, resamples=2
    )
    page = (Path(__file__).parents[2] / "docs" / "guides" / "scores.md").read_text(encoding="utf-8")
    explained = {name for row in re.findall(r"^\| ([^|*]+) \| \w", page, re.MULTILINE) for name in row.split(", ")}
    fields = report.as_dict().keys() - {"k", "coverage", "level", "intervals"}
    assert {report.label(name).replace("top 2", "top k") for name in fields} <= explained
    columns = re.split("  +", str(report.by_class).splitlines()[0].strip())
    assert {*columns} - {"samples"} <= explained


def test_report_json_round_trip():
    report = evaluation.report(LABELS, PROBABILITIES, intervals=0.9, resamples=20)
    assert json.loads(report.to_json()) == report.as_dict()
    # A true class of probability 0 has an infinite likelihood, which JSON cannot hold.
    infinite = evaluation.report([1, 0], [[1.0, 0.0], [1.0, 0.0]], intervals=0.9, resamples=20)

    def refuse(text):
        raise AssertionError(text)

    read = json.loads(infinite.to_json(indent=None), parse_constant=refuse)
    assert float(read["negative_log_likelihood"]) == infinite.negative_log_likelihood == np.inf
    assert read["intervals"]["negative_log_likelihood"][1] == "Infinity"


def test_intervals_equal_bootstrap_of_each_score():
    y, p = LABELS, PROBABILITIES
    outside = rng.dirichlet(np.full(3, 5.0), 20)
    given = {"resamples": 50, "seed": 2}
    report = evaluation.report(y, p, outside=outside, intervals=0.8, stratified=True, **given)
    strange = [1 - q.max(axis=1) for q in (p, outside)]
    assert report.out_of_distribution_auroc == evaluation.out_of_distribution_auroc(*strange)
    apart = evaluation.bootstrap_interval(evaluation.out_of_distribution_auroc, *strange, 0.8, **given)
    assert report.intervals["out_of_distribution_auroc"] == apart
    limits = {"brier_reliability": (0, 2), "brier_resolution": (0, 2), "brier_uncertainty": (0, 2 / 3)}
    for name in report.intervals.keys() - {"out_of_distribution_auroc"}:
        options = {"limits": limits[name]} if name in limits else {}
        alone = evaluation.bootstrap_interval(score_of(name), y, p, 0.8, stratified=True, **options, **given)
        assert tuple(report.intervals[name]) == pytest.approx(tuple(alone), abs=1e-12), name
    floats = [name for name, value in report.as_dict().items() if isinstance(value, float)]
    assert list(report.intervals) == [name for name in floats if name not in ("coverage", "level")]


def test_table_shows_intervals():
    report = evaluation.report(LABELS, PROBABILITIES, intervals=0.95, resamples=20)
    head, *lines, note, end = str(report).split("\n\n")[0].splitlines()
    assert head.strip() == "95% interval"
    assert f"{note} {end}".startswith(
        "Intervals of calibration errors, area deviation and parts of the Brier score are corrected"
    )
    assert "bias" not in str(evaluation.report(LABELS, PROBABILITIES))
    assert len({len(line) for line in [head, *lines]}) == 1
    lower, upper = report.intervals["accuracy"]
    assert lines[2].split() == ["accuracy", f"{report.accuracy:.4f}", f"{lower:.4f}", "to", f"{upper:.4f}"]
    assert lines[0].split() == ["samples", "50"]


def test_report_of_single_sample_and_single_class():
    one = evaluation.report([1], [[0.2, 0.5, 0.3]], intervals=0.95, resamples=5)
    assert (one.accuracy, one.brier_uncertainty, one.area_under_risk_coverage) == (1, 0, 0)
    assert one.expected_calibration_error == one.maximum_calibration_error == pytest.approx(0.5)
    for name, (lower, upper) in one.intervals.items():
        np.testing.assert_array_equal((lower, upper), getattr(one, name))
    same = evaluation.report([2] * 9, PROBABILITIES[:9])
    assert same.brier_uncertainty == same.brier_resolution == 0
    assert {name for name, value in same.as_dict().items() if not np.isfinite(value)} == {"roc_auc"}
    assert json.loads(same.to_json())["roc_auc"] is None
    assert "All samples are of one class" in str(same)


def test_named_labels_with_absent_class():
    p = np.eye(3)[[1, 2, 2]]
    named = evaluation.report(["b", "c", "c"], p, classes=["a", "b", "c"], intervals=0.9, resamples=5, stratified=True)
    assert named == evaluation.report([1, 2, 2], p, intervals=0.9, resamples=5, stratified=True)
    assert (named.accuracy, named.classes) == (1, 3)
    with pytest.raises(ValueError, match=r"classes must.*found \['b', 'c'\]"):
        evaluation.report(["b", "c", "c"], p, classes=["b", "c"])
    with pytest.raises(TypeError, match=r"y must hold class numbers 0\.\.2.*classes=model"):
        evaluation.report(["b", "c", "c"], p)


def test_frames_have_the_columns_of_the_classes():
    names = np.array(["ant", "bee", "cat"])
    frame = pd.DataFrame(PROBABILITIES, index=range(50, 100), columns=names)
    expected = evaluation.report(LABELS, PROBABILITIES)
    assert evaluation.report(names[LABELS], frame, classes=names).as_dict() == expected.as_dict()
    assert evaluation.report(LABELS, pd.DataFrame(PROBABILITIES)).as_dict() == expected.as_dict()
    for columns, classes in ((["bee", "ant", "cat"], names), (["ant", "bee", "cat"], None)):
        with pytest.raises(ValueError, match="p must be an array in the order of the classes; found a DataFrame"):
            evaluation.report(LABELS if classes is None else names[LABELS], frame[columns], classes=classes)


def test_zeros_have_no_sign():
    sure = evaluation.report([0, 1], np.eye(2), intervals=0.9, resamples=5)
    flipped = dataclasses.replace(sure, intervals={"accuracy": evaluation.Interval(-1e-9, -0.0)}, brier_remainder=-1e-9)
    assert "-0.0000" not in str(flipped)


def test_invalid_stratified_raises():
    with pytest.raises(TypeError, match=r"stratified must.*found 'no'"):
        evaluation.report(LABELS, PROBABILITIES, stratified="no")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"intervals": True}, r"intervals must.*found True"),
        ({"intervals": 0.9, "resamples": 0}, r"resamples must.*found 0"),
        ({"resamples": 0}, r"resamples must.*found 0"),
        ({"seed": -3}, r"seed must.*found -3"),
        ({"k": 4}, r"^k must.*found 4"),
        ({"k": 2.0}, r"^k must.*found 2\.0"),
        ({"coverage": 0}, r"coverage must.*found 0"),
        ({"bins": 0}, r"bins must.*found 0"),
        ({"outside": [[0.5, 0.3, 0.3]]}, "every row of outside must sum to 1"),
        ({"outside": [[0.5, 0.5]]}, r"outside must.*found shape \(1, 2\)"),
    ],
)
def test_invalid_arguments_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        evaluation.report(LABELS, PROBABILITIES, **arguments)


def test_report_of_prediction_sets():
    y, p = [0, 1, 1, 0], [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.3, 0.7]]
    sets = [[True, False], [True, True], [False, True], [False, True]]
    report = evaluation.report(y, p, sets=sets)
    assert (report.set_coverage, report.set_size) == (0.75, 1.25)
    assert "set coverage                     0.7500" in str(report)
    assert {"set_coverage", "set_size"} <= report.as_dict().keys()
    assert "set_size" not in evaluation.report(y, p).as_dict()
    with pytest.raises(ValueError, match=r"sets must.*found \[4, 3\]"):
        evaluation.report(y, p, sets=np.ones((4, 3), bool))
