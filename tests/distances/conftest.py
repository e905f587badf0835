"""Real images for the tests of distances."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

FOLDER = Path("/usr/share/datasets/fashion-mnist")


def _idx(name, header):
    with gzip.open(FOLDER / name) as file:
        return np.frombuffer(file.read(), dtype=np.uint8, offset=header)


@pytest.fixture(scope="session")
def fashion():
    """The first 600 Fashion-MNIST test images, float32 in [0, 1], and their labels."""
    if not (FOLDER / "t10k-images-idx3-ubyte.gz").exists():
        pytest.skip(f"Fashion-MNIST is not in {FOLDER} (Debian's dataset-fashion-mnist)")
    images = _idx("t10k-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28)[:600]
    return images.astype(np.float32) / 255, _idx("t10k-labels-idx1-ubyte.gz", 8)[:600].astype(np.int64)


@pytest.fixture(scope="session")
def digits():
    """scikit-learn's digits, 8 x 8, float64 in [0, 1], and their labels."""
    data = load_digits()
    return data.images / 16, data.target
