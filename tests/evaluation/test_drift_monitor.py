"""Drift: uniform p-values, false alarms, delays, labels, and streams that are cut and resumed."""

import zlib

import numpy as np
import pytest
from scipy.stats import kstest

from deepsimplex.calibration import ConformalSets
from deepsimplex.evaluation import DriftMonitor, ExchangeabilityTest, coverage, expected_calibration_error
from deepsimplex.evaluation.drift_monitor import share_interval

RNG = np.random.default_rng(0)
P = RNG.dirichlet([1.0, 1.0, 1.0], 600)
Y = (P.cumsum(axis=1) < RNG.random((600, 1))).sum(axis=1)
FAMILIARITY = RNG.random(600)
NAMES = np.array(["cat", "dog", "fox"])


def ranked(reference, stream, seed):
    """P-values as they are defined, one number after the other."""
    ties = np.random.default_rng(seed).random(len(stream))
    known, p_values = list(reference), []
    for value, tie in zip(stream, ties, strict=True):
        known.append(value)
        p_values.append((np.less(known, value).sum() + tie * np.equal(known, value).sum()) / len(known))
    return np.array(p_values)


def test_p_values_are_ranks_among_reference_and_earlier_numbers():
    rng = np.random.default_rng(1)
    reference, stream = rng.integers(0, 9, 50), rng.integers(0, 9, 3000)
    test = ExchangeabilityTest(reference, seed=3)
    p_values = test._p_values(stream.astype(float))
    np.testing.assert_allclose(p_values, ranked(reference, stream, [3, zlib.crc32(reference.astype(float).tobytes())]))
    others = ExchangeabilityTest(reference[::-1], seed=3)._p_values(stream.astype(float))
    assert not np.allclose(p_values, others)  # the same ties would be unlucky beside every reference
    assert kstest(p_values, "uniform").pvalue > 0.01
    assert abs(np.corrcoef(p_values[1:], p_values[:-1])[0, 1]) < 0.05


def test_evidence_is_a_martingale():
    """Its mean over all p-values, in each next step, is what it was before."""
    u = (np.arange(10_000) + 0.5) / 10_000
    first = ExchangeabilityTest([0.0])
    assert np.mean([np.exp(ExchangeabilityTest([0.0])._bet(np.array([v]), 0))[0] for v in u]) == pytest.approx(
        1, abs=1e-3
    )
    first._bet(np.array([0.93, 0.99, 0.2]), 0)
    capital, before = first._log_capital.copy(), np.exp(np.logaddexp.reduce(first._log_capital)) + 1 / np.log(3 + np.e)
    after = []
    for v in u:
        first._log_capital = capital.copy()
        after.append(np.exp(first._bet(np.array([v]), 3))[0])
    assert np.mean(after) == pytest.approx(before, rel=1e-3)


def test_false_alarms_stay_below_the_level():
    rng = np.random.default_rng(2)
    values = rng.normal(size=(300, 500)).round(1)  # with ties
    alarms = [
        ExchangeabilityTest(row[:100], seed=k).update(row[100:]).max() >= np.log(10) for k, row in enumerate(values)
    ]
    assert 0 < np.mean(alarms) < 0.1


@pytest.mark.parametrize("shift", [-2.0, 2.0])
@pytest.mark.parametrize("before", [0, 500])
def test_shift_is_detected_soon(shift, before):
    rng = np.random.default_rng(3)
    test = ExchangeabilityTest(rng.normal(size=500))
    assert test.update(rng.normal(size=before)).max(initial=0) < np.log(20)
    log_evidence = test.update(rng.normal(shift, 1.0, 100))
    assert 3 < np.argmax(log_evidence > np.log(20)) < 40


def monitor(**options):
    return DriftMonitor(P[:300], Y[:300], FAMILIARITY[:300], **options)


@pytest.mark.parametrize("cuts", [[301, 310], [350], [599]])
def test_parts_of_a_stream_equal_all_of_it(cuts):
    whole, parts = monitor(), monitor()
    whole.update(P[300:], Y[300:], FAMILIARITY[300:])
    for part in np.split(np.arange(300, 600), np.array(cuts) - 300):
        parts.update(P[part], Y[part], FAMILIARITY[part])
    np.testing.assert_allclose(parts.log_evidence, whole.log_evidence)
    again = DriftMonitor.from_state(parts.state())
    assert again.report() == whole.report()
    again.update(P[:9], [-1] * 9, FAMILIARITY[:9])
    assert again.report().samples == 309


def test_labeled_samples_have_coverage_and_calibration_error():
    watched = monitor(coverage=0.8)
    labels = np.where(np.arange(300) % 3 == 0, Y[300:], -1)
    report = watched.update(P[300:], labels, FAMILIARITY[300:])
    threshold = np.sort(1 - P[np.arange(300), Y[:300]])[int(np.ceil(301 * 0.8)) - 1]
    y, p = Y[300::3], P[300::3]
    assert report.labels == 100
    assert report.coverage == coverage(y, 1 - p <= threshold)
    assert report.coverage_interval.lower < 0.8 < report.coverage_interval.upper
    assert report.calibration_error == (
        expected_calibration_error(Y[:300], P[:300]),
        expected_calibration_error(y, p),
    )
    given = monitor().update(P[300:], labels, FAMILIARITY[300:], sets=np.ones((300, 3), bool))
    assert given.coverage == 1


@pytest.mark.parametrize("missing", [None, "", float("nan")])
def test_named_and_missing_labels(missing):
    names = NAMES[Y].astype(object)
    names[::2] = missing
    watched = DriftMonitor(P[:300], names[:300], classes=NAMES)
    report = watched.update(P[300:], names[300:])
    assert report.labels == 150
    assert list(report.class_frequencies) == ["cat", "dog", "fox"]
    assert DriftMonitor.from_state(watched.state()).report() == report


def drifted(kind):
    """The second half of the samples with one thing changed."""
    p, y, familiarity = P[300:].copy(), Y[300:].copy(), FAMILIARITY[300:].copy()
    if kind == "familiarity":
        familiarity *= 0.5
    if kind == "true class":
        y = p.argmin(axis=1)
    if kind == "confidence":
        p = 0.1 * p + 0.3
    if kind == "class 2":
        p = np.sort(p, axis=1)
    return p, y, familiarity


@pytest.mark.parametrize("kind", ["familiarity", "true class", "confidence", "class 2"])
def test_cause_of_drift_is_named(kind):
    report = monitor().update(*drifted(kind))
    assert report.alarm is not None
    assert report.p_value < 0.05
    assert report.cause == kind
    assert str(report).startswith(f"DRIFT after {report.alarm} samples")


@pytest.mark.parametrize("stored", [lambda p: p.astype(np.float32), lambda p: np.round(p, 6)], ids=["float32", "text"])
def test_lower_precision_is_no_drift(stored):
    """Of a network whose confidences differ from 1 by less than single precision."""
    logits = np.random.default_rng(1).normal(size=(1000, 3)) * 15
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    expected, report = (DriftMonitor(p[:500]).update(stream) for stream in (p[500:], stored(p[500:])))
    assert report.alarm is None
    assert report.p_value == pytest.approx(expected.p_value, rel=0.05)


def test_weights_sum_to_one():
    assert sum(monitor().weights.values()) == pytest.approx(1)
    assert sum(DriftMonitor(P).weights.values()) == pytest.approx(1)
    many = np.random.default_rng(0).dirichlet(np.ones(80), 30)
    watched = DriftMonitor(many)
    assert len(watched.tests) == 51
    assert sum(watched.weights.values()) == pytest.approx(1)


@pytest.mark.parametrize(("hits", "count"), [(0, 10), (10, 10), (90, 100), (1, 10_000)])
def test_coverage_interval_holds_the_share(hits, count):
    lower, upper = share_interval(hits, count, 0.05)
    assert 0 <= lower <= hits / count <= upper <= 1
    assert share_interval(count - hits, count, 0.05) == pytest.approx((1 - upper, 1 - lower), abs=1e-9)


def test_coverage_interval_holds_at_all_times():
    hits = (np.random.default_rng(0).random((200, 300)) < 0.9).cumsum(axis=1)
    times = range(1, 301, 10)
    missed = [
        any(not i.lower <= 0.9 <= i.upper for i in (share_interval(int(row[t - 1]), t, 0.2) for t in times))
        for row in hits
    ]
    assert np.mean(missed) < 0.2


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((P, Y[:5]), {}, "y must hold a label"),
        ((P, np.full(600, 7)), {}, "7"),
        ((P, None, FAMILIARITY[:5]), {}, "familiarity must have 600 rows"),
        ((P,), {"level": 1.0}, "level"),
        ((P,), {"coverage": 0.0}, "coverage"),
        ((P,), {"recent": 0}, "recent"),
        ((P,), {"classes": ["cat"]}, "classes"),
    ],
)
def test_invalid_reference_raises(arguments, options, words):
    with pytest.raises(ValueError, match=words):
        DriftMonitor(*arguments, **options)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((P[:, :2] / P[:, :2].sum(axis=1, keepdims=True), Y, FAMILIARITY), "p must have shape"),
        ((P, Y), "familiarity must be given"),
        ((P, Y, FAMILIARITY, np.ones((3, 3), bool)), "sets must have 600 rows"),
        ((np.full((1, 3), np.nan), None, [0.5]), "finite"),
    ],
)
def test_invalid_update_raises_and_changes_nothing(arguments, words):
    watched = monitor()
    with pytest.raises(ValueError, match=words):
        watched.update(*arguments)
    assert watched.report().samples == 0
    assert watched.update(P[300:], Y[300:], FAMILIARITY[300:]).samples == 300


def test_sets_of_probabilities_near_one_have_their_coverage():
    rng = np.random.default_rng(3)
    e, y = rng.uniform(1e-7, 4e-7, 1000), rng.integers(0, 2, 1000)
    p = np.where(np.arange(2) == y[:, None], 1 - e[:, None], e[:, None])
    report = DriftMonitor(p[:500], y[:500]).update(p[500:], y[500:])
    sets = ConformalSets(0.9).fit(p[:500], y[:500]).predict(p[500:])
    assert report.coverage == coverage(y[500:], sets) > 0.85
