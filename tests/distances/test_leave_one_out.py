"""The leave-one-out error of the nearest neighbor."""

import numpy as np
import pytest
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier

import deepsimplex as ds
from deepsimplex.distances import neighbor_error


@pytest.fixture
def few(digits):
    x, y = digits
    return x[:300], y[:300]


def test_neighbor_error_equals_scikit_learn(few):
    x, y = few
    rows = x.reshape(len(x), -1)
    predicted = cross_val_predict(KNeighborsClassifier(1), rows, y, cv=LeaveOneOut())
    assert neighbor_error(x, y) == pytest.approx(np.mean(predicted != y), abs=1e-12)


def test_neighbor_error_of_a_subsample_is_close(digits):
    x, y = digits
    assert neighbor_error(x, y, max_samples=300, seed=1) == pytest.approx(
        neighbor_error(x, y, max_samples=2000), abs=0.02
    )


def test_ties_and_copies_count():
    assert neighbor_error([[0.0], [0.0], [9.0], [10.0]], [0, 1, 2, 2]) == 0.5  # each copy is the other's neighbor
    assert neighbor_error([[0.0], [1.0], [2.0]], [0, 0, 1]) == pytest.approx((0 + 0.5 + 1) / 3)
    assert neighbor_error([[0.0], [1.0], [5.0]], [0, 1, 2]) == 1.0  # nobody has another of the own class


def test_neighbor_error_of_any_distance():
    matrix = np.array([[0.0, 5.0, 1.0], [5.0, 0.0, 2.0], [1.0, 2.0, 0.0]])
    assert neighbor_error(np.arange(3), [0, 1, 0], ds.distances.Precomputed(matrix)) == pytest.approx(1 / 3)
    assert neighbor_error([[0.0], [1.0], [5.0]], [0, 0, 0], lambda a, b: float(abs(a - b)[0])) == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0.0]], [0]), r"^x must.*found 1"),
        (([[0.0], [1.0]], [0]), r"^y must.*found shape \(1,\)"),
    ],
)
def test_invalid_arguments_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        neighbor_error(*arguments)


def test_neighbor_error_of_targets(few):
    x, y = few
    target = ds.targets.CASIMAC("euclidean")
    assert target.neighbor_error() is None
    assert target.fit(x, y).neighbor_error() == neighbor_error(x, y)
    mean = ds.targets.Mean([target, ds.targets.CASIMAC("cityblock")]).fit(x, y)
    assert mean.neighbor_error() == pytest.approx((neighbor_error(x, y) + neighbor_error(x, y, "cityblock")) / 2)
    assert ds.targets.Vertices().fit(None, y).neighbor_error() is None
