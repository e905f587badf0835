"""Uncertainty of samples against loops; its area under the ROC curve against a slow oracle and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy
from sklearn import metrics as sklearn_metrics

from deepsimplex import evaluation
from deepsimplex.evaluation import uncertainty
from tests.reference import evaluation as oracle

few = settings(max_examples=40, deadline=None)


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 6), st.integers(0, 10_000))
def test_measures_equal_loops(n, seed):
    rng = np.random.default_rng(seed)
    p, y = rng.dirichlet(np.full(n, 0.3), 20), rng.integers(0, n, 20)
    np.testing.assert_allclose(uncertainty(p), [entropy(row) for row in p], atol=1e-12)
    np.testing.assert_allclose(uncertainty(p, "confidence"), [1 - max(row) for row in p])
    ordered = [sorted(row) for row in p]
    np.testing.assert_allclose(uncertainty(p, "margin"), [1 - (row[-1] - row[-2]) for row in ordered])
    np.testing.assert_allclose(uncertainty(p, "likelihood", y), [1 - row[k] for row, k in zip(p, y, strict=True)])


def test_uncertainty_of_certain_and_uniform_predictions():
    for by in ("entropy", "confidence", "margin"):
        values = uncertainty([[1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.3, 0.2]], by)
        assert values[0] == 0
        assert values.argmax() == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ([[0.5, 0.5]], "entropie"),
            r"^by must.*found 'entropie'",
        ),
        (([[0.5, 0.5]], "likelihood"), "needs the true classes: pass y"),
        (([[0.5, 0.6]],), "every row of p must sum to 1"),
        (([[0.5, 0.5]], "likelihood", [2]), r"^y must.*found 2 in row 0"),
    ],
)
def test_invalid_input_raises(arguments, message):
    with pytest.raises(ValueError, match=message):
        uncertainty(*arguments)


scores = st.lists(st.sampled_from([-np.inf, -1.0, 0.0, 0.25, 1.0, 7.0, np.inf]), min_size=1, max_size=12)


@given(inside=scores, outside=scores)
@few
def test_auroc_equals_oracle_and_swaps_with_its_arguments(inside, outside):
    ours = evaluation.out_of_distribution_auroc(inside, outside)
    assert ours == pytest.approx(oracle.auroc(inside, outside), abs=1e-12)
    assert evaluation.out_of_distribution_auroc(outside, inside) == pytest.approx(1 - ours, abs=1e-12)


@given(seed=st.integers(0, 2**32 - 1), ties=st.booleans())
@few
def test_auroc_equals_scikit_learn(seed, ties):
    rng = np.random.default_rng(seed)
    inside, outside = rng.normal(size=80), rng.normal(0.5, 1, size=50)
    if ties:
        inside, outside = inside.round(), outside.round()
    theirs = sklearn_metrics.roc_auc_score(np.repeat([0, 1], [80, 50]), np.concatenate([inside, outside]))
    assert evaluation.out_of_distribution_auroc(inside, outside) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize(
    ("inside", "outside", "message"),
    [
        ([], [1.0], r"inside must.*found shape \(0,\)"),
        ([1.0], [], r"outside must.*found shape \(0,\)"),
        ([[0.5, 0.5]], [1.0], r"inside must.*found shape \(1, 2\).*become scores with 1 - p.max"),
        ([1.0], [0.0, np.nan], r"outside must.*found 1, the first in row 1"),
    ],
)
def test_invalid_scores_raise(inside, outside, message):
    with pytest.raises(ValueError, match=message):
        evaluation.out_of_distribution_auroc(inside, outside)
    with pytest.raises(TypeError, match=r"inside must.*found dtype <U1"):
        evaluation.out_of_distribution_auroc(["a"], outside)
