"""The figure of prediction sets: the data of its bars and dots."""

import numpy as np
import pytest

from deepsimplex import evaluation, plots

Y = np.array([0, 0, 1, 2, 2])
SETS = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0]], bool)


def test_bars_show_set_sizes_and_dots_coverages():
    figure = plots.prediction_sets(Y, SETS, coverage=0.9, class_names=["a", "b", "$c", "d"])
    left, right = figure.axes
    assert {bar.get_x() + bar.get_width() / 2: bar.get_height() for bar in left.patches} == pytest.approx(
        {1: 0.6, 2: 0.4}
    )
    dots, line = left.lines
    np.testing.assert_array_equal(dots.get_xdata(), [1, 2])
    np.testing.assert_allclose(dots.get_ydata(), evaluation.coverage_by_size(Y, SETS)[1:3])
    np.testing.assert_allclose(line.get_ydata(), 0.9)
    np.testing.assert_allclose(right.lines[0].get_ydata(), evaluation.coverage_by_class(Y, SETS)[:3])
    assert [label.get_text() for label in right.get_xticklabels()] == ["a", "b", "\\$c"]  # class d has no samples
    assert left.get_title() == "coverage 0.800, mean size 1.40"
    assert len(plots.prediction_sets(Y, SETS).axes[0].lines) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Y, SETS.astype(int)), r"sets must.*found int64 of shape \[5, 4\]"),
        ((Y, SETS, 1.5), r"coverage must.*found 1.5"),
        ((Y, SETS, 0.9, ["a"]), r"class_names must.*found \['a'\]"),
    ],
)
def test_invalid_arguments_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        plots.prediction_sets(*arguments)
