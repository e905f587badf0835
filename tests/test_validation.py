"""Checks of numbers, arrays, labels, probabilities and weights: what passes, and the errors for the rest."""

import re

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsimplex._utils.validation import (
    check_array,
    check_choice,
    check_class_names,
    check_flag,
    check_labels,
    check_names,
    check_number,
    check_probabilities,
    check_sample_weight,
)
from deepsimplex.estimators.checked_data import checked_labels
from deepsimplex.samples import Labels


@pytest.mark.parametrize(
    "y",
    [
        [0, 2, 1],
        [0.0, 2.0, 1.0],
        np.array([0, 2, 1], np.uint8),
        np.array([0, 2.0, np.int8(1)], object),
        [[0], [2], [1]],
        np.eye(3)[[0, 2, 1]],
        np.eye(3, dtype=bool)[[0, 2, 1]],
    ],
    ids=["list", "whole floats", "uint8", "objects", "column", "one-hot", "boolean one-hot"],
)
def test_forms_of_one_class_per_sample(y):
    labels, n = check_labels(y)
    assert labels.tolist() == [0, 2, 1]
    assert labels.dtype == np.int64
    assert n == 3


def test_booleans_are_two_classes():
    labels, n = check_labels(np.array([True, False]))
    assert (labels.tolist(), n) == ([1, 0], 2)


def test_num_classes_larger_than_labels():
    assert check_labels([0, 1], 5)[1] == 5


@pytest.mark.parametrize(
    ("y", "num_classes", "words"),
    [
        ([0, 1, 3], 3, r"^y must.*found 3 in row 2"),
        ([0, -1], None, r"^y must.*found -1 in row 1"),
        ([0, 0.5], None, r"^y must.*found 0.5 in row 1"),
        ([0, np.nan], None, r"^y must.*found nan in row 1"),
        ([0, np.inf], None, r"^y must.*found inf in row 1"),
        ([0, 1e300], None, r"^y must.*found 1e[+]300 in row 1"),
        (np.array([0, 2**63], np.uint64), None, r"^y must.*found 9223372036854775808 in row 1"),
        ([0, 0], None, r"^y must.*found class 0 alone"),
        ([0, 0], 1, r"num_classes must.*found 1"),
        ([], 2, r"^y must.*found shape \(0,\)"),
        (np.zeros((2, 2, 2)), 2, r"^y must.*found shape \(2, 2, 2\)"),
        ([[0.5, 0.5], [1, 0]], None, r"^y must.*found soft labels, row 0"),
        ([[1, 0], [0, 1]], 3, r"^y must.*found shape \(2, 2\)"),
        (np.ma.array([0, 1], mask=[0, 1]), None, "must not be masked"),
        ([[0, 1], [1]], None, "rows of one length"),
    ],
)
def test_invalid_labels_raise(y, num_classes, words):
    with pytest.raises(ValueError, match=words):
        check_labels(y, num_classes)


def test_labels_for_a_number_of_rows():
    with pytest.raises(ValueError, match=r"^t must.*found shape \(2,\)"):
        check_labels([0, 1], 2, name="t", rows=3, of="p")


@pytest.mark.parametrize("y", [["cat", "dog"], np.array([1j, 0])])
def test_non_numeric_labels_raise(y):
    with pytest.raises(TypeError, match="return_inverse"):
        check_labels(y)


@pytest.mark.parametrize(
    "y",
    [
        ["cat", None, "dog"],
        ["cat", np.nan, "dog"],
        [[0], [None], [1]],
        [0, np.nan, 1],
        np.array([0, np.nan, 1], object),
        pandas.Series(["cat", None, "dog"], dtype="string"),
        pandas.Series([True, None, False], dtype="boolean"),
        pandas.Series([0, None, 1], dtype="Int64"),
        pandas.Categorical(["cat", None, "dog"]),
    ],
    ids=str,
)
def test_missing_labels_raise(y):
    for check in (check_labels, Labels.of):
        with pytest.raises(ValueError, match=r"^y must not be missing; found (None|nan|<NA>) in row 1\. Leave out"):
            check(y, 2)
    with pytest.raises(ValueError, match=r"^y must not be missing; found .* in row 1|Input y contains NaN"):
        checked_labels(y, None)
    with pytest.raises(ValueError, match=r"^y must not be missing"):
        check_labels(y, classes=["cat", 0, True])


def test_named_labels():
    assert check_labels(["x", 2, "x"], classes=[2, "x"])[0].tolist() == [1, 0, 1]
    assert check_labels(np.array(["b", "a"]), classes=np.array(["a", "b"]))[0].tolist() == [1, 0]
    with pytest.raises(ValueError, match=r"^y must.*found 'cut' in row 1; did you mean 'cat'"):
        check_labels(["dog", "cut"], classes=["cat", "dog"])


def test_class_names():
    assert check_class_names(None, 3) == (0, 1, 2)
    assert check_class_names(np.array(["a", "b"]), 2) == ("a", "b")
    for wrong in ("ab", ["a"], ["a", "a"]):
        with pytest.raises(ValueError, match="2 different names"):
            check_class_names(wrong, 2)


@pytest.mark.parametrize("row", [[0.5, 0.4, 0.0], [1.2, -0.2, 0.0]])
def test_soft_labels_must_be_distributions(row):
    with pytest.raises(ValueError, match=r"row 1"):
        check_labels([[1, 0, 0], row], soft=True)


@given(st.lists(st.lists(st.floats(0.0625, 1.0, width=32), min_size=3, max_size=3), min_size=1, max_size=5))
def test_soft_labels_in_float32_are_closed_in_float64(rows):
    parts = np.array(rows, np.float32)
    shares, n = check_labels(parts / parts.sum(axis=1, keepdims=True), soft=True)
    assert n == 3
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-15)


@pytest.mark.parametrize("value", [0, -1.0, np.nan, np.inf, True, "1", None, 2.5])
def test_invalid_numbers_raise(value):
    with pytest.raises(ValueError, match=rf"^a must.*found {re.escape(repr(value))}"):
        check_number(value, "a", 0, 2)


def test_numbers_become_floats():
    assert check_number(np.float32(0.5), "a", least=0.5, below=1) == 0.5
    assert isinstance(check_number(3, "a"), float)
    with pytest.raises(ValueError, match=r"^a must.*found nan"):
        check_number(np.nan, "a")


def test_arrays_keep_requested_dtypes():
    assert check_array([1, 2], "a").dtype == np.float64
    assert check_array(np.array([1, None], object)[:1], "a").dtype == np.float64
    for dtype, floating, kept in [
        ("float16", "float32", "float32"),
        ("float32", "float32", "float32"),
        ("int8", "float64", "int8"),
    ]:
        array = np.ones((2, 3), dtype)
        assert check_array(array, "a", dtype="floating").dtype == floating
        assert check_array(array, "a", "[N, ...]", dtype="any").dtype == kept


@pytest.mark.parametrize(
    ("values", "arguments", "error", "words"),
    [
        ([["a"]], {}, TypeError, r"^X must.*found dtype <U1"),
        ([1j], {}, TypeError, r"^X must.*found dtype complex128"),
        (np.array([["a", None]]), {}, TypeError, r"^X must.*found objects"),
        ([1.0], {"shape": "[N, d]"}, ValueError, r"^X must.*found shape \(1,\). A single feature becomes"),
        (1.0, {"shape": "[N, ...]"}, ValueError, r"^X must.*found shape \(\)"),
        ([[1.0]], {"columns": 2}, ValueError, r"^X must.*found shape \(1, 1\)"),
        ([[1.0]], {"rows": 2, "of": "y"}, ValueError, "2 rows, as many as y; found 1"),
        ([[1.0]], {"least": 2}, ValueError, "at least 2 rows; found 1"),
        ([[1.0, np.inf]], {}, ValueError, r"X must be finite; found inf at \[0, 1\]"),
    ],
)
def test_invalid_arrays_raise(values, arguments, error, words):
    with pytest.raises(error, match=words):
        check_array(values, "X", **arguments)


def test_probabilities_of_rounding_and_of_half_precision():
    rounded = check_probabilities(np.array([[1 + 1e-7, -1e-7], [0.9995, 0]], np.float32))
    assert rounded.dtype == np.float32
    assert rounded.min() == 0


@pytest.mark.parametrize(
    ("p", "words"),
    [
        ([[0.5, 0.4]], "every row of p must sum to 1 within 0.001; row 0 sums to 0.9"),
        ([[1.1, -0.1]], r"^p must.*found -0.1 in row 0"),
        ([[0.5, np.nan]], "p must be finite"),
        ([0.5, 0.5], r"^p must.*found shape \(2,\)"),
        (np.zeros((0, 2)), r"^p must.*found none"),
    ],
)
def test_invalid_probabilities_raise(p, words):
    with pytest.raises(ValueError, match=words):
        check_probabilities(p)


def test_sample_weight():
    assert check_sample_weight(None, 2).tolist() == [1, 1]
    assert check_sample_weight([[1], [2]], 2).tolist() == [1, 2]
    for wrong in ([1.0], [1.0, np.nan], [0.0, 0.0], [1.0, -1.0]):
        with pytest.raises(ValueError, match="sample_weight must"):
            check_sample_weight(wrong, 2)
    assert check_sample_weight([0, 0], 2, all_zero=True).tolist() == [0, 0]
    with pytest.raises(ValueError, match=r"sample_weight must be finite and not negative; found -1.0 in row 1"):
        check_sample_weight([0, -1], 2, all_zero=True)


def test_choices_flags_and_names():
    check_choice("mixed", "colors", ["likeliest", "mixed"])
    with pytest.raises(ValueError, match=r"colors must.*found 'mixd'; did you mean 'mixed'"):
        check_choice("mixd", "colors", ["likeliest", "mixed"])
    assert check_flag(np.bool_(True), "ard") is True
    with pytest.raises(TypeError, match=r"ard must.*found 'no'"):
        check_flag("no", "ard")
    assert check_names((1, "b"), 2, "class_names", "columns of p") == ["1", "b"]
    with pytest.raises(ValueError, match=r"class_names must.*found \['c"):
        check_names(["cat"], 2, "class_names", "columns of p")
