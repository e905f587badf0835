"""Labels and class probabilities for tests of scores: some tied, some on edges of bins, some of a class missing."""

import numpy as np
from hypothesis import strategies as st


@st.composite
def labeled_probabilities(draw, max_classes: int = 12):
    """Labels and probabilities, some of them tied and on bin edges."""
    n, samples = draw(st.integers(2, max_classes)), draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    p = rng.dirichlet(np.full(n, draw(st.sampled_from([0.3, 1.0, 10.0]))), samples)
    if draw(st.booleans()):
        p = rng.multinomial(draw(st.sampled_from([2, 5, 15])), p)
        p = p / p.sum(axis=1, keepdims=True)
    return rng.integers(0, n, samples), p


def sure_predictions(n: int, samples: int = 500, seed: int = 0):
    """Labels drawn from other probabilities than those given."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(n, 0.5), samples)
    y = (p.cumsum(axis=1) < rng.uniform(size=(samples, 1))).sum(axis=1).clip(max=n - 1)
    return y, p**2 / (p**2).sum(axis=1, keepdims=True)
