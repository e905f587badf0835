"""Venn-Abers prediction: against isotonic regressions fitted anew for every sample, and simulated labels."""

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

import deepsimplex as ds
from deepsimplex._utils.portable_operations import portable_operations
from deepsimplex.calibration import VennAbers
from tests.test_calibration import simulated


def regression_with(scores, events, weights, new, label):
    """The isotonic regression at a new score, fitted to all samples and the new one with a label."""
    regression = IsotonicRegression().fit(np.append(scores, new), np.append(events, label), np.append(weights, 1.0))
    return regression.predict([new])[0]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [2, 3])
def test_intervals_equal_isotonic_regressions_with_both_labels(n, weighted):
    p, y = simulated(n, 80, seed=1, temperature=2.0)
    p = np.round(p, 2)  # ties
    p = p / p.sum(axis=1, keepdims=True)
    weights = np.random.default_rng(0).uniform(0.2, 2.0, 80) if weighted else np.ones(80)
    new = np.vstack([p[:20], simulated(n, 20, seed=2, temperature=3.0)[0], np.eye(n)])
    lower, upper = VennAbers().fit(p, y, weights).probability_intervals(new)
    for k in range(n):
        for bound, label in ((lower, 0), (upper, 1)):
            expected = [regression_with(p[:, k], y == k, weights, score, label) for score in new[:, k]]
            np.testing.assert_allclose(bound[:, k], expected, atol=1e-9)


@pytest.mark.parametrize("n", [2, 3])
def test_transform_merges_intervals(n):
    p, y = simulated(n, 200, seed=3, temperature=2.0)
    venn_abers = VennAbers().fit(p, y)
    lower, upper = venn_abers.probability_intervals(p)
    assert np.all(lower < upper)
    assert np.all((lower >= 0) & (upper <= 1))
    merged = upper / (1 - lower + upper)
    np.testing.assert_allclose(venn_abers.transform(p), merged / merged.sum(axis=1, keepdims=True), atol=1e-12)


def test_intervals_narrow_with_samples_and_probabilities_become_calibrated():
    p, y = simulated(2, 6000, seed=4, temperature=3.0)
    widths = []
    for samples in (50, 500, 3000):
        venn_abers = VennAbers().fit(p[:samples], y[:samples])
        lower, upper = venn_abers.probability_intervals(p[3000:])
        widths.append(np.mean(upper - lower))
    assert widths[0] > 2 * widths[1] > 4 * widths[2]
    error = ds.evaluation.expected_calibration_error
    assert error(y[3000:], venn_abers.transform(p[3000:])) < 0.03 < 0.09 < error(y[3000:], p[3000:])


@pytest.mark.parametrize("order", [1, -1])
def test_fit_of_many_scores_takes_seconds(order):
    """Of 20000 different scores, in the right order or in the wrong one, where all are pooled."""
    rng = np.random.default_rng(5)
    score = rng.uniform(size=20000)
    y = (rng.uniform(size=20000) < score**order * (score > 0.5)).astype(int)
    upper = VennAbers().fit(np.column_stack([1 - score, score]), y).upper_
    assert np.all(np.diff(upper) >= 0)


@pytest.mark.parametrize("n", [2, 3])
def test_portable_operations_agree(n):
    p, y = simulated(n, 100, seed=6)
    venn_abers = VennAbers().fit(p, y)
    with portable_operations("onnx"):
        portable = venn_abers.transform(p)
    np.testing.assert_array_equal(portable, venn_abers.transform(p))
