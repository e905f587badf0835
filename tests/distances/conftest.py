"""Images for the tests of distances."""

import pytest
from sklearn.datasets import load_digits


@pytest.fixture(scope="session")
def digits():
    """scikit-learn's digits, 8 x 8, float64 in [0, 1], and their labels."""
    data = load_digits()
    return data.images / 16, data.target
