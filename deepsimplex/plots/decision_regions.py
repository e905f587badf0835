"""Decision regions of a classifier over two features, principal components or one feature."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from deepsimplex._utils.batching import row_slices
from deepsimplex._utils.validation import (
    check_array,
    check_choice,
    check_labels,
    check_names,
    check_probabilities,
    check_whole,
)
from deepsimplex.plots.probability_map import ProbabilityMap
from deepsimplex.plots.style import check_axes, figure_of, new_axes

BLOCK_ROWS, BLOCK_VALUES = 4096, 2**23  # rows, and numbers, that a classifier predicts at once


def decision_regions(
    classifier: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    prototypes: ArrayLike | None = None,
    prototype_labels: ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    levels: ArrayLike | None = None,
    colors: Literal["likeliest", "mixed"] = "likeliest",
    scale_features: bool = True,
    resolution: int = 160,
    legend: bool = True,
    ax: Axes | None = None,
) -> Figure:
    """Draw the regions of the most probable class, shaded by its probability, with samples and prototypes.

    With two features the picture is their plane. With more it is the plane through the mean of X along its first two
    principal components: regions are those of points within that plane, and samples are projected onto it, so that the
    color under a sample may differ from its prediction. With one feature the class probabilities are curves over it and
    the samples a rug below. Misclassified samples, judged by their original features, have a ring.

    Parameters
    ----------
    classifier : object
        Fitted, with ``predict_proba(X)``, [N, d] -> [N, n]. Its classes are ``classes_`` if it has them, else 0..n-1,
        as for a Keras model. It predicts ``resolution`` squared points.
    X : array_like, shape [N, d] or [N, ...]
        Samples, of any shape that the classifier takes.
    y : array_like, shape [N] or [N, 1]
        Their classes, by the labels that the classifier uses.
    prototypes : array_like, shape [P, d], optional
        Default: ``classifier.prototypes_`` if it has them (for ``GPLVQ`` with more than two classes those of every
        class's own run; those of a pipeline are to be given, in the units of X). An empty list leaves them out.
    prototype_labels : array_like, shape [P], optional
        Their classes. Default: ``classifier.prototype_labels_``; prototypes that are given without are white.
    class_names : sequence of str, length n, optional
        For the legend, in the order of the columns of probabilities.
    feature_names : sequence of str, length d, optional
        For the axes of one or two features. Default: ``classifier.feature_names_in_`` if it has them.
    levels : array_like, optional
        Levels of the lines of equal probability: of the second class for two classes, else of the most probable one.
        Default 0.1, 0.25, 0.75 and 0.9 for two classes, 0.75 and 0.9 for more, none with one feature. A thick border
        separates the regions: p = 0.5 for two classes.
    colors : {"likeliest", "mixed"}
        Colors of regions: that of the most probable class, deeper for higher probabilities (default), or the mean of
        all classes' colors weighted by their probabilities ([CASIMAC] Fig. 5), which shows between which classes a
        point lies.
    scale_features : bool
        Whether principal components are those of features scaled to standard deviation one, so that units do not
        matter. Default True.
    resolution : int
        Points of the grid along each axis, 160 by default.
    legend : bool
        Draw a legend to the right. Default True.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. Default None: those of a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        The figure of ``ax``, or a new one. ``figure.savefig("regions.png")`` writes it.

    Raises
    ------
    TypeError
        For a classifier without predict_proba, or features that are no numbers.
    ValueError
        For NaN, labels that are not among the classifier's classes, and shapes that do not fit.

    Notes
    -----
    [GPLVQ Figures 5.2 to 5.4] are such pictures: p = 0.5 and other levels, and prototypes; contours of a variance are
    added to ``figure.axes[0]``. [CASIMAC] Fig. 5 is ``colors="mixed", levels=[]``. Colors are lightened so that samples
    stand out.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from deepsimplex import GLVQ
    >>> X, y = load_iris(return_X_y=True)
    >>> figure = decision_regions(GLVQ().fit(X[:, 2:], y), X[:, 2:], y, feature_names=["length", "width"])
    >>> figure.axes[0].get_xlabel(), [text.get_text() for text in figure.axes[0].get_legend().get_texts()][3:]
    ('length', ['misclassified: 7 of 150', '3 prototypes', 'border of classes', 'largest p'])
    """
    features = check_array(X, "X", dtype="floating")
    if features.ndim < 2 or not features.size:
        raise ValueError(f"X must have shape [N, d] with at least one sample and feature; found shape {features.shape}")
    if not callable(getattr(classifier, "predict_proba", None)):
        raise TypeError(f"classifier must have predict_proba(X); found {type(classifier).__name__}, which has none")
    rows = features.reshape(len(features), -1)
    samples, d = rows.shape
    resolution = check_whole(resolution, "resolution", 2)
    if feature_names is None:
        feature_names = getattr(classifier, "feature_names_in_", None)
    axis_names = check_names(feature_names, d, "feature_names", "features") or [f"feature {j}" for j in range(d)]
    p = _probabilities(classifier, rows, features)
    n = p.shape[1]
    classes, names = _classes(classifier, n, class_names)
    labels, _ = check_labels(y, classes=classes, rows=samples, of="X")
    stars, star_labels = _prototypes(classifier, prototypes, prototype_labels, d, classes)
    if levels is None:
        levels = [] if d == 1 else [0.1, 0.25, 0.75, 0.9] if n == 2 else [0.75, 0.9]
    levels = _check_levels(levels)
    check_choice(colors, "colors", ("likeliest", "mixed"))

    plane: Any = FunctionTransformer()
    if d > 2:
        if np.all(rows[0] == rows):
            raise ValueError(f"X must hold rows that differ, for principal components; found {samples} alike")
        pca = PCA(2, random_state=0)
        plane = make_pipeline(StandardScaler(with_std=scale_features), pca).fit(rows.astype(np.float64))
        shares = pca.explained_variance_ratio_
        axis_names = [f"principal component {j + 1} ({share:.0%} of variance)" for j, share in enumerate(shares)]
        axis_names[0] += "\nregions lie in this plane; samples are projected onto it"
    places = plane.transform(np.concatenate([rows.astype(np.float64), stars]))
    ends = [_limits(column) for column in places.T]
    grid = [np.linspace(*end, resolution if d > 1 else 4 * resolution) for end in ends]
    shape = tuple(len(line) for line in reversed(grid))
    points = plane.inverse_transform(np.stack(np.meshgrid(*grid), axis=-1).reshape(-1, len(grid)))
    drawn = ProbabilityMap(
        names=names,
        samples=places[:samples],
        labels=labels,
        wrong=p.argmax(axis=1) != labels,
        prototypes=places[samples:],
        prototype_labels=star_labels,
        grid=grid,
        p=_probabilities(classifier, points, features).reshape(*shape, n),
        levels=levels,
        mixed=colors == "mixed",
    )
    ax = new_axes(6.4, 4.4) if ax is None else check_axes(ax)
    drawn.draw(ax, legend)
    ax.set(xlabel=axis_names[0], ylabel="class probability" if d == 1 else axis_names[1])
    return figure_of(ax)


def _probabilities(classifier: Any, rows: NDArray, like: NDArray) -> NDArray[np.float64]:
    """Return class probabilities [M, n] of rows [M, d], in blocks with the shape and dtype of ``like``."""
    name = f"what {type(classifier).__name__}.predict_proba gives"
    size = int(min(BLOCK_ROWS, max(64, BLOCK_VALUES // rows.shape[1])))
    blocks = (rows[block].reshape(-1, *like.shape[1:]).astype(like.dtype) for block in row_slices(len(rows), size))
    p = np.concatenate([np.atleast_1d(np.asarray(classifier.predict_proba(block))) for block in blocks])
    p = check_probabilities(p, name)
    if len(p) != len(rows):
        raise ValueError(f"{name} must be one row for each of its {len(rows)} samples; found {len(p)}")
    return p.astype(np.float64)


def _classes(classifier: Any, n: int, class_names: Sequence[str] | None) -> tuple[list[Any], list[str]]:
    """Return labels of the classes, in the order of the columns of probabilities, and their names."""
    labels = getattr(classifier, "classes_", None)
    classes = list(range(n)) if labels is None else np.asarray(labels).tolist()
    if len(classes) != n:
        raise ValueError(f"classifier.classes_ must hold {n} classes, as predict_proba; found {len(classes)}")
    names = check_names(class_names, n, "class_names", "classes")
    if names is None and labels is None:  # a Keras model has names beside numbers
        names = check_names(getattr(classifier, "class_names", None), n, "classifier.class_names", "classes")
    return classes, names or [str(label) for label in classes]


def _prototypes(
    classifier: Any, prototypes: ArrayLike | None, prototype_labels: ArrayLike | None, d: int, classes: list[Any]
) -> tuple[NDArray[np.float64], NDArray[np.int64] | None]:
    """Return prototypes [P, d] and their class numbers, if known."""
    if prototypes is None:
        prototypes = getattr(classifier, "prototypes_", None)
        if prototypes is None and prototype_labels is not None:
            raise ValueError("prototype_labels were given without prototypes, and classifier has no prototypes_")
        if prototype_labels is None:
            prototype_labels = getattr(classifier, "prototype_labels_", None)
        runs = getattr(classifier, "prototype_runs_", None)
        if runs is not None and len(classes) > 2:  # one class against the rest: prototypes of the one
            chosen = np.asarray(runs) == np.asarray(prototype_labels)
            prototypes, prototype_labels = np.asarray(prototypes)[chosen], np.asarray(prototype_labels)[chosen]
    points = check_array(() if prototypes is None else prototypes, "prototypes", dtype="floating")
    if not points.size:
        return np.empty((0, d)), None
    if points.ndim < 2 or points[0].size != d:
        raise ValueError(f"prototypes must have shape [P, {d}], features as those of X; found shape {points.shape}")
    points = points.reshape(len(points), d).astype(np.float64)
    if prototype_labels is None:
        return points, None
    options: dict[str, Any] = {"name": "prototype_labels", "rows": len(points), "of": "prototypes"}
    return points, check_labels(prototype_labels, classes=classes, **options)[0]


def _check_levels(levels: ArrayLike) -> NDArray[np.floating]:
    """Return levels of contours in rising order, all of them between 0 and 1, or raise ValueError."""
    array = np.unique(check_array(levels, "levels", dtype="floating"))
    if np.ndim(levels) != 1 or np.any((array <= 0) | (array >= 1)):
        raise ValueError(f"levels must be a list of numbers between 0 and 1; found {levels!r}")
    return array


def _limits(values: NDArray[np.floating]) -> tuple[float, float]:
    """Return the ends of an axis with some room on both sides, also if all values are equal.

    Examples
    --------
    >>> _limits(np.array([0.0, 10.0]))
    (-1.0, 11.0)
    >>> _limits(np.array([5.0, 5.0]))
    (4.5, 5.5)
    """
    low, high = float(values.min()), float(values.max())
    room = 0.1 * (high - low) if high > low else 0.1 * max(abs(low), 1.0)
    return low - room, high + room
