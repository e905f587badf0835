"""The benchmark of the Gaussian processes runs at a small size."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from training.benchmarks import gaussian_process_peers as peers
from training.benchmarks import gaussian_processes as benchmark


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Four digits in the place of letter, and hardly any of them."""
    sizes = {"TRAIN": 30, "LETTER_TRAIN": 200, "INDUCING": 15, "TEST_ROWS": 50, "CLASSES": (3, 4)}
    for name, value in sizes.items():
        monkeypatch.setattr(benchmark, name, value)
    monkeypatch.setattr(peers, "STEPS", 2)
    monkeypatch.setattr(peers, "EVERY", 2)
    X, y = load_digits(n_class=4, return_X_y=True)
    np.savez(tmp_path / "letter.npz", X=X[:, X.std(axis=0) > 1.0], y=y)
    return tmp_path / "letter.npz"


@pytest.mark.slow
def test_classes_and_memory_are_measured(small):
    measured = dict(benchmark.classes(1))
    assert "exact ILR, 30 rows, 4 classes: fit and predict_proba" in measured
    assert "ratio of 4 classes to 3" in measured
    assert 0.0 < benchmark.fit_memory(small, "ilr") < 2.0


@pytest.mark.slow
def test_race_ends_at_the_goal(small, monkeypatch):
    monkeypatch.setattr(benchmark, "GOAL", 0.9)
    measured = dict(benchmark.letter(small))
    assert sum("to NLL 0.90" in name for name in measured) == 4
    assert not any("not in" in result for result in measured.values())
    assert sum("times" in result for result in measured.values()) == 3


def test_lost_race_reports_its_seconds():
    assert benchmark.Race("nobody", np.zeros(1, dtype=int)).result()[1] == "not in 0 s (best inf)"


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
def test_peer_is_measured_if_installed(small, monkeypatch):
    pytest.importorskip("gpytorch")
    monkeypatch.setattr(benchmark, "TRAIN", 100)  # of all ten digits
    measured = dict(benchmark.exact(1))
    assert "the same, gpytorch, Dirichlet, 2 steps" in measured
    assert "times" in measured["ratio"]
