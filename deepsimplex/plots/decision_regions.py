"""Regions of the predicted class, with the samples and prototypes that lie in them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import binary_erosion

from deepsimplex.plots.arguments import Asked, check_levels, check_names, check_whole, class_numbers, real_array
from deepsimplex.plots.plane import Plane, limits
from deepsimplex.plots.style import BLACK, class_style

DEEPEST = 0.5
"""Share of a class's colour where it is certain; the rest is white, so that samples stand out."""
TIE = 1e-6
"""Classes whose probabilities differ by no more are tied: no border is drawn through a region of ties."""
RUG, PROTOTYPE_RUG, FLOOR = -0.06, -0.14, -0.2
HALO = [withStroke(linewidth=3, foreground="white")]


@dataclass(frozen=True)
class _Scene:
    """What is drawn, of both kinds of picture."""

    names: list[str]
    style: list[tuple[str, str]]
    samples: NDArray[np.float64]
    labels: NDArray[np.int64]
    wrong: NDArray[np.bool_]
    prototypes: NDArray[np.float64]
    prototype_labels: NDArray[np.int64] | None
    grid: list[NDArray[np.float64]]
    p: NDArray[np.float64]
    variance: NDArray[np.float64] | None
    levels: NDArray[np.floating]
    variance_levels: NDArray[np.floating] | None

    @property
    def colours(self) -> NDArray[np.float64]:
        return np.array([to_rgb(colour) for colour, _ in self.style])


def _shades(p: NDArray[np.float64], colours: NDArray[np.float64]) -> NDArray[np.float64]:
    """Colours [..., 3] of probabilities [..., n]: white where all classes are as likely."""
    n = p.shape[-1]
    strength = DEEPEST * np.clip((p.max(axis=-1) - 1 / n) / (1 - 1 / n), 0, 1)[..., None]
    return np.clip(1 - strength + strength * colours[p.argmax(axis=-1)], 0, 1)


def _without_ties(margin: NDArray[np.float64]) -> NDArray[np.float64]:
    """Margins of a class over the others, with NaN within regions of ties, whose sign is round-off."""
    tied = binary_erosion(np.abs(margin) <= TIE, np.ones((3, 3)))
    return np.where(tied, np.nan, margin)


def _crosses(values: NDArray[np.float64], level: float) -> bool:
    """Whether there is a contour at a level; Matplotlib warns where there is none."""
    seen = values[np.isfinite(values)]
    return bool(len(seen)) and bool(seen.min() < level < seen.max())


def _contour(ax: Axes, scene: _Scene, values: NDArray[np.float64], levels: Any, label: str, **style: Any) -> None:
    """Those contours that there are; with ``written``, a format, their levels stand in them."""
    levels = [float(level) for level in levels if _crosses(values, level)]
    written = style.pop("written", None)
    if not levels:
        return
    contours = ax.contour(*scene.grid, values, levels=levels, **style)
    contours.set_label(label)
    if written:
        ax.clabel(contours, fmt=written, fontsize=7)


def _borders(ax: Axes, scene: _Scene) -> None:
    n = scene.p.shape[-1]
    style = {"colors": BLACK, "linewidths": 1.6, "zorder": 3}
    if n == 2:
        difference = _without_ties(scene.p[..., 1] - scene.p[..., 0])
        _contour(ax, scene, 0.5 + difference / 2, [0.5], "border", **style)
        return
    for k in range(n):
        margin = scene.p[..., k] - np.delete(scene.p, k, axis=-1).max(axis=-1)
        _contour(ax, scene, _without_ties(margin), [0.0], "border", **style)


def _draw_prototypes(ax: Axes, scene: _Scene, places: NDArray[np.float64]) -> None:
    labels = scene.prototype_labels
    colours: Any = "white" if labels is None else scene.colours[labels]
    size = 230 if len(places) <= 40 else 90
    drawn = ax.scatter(*places.T, s=size, c=colours, marker="*", edgecolors=BLACK, linewidths=1.1, zorder=6)
    drawn.set_label("prototypes")
    drawn.set_path_effects(HALO)


def _draw_samples(ax: Axes, scene: _Scene, places: NDArray[np.float64], size: float) -> None:
    """Samples by class, and rings around those that are assigned wrongly."""
    markers = np.array([marker for _, marker in scene.style])[scene.labels]
    for marker in dict.fromkeys(markers):
        chosen = markers == marker
        colours = scene.colours[scene.labels[chosen]]
        drawn = ax.scatter(
            *places[chosen].T, s=size, c=colours, marker=marker, edgecolors="white", linewidths=size / 50, zorder=4
        )
        drawn.set_label("samples")
    if scene.wrong.any():
        rings = ax.scatter(
            *places[scene.wrong].T, s=3 * size, facecolors="none", edgecolors=BLACK, linewidths=1.2, zorder=5
        )
        rings.set_label("misclassified")


def _draw_plane(ax: Axes, scene: _Scene) -> None:
    x, y = scene.grid
    step = x[1] - x[0], y[1] - y[0]
    extent = (x[0] - step[0] / 2, x[-1] + step[0] / 2, y[0] - step[1] / 2, y[-1] + step[1] / 2)
    ax.imshow(
        _shades(scene.p, scene.colours),
        extent=extent,
        origin="lower",
        aspect="auto",
        interpolation="bilinear",
        zorder=0,
    )
    shown = scene.p[..., 1] if scene.p.shape[-1] == 2 else scene.p.max(axis=-1)
    _contour(ax, scene, shown, scene.levels, "probability", colors="#444444", linewidths=0.7, zorder=2, written="%.3g")
    if scene.variance is not None:
        levels = scene.variance_levels
        if levels is None:
            levels = MaxNLocator(4).tick_values(scene.variance.min(), scene.variance.max())
        style = {"colors": BLACK, "linewidths": 1.2, "linestyles": "dashed", "zorder": 2}
        _contour(ax, scene, scene.variance, levels, "variance", written="σ² = %.3g", **style)
    _borders(ax, scene)
    _draw_samples(ax, scene, scene.samples, float(np.clip(4000 / len(scene.samples), 8, 26)))
    if len(scene.prototypes):
        _draw_prototypes(ax, scene, scene.prototypes)
    if len(scene.names) > 10:  # colours come again
        for k in np.unique(scene.labels):
            place = np.median(scene.samples[scene.labels == k], axis=0)
            ax.text(*place, scene.names[k], ha="center", va="center", weight="bold", path_effects=HALO, zorder=7)
    ax.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))


def _crossings(x: NDArray[np.float64], p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where the likeliest of classes changes along a line of points, between them."""
    first = p.argmax(axis=1)
    found = []
    for i in np.flatnonzero(first[1:] != first[:-1]):
        left, right = (p[j, first[i]] - p[j, first[i + 1]] for j in (i, i + 1))
        if max(left, -right) > TIE:
            found.append(x[i] + (x[i + 1] - x[i]) * left / (left - right))
    return np.array(found)


def _draw_line(ax: Axes, scene: _Scene) -> None:
    (x,) = scene.grid
    step = x[1] - x[0]
    extent = (x[0] - step / 2, x[-1] + step / 2, FLOOR, 1.03)
    ax.imshow(_shades(scene.p, scene.colours)[None], extent=extent, origin="lower", aspect="auto", zorder=0)
    for k, (colour, _) in enumerate(scene.style):
        ax.plot(x, scene.p[:, k], color=colour, linewidth=2, path_effects=HALO, label=scene.names[k], zorder=3)
    for border in _crossings(x, scene.p):
        ax.axvline(border, color=BLACK, linewidth=1.6, label="border", zorder=2)
    for level in scene.levels:
        ax.axhline(level, color="#444444", linewidth=0.7, label="probability", zorder=2)
    _draw_samples(ax, scene, np.column_stack([scene.samples[:, 0], np.full(len(scene.samples), RUG)]), 16.0)
    if len(scene.prototypes):
        places = np.column_stack([scene.prototypes[:, 0], np.full(len(scene.prototypes), PROTOTYPE_RUG)])
        _draw_prototypes(ax, scene, places)
    ax.set(xlim=(x[0], x[-1]), ylim=(FLOOR, 1.03), yticks=np.linspace(0, 1, 6))
    if scene.variance is not None:
        other = ax.twinx()
        other.plot(x, scene.variance, color=BLACK, linewidth=1.2, linestyle="dashed", label="variance")
        top = float(scene.variance.max()) or 1.0
        other.set(ylim=(FLOOR * top, 1.03 * top), ylabel="variance")
        other.set_yticks(
            MaxNLocator(4).tick_values(0, top)[:-1] if scene.variance_levels is None else scene.variance_levels
        )


def _legend(ax: Axes, scene: _Scene, line: bool) -> None:
    """Classes, and what else there is, right of the picture."""

    def mark(marker: str, colour: str, size: float, label: str, **more: Any) -> Line2D:
        return Line2D([], [], linestyle="none", marker=marker, color=colour, markersize=size, label=label, **more)

    n = len(scene.names)
    handles = [mark(marker, colour, 6, name) for name, (colour, marker) in zip(scene.names, scene.style, strict=True)]
    if scene.wrong.any():
        label = f"misclassified: {scene.wrong.sum()} of {len(scene.wrong)}"
        handles.append(mark("o", "none", 8, label, markeredgecolor=BLACK, markeredgewidth=1.2))
    if count := len(scene.prototypes):
        label = f"{count} prototype{'s' if count > 1 else ''}"
        handles.append(mark("*", "white", 13, label, markeredgecolor=BLACK, markeredgewidth=1.1))
    handles.append(Line2D([], [], color=BLACK, linewidth=1.6, label="p = 0.5" if n == 2 else "border of classes"))
    if len(scene.levels):
        label = f"p({scene.names[1]})" if n == 2 and not line else "level of p" if line else "largest p"
        handles.append(Line2D([], [], color="#444444", linewidth=0.7, label=label))
    if scene.variance is not None:
        handles.append(Line2D([], [], color=BLACK, linewidth=1.2, linestyle="dashed", label="variance σ²"))
    ax.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(1.17 if line and scene.variance is not None else 1.01, 1.0),
        borderaxespad=0.0,
        frameon=False,
        fontsize=8,
        ncols=-(-len(handles) // 18),
    )


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
    sample may lie on a colour that is not the prediction for it. With one feature the class probabilities are curves
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
        Default: ``classifier.prototypes_`` where it has them. An empty list leaves them out.
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

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from deepsimplex import GLVQ
    >>> X, y = load_iris(return_X_y=True)
    >>> figure = decision_regions(GLVQ().fit(X[:, 2:], y), X[:, 2:], y, feature_names=["length", "width"])
    >>> figure.axes[0].get_xlabel(), [text.get_text() for text in figure.axes[0].get_legend().get_texts()][3:]
    ('length', ['misclassified: 6 of 150', '3 prototypes', 'border of classes', 'largest p'])
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
    scene = _Scene(
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
    )
    if ax is None:
        ax = Figure(figsize=(6.4, 4.4), dpi=120, layout="constrained").add_subplot()
    if d == 1:
        _draw_line(ax, scene)
    else:
        _draw_plane(ax, scene)
    axis_names = plane.names(feature_names)
    if plane.share is not None:
        axis_names[0] += "\nregions lie in this plane; samples are projected onto it"
    ax.set_xlabel(axis_names[0])
    ax.set_ylabel("class probability" if d == 1 else axis_names[1])
    if legend:
        _legend(ax, scene, d == 1)
    figure = ax.get_figure(root=True)
    assert figure is not None  # an axes that is drawn on has one
    return figure
