"""Samples, prototypes and class probabilities drawn over a plane, or over a line."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patheffects import AbstractPathEffect, withStroke
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from scipy.ndimage import binary_erosion

from deepsimplex.plots.style import BLACK

DEEPEST = 0.5
"""Share of a class's color where it is certain; the rest is white, so that samples stand out."""
TIE = 1e-6
"""Classes whose probabilities differ by no more are tied: no border is drawn through a region of ties."""
RUG, PROTOTYPE_RUG, FLOOR = -0.06, -0.14, -0.2
HALO: list[AbstractPathEffect] = [withStroke(linewidth=3, foreground="white")]


@dataclass(frozen=True)
class Scene:
    """What is drawn.

    Attributes
    ----------
    names : list of str, length n
    style : list of (color, marker), length n
        Of the classes.
    samples : ndarray, shape [N, k]
        In the coordinates of the picture, of a plane (k = 2) or a line (k = 1).
    labels : ndarray, shape [N]
        Numbers of their classes.
    wrong : ndarray, shape [N]
        Whether they are assigned to another.
    prototypes : ndarray, shape [P, k]
    prototype_labels : ndarray, shape [P], optional
    grid : list of ndarray, length k
        Coordinates along each axis.
    p : ndarray, shape [R, R, n] or [R, n]
        Class probabilities on the grid, the second axis first.
    variance : ndarray, shape [R, R] or [R], optional
    levels, variance_levels : ndarray
        Of contours; None for a few round variances.
    mixed : bool
        Whether a region's color is the mean of the classes', else that of the likeliest.
    """

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
    mixed: bool = False

    @property
    def colors(self) -> NDArray[np.float64]:
        return np.array([to_rgb(color) for color, _ in self.style])

    @property
    def background(self) -> NDArray[np.float64]:
        """Colors [..., 3] of the grid."""
        return (mixtures if self.mixed else shades)(self.p, self.colors)


def shades(p: NDArray[np.float64], colors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Colors [..., 3] of probabilities [..., n]: white where all classes are as likely."""
    n = p.shape[-1]
    strength = DEEPEST * np.clip((p.max(axis=-1) - 1 / n) / (1 - 1 / n), 0, 1)[..., None]
    return np.clip(1 - strength + strength * colors[p.argmax(axis=-1)], 0, 1)


def mixtures(p: NDArray[np.float64], colors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Colors [..., 3] of probabilities [..., n]: their mean of the classes' colors, each lightened as above."""
    return np.clip(p @ (1 - DEEPEST + DEEPEST * colors), 0, 1)


def _without_ties(margin: NDArray[np.float64]) -> NDArray[np.float64]:
    """Margins of a class over the others, with NaN within regions of ties, whose sign is round-off."""
    tied = binary_erosion(np.abs(margin) <= TIE, np.ones((3, 3)))
    return np.where(tied, np.nan, margin)


def _crosses(values: NDArray[np.float64], level: float) -> bool:
    """Whether there is a contour at a level; Matplotlib warns where there is none."""
    seen = values[np.isfinite(values)]
    return bool(len(seen)) and bool(seen.min() < level < seen.max())


def _contour(ax: Axes, scene: Scene, values: NDArray[np.float64], levels: Any, label: str, **style: Any) -> None:
    """Those contours that there are; with ``written``, a format, their levels stand in them."""
    levels = [float(level) for level in levels if _crosses(values, level)]
    written = style.pop("written", None)
    if not levels:
        return
    contours = ax.contour(*scene.grid, values, levels=levels, **style)
    contours.set_label(label)
    if written:
        ax.clabel(contours, fmt=written, fontsize=7)


def _borders(ax: Axes, scene: Scene) -> None:
    n = scene.p.shape[-1]
    style: dict[str, Any] = {"colors": BLACK, "linewidths": 1.6, "zorder": 3}
    if n == 2:
        difference = _without_ties(scene.p[..., 1] - scene.p[..., 0])
        _contour(ax, scene, 0.5 + difference / 2, [0.5], "border", **style)
        return
    for k in range(n):
        margin = scene.p[..., k] - np.delete(scene.p, k, axis=-1).max(axis=-1)
        _contour(ax, scene, _without_ties(margin), [0.0], "border", **style)


def _draw_prototypes(ax: Axes, scene: Scene, places: NDArray[np.float64]) -> None:
    labels = scene.prototype_labels
    colors: Any = "white" if labels is None else scene.colors[labels]
    size = 230 if len(places) <= 40 else 90
    drawn = ax.scatter(
        places[:, 0], places[:, 1], s=size, c=colors, marker="*", edgecolors=BLACK, linewidths=1.1, zorder=6
    )
    drawn.set_label("prototypes")
    drawn.set_path_effects(HALO)


def _draw_samples(ax: Axes, scene: Scene, places: NDArray[np.float64], size: float) -> None:
    """Samples by class, and rings around those that are assigned wrongly."""
    markers = np.array([marker for _, marker in scene.style])[scene.labels]
    for marker in dict.fromkeys(markers):
        chosen = markers == marker
        colors = scene.colors[scene.labels[chosen]]
        drawn = ax.scatter(
            places[chosen, 0],
            places[chosen, 1],
            s=size,
            c=colors,
            marker=marker,
            edgecolors="white",
            linewidths=size / 50,
            zorder=4,
        )
        drawn.set_label("samples")
    if scene.wrong.any():
        rings = ax.scatter(
            places[scene.wrong, 0],
            places[scene.wrong, 1],
            s=3 * size,
            facecolors="none",
            edgecolors=BLACK,
            linewidths=1.2,
            zorder=5,
        )
        rings.set_label("misclassified")


def draw_plane(ax: Axes, scene: Scene) -> None:
    """Regions of the likeliest class with their borders and levels, samples and prototypes in them."""
    x, y = scene.grid
    step = x[1] - x[0], y[1] - y[0]
    extent = (x[0] - step[0] / 2, x[-1] + step[0] / 2, y[0] - step[1] / 2, y[-1] + step[1] / 2)
    ax.imshow(
        scene.background,
        extent=extent,
        origin="lower",
        aspect="auto",
        interpolation="bilinear",
        zorder=0,
    )
    shown = scene.p[..., 1] if scene.p.shape[-1] == 2 else scene.p.max(axis=-1)
    _contour(ax, scene, shown, scene.levels, "probability", colors="#444444", linewidths=0.7, zorder=2, written="%.3g")
    if scene.variance is not None:
        levels: Any = scene.variance_levels
        if levels is None:
            levels = MaxNLocator(4).tick_values(scene.variance.min(), scene.variance.max())
        style: dict[str, Any] = {"colors": BLACK, "linewidths": 1.2, "linestyles": "dashed", "zorder": 2}
        _contour(ax, scene, scene.variance, levels, "variance", written="σ² = %.3g", **style)
    _borders(ax, scene)
    _draw_samples(ax, scene, scene.samples, float(np.clip(4000 / len(scene.samples), 8, 26)))
    if len(scene.prototypes):
        _draw_prototypes(ax, scene, scene.prototypes)
    if len(scene.names) > 10:  # colors come again
        for k in np.unique(scene.labels):
            place = np.median(scene.samples[scene.labels == k], axis=0)
            ax.text(
                place[0], place[1], scene.names[k], ha="center", va="center", weight="bold", path_effects=HALO, zorder=7
            )
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


def draw_line(ax: Axes, scene: Scene) -> None:
    """Curves of the class probabilities over bands of the likeliest class, samples and prototypes below them."""
    (x,) = scene.grid
    step = x[1] - x[0]
    extent = (x[0] - step / 2, x[-1] + step / 2, FLOOR, 1.03)
    ax.imshow(scene.background[None], extent=extent, origin="lower", aspect="auto", zorder=0)
    for k, (color, _) in enumerate(scene.style):
        ax.plot(x, scene.p[:, k], color=color, linewidth=2, path_effects=HALO, label=scene.names[k], zorder=3)
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


def draw_legend(ax: Axes, scene: Scene, line: bool) -> None:
    """Classes, and what else there is, right of the picture."""

    def mark(marker: str, color: str, size: float, label: str, **more: Any) -> Line2D:
        return Line2D([], [], linestyle="none", marker=marker, color=color, markersize=size, label=label, **more)

    n = len(scene.names)
    handles = [mark(marker, color, 6, name) for name, (color, marker) in zip(scene.names, scene.style, strict=True)]
    if scene.wrong.any():
        label = f"misclassified: {scene.wrong.sum()} of {len(scene.wrong)}"
        handles.append(mark("o", "none", 8, label, markeredgecolor=BLACK, markeredgewidth=1.2))
    if count := len(scene.prototypes):
        label = f"{count} prototype{'s' if count > 1 else ''}"
        handles.append(mark("*", "white", 13, label, markeredgecolor=BLACK, markeredgewidth=1.1))
    handles.append(Line2D([], [], color=BLACK, linewidth=1.6, label="p = 0.5" if n == 2 else "border of classes"))
    drawn = {artist.get_label() for artist in ax.get_children()}
    if "probability" in drawn:
        label = f"p({scene.names[1]})" if n == 2 and not line else "level of p" if line else "largest p"
        handles.append(Line2D([], [], color="#444444", linewidth=0.7, label=label))
    if "variance" in drawn or (line and scene.variance is not None):
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
