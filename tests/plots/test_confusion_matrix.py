"""The confusion matrix as it is drawn."""

import numpy as np
import pytest
from sklearn import metrics

from deepsimplex.plots import confusion_matrix


@pytest.fixture(scope="module")
def predictions():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), 60)
    return rng.integers(0, 3, 60), p  # no sample is of class 3, some are assigned to it


@pytest.mark.parametrize("normalize", [None, "true", "pred", "all"])
def test_matrix_equals_scikit_learn_with_absent_classes(predictions, normalize):
    y, p = predictions
    (ax,) = confusion_matrix(y, p, normalize=normalize).axes
    expected = metrics.confusion_matrix(y, p.argmax(axis=1), labels=range(4), normalize=normalize)
    np.testing.assert_allclose(ax.images[0].get_array(), expected)
    written = {tuple(map(round, text.get_position()))[::-1]: float(text.get_text()) for text in ax.texts}
    assert written.keys() == {tuple(cell) for cell in np.argwhere(expected > 0)}
    assert all(abs(value - expected[cell]) <= 0.0051 for cell, value in written.items())
    assert f"accuracy {np.mean(p.argmax(axis=1) == y):.3f}" in ax.get_title()


def test_rows_are_true_classes_with_names():
    (ax,) = confusion_matrix([0, 0, 0], [[0.2, 0.8]] * 3, class_names=["cat", "$dog"]).axes
    np.testing.assert_array_equal(ax.images[0].get_array(), [[0, 3], [0, 0]])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["cat", r"\$dog"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("assigned class", "true class")


def test_classes_are_drawn_in_the_given_order(predictions):
    """Those of ``classes_`` are sorted, which is not the order of levels."""
    y, p = predictions
    levels = np.array(["high", "low", "medium", "none"])
    (ax,) = confusion_matrix(levels[y], p, classes=levels, only=["low", "medium", "high"]).axes
    expected = metrics.confusion_matrix(y, p.argmax(axis=1), labels=[1, 2, 0])
    np.testing.assert_array_equal(ax.images[0].get_array(), expected)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["low", "medium", "high"]


def test_invalid_input_raises(predictions):
    y, p = predictions
    with pytest.raises(ValueError, match=r"normalize must.*found 'ture'; did you mean"):
        confusion_matrix(y, p, normalize="ture")
    with pytest.raises(ValueError, match=r"class_names must.*found \['a', 'b'\]"):
        confusion_matrix(y, p, class_names=["a", "b"])
    with pytest.raises(ValueError, match=r"^y must.*found 4 in row 1"):
        confusion_matrix(y + 3, p)
    with pytest.raises(ValueError, match=r"only must.*found \[0, 4\]"):
        confusion_matrix(y, p, only=[0, 4])
