"""Calibration errors and the area deviation, against slow oracles, netcal and cases worked by hand."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepsimplex import evaluation
from tests.labeled_probabilities import labeled_probabilities, sure_predictions
from tests.reference import evaluation as oracle

few = settings(max_examples=40, deadline=None)


@given(case=labeled_probabilities(), bins=st.integers(1, 30))
@few
def test_ece_equals_oracle(case, bins):
    y, p = case
    ours = evaluation.expected_calibration_error(y, p, bins)
    assert ours == pytest.approx(oracle.expected_calibration_error(y, p, bins), abs=1e-12)
    assert 0 <= ours <= 1


@given(case=labeled_probabilities(), bins=st.integers(1, 30))
@few
def test_calibration_errors_equal_oracle(case, bins):
    y, p = case
    for name in ("adaptive_calibration_error", "maximum_calibration_error", "classwise_calibration_error"):
        ours = getattr(evaluation, name)(y, p, bins)
        assert ours == pytest.approx(getattr(oracle, name)(y, p, bins), abs=1e-12), name
        assert -1e-12 <= ours <= 1 + 1e-12
    assert evaluation.maximum_calibration_error(y, p, bins) >= evaluation.expected_calibration_error(y, p, bins) - 1e-12


@given(case=labeled_probabilities(), bins=st.integers(1, 12))
@settings(max_examples=20, deadline=None)
def test_area_deviation_equals_oracle(case, bins):
    y, p = case
    ours = evaluation.area_deviation(y, p, bins)
    assert ours == pytest.approx(oracle.area_deviation(y, p, bins), abs=1e-6)
    assert -1e-12 <= ours <= 0.75 + 1e-12


def test_area_deviation_is_largest_for_wrong_certainty():
    p = np.array([0.001, 0.4999, 0.5001, 0.999])
    y = np.array([1, 1, 0, 0])
    assert 0.74 < evaluation.area_deviation(y, np.column_stack([1 - p, p])) < 0.75


def test_samples_from_probabilities_are_calibrated():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), 40_000)
    y = (p.cumsum(axis=1) < rng.uniform(size=(len(p), 1))).sum(axis=1)
    # The mean absolute error of 15 frequencies: at most sum_b sqrt(c_b / 4) / N, about 0.01.
    assert evaluation.expected_calibration_error(y, p) < 0.012
    assert evaluation.expected_calibration_error(y, p**3 / (p**3).sum(axis=1, keepdims=True)) > 0.1


def test_absent_class_contributes_mean_probability():
    p = np.array([[0.6, 0.4, 0.0], [0.0, 0.9, 0.1]])
    # One bin: the gaps are |0.3 - 0.5|, |0.65 - 0.5| and, of the class without samples, 0.05.
    assert evaluation.classwise_calibration_error([0, 1], p, bins=1) == pytest.approx((0.2 + 0.15 + 0.05) / 3)


def test_area_deviation_by_hand():
    # One filled bin at (0.8, 0.5): triangles of (0, 0), (0.8, 0.5), (1, 1) under the diagonal: 0.3 * 1 / 2.
    p = [[0.2, 0.8]] * 4
    assert evaluation.area_deviation([0, 0, 1, 1], p) == pytest.approx(0.15)
    # (0.25, 0.75) and (0.75, 0.25): a triangle, two that meet in the middle, a triangle.
    crossing = [[0.75, 0.25]] * 4 + [[0.25, 0.75]] * 4
    y = [1, 1, 1, 0, 1, 0, 0, 0]
    assert evaluation.area_deviation(y, crossing) == pytest.approx(0.25 * 0.5 / 2 * 4)
    # Sure and always wrong: the curve goes up at 0, across at 0 and 1, and the areas are two halves of a square's.
    assert evaluation.area_deviation([1, 0], [[1.0, 0.0], [0.0, 1.0]]) == pytest.approx(0.25 * 2)
    assert evaluation.area_deviation([0, 1], [[1.0, 0.0], [0.0, 1.0]]) == 0


def sines(n: int, samples: int = 400):
    """Labels and probabilities by a rule that every machine follows, none of them on an edge of a bin."""
    i, k = np.arange(samples)[:, None], np.arange(n)
    powers = np.exp(3 * np.sin(np.sqrt(2) * i * (k + 1) + k))
    p = powers / powers.sum(axis=1, keepdims=True)
    return np.where(np.arange(samples) % 5 < 3, p.argmax(axis=1), np.arange(samples) * 7 // 3 % n), p


# (classes, bins): expected and maximum calibration error by netcal 1.4.0 of ``sines``.
NETCAL = {
    (2, 5): (0.14648634084194717, 0.18658510246643978),
    (2, 10): (0.16411484121429282, 0.4166723825497104),
    (2, 15): (0.1650994362336804, 0.38191603117403417),
    (3, 5): (0.2070312953524795, 0.39105737903702054),
    (3, 10): (0.21308993668964543, 0.39105737903702054),
    (3, 15): (0.21637710542293997, 0.39105737903702054),
    (10, 5): (0.31230327356919546, 0.5573978841891911),
    (10, 10): (0.325221791757538, 0.5573978841891911),
    (10, 15): (0.33148974880665477, 0.6561874105018735),
}


@pytest.mark.parametrize(("n", "bins"), NETCAL)
def test_calibration_errors_equal_netcal(n, bins):
    """On bins' insides: netcal closes bins on the left, so that only confidences on edges could differ."""
    y, p = sines(n)
    confidences = p[:, 1] if n == 2 else p.max(axis=1)
    assert np.abs(confidences[:, None] - np.arange(bins + 1) / bins).min() > 1e-6
    ours = evaluation.expected_calibration_error(y, p, bins), evaluation.maximum_calibration_error(y, p, bins)
    assert ours == pytest.approx(NETCAL[n, bins], rel=0, abs=1e-12)


@pytest.mark.peers
@pytest.mark.parametrize(("n", "bins"), NETCAL)
def test_reference_table_equals_netcal_if_installed(n, bins):
    metrics = pytest.importorskip("netcal.metrics")
    y, p = sines(n)
    theirs = p[:, 1] if n == 2 else p
    errors = float(metrics.ECE(bins).measure(theirs, y)), float(metrics.MCE(bins).measure(theirs, y))
    assert errors == pytest.approx(NETCAL[n, bins], rel=0, abs=1e-12)


@pytest.mark.parametrize("bins", [0, 2.5, 10.0, True, np.True_, None, np.nan, np.inf, [5], "5"])
def test_invalid_bins_raise(bins):
    with pytest.raises(ValueError, match=rf"bins must.*found {re.escape(repr(bins))}"):
        evaluation.expected_calibration_error([0], [[0.5, 0.5]], bins)


def test_other_invalid_arguments_raise():
    y, p = sure_predictions(3, samples=5)
    with pytest.raises(ValueError, match="top_label and class_index exclude each other"):
        evaluation.reliability_curve(y, p, class_index=1, top_label=True)
    with pytest.raises(ValueError, match=r"binning must.*found 'adaptive'"):
        evaluation.reliability_curve(y, p, binning="adaptive")
    for name in ("adaptive_calibration_error", "maximum_calibration_error", "classwise_calibration_error"):
        with pytest.raises(ValueError, match=r"bins must.*found 0"):
            getattr(evaluation, name)(y, p, 0)
    with pytest.raises(ValueError, match=r"bins must.*found 2\.5"):
        evaluation.brier_decomposition(y, p, 2.5)
