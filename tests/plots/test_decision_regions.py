"""Figures of decision regions, checked by their artists, not by pixels."""

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import deepsimplex as ds
from deepsimplex.plots.probability_map import mixtures, shades
from deepsimplex.plots.style import CLASS_COLORS, class_style

IRIS_NAMES = ["setosa", "versicolor", "virginica"]


class Logistic:
    """Two classes, p(1) = 1 / (1 + exp(-x0))."""

    def predict_proba(self, X):
        q = 1 / (1 + np.exp(-X.reshape(len(X), -1)[:, 0].astype(float)))
        return np.column_stack([1 - q, q])


class OfImages:
    """A classifier of rows that takes images."""

    def __init__(self, inner):
        self.inner = inner
        self.seen = set()

    def predict_proba(self, X):
        self.seen.add((X.shape[1:], X.dtype))
        return self.inner.predict_proba(X.reshape(len(X), -1))


class Flat:
    """As many classes, all as likely but for round-off."""

    def __init__(self, n):
        self.n = n

    def predict_proba(self, X):
        return np.full((len(X), self.n), 1 / self.n) + 1e-17 * np.sin(1e3 * X[:, :1] * np.arange(self.n))


CORNERS = np.array([[-2.0, -1.0], [2.0, -1.0], [-2.0, 1.0], [2.0, 1.0]])
SIDES = [0, 1, 0, 1]


def artists(ax, label):
    return [artist for artist in ax.get_children() if artist.get_label() == label]


def lines_of(contours: ContourSet) -> list[np.ndarray]:
    return [path.vertices for path in contours.get_paths()]


def places(ax, label):
    return np.concatenate([np.asarray(artist.get_offsets()) for artist in artists(ax, label)])


def legend_of(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def grid_of(ax, resolution=160):
    """Points of the picture's grid [R, R, 2]."""
    x, y = (np.linspace(*end, resolution) for end in (ax.get_xlim(), ax.get_ylim()))
    return np.stack(np.meshgrid(x, y), axis=-1)


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return X[:, 2:], np.array(IRIS_NAMES)[y]


@pytest.mark.parametrize(
    "make", [lambda: ds.GLVQ(2), lambda: ds.GMLVQ(), lambda: LogisticRegression(), lambda: DecisionTreeClassifier()]
)
def test_region_colors_equal_predictions(make, iris):
    X, y = iris
    classifier = make().fit(X, y)
    ax = ds.plots.decision_regions(classifier, X, y).axes[0]
    points = grid_of(ax).reshape(-1, 2)
    shown = np.asarray(ax.images[0].get_array()).reshape(-1, 3)
    p = classifier.predict_proba(points)
    clear = np.sort(p)[:, -1] - np.sort(p)[:, -2] > 0.01
    hues = np.array([to_rgb(color) for color, _ in class_style(3)])
    # A shade lies on the way from white to the color of its class.
    away = (1 - shown[clear]) / np.linalg.norm(1 - shown[clear], axis=1, keepdims=True)
    directions = (1 - hues) / np.linalg.norm(1 - hues, axis=1, keepdims=True)
    nearest = classifier.classes_[np.argmax(away @ directions.T, axis=1)]
    np.testing.assert_array_equal(nearest, classifier.predict(points[clear]))
    # The depth rises with the probability.
    strength = np.linalg.norm(1 - shown, axis=1) / np.linalg.norm(1 - hues[p.argmax(axis=1)], axis=1)
    np.testing.assert_allclose(strength, 0.5 * (p.max(axis=1) - 1 / 3) / (2 / 3), atol=1e-12)


def test_uncertain_points_are_white():
    colors = np.array([to_rgb("#0072B2"), to_rgb("#E69F00")])
    np.testing.assert_allclose(shades(np.array([0.5, 0.5]), colors), 1.0)
    np.testing.assert_allclose(shades(np.array([0.0, 1.0]), colors), 0.5 + 0.5 * colors[1])


def test_mixed_colors_are_weighted_by_probabilities(iris):
    X, y = iris
    classifier = LogisticRegression().fit(X, y)
    ax = ds.plots.decision_regions(classifier, X, y, colors="mixed", levels=[], resolution=30).axes[0]
    shown = np.asarray(ax.images[0].get_array()).reshape(-1, 3)
    p = classifier.predict_proba(grid_of(ax, 30).reshape(-1, 2))
    lightened = 0.5 + 0.5 * np.array([to_rgb(color) for color, _ in class_style(3)])
    np.testing.assert_allclose(shown, sum(p[:, k, None] * lightened[k] for k in range(3)), atol=1e-12)
    assert artists(ax, "border")
    # One feature: the band behind the curves.
    ax = ds.plots.decision_regions(LogisticRegression().fit(X[:, :1], y), X[:, :1], y, colors="mixed").axes[0]
    assert np.ptp(np.asarray(ax.images[0].get_array()), axis=1).max() > 0.1


def test_mixed_colors_of_equal_probabilities_are_averages():
    colors = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    np.testing.assert_allclose(mixtures(np.array([0.5, 0.5]), colors), [0.75, 0.5, 0.75])
    np.testing.assert_allclose(mixtures(np.eye(2), colors), 0.5 + 0.5 * colors)


def test_invalid_colors_raise(iris):
    with pytest.raises(ValueError, match=r"colors must.*found 'mixd'; did you mean 'mixed'"):
        ds.plots.decision_regions(LogisticRegression().fit(*iris), *iris, colors="mixd")


def test_two_classes_have_border_and_levels():
    ax = ds.plots.decision_regions(Logistic(), CORNERS, SIDES, class_names=["A", "B"]).axes[0]
    (border,) = artists(ax, "border")
    assert border.levels.tolist() == [0.5]
    np.testing.assert_allclose(lines_of(border)[0][:, 0], 0.0, atol=1e-12)
    (levels,) = artists(ax, "probability")
    assert levels.levels.tolist() == [0.1, 0.25, 0.75, 0.9]
    for line, level in zip(lines_of(levels), levels.levels, strict=True):
        np.testing.assert_allclose(np.median(line[:, 0]), np.log(level / (1 - level)), atol=1e-3)
    assert legend_of(ax) == ["A", "B", "p = 0.5", "p(B)"]
    assert not artists(ax, "misclassified")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("feature 0", "feature 1")


def test_given_levels_are_drawn():
    figure = ds.plots.decision_regions(Logistic(), CORNERS, SIDES, levels=[0.8, 0.2, 0.999], legend=False)
    (levels,) = artists(figure.axes[0], "probability")
    assert levels.levels.tolist() == [0.2, 0.8]  # 0.999 lies outside of the picture
    assert figure.axes[0].get_legend() is None
    ax = ds.plots.decision_regions(Logistic(), CORNERS, SIDES, levels=[]).axes[0]
    assert not artists(ax, "probability")
    assert legend_of(ax) == ["0", "1", "p = 0.5"]


def test_borders_lie_at_equal_probabilities(iris):
    X, y = iris
    classifier = LogisticRegression().fit(X, y)
    ax = ds.plots.decision_regions(classifier, X, y).axes[0]
    borders = artists(ax, "border")
    assert len(borders) == 3
    for border in borders:
        for line in lines_of(border):
            p = np.sort(classifier.predict_proba(line))
            assert np.abs(p[:, -1] - p[:, -2]).max() < 0.01


def test_samples_and_prototypes_are_drawn_at_their_positions(iris):
    X, y = iris
    classifier = ds.GLVQ(2).fit(X, y)
    ax = ds.plots.decision_regions(classifier, X, y, feature_names=["length", "width"]).axes[0]
    np.testing.assert_allclose(places(ax, "samples"), X)
    colors = [to_hex(color).upper() for color in artists(ax, "samples")[0].get_facecolor()]
    assert colors == [CLASS_COLORS[IRIS_NAMES.index(label)] for label in y]
    wrong = classifier.predict(X) != y
    np.testing.assert_allclose(places(ax, "misclassified"), X[wrong])
    np.testing.assert_allclose(places(ax, "prototypes"), classifier.prototypes_)
    (stars,) = artists(ax, "prototypes")
    assert [to_hex(color).upper() for color in stars.get_facecolor()] == list(np.repeat(CLASS_COLORS[:3], 2))
    expected = [*IRIS_NAMES, f"misclassified: {wrong.sum()} of 150", "6 prototypes", "border of classes", "largest p"]
    assert legend_of(ax) == expected
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("length", "width")


def test_given_and_omitted_prototypes(iris):
    X, y = iris
    classifier = ds.GLVQ().fit(X, y)
    assert not artists(ds.plots.decision_regions(classifier, X, y, prototypes=[]).axes[0], "prototypes")
    ax = ds.plots.decision_regions(classifier, X, y, prototypes=[[1.0, 9.0]]).axes[0]
    (white,) = artists(ax, "prototypes")
    assert to_hex(white.get_facecolor()[0]) == "#ffffff"
    assert ax.get_ylim()[1] > 9.0  # the picture reaches as far as prototypes do
    assert "1 prototype" in legend_of(ax)
    options = {"prototypes": [[1.0, 1.0]], "prototype_labels": ["virginica"]}
    (green,) = artists(ds.plots.decision_regions(LogisticRegression().fit(X, y), X, y, **options).axes[0], "prototypes")
    assert to_hex(green.get_facecolor()[0]).upper() == CLASS_COLORS[2]


@pytest.mark.parametrize("scale_features", [True, False])
def test_more_features_are_projected_to_principal_components(scale_features):
    X, y = load_wine(return_X_y=True)
    classifier = ds.GMLVQ().fit(X, y)
    ax = ds.plots.decision_regions(classifier, X, y, scale_features=scale_features, resolution=40).axes[0]
    width = X.std(axis=0) if scale_features else np.ones(X.shape[1])
    scaled = (X - X.mean(axis=0)) / width
    _, singular, axes = np.linalg.svd(scaled, full_matrices=False)
    shown = places(ax, "samples")
    np.testing.assert_allclose(np.abs(shown), np.abs(scaled @ axes[:2].T), atol=1e-8)
    share = singular[:2] ** 2 / np.sum(singular**2)
    assert ax.get_xlabel().split("\n") == [
        f"principal component 1 ({share[0]:.0%} of variance)",
        "regions lie in this plane; samples are projected onto it",
    ]
    assert ax.get_ylabel() == f"principal component 2 ({share[1]:.0%} of variance)"
    # Regions are those of the points of the plane themselves.
    signs = np.sign(np.sum(shown * (scaled @ axes[:2].T), axis=0))
    points = (grid_of(ax, 40).reshape(-1, 2) @ (signs[:, None] * axes[:2])) * width + X.mean(axis=0)
    colors = np.array([to_rgb(color) for color, _ in class_style(3)])
    expected = shades(classifier.predict_proba(points), colors)
    np.testing.assert_allclose(np.asarray(ax.images[0].get_array()).reshape(-1, 3), expected, atol=1e-6)
    # Samples are judged where they really are.
    wrong = classifier.predict(X) != y
    rings = places(ax, "misclassified") if wrong.any() else np.empty((0, 2))
    np.testing.assert_allclose(rings, shown[wrong])


def test_images_keep_shape_for_the_classifier():
    X, y = load_digits(return_X_y=True)
    chosen = slice(None, None, 6)
    images = (X[chosen].reshape(-1, 8, 8) / 16).astype(np.float32)
    inner = ds.GLVQ(scale_features=False).fit(X[chosen] / 16, y[chosen])
    classifier = OfImages(inner)
    ax = ds.plots.decision_regions(
        classifier, images, y[chosen], prototypes=inner.prototypes_, prototype_labels=inner.prototype_labels_
    ).axes[0]
    assert classifier.seen == {((8, 8), np.dtype(np.float32))}
    assert legend_of(ax)[:10] == list("0123456789")
    assert places(ax, "prototypes").shape == (10, 2)
    assert len({to_hex(color) for color in artists(ax, "prototypes")[0].get_facecolor()}) == 10


def test_many_classes_have_distinct_colors_markers_and_names():
    rng = np.random.default_rng(0)
    letters = np.array(list("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
    y = np.repeat(letters, 5)
    X = np.repeat(rng.uniform(-9, 9, (26, 2)), 5, axis=0) + rng.normal(size=(130, 2)) / 9
    ax = ds.plots.decision_regions(ds.GLVQ().fit(X, y), X, y, resolution=50).axes[0]
    assert len(set(class_style(26))) == 26
    assert [text.get_text() for text in ax.texts if text.get_weight() == "bold"] == letters.tolist()
    assert legend_of(ax)[:26] == letters.tolist()
    assert len(artists(ax, "samples")) == 3  # one for each marker
    assert sum(len(group.get_offsets()) for group in artists(ax, "samples")) == 130


def test_one_feature_is_drawn_as_curves_with_a_rug():
    X, y = load_iris(return_X_y=True)
    X = X[:, 2:3]
    classifier = ds.GLVQ().fit(X, y)
    figure = ds.plots.decision_regions(classifier, X, y, feature_names=["length"], class_names=IRIS_NAMES)
    ax = figure.axes[0]
    for k, name in enumerate(IRIS_NAMES):
        (curve,) = artists(ax, name)
        np.testing.assert_allclose(curve.get_ydata(), classifier.predict_proba(curve.get_xdata()[:, None])[:, k])
    borders = sorted(line.get_xdata()[0] for line in artists(ax, "border"))
    middles = (classifier.prototypes_[1:, 0] + classifier.prototypes_[:-1, 0]) / 2
    np.testing.assert_allclose(borders, middles, atol=1e-3)
    np.testing.assert_allclose(places(ax, "samples")[:, 0], X[:, 0])
    np.testing.assert_allclose(places(ax, "prototypes")[:, 0], classifier.prototypes_[:, 0])
    assert places(ax, "prototypes")[:, 1].max() < places(ax, "samples")[:, 1].max() < 0
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("length", "class probability")
    assert legend_of(ax)[:3] == IRIS_NAMES


@pytest.mark.slow
def test_keras_model_is_drawn_with_class_names():
    X, y = load_iris(return_X_y=True)
    X = X[:, 2:].astype(np.float32)
    model = ds.SimplexClassifier(
        ds.backbones.mlp([4]), "vertices", num_classes=3, class_names=IRIS_NAMES, head="gaussian"
    )
    ax = ds.plots.decision_regions(model, X, y, resolution=12).axes[0]
    assert legend_of(ax)[:3] == IRIS_NAMES
    p = model.predict_proba(grid_of(ax, 12).reshape(-1, 2).astype(np.float32))
    colors = np.array([to_rgb(color) for color, _ in class_style(3)])
    shown = np.asarray(ax.images[0].get_array()).reshape(-1, 3)
    np.testing.assert_allclose(shown, shades(p, colors), atol=1e-4)


@pytest.mark.parametrize("n", [2, 3])
def test_ties_have_no_border(n):
    X = np.random.default_rng(0).normal(size=(9, 2))
    ax = ds.plots.decision_regions(Flat(n), X, np.zeros(9, int)).axes[0]
    assert not artists(ax, "border")
    np.testing.assert_allclose(np.asarray(ax.images[0].get_array()), 1.0)
    assert not artists(ds.plots.decision_regions(Flat(n), X[:, :1], np.zeros(9, int)).axes[0], "border")


@pytest.mark.parametrize(
    "X", [[[1.0, 2.0]], [[1.0, 5.0], [2.0, 5.0]], [[1e9, 0.0], [1e9, 1.0]], [[3.0]], [[0.0], [0.0]]]
)
def test_few_and_constant_features_are_drawn(X):
    ax = ds.plots.decision_regions(Logistic(), X, np.zeros(len(X), int), resolution=5).axes[0]
    assert np.ptp(ax.get_xlim()) > 0
    assert np.ptp(ax.get_ylim()) > 0


def test_collinear_features_are_drawn():
    X = np.outer(np.arange(5.0), [1.0, 2.0, 3.0])
    ax = ds.plots.decision_regions(Logistic(), X, [0, 0, 0, 1, 1], resolution=5).axes[0]
    assert ax.get_ylabel() == "principal component 2 (0% of variance)"


def test_decision_regions_on_given_axes(tmp_path):
    figure = Figure(figsize=(9, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    assert ds.plots.decision_regions(Logistic(), CORNERS, SIDES, ax=right) is figure
    assert right.images
    assert not left.images
    figure.savefig(tmp_path / "regions.png")
    assert 5_000 < (tmp_path / "regions.png").stat().st_size < 150_000


@pytest.mark.parametrize("X", [CORNERS, CORNERS[:, :1], CORNERS[:, [0, 1, 0]] * [1, 1, -0.5]])
def test_figure_is_not_clipped(X):
    figure = ds.plots.decision_regions(Logistic(), X, SIDES, class_names=["the first class", "another"])
    figure.draw_without_rendering()
    width, height = figure.get_size_inches() * figure.dpi
    boxes = [figure.axes[0].get_tightbbox(), figure.axes[0].get_legend().get_window_extent()]
    assert min(min(box.x0, box.y0) for box in boxes) >= 0
    assert max(box.x1 for box in boxes) <= width
    assert max(box.y1 for box in boxes) <= height


class Broken:
    """A classifier with given probabilities."""

    def __init__(self, answer, **attributes):
        self.answer = answer
        self.__dict__.update(attributes)

    def predict_proba(self, X):
        return self.answer(len(X))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"classifier": LinearSVC()}, TypeError, r"classifier must.*found LinearSVC"),
        (
            {"classifier": Broken(lambda k: np.ones((k, 2)))},
            ValueError,
            "Broken.predict_proba gives .*sums to 2",
        ),
        (
            {"classifier": Broken(lambda k: np.full(k, 0.5))},
            ValueError,
            r"Broken.predict_proba gives must.*found shape \(4,\)",
        ),
        ({"classifier": Broken(lambda k: [[0.5, 0.5]])}, ValueError, r"Broken\.predict_proba gives must.*found 1"),
        (
            {"classifier": Broken(lambda k: np.full((k, 2), 0.5), classes_=["a", "b", "c"])},
            ValueError,
            r"classes_ must.*found 3",
        ),
        ({"X": [[1.0, np.nan]] * 4}, ValueError, r"X must be finite; found nan at \[0, 1\]"),
        ({"X": [["a", "b"]] * 4}, TypeError, r"^X must.*found dtype <U1"),
        ({"X": [1.0, 2.0]}, ValueError, r"^X must.*found shape \(2,\)"),
        ({"X": np.ones((0, 2))}, ValueError, r"^X must.*found shape \(0, 2\)"),
        ({"X": np.ones((4, 3))}, ValueError, r"^X must.*found 4 alike"),
        ({"y": [0, 1, 2, 1]}, ValueError, r"^y must.*found 2 in row 2"),
        ({"y": [0, 1]}, ValueError, r"^y must.*found shape \(2,\)"),
        ({"y": [0, 1, np.nan, 1]}, ValueError, r"^y must.*found nan in row 2"),
        ({"prototypes": [[1.0, 2.0, 3.0]]}, ValueError, r"prototypes must.*found shape \(1, 3\)"),
        ({"prototypes": [[1.0, np.inf]]}, ValueError, r"prototypes must.*found inf at \[0, 1\]"),
        (
            {"prototypes": [[1.0, 2.0]], "prototype_labels": ["A"]},
            ValueError,
            r"prototype_labels must.*found 'A' in row 0",
        ),
        ({"prototype_labels": [1]}, ValueError, "prototype_labels were given without prototypes"),
        (
            {"class_names": ["A"]},
            ValueError,
            r"class_names must.*found \['A'\]",
        ),
        ({"feature_names": "xy"}, ValueError, r"feature_names must.*found 'xy'"),
        ({"levels": [0.5, 1.5]}, ValueError, r"levels must.*found \[0\.5, 1\.5\]"),
        ({"levels": 0.5}, ValueError, r"levels must.*found 0\.5"),
        ({"resolution": 1}, ValueError, r"resolution must.*found 1"),
    ],
)
def test_invalid_input_raises(changes, error, message):
    options = {"classifier": Logistic(), "X": CORNERS, "y": SIDES, "resolution": 50} | changes
    with pytest.raises(error, match=message):
        ds.plots.decision_regions(options.pop("classifier"), options.pop("X"), options.pop("y"), **options)


def test_unknown_label_suggests_the_nearest(iris):
    X, y = iris
    labels = y.copy()
    labels[3] = "setose"
    with pytest.raises(ValueError, match=r"^y must.*found 'setose' in row 3; did you mean 'setosa'"):
        ds.plots.decision_regions(ds.GLVQ().fit(X, y), X, labels)
