"""Prototypes as images and relevance matrices, read from their artists; never pixels."""

import numpy as np
import pytest
from matplotlib.colors import to_hex
from sklearn.datasets import load_digits, load_wine

import deepsimplex as ds
from deepsimplex.plots import style


def images_of(figure):
    return [np.asarray(ax.images[0].get_array()) for ax in figure.axes]


def titles(figure):
    return [ax.get_title(loc="left") for ax in figure.axes]


def places(figure):
    """Row and column of every picture."""
    specs = [ax.get_subplotspec() for ax in figure.axes]
    return [(spec.rowspan.start, spec.colspan.start) for spec in specs]


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(n_class=3, return_X_y=True)
    return ds.GLVQ(2, scale_features=False).fit(X, y)


def test_prototypes_are_drawn_in_rows_by_class_with_wins(digits, tmp_path):
    figure = ds.plots.prototype_images(
        digits.prototypes_, digits.prototype_labels_, wins=digits.wins_, class_names=["zero", "one", "two"]
    )
    assert places(figure) == [(r, c) for r in range(3) for c in range(2)]
    assert titles(figure) == ["zero", "", "one", "", "two", ""]
    assert [ax.get_xlabel() for ax in figure.axes] == [f"{wins} wins" for wins in digits.wins_]
    low, high = np.percentile(digits.prototypes_, [0.5, 99.5])
    expected = np.clip((digits.prototypes_ - low) / (high - low), 0, 1).reshape(-1, 8, 8)
    np.testing.assert_allclose(images_of(figure), expected)
    assert all(ax.images[0].get_clim() == (0, 1) for ax in figure.axes)
    figure.savefig(tmp_path / "prototypes.png")
    assert 5_000 < (tmp_path / "prototypes.png").stat().st_size < 150_000


def test_color_scale_is_robust_to_single_pixels():
    prototypes = np.tile(np.linspace(0, 1, 100), (4, 1))
    prototypes[0, 0] = -1e6
    figure = ds.plots.prototype_images(prototypes)
    assert images_of(figure)[1].min() < 0.02
    assert images_of(figure)[1].max() > 0.98


def test_classes_are_sorted_and_long_rows_wrap():
    figure = ds.plots.prototype_images(np.ones((5, 4)), ["b", "a", "b", "b", "a"], columns=2)
    assert places(figure) == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]
    assert titles(figure) == ["a", "", "b", "", ""]
    assert [ax.get_xlabel() for ax in figure.axes] == [""] * 5


def test_classes_of_one_prototype_share_rows():
    prototypes = np.repeat([[3.0], [1.0], [2.0]], 4, axis=1)
    figure = ds.plots.prototype_images(prototypes, [30, 10, 20], columns=2, wins=[1, 0, 2.0])
    assert places(figure) == [(0, 0), (0, 1), (1, 0)]
    assert titles(figure) == ["10", "20", "30"]
    assert [image[0, 0] for image in images_of(figure)] == [0.0, 0.5, 1.0]
    assert [ax.get_xlabel() for ax in figure.axes] == ["0 wins", "2 wins", "1 win"]
    assert to_hex(figure.axes[0].xaxis.label.get_color()).upper() == style.VERMILLION
    assert ds.plots.prototype_images(prototypes).axes[2].get_title(loc="left") == ""


@pytest.mark.parametrize(
    ("given", "shape", "expected"),
    [
        ((2, 9), None, (3, 3)),
        ((2, 12), (3, 4), (3, 4)),
        ((2, 12), [2, 2, 3], (2, 2, 3)),
        ((2, 6), (2, 3, 1), (2, 3)),
        ((2, 3, 4), None, (3, 4)),
        ((2, 3, 4, 1), None, (3, 4)),
        ((2, 3, 4, 3), None, (3, 4, 3)),
    ],
)
def test_shapes(given, shape, expected):
    figure = ds.plots.prototype_images(np.arange(np.prod(given)).reshape(given), shape=shape)
    assert [image.shape for image in images_of(figure)] == [expected] * 2


@pytest.mark.parametrize(
    ("prototypes", "options", "message"),
    [
        (np.ones((2, 8)), {}, "shape must be given: 8 features are no square"),
        (np.ones((2, 8)), {"shape": (3, 3)}, r"shape must.*found \(3, 3\)"),
        (np.ones((2, 8)), {"shape": (2, 2, 2)}, r"shape must.*found \(2, 2, 2\)"),
        (np.ones((2, 8)), {"shape": (-2, -4)}, r"shape must.*found \(-2, -4\)"),
        (np.ones(8), {}, r"prototypes must.*found \(8,\)"),
        (np.ones((0, 4)), {}, r"prototypes must.*found \(0, 4\)"),
        ([[1.0, np.nan, 1.0, 1.0]], {}, r"prototypes must.*found nan at \[0, 1\]"),
        (np.ones((2, 4)), {"labels": [1]}, r"labels must.*found shape \(1,\)"),
        (np.ones((2, 4)), {"labels": [1, np.nan]}, r"labels must.*found nan for prototype 1"),
        (
            np.ones((2, 4)),
            {"labels": [0, 1], "class_names": ["a"]},
            r"class_names must.*found \['a'\]",
        ),
        (np.ones((2, 4)), {"class_names": ["a"]}, "class_names were given without labels"),
        (np.ones((2, 4)), {"wins": [1]}, r"wins must.*found \[1\]"),
        (np.ones((2, 4)), {"wins": [1, -1]}, r"wins must.*found \[1, -1\]"),
        (np.ones((2, 4)), {"columns": 0}, r"columns must.*found 0"),
    ],
)
def test_invalid_prototypes_raise(prototypes, options, message):
    with pytest.raises(ValueError, match=message):
        ds.plots.prototype_images(prototypes, **options)


@pytest.fixture(scope="module")
def wine():
    data = load_wine()
    return ds.GMLVQ(rank=3).fit(data.data, data.target), data.feature_names


def names_of(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def test_relevance_matrix_and_diagonal_are_drawn(wine, tmp_path):
    classifier, names = wine
    figure = ds.plots.relevance(classifier, names)
    left, right = figure.axes[:2]
    shown = left.images[0].get_array()
    assert np.array_equal(np.ma.getmaskarray(shown), np.eye(13, dtype=bool))
    off = ~np.eye(13, dtype=bool)
    Lambda = classifier.omega_.T @ classifier.omega_
    np.testing.assert_allclose(shown.data[off], Lambda[off])
    most = np.abs(Lambda[off]).max()
    np.testing.assert_allclose(left.images[0].get_clim(), (-most, most))
    np.testing.assert_allclose([bar.get_width() for bar in right.patches], classifier.relevance_)
    assert names_of(left) == names
    assert left.get_ylim() == right.get_ylim()  # bars in line with rows
    figure.draw_without_rendering()
    np.testing.assert_allclose(left.get_position().intervaly, right.get_position().intervaly)
    figure.savefig(tmp_path / "relevance.png")
    assert 5_000 < (tmp_path / "relevance.png").stat().st_size < 150_000


def test_features_are_sorted_by_relevance_and_limited(wine):
    classifier, names = wine
    ranked = np.argsort(-classifier.relevance_)
    left, right = ds.plots.relevance(classifier, names, sort=True).axes[:2]
    assert names_of(left) == [names[j] for j in ranked]
    np.testing.assert_allclose([bar.get_width() for bar in right.patches], classifier.relevance_[ranked])
    Lambda = classifier.omega_.T @ classifier.omega_
    np.testing.assert_allclose(left.images[0].get_array()[0, 1], Lambda[ranked[0], ranked[1]])
    assert names_of(ds.plots.relevance(classifier, names, top=4).axes[0]) == [names[j] for j in sorted(ranked[:4])]
    assert names_of(ds.plots.relevance(classifier.omega_, top=99, sort=True).axes[0]) == [str(j) for j in ranked]


def test_relevances_of_images_are_drawn_as_image():
    omega = np.random.default_rng(0).normal(size=(2, 64))
    figure = ds.plots.relevance(omega, shape=(8, 8))
    left, right = figure.axes[:2]
    np.testing.assert_allclose(right.images[0].get_array(), np.sum(omega**2, axis=0).reshape(8, 8))
    assert names_of(left) == [str(j) for j in range(0, 64, 2)]
    right = ds.plots.relevance(omega[:, :12], shape=(2, 2, 3)).axes[1]
    np.testing.assert_allclose(right.images[0].get_array(), np.sum(omega[:, :12] ** 2, axis=0).reshape(2, 2, 3).sum(-1))


@pytest.mark.parametrize("omega", [[[1.0]], np.eye(3), np.zeros((2, 2))])
def test_diagonal_metric_is_drawn(omega):
    image = ds.plots.relevance(omega).axes[0].images[0]
    assert image.get_clim() == (-1, 1)
    assert not np.ma.compressed(image.get_array()).any()


@pytest.mark.parametrize(
    ("omega", "options", "error", "message"),
    [
        (ds.GLVQ(), {}, TypeError, r"omega must.*found GLVQ"),
        (ds.GMLVQ(), {}, TypeError, r"omega must.*found GMLVQ"),
        ([1.0, 2.0], {}, ValueError, r"omega must.*found shape \(2,\)"),
        ([[np.nan]], {}, ValueError, r"omega must.*found nan at \[0, 0\]"),
        ([["a"]], {}, TypeError, r"omega must.*found dtype <U1"),
        (
            np.eye(2),
            {"feature_names": ["a"]},
            ValueError,
            r"feature_names must.*found \['a'\]",
        ),
        (np.eye(2), {"top": 0}, ValueError, r"top must.*found 0"),
        (np.eye(2), {"shape": (2, 2)}, ValueError, r"shape must.*found \(2, 2\)"),
    ],
)
def test_invalid_omega_raises(omega, options, error, message):
    with pytest.raises(error, match=message):
        ds.plots.relevance(omega, **options)


def test_pyplot_has_no_open_figures(digits):
    from matplotlib import pyplot

    ds.plots.prototype_images(digits.prototypes_)
    ds.plots.relevance(np.eye(2))
    assert pyplot.get_fignums() == []
