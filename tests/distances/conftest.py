"""Images for the tests of distances."""

import numpy as np
import pytest
from sklearn.datasets import load_digits


@pytest.fixture(scope="session")
def enlarged(enlarged_digits):
    """600 images of Fashion-MNIST's size, float32 in [0, 1], and their labels."""
    return enlarged_digits.x[:600], enlarged_digits.y[:600].astype(np.int64)


@pytest.fixture(scope="session")
def digits():
    """scikit-learn's digits, 8 x 8, float64 in [0, 1], and their labels."""
    data = load_digits()
    return data.images / 16, data.target
