"""Figures, checked by their artists, not by pixels."""

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from deepsimplex import evaluation, plots
from deepsimplex.plots import style


def make_case(n: int, samples: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    return rng.integers(0, n, samples), rng.dirichlet(np.ones(n), samples)


@pytest.mark.parametrize(("n", "frequency"), [(2, "frequency of class 1"), (5, "accuracy")])
def test_reliability_shows_curve_and_error(n, frequency, tmp_path):
    y, p = make_case(n)
    figure = plots.reliability(y, p, bins=8)
    curve = evaluation.reliability_curve(y, p, 8)
    filled = curve.counts > 0
    ax = figure.axes[0]
    (histogram,) = ax.child_axes
    heights = [bar.get_height() for bar in ax.patches]
    np.testing.assert_allclose(heights, curve.frequency[filled])
    np.testing.assert_allclose([bar.get_x() for bar in ax.patches], curve.edges[:-1][filled])
    gaps = np.array([segment[:, 1] for segment in ax.collections[0].get_segments()])
    np.testing.assert_allclose(gaps, np.column_stack([curve.confidence, curve.frequency])[filled])
    np.testing.assert_allclose([bar.get_height() for bar in histogram.patches], curve.counts / len(y))
    assert ax.get_ylabel() == frequency
    assert ax.get_legend().get_title().get_text() == f"ECE = {curve.expected_calibration_error:.4f}"
    figure.savefig(tmp_path / "reliability.png")
    assert 5_000 < (tmp_path / "reliability.png").stat().st_size < 150_000


def test_reliability_is_not_clipped():
    figure = plots.reliability(*make_case(4))
    figure.draw_without_rendering()
    width, height = figure.get_size_inches() * figure.dpi
    box = figure.axes[0].get_tightbbox()
    assert box.x0 >= 0
    assert box.y0 >= 0
    assert box.x1 <= width
    assert box.y1 <= height


def test_reliability_on_given_axes():
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert plots.reliability(*make_case(3), ax=right) is figure
    assert right.patches
    assert not left.patches


def test_predictions_are_labeled_and_ranked(tmp_path):
    images = np.random.default_rng(0).uniform(size=(3, 8, 8, 1))
    p = np.array([[0.1, 0.2, 0.7], [0.1, 0.3, 0.6], [0.5, 0.3, 0.2]])
    figure = plots.predictions(images, p, y=[2, 1, 0], class_names=["ant", "bee", "cow"], columns=2)
    pictures, bars = figure.axes[::2], figure.axes[1::2]
    assert [ax.get_title() for ax in pictures] == ["✓ cow", "✗ bee", "✓ ant"]
    np.testing.assert_allclose([ax.images[0].get_array() for ax in pictures], images[..., 0])
    shown = [[label.get_text() for label in ax.get_yticklabels()] for ax in bars]
    assert shown == [["cow", "bee", "ant"], ["cow", "bee", "ant"], ["ant", "bee", "cow"]]
    np.testing.assert_allclose([bar.get_width() for bar in bars[1].patches], [0.6, 0.3, 0.1])
    colors = [[to_hex(bar.get_facecolor()).upper() for bar in ax.patches] for ax in bars]
    assert colors[0] == [style.BLUE, style.GRAY, style.GRAY]
    assert colors[1] == [style.VERMILLION, style.BLUE, style.GRAY]
    figure.savefig(tmp_path / "predictions.png")
    assert (tmp_path / "predictions.png").stat().st_size > 5_000


def test_predictions_of_color_images_bytes_and_without_labels():
    images = np.random.default_rng(0).integers(0, 256, (2, 6, 5, 3), np.uint8)
    _, p = make_case(12, samples=2)
    figure = plots.predictions(images, p, top=4)
    assert [ax.get_title() for ax in figure.axes[::2]] == ["", ""]
    np.testing.assert_allclose(figure.axes[0].images[0].get_array(), images[0] / 255, atol=1e-6)
    ranked = figure.axes[1]
    assert [label.get_text() for label in ranked.get_yticklabels()] == [str(k) for k in np.argsort(-p[0])[:4]]
    assert {to_hex(bar.get_facecolor()).upper() for bar in ranked.patches} == {style.GRAY}


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        (np.zeros((3, 4, 4)), {}, r"images must.*found \(3, 4, 4\)"),
        (np.zeros((2, 16)), {}, r"images must.*found \(2, 16\)"),
        (np.zeros((2, 4, 4, 2)), {}, r"images must.*found \(2, 4, 4, 2\)"),
        (np.full((2, 4, 4), 200.0), {}, r"images must.*found float64, 200\.0 to 200\.0"),
        (np.full((2, 4, 4), np.nan), {}, r"images must.*found float64, nan to nan"),
        (np.zeros((2, 4, 4)), {"class_names": ["a"]}, r"class_names must.*found \['a'\]"),
        (np.zeros((2, 4, 4)), {"columns": 0}, r"columns must.*found 0"),
        (np.zeros((2, 4, 4)), {"top": 1.5}, r"top must.*found 1\.5"),
        (np.zeros((2, 4, 4)), {"y": [0, 3]}, r"^y must.*found 3 in row 1"),
    ],
)
def test_invalid_input_of_predictions_raises(images, options, message):
    with pytest.raises(ValueError, match=message):
        plots.predictions(images, np.full((2, 3), 1 / 3), **options)


def test_plots_leave_no_open_pyplot_figures():
    from matplotlib import pyplot

    plots.reliability(*make_case(3))
    plots.predictions(np.zeros((2, 4, 4)), np.full((2, 3), 1 / 3))
    assert pyplot.get_fignums() == []
