"""Class probabilities drawn as colors and contours over a plane, or as curves over a line, with samples on them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patheffects import AbstractPathEffect, withStroke
from numpy.typing import NDArray
from scipy.ndimage import binary_erosion

from deepsimplex.plots.style import BLACK, class_style, mark, side_legend

DEEPEST = 0.5  # share of a class's color where its probability is 1; the rest is white
TIE = 1e-6  # classes whose probabilities differ by no more are tied: no border through a region of ties
RUG, PROTOTYPE_RUG, FLOOR = -0.06, -0.14, -0.2  # heights below the curves of one feature
HALO: list[AbstractPathEffect] = [withStroke(linewidth=3, foreground="white")]
DARK = "#444444"

Array = NDArray[np.float64]


def shades(p: Array, colors: Array) -> Array:
    """Return colors [..., 3] of the most probable class of p [..., n], white where all classes are equally probable."""
    n = p.shape[-1]
    strength = DEEPEST * np.clip((p.max(axis=-1) - 1 / n) / (1 - 1 / n), 0, 1)[..., None]
    return np.clip(1 - strength + strength * colors[p.argmax(axis=-1)], 0, 1)


def mixtures(p: Array, colors: Array) -> Array:
    """Return colors [..., 3]: the mean of the classes' lightened colors, weighted by probabilities p [..., n]."""
    return np.clip(p @ (1 - DEEPEST + DEEPEST * colors), 0, 1)


@dataclass(frozen=True)
class ProbabilityMap:
    """Class probabilities on a grid of k dimensions (2: a plane, 1: a line), with samples and prototypes.

    Attributes
    ----------
    names : list of str, length n
    samples : ndarray, shape [N, k]
    labels : ndarray, shape [N]
        Class numbers of the samples.
    wrong : ndarray, shape [N]
        Whether a sample is misclassified.
    prototypes : ndarray, shape [P, k]
    prototype_labels : ndarray, shape [P], optional
    grid : list of ndarray, length k
        Coordinates along each axis.
    p : ndarray, shape [R, R, n] or [R, n]
        Class probabilities on the grid, the second axis first.
    levels : ndarray
        Levels of contours.
    mixed : bool
        Whether a region's color is the mean of the classes', else that of the most probable class.
    """

    names: list[str]
    samples: Array
    labels: NDArray[np.int64]
    wrong: NDArray[np.bool_]
    prototypes: Array
    prototype_labels: NDArray[np.int64] | None
    grid: list[Array]
    p: Array
    levels: NDArray[np.floating]
    mixed: bool

    def draw(self, ax: Any, legend: bool) -> None:
        """Draw everything on the axes, and a legend to the right of them."""
        (self._draw_line if len(self.grid) == 1 else self._draw_plane)(ax)
        if legend:
            self._draw_legend(ax)

    @property
    def _colors(self) -> Array:
        return np.array([to_rgb(color) for color, _ in class_style(len(self.names))])

    @property
    def _background(self) -> Array:
        return (mixtures if self.mixed else shades)(self.p, self._colors)

    def _draw_plane(self, ax: Any) -> None:
        x, y = self.grid
        (left, right), (bottom, top) = ((axis[0], axis[-1]) for axis in self.grid)
        half = (x[1] - x[0]) / 2, (y[1] - y[0]) / 2
        extent = (left - half[0], right + half[0], bottom - half[1], top + half[1])
        style: dict[str, Any] = {"origin": "lower", "aspect": "auto", "interpolation": "bilinear", "zorder": 0}
        ax.imshow(self._background, extent=extent, **style)
        shown = self.p[..., 1] if len(self.names) == 2 else self.p.max(axis=-1)
        self._contour(ax, shown, self.levels, "probability", "%.3g", colors=DARK, linewidths=0.7, zorder=2)
        for margin in self._margins():  # 0.5 + margin / 2 is p itself for two classes
            self._contour(ax, 0.5 + margin / 2, [0.5], "border", colors=BLACK, linewidths=1.6, zorder=3)
        self._draw_samples(ax, self.samples, self.prototypes, float(np.clip(4000 / len(self.samples), 8, 26)))
        if len(self.names) > 10:  # colors repeat
            for k in np.unique(self.labels):
                place = np.median(self.samples[self.labels == k], axis=0)
                text: dict[str, Any] = {"ha": "center", "va": "center", "weight": "bold", "path_effects": HALO}
                ax.text(*place, self.names[k], zorder=7, **text)
        ax.set(xlim=(left, right), ylim=(bottom, top))

    def _contour(self, ax: Any, values: Array, levels: Any, label: str, written: str = "", **style: Any) -> None:
        """Draw the contours at those levels that the values reach, and write levels by the format ``written``."""
        finite = values[np.isfinite(values)]
        reached = [float(level) for level in levels if len(finite) and finite.min() < level < finite.max()]
        if not reached:
            return
        contours = ax.contour(*self.grid, values, levels=reached, **style)
        contours.set_label(label)
        if written:
            ax.clabel(contours, fmt=written, fontsize=7)

    def _margins(self) -> list[Array]:
        """Return how far each class's probability is above the others', with NaN inside regions of ties."""
        margins = []
        for k in range(len(self.names) if len(self.names) > 2 else 1):
            margin = self.p[..., k] - np.delete(self.p, k, axis=-1).max(axis=-1)
            tied = binary_erosion(np.abs(margin) <= TIE, np.ones((3, 3)))
            margins.append(np.where(tied, np.nan, margin))
        return margins

    def _draw_line(self, ax: Any) -> None:
        (x,) = self.grid
        half = (x[1] - x[0]) / 2
        extent = (x[0] - half, x[-1] + half, FLOOR, 1.03)
        ax.imshow(self._background[None], extent=extent, origin="lower", aspect="auto", zorder=0)
        for k, color in enumerate(self._colors):
            ax.plot(x, self.p[:, k], color=color, linewidth=2, path_effects=HALO, label=self.names[k], zorder=3)
        for border in self._crossings():
            ax.axvline(border, color=BLACK, linewidth=1.6, label="border", zorder=2)
        for level in self.levels:
            ax.axhline(level, color=DARK, linewidth=0.7, label="probability", zorder=2)
        rug, prototypes = (
            np.column_stack([places[:, 0], np.full(len(places), height)])
            for places, height in ((self.samples, RUG), (self.prototypes, PROTOTYPE_RUG))
        )
        self._draw_samples(ax, rug, prototypes, 16.0)
        ax.set(xlim=(x[0], x[-1]), ylim=(FLOOR, 1.03), yticks=np.linspace(0, 1, 6))

    def _crossings(self) -> list[float]:
        """Return where the most probable class changes along the line."""
        (x,), p = self.grid, self.p
        first = p.argmax(axis=1)
        crossings = []
        for i in np.flatnonzero(first[1:] != first[:-1]):
            left, right = (p[j, first[i]] - p[j, first[i + 1]] for j in (i, i + 1))
            if max(left, -right) > TIE:
                crossings.append(x[i] + (x[i + 1] - x[i]) * left / (left - right))
        return crossings

    def _draw_samples(self, ax: Any, samples: Array, prototypes: Array, size: float) -> None:
        """Draw samples by class, rings around the misclassified ones, and prototypes as stars."""
        markers = np.array([marker for _, marker in class_style(len(self.names))])[self.labels]
        for marker in dict.fromkeys(markers):
            chosen = markers == marker
            style: dict[str, Any] = {"edgecolors": "white", "linewidths": size / 50, "zorder": 4, "label": "samples"}
            ax.scatter(*samples[chosen].T, s=size, c=self._colors[self.labels[chosen]], marker=marker, **style)
        if self.wrong.any():
            ring: dict[str, Any] = {"facecolors": "none", "edgecolors": BLACK, "linewidths": 1.2, "zorder": 5}
            ax.scatter(*samples[self.wrong].T, s=3 * size, label="misclassified", **ring)
        if len(prototypes):
            colors: Any = "white" if self.prototype_labels is None else self._colors[self.prototype_labels]
            star: dict[str, Any] = {"marker": "*", "edgecolors": BLACK, "linewidths": 1.1, "zorder": 6}
            area = 230 if len(prototypes) <= 40 else 90
            drawn = ax.scatter(*prototypes.T, s=area, c=colors, label="prototypes", **star)
            drawn.set_path_effects(HALO)

    def _draw_legend(self, ax: Any) -> None:
        n, line = len(self.names), len(self.grid) == 1
        handles = [mark(marker, color, name) for name, (color, marker) in zip(self.names, class_style(n), strict=True)]
        if self.wrong.any():
            label = f"misclassified: {self.wrong.sum()} of {len(self.wrong)}"
            handles.append(mark("o", "none", label, 8, markeredgecolor=BLACK, markeredgewidth=1.2))
        if count := len(self.prototypes):
            label = f"{count} prototype{'s' if count > 1 else ''}"
            handles.append(mark("*", "white", label, 13, markeredgecolor=BLACK, markeredgewidth=1.1))
        handles.append(Line2D([], [], color=BLACK, linewidth=1.6, label="p = 0.5" if n == 2 else "border of classes"))
        drawn = {artist.get_label() for artist in ax.get_children()}
        if "probability" in drawn:
            label = "level of p" if line else f"p({self.names[1]})" if n == 2 else "largest p"
            handles.append(Line2D([], [], color=DARK, linewidth=0.7, label=label))
        side_legend(ax, handles)
