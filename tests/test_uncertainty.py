"""How unsure a classifier is of each sample."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy

from deepsimplex.evaluation import uncertainty


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 6), st.integers(0, 10_000))
def test_each_measure_against_loops(n, seed):
    rng = np.random.default_rng(seed)
    p, y = rng.dirichlet(np.full(n, 0.3), 20), rng.integers(0, n, 20)
    np.testing.assert_allclose(uncertainty(p), [entropy(row) for row in p], atol=1e-12)
    np.testing.assert_allclose(uncertainty(p, "confidence"), [1 - max(row) for row in p])
    ordered = [sorted(row) for row in p]
    np.testing.assert_allclose(uncertainty(p, "margin"), [1 - (row[-1] - row[-2]) for row in ordered])
    np.testing.assert_allclose(uncertainty(p, "likelihood", y), [1 - row[k] for row, k in zip(p, y, strict=True)])


def test_certainty_is_zero_and_uniform_the_most():
    for by in ("entropy", "confidence", "margin"):
        values = uncertainty([[1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.3, 0.2]], by)
        assert values[0] == 0
        assert values.argmax() == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ([[0.5, 0.5]], "entropie"),
            "by must be one of entropy, confidence, margin, likelihood; found 'entropie'",
        ),
        (([[0.5, 0.5]], "likelihood"), "needs the true classes: pass y"),
        (([[0.5, 0.6]],), "every row of p must sum to 1"),
        (([[0.5, 0.5]], "likelihood", [2]), "y must hold class numbers 0..1"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        uncertainty(*arguments)
