"""Labels: what is taken, what is refused and with which words."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsimplex.targets.labels import any_labels, check_class_sizes, check_lengths, class_labels


@pytest.mark.parametrize(
    "y",
    [[0, 2, 1], [0.0, 2.0, 1.0], np.array([0, 2, 1], np.uint8), [[0], [2], [1]], np.eye(3)[[0, 2, 1]]],
    ids=["list", "whole floats", "uint8", "column", "one-hot"],
)
def test_the_forms_of_one_class_per_sample(y):
    labels, n = class_labels(y)
    assert labels.tolist() == [0, 2, 1]
    assert labels.dtype == np.int64
    assert n == 3


def test_booleans_are_two_classes():
    labels, n = class_labels(np.array([True, False]))
    assert (labels.tolist(), n) == ([1, 0], 2)


def test_num_classes_may_exceed_the_labels():
    assert class_labels([0, 1], 5)[1] == 5


@pytest.mark.parametrize(
    ("y", "num_classes", "words"),
    [
        ([0, 1, 3], 3, "0..2 for num_classes=3; found 3 at sample 2"),
        ([0, -1], None, "not be negative.*found -1 at sample 1"),
        ([0, 0.5], None, "whole numbers; found 0.5 at sample 1"),
        ([0, np.nan], None, "finite"),
        ([0, np.inf], None, "finite"),
        ([0, 0], None, "at least 2 classes"),
        ([0, 0], 1, "at least 2"),
        ([], 2, "N >= 1"),
        (np.zeros((2, 2, 2)), 2, r"shape \(2, 2, 2\)"),
        ([[0.5, 0.5], [1, 0]], None, "soft labels, row 0"),
        ([[1, 0], [0, 1]], 3, "num_classes=3 columns"),
    ],
)
def test_refused_values(y, num_classes, words):
    with pytest.raises(ValueError, match=words):
        class_labels(y, num_classes)


@pytest.mark.parametrize("y", [["cat", "dog"], [None, 1]])
def test_labels_that_are_no_numbers(y):
    with pytest.raises(TypeError, match="return_inverse"):
        class_labels(y)


@pytest.mark.parametrize("row", [[0.5, 0.4, 0.0], [1.2, -0.2, 0.0]])
def test_soft_labels_must_be_distributions(row):
    with pytest.raises(ValueError, match=r"sum to one; found .* at sample 1"):
        any_labels([[1, 0, 0], row])


@given(st.lists(st.lists(st.floats(0.0625, 1.0, width=32), min_size=3, max_size=3), min_size=1, max_size=5))
def test_soft_labels_in_float32_are_closed_in_float64(rows):
    parts = np.array(rows, np.float32)
    memberships, n = any_labels(parts / parts.sum(axis=1, keepdims=True))
    assert n == 3
    np.testing.assert_allclose(memberships.sum(axis=1), 1, atol=1e-15)


def test_lengths():
    with pytest.raises(ValueError, match="found 3 and 2"):
        check_lengths(np.zeros((3, 1)), [0, 1])


def test_class_sizes():
    labels = np.array([0, 0, 2])
    with pytest.raises(ValueError, match="none of class 1, 3 among num_classes=4"):
        check_class_sizes(labels, 4, attraction=False, repulsion=True)
    with pytest.raises(ValueError, match="single one of class 2"):
        check_class_sizes(labels, 3, attraction=True, repulsion=False)
    check_class_sizes(labels, 4, attraction=False, repulsion=False)


def test_many_missing_classes_are_counted():
    with pytest.raises(ValueError, match="9, 10 and 88 more"):
        check_class_sizes(np.array([0]), 99, attraction=False, repulsion=True)
