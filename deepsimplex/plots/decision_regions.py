"""Regions of the predicted class, with the samples and prototypes that lie in them."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.names import did_you_mean
from deepsimplex._utils.validation import check_whole
from deepsimplex.plots.arguments import Asked, check_levels, check_names, class_numbers, real_array
from deepsimplex.plots.plane import Plane, limits
from deepsimplex.plots.scene import Scene, draw_legend, draw_line, draw_plane
from deepsimplex.plots.style import class_style

COLORS = ("likeliest", "mixed")


def _classes_of(classifier: Any, n: int, class_names: Sequence[str] | None) -> tuple[list[Any], list[str]]:
    """Labels of the classes, in the order of the columns of probabilities, and their names."""
    found = getattr(classifier, "classes_", None)
    classes = list(range(n)) if found is None else np.asarray(found).tolist()
    if len(classes) != n:
        raise ValueError(
            f"classifier.classes_ must name each of the {n} columns of its predict_proba; found {len(classes)} classes"
        )
    names = check_names(class_names, n, "class_names", "classes")
    if names is None and found is None:  # a Keras model keeps names beside numbers
        names = check_names(getattr(classifier, "class_names", None), n, "classifier.class_names", "classes")
    return classes, names or [str(label) for label in classes]


def _prototypes_of(
    classifier: Any, prototypes: ArrayLike | None, prototype_labels: ArrayLike | None, d: int, classes: list[Any]
) -> tuple[NDArray[np.float64], NDArray[np.int64] | None]:
    """Prototypes [P, d] and numbers of their classes, where these are known."""
    owned = prototypes is None
    if owned:
        prototypes = getattr(classifier, "prototypes_", None)
    if prototypes is None:
        if prototype_labels is not None:
            raise ValueError("prototype_labels were given without prototypes, and classifier has no prototypes_")
        return np.empty((0, d)), None
    if prototype_labels is None and owned:
        prototype_labels = getattr(classifier, "prototype_labels_", None)
    runs = getattr(classifier, "prototype_runs_", None)
    if owned and runs is not None and len(classes) > 2:  # of one class against the rest: those of the one
        chosen = np.asarray(runs) == np.asarray(prototype_labels)
        prototypes, prototype_labels = np.asarray(prototypes)[chosen], np.asarray(prototype_labels)[chosen]
    found = real_array(prototypes, "prototypes")
    if not found.size:
        return np.empty((0, d)), None
    if found.ndim < 2 or found[0].size != d:
        raise ValueError(f"prototypes must have shape [P, {d}], features as those of X; found shape {found.shape}")
    found = found.reshape(len(found), d).astype(np.float64)
    if prototype_labels is None:
        return found, None
    return found, class_numbers(prototype_labels, classes, len(found), "prototype_labels")


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
    variance: Callable[[NDArray], ArrayLike] | Literal[True] | None = None,
    variance_levels: ArrayLike | None = None,
    scale_features: bool = True,
    resolution: int = 160,
    legend: bool = True,
    ax: Axes | None = None,
) -> Figure:
    """Regions of the likeliest class, as dark as it is probable, under samples and prototypes.

    With two features the picture is their plane. With more it is the plane through the mean of X along its first two
    principal components: regions are those of points within that plane, and samples are projected onto it, so that a
    sample may lie on a color that is not the prediction for it. With one feature the class probabilities are curves
    over it and the samples a rug below. Samples that the classifier assigns wrongly, asked where they really are, have
    a ring.

    Parameters
    ----------
    classifier : object
        Fitted; has ``predict_proba(X)``, [N, d] -> [N, n]. Classes are its ``classes_``, else 0..n-1, as of a Keras
        model. It is asked for ``resolution`` squared points.
    X : array_like, shape [N, d] or [N, ...]
        Samples, of any shape that the classifier takes.
    y : array_like, shape [N] or [N, 1]
        Their classes, as the classifier names them.
    prototypes : array_like, shape [P, d], optional
        Default: ``classifier.prototypes_`` where it has them (of ``GPLVQ`` beyond two classes those of every class's
        own run; those of a pipeline are to be given, in the units of X). An empty list leaves them out.
    prototype_labels : array_like, shape [P], optional
        Their classes. Default: ``classifier.prototype_labels_``; prototypes that are given without are white.
    class_names : sequence of str, length n, optional
        For the legend, in the order of the columns of probabilities.
    feature_names : sequence of str, length d, optional
        For the axes of one or two features. Default: ``classifier.feature_names_in_`` where it has them.
    levels : array_like, optional
        Levels of the lines of equal probability: of the second class where there are two, else of the likeliest.
        Default 0.1, 0.25, 0.75 and 0.9 for two classes, 0.75 and 0.9 for more, none with one feature. Where the
        likeliest class changes there is a thick border: p = 0.5 for two classes.
    colors : {"likeliest", "mixed"}
        Of regions: the likeliest class's, as deep as it is probable (default), or the mean of all classes' colors
        weighted by their probabilities ([CASIMAC] Fig. 5), which shows between which classes a point lies.
    variance : callable or True, optional
        Dashed contours of a variance: a function [M, ...] -> [M] of features, or True for the latent variance of
        ``classifier.predict_latent(X)``, the mean over its dimensions. None (default) draws none. With one feature it
        is a dashed curve.
    variance_levels : array_like, optional
        Default: a few round numbers.
    scale_features : bool
        Whether principal components are those of features brought to deviation one. Default True: units do not matter
        then.
    resolution : int
        Points of the grid along each axis, 160 by default.
    legend : bool
        Default True, to the right of the picture.
    ax : matplotlib.axes.Axes, optional
        Where to draw. None (default) makes a figure of its own.

    Returns
    -------
    matplotlib.figure.Figure
        The figure of ``ax``, or a new one. ``figure.savefig("regions.png")`` writes it.

    Raises
    ------
    TypeError
        For a classifier without predict_proba, features that are no numbers, a variance that is none.
    ValueError
        For NaN, labels that the classifier does not know, and shapes that do not fit.

    Notes
    -----
    [GPLVQ Figures 5.2 to 5.4] are such pictures: p = 0.5 and other levels, a variance of 0.05, and prototypes.
    [CASIMAC] Fig. 5 is ``colors="mixed", levels=[]``. Both ways colors are lightened so that samples stand out, and
    borders are drawn.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from deepsimplex import GLVQ
    >>> X, y = load_iris(return_X_y=True)
    >>> figure = decision_regions(GLVQ().fit(X[:, 2:], y), X[:, 2:], y, feature_names=["length", "width"])
    >>> figure.axes[0].get_xlabel(), [text.get_text() for text in figure.axes[0].get_legend().get_texts()][3:]
    ('length', ['misclassified: 7 of 150', '3 prototypes', 'border of classes', 'largest p'])
    """
    features = real_array(X, "X")
    if features.ndim < 2 or not features.size:
        raise ValueError(f"X must have shape [N, d] with at least one sample and feature; found shape {features.shape}")
    asked = Asked.about(classifier, features)
    rows = features.reshape(len(features), -1)
    d = rows.shape[1]
    resolution = check_whole(resolution, "resolution", 2)
    if feature_names is None:
        feature_names = getattr(classifier, "feature_names_in_", None)
    feature_names = check_names(feature_names, d, "feature_names", "features")
    p = asked.probabilities(rows)
    n = p.shape[1]
    classes, names = _classes_of(classifier, n, class_names)
    labels = class_numbers(y, classes, len(rows), "y")
    owned, owned_labels = _prototypes_of(classifier, prototypes, prototype_labels, d, classes)
    if levels is None:
        levels = [] if d == 1 else [0.1, 0.25, 0.75, 0.9] if n == 2 else [0.75, 0.9]
    levels = check_levels(levels, "levels", 0.0, 1.0)
    if colors not in COLORS:
        raise ValueError(f"colors must be one of {', '.join(COLORS)}; found {colors!r}{did_you_mean(colors, COLORS)}")
    if variance_levels is not None:
        if variance is None:
            raise ValueError("variance_levels were given without variance: True, or a callable X -> [N]")
        variance_levels = check_levels(variance_levels, "variance_levels", 0.0, np.inf)

    plane = Plane.of(rows, scale_features)
    samples, places = plane.coordinates(rows), plane.coordinates(owned)
    ends = [limits(column) for column in np.concatenate([samples, places]).T]
    grid = [np.linspace(*end, resolution if d > 1 else 4 * resolution) for end in ends]
    shape = tuple(len(line) for line in reversed(grid))
    points = plane.features(np.stack(np.meshgrid(*grid), axis=-1).reshape(-1, len(grid)))
    scene = Scene(
        names,
        class_style(n),
        samples,
        labels,
        p.argmax(axis=1) != labels,
        places,
        owned_labels,
        grid,
        asked.probabilities(points).reshape(*shape, n),
        None if variance is None else asked.variance(points, variance).reshape(shape),
        levels,
        variance_levels,
        colors == "mixed",
    )
    if ax is None:
        ax = Figure(figsize=(6.4, 4.4), dpi=120, layout="constrained").add_subplot()
    if d == 1:
        draw_line(ax, scene)
    else:
        draw_plane(ax, scene)
    axis_names = plane.names(feature_names)
    if plane.share is not None:
        axis_names[0] += "\nregions lie in this plane; samples are projected onto it"
    ax.set_xlabel(axis_names[0])
    ax.set_ylabel("class probability" if d == 1 else axis_names[1])
    if legend:
        draw_legend(ax, scene, d == 1)
    figure = ax.get_figure(root=True)
    assert figure is not None  # an axes that is drawn on has one
    return figure
