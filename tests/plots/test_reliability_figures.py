"""Reliability diagrams with bands and panels, checked by their artists, not by pixels."""

import io

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import deepsimplex as ds
from deepsimplex import evaluation, plots, readout


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return y[400:], LogisticRegression(max_iter=300).fit(X[:400] / 16, y[:400]).predict_proba(X[400:] / 16)


def latents(n, samples=150, scale=0.5):
    rng = np.random.default_rng(n)
    latent = ds.LatentGaussian(rng.normal(size=(samples, n - 1)), np.full((samples, 1), scale))
    return rng.integers(0, n, samples), readout.softmax(latent), latent


def line(ax, label):
    (curve,) = (artist for artist in ax.lines if artist.get_label() == label)
    return curve.get_xydata()


def legend_of(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def edges(ax):
    """Confidences of the drawn band with its lower and upper edge."""
    (area,) = ax.collections
    x, y = area.get_paths()[0].vertices.T
    at = np.unique(x)
    return at, *(np.array([end(y[x == value]) for value in at]) for end in (np.min, np.max))


def assert_drawn(ax, band):
    at, low, high = edges(ax)
    np.testing.assert_allclose([at[0], at[-1]], band.reach)
    np.testing.assert_allclose([low, high], band.frequencies(at))


@pytest.mark.slow
@pytest.mark.parametrize(("n", "class_index"), [(2, None), (2, 0), (4, None), (4, 3)])
def test_band_and_mean_curve_are_drawn(n, class_index):
    y, p, latent = latents(n)
    ax = plots.reliability(y, p, 8, class_index=class_index, latent=latent, level=0.9).axes[0]
    curve = evaluation.reliability_curve(y, p, 8, class_index=class_index)
    filled = curve.counts > 0
    drawn = np.column_stack([curve.confidence, curve.frequency])[filled]
    np.testing.assert_allclose(line(ax, "mean classifier"), drawn)
    lower, upper = readout.class_intervals(latent, 0.9)
    band = evaluation.reliability_band(y, p, lower, upper, 8, class_index=class_index)
    assert_drawn(ax, band)
    assert legend_of(ax) == ["mean classifier", "90% band", "perfectly calibrated"]


def test_zero_scale_band_equals_curve():
    y, p, latent = latents(3, scale=0.0)
    ax = plots.reliability(y, p, latent=latent).axes[0]
    x, y = line(ax, "mean classifier").T
    at, low, high = edges(ax)
    np.testing.assert_allclose(low, high, atol=1e-12)
    np.testing.assert_allclose(np.interp(x, at, low), y, atol=1e-12)


def test_scores_of_the_target_are_used():
    rng = np.random.default_rng(0)
    latent = {"loc": rng.normal(size=(60, 3)), "scale": np.full((60, 3), 0.4)}
    y, p = rng.integers(0, 3, 60), readout.softmax(latent, np.eye(3))
    ax = plots.reliability(y, p, latent=latent, scores=np.eye(3)).axes[0]
    band = evaluation.reliability_band(y, p, *readout.class_intervals(latent, 0.95, np.eye(3)))
    assert_drawn(ax, band)


def test_argmax_readout_has_no_band():
    y, _, latent = latents(3)
    figure = plots.reliability(y, readout.argmax(latent), latent=latent, readout="argmax")
    assert legend_of(figure.axes[0]) == ["gap", "perfectly calibrated", "accuracy"]


def test_one_class_is_drawn_against_the_rest(digits):
    y, p = digits
    ax = plots.reliability(y, p, 10, class_index=8).axes[0]
    curve = evaluation.reliability_curve(y, p, 10, class_index=8)
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], curve.frequency[curve.counts > 0])
    (histogram,) = ax.child_axes
    assert (ax.get_ylabel(), histogram.get_xlabel()) == ("frequency of class 8", "predicted probability of class 8")
    assert histogram.get_ylabel() == f"share\n(N = {len(y)})"


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 3])
def test_single_sample_is_drawn(n):
    y, p, latent = latents(n, samples=1)
    for figure in (plots.reliability(y, p), plots.reliability(y, p, latent=latent), plots.classwise_reliability(y, p)):
        figure.savefig(io.BytesIO(), format="png")
    assert plots.reliability(y, p).axes[0].child_axes[0].get_ylabel() == "share\n(N = 1)"


@pytest.mark.slow
def test_invalid_latents_raise():
    y, p, latent = latents(3)
    for options, message in (
        ({"latent": latent[:4]}, r"latent must.*found 4 samples and 3 classes"),
        ({"latent": latents(4)[2]}, "found 150 samples and 4 classes of the vertices: give scores"),
        ({"latent": latent, "scores": np.eye(2)}, "found 150 samples and 2 classes"),
        ({"latent": latent, "level": 1.0}, "level must be a number above 0 and below 1"),
        ({"latent": latent, "readout": "softmaxx"}, "did you mean 'softmax'"),
        ({"scores": np.eye(3)}, "scores and readout belong to a latent"),
        ({"readout": "softmax"}, "scores and readout belong to a latent"),
        ({"class_index": 3}, r"class_index must be .*at most 2; found 3"),
    ):
        with pytest.raises(ValueError, match=message):
            plots.reliability(y, p, **options)


def test_panels_show_curve_and_error_of_each_class(digits):
    y, p = digits
    figure = plots.classwise_reliability(y, p, 10)
    assert len(figure.axes) == 10
    errors = []
    for k, ax in enumerate(figure.axes):
        curve = evaluation.reliability_curve(y, p, 10, class_index=k)
        filled = curve.counts > 0
        points = np.column_stack([curve.confidence, curve.frequency])[filled]
        gaps, drawn = ax.collections
        ends = [[(x, x), (x, y)] for x, y in points]
        np.testing.assert_allclose(gaps.get_segments(), ends)
        np.testing.assert_allclose(drawn.get_offsets(), points)
        # More samples, a larger point.
        np.testing.assert_array_equal(np.argsort(drawn.get_sizes()), np.argsort(np.log1p(curve.counts[filled])))
        title = f"class {k}\nECE {curve.expected_calibration_error:.3f}, {np.sum(y == k)} samples"
        assert ax.get_title() == title
        errors.append(curve.expected_calibration_error)
    assert np.mean(errors) == pytest.approx(evaluation.classwise_calibration_error(y, p, 10))
    figure.draw_without_rendering()
    width, height = figure.get_size_inches() * figure.dpi
    for artist in [*figure.axes, *figure.texts]:
        box = artist.get_tightbbox()
        assert box.x0 >= 0, artist
        assert box.y0 >= 0, artist
        assert box.x1 <= width, artist
        assert box.y1 <= height, artist


def test_panels_of_selected_classes(digits):
    figure = plots.classwise_reliability(*digits, only=[7, 1], class_names=[f"${k}" for k in range(10)])
    assert [ax.get_title().split("\n")[0] for ax in figure.axes] == [r"\$7", r"\$1"]
    assert len(plots.classwise_reliability(*digits, only=[3]).axes) == 1


def test_absent_class_has_frequency_zero():
    figure = plots.classwise_reliability([0, 0, 1], [[0.6, 0.2, 0.2], [0.5, 0.1, 0.4], [0.1, 0.8, 0.1]], 5)
    ax = figure.axes[2]
    assert ax.get_title() == "class 2\nECE 0.233, 0 samples"
    np.testing.assert_allclose(ax.collections[1].get_offsets()[:, 1], 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"only": [0, 10]}, r"only must.*found \[0, 10\]"),
        ({"only": [1, 1]}, r"only must.*found \[1, 1\]"),
        ({"only": []}, r"only must.*found \[\]"),
        ({"class_names": ["a"]}, r"class_names must.*found \['a'\]"),
        ({"bins": 0}, r"bins must.*found 0"),
    ],
)
def test_invalid_panel_arguments_raise(digits, options, message):
    with pytest.raises(ValueError, match=message):
        plots.classwise_reliability(*digits, **options)


def test_too_many_panels_raise():
    with pytest.raises(ValueError, match=r"only must.*found 60"):
        plots.classwise_reliability([0], np.full((1, 60), 1 / 60))


def test_panels_in_given_figure():
    figure = Figure()
    left, right = figure.subplots(1, 2)
    y, p, latent = latents(2)
    assert plots.reliability(y, p, ax=right, latent=latent) is figure
    assert right.collections
    assert not left.collections


def test_legend_hides_no_bar_and_names_stay_in_their_panels():
    """Underconfident curves lie above the diagonal, overconfident ones below."""
    for probability, right in ((0.3, 1), (0.7, 0)):
        p = np.tile([[1 - probability, probability]], (20, 1))
        figure = plots.reliability(np.full(20, right), p)
        figure.draw_without_rendering()
        ax = figure.axes[0]
        assert ax.get_legend().get_window_extent().y0 >= ax.get_window_extent().y1
        box, size = ax.get_tightbbox(), figure.get_size_inches() * figure.dpi
        assert (np.array([box.x0, box.y0]) >= 0).all()
        assert (np.array([box.x1, box.y1]) <= size).all()
    y, p = np.array([0, 1] * 20), np.array([[0.9, 0.1], [0.2, 0.8]] * 20)
    panels = plots.classwise_reliability(y, p, class_names=["one of very many and unusually long names", "two"])
    panels.canvas.draw()
    first, second = (ax.title.get_window_extent() for ax in panels.axes)
    assert first.x1 < second.x0
