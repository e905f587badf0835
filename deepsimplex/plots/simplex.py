"""Class probabilities as points of a triangle or a tetrahedron."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d.art3d import Line3DCollection
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import (
    check_labels_beside,
    check_probabilities,
)
from deepsimplex.evaluation import StandardizedPartition
from deepsimplex.geometry import vertices
from deepsimplex.plots.style import BLACK, GRAY, check_axes, class_style, figure_of, literal, names_of_columns, new_axes

NAMES_AT = (1.36, 1.55, 1.32, 1.25)  # radii of the names of a tetrahedron's corners, clear of one another
KEY = "inside: true\nring: assigned"


def draw_samples(ax: Any, places: NDArray[np.floating], inner: NDArray[Any], ring: NDArray[Any], n: int) -> None:
    """Scatter samples [N, 2] or [N, 3] with one class's color inside and another's around it ([SPS] Fig. 1).

    Samples of different classes, the wrong ones, are drawn on top and larger. Beyond ten classes colors repeat with
    another marker, that of ``inner``.
    """
    style = class_style(n)
    colors = np.array([to_rgb(color) for color, _ in style])
    markers = np.array([marker for _, marker in style])[inner]
    size = float(np.clip(9000 / len(places), 12, 40))
    depth = {"depthshade": False} if places.shape[1] == 3 else {}
    for wrong in (False, True):
        for marker in dict.fromkeys(markers.tolist()):
            chosen = (markers == marker) & ((inner != ring) == wrong)
            if chosen.any():
                ax.scatter(
                    *places[chosen].T,
                    s=1.5 * size if wrong else size,
                    c=colors[inner[chosen]],
                    edgecolors=colors[ring[chosen]],
                    marker=marker,
                    linewidths=(0.45 if wrong else 0.2) * np.sqrt(size),
                    zorder=4 if wrong else 3,
                    label="wrong" if wrong else "right",
                    **depth,
                )


def corners(n: int) -> NDArray[np.float64]:
    """Return the corners [n, n - 1] of a triangle that stands on its side 0-1, or of a tetrahedron on 0-1-2.

    Examples
    --------
    >>> corners(3)[:2].round(3)
    array([[-0.866, -0.5  ],
           [ 0.866, -0.5  ]])
    >>> corners(4)[:, 2].round(3)
    array([-0.333, -0.333, -0.333,  1.   ])
    """
    regular = vertices(n)
    if n == 3:
        turn = np.deg2rad(210)
        return regular @ np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    # The first vertex, (1, 0, 0), becomes the top and the last corner.
    return regular[[1, 2, 3, 0]][:, [1, 2, 0]]


def _borders(at: NDArray[np.float64]) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    """Return the sides of the simplex, and the borders between the most probable classes, as segments [2, n - 1].

    In a tetrahedron the borders are planes; segments on its faces and from these to the center stand for them.
    """
    n = len(at)
    sides = [at[list(pair)] for pair in combinations(range(n), 2)]
    faces = [at[list(face)] for face in combinations(range(n), 3)]
    traces = [
        np.stack([face.mean(axis=0), face[list(pair)].mean(axis=0)])
        for face in faces
        for pair in combinations(range(3), 2)
    ]
    inwards = [np.stack([np.zeros(n - 1), face.mean(axis=0)]) for face in faces if n == 4]
    return sides, traces + inwards


def simplex(
    p: ArrayLike | StandardizedPartition,
    y: ArrayLike | None = None,
    *,
    assigned: ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    lines: bool | Literal["true", "assigned"] = False,
    ax: Axes | None = None,
    classes: Sequence[Any] | None = None,
) -> Figure:
    """Scatter class probabilities in the triangle of three classes or the tetrahedron of four ([SPS] Fig. 1-3).

    A sample lies at the mean of the corners, weighted by its probabilities. Dashed lines separate the regions in which
    each class is the most probable. The inner color of a marker is the true class, its ring the assigned one.

    Parameters
    ----------
    p : array_like, shape [N, n], or StandardizedPartition
        Class probabilities, or other memberships, of n = 3 or 4 classes. A partition provides its scaled memberships,
        labels, assigned classes and names, and its Ac and AS for the title; if a scaled row sums to less than 1, the
        rest counts evenly for all classes. For the latent space of [CASIMAC] Fig. 7 give
        ``ds.geometry.to_probability_simplex(latent.loc, tau)``.
    y : array_like, shape [N] or [N, 1], optional
        True classes: numbers 0..n-1, or names that ``classes`` holds. With them every corner has its correctness rate,
        the share of correct ones among the samples assigned to it. Default None: colors are those of the assigned
        classes.
    assigned : array_like, shape [N] or [N, 1], optional
        Assigned classes, named as in ``y``. Default: each row's largest probability, the lowest class among equals.
    class_names : sequence of str, length n, optional
        Names of the classes in the figure; by default ``classes``, or their numbers.
    lines : bool or {"true", "assigned"}
        Draw lines from each sample to the corner of its true class, whose mean length defines Ac ([SPS] Fig. 2; also
        with True), or of its assigned class (AS, Fig. 3). Default False.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on, with ``projection="3d"`` for four classes. Default None: those of a new figure.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    matplotlib.figure.Figure
        The figure of ``ax``, or a new one.

    Raises
    ------
    ValueError
        For other numbers of classes, which ``latent_space`` draws, and for arguments that do not fit the above.

    Examples
    --------
    >>> p = [[0.8, 0.1, 0.1], [0.2, 0.5, 0.3], [0.1, 0.6, 0.3]]
    >>> figure = simplex(p, y=[0, 1, 2], class_names=["cat", "dog", "fox"])
    >>> [text.get_text() for text in figure.axes[0].texts[:3]]
    ['cat\\nCR 1.00 of 1', 'dog\\nCR 0.50 of 2', 'fox\\nnever assigned']
    """
    title = ""
    true: NDArray[np.int64] | None
    if isinstance(p, StandardizedPartition):
        if y is not None or assigned is not None or classes is not None:
            raise ValueError("y, assigned and classes come with the partition; found one of them beside it")
        title = f"Ac = {p.accuracy:.3f}   AS = {p.ability_to_separate:.3f}"
        table, true, chosen, classes = p.membership, p.y, p.assigned, p.classes
    else:
        table = check_probabilities(p).astype(np.float64)
        true = None if y is None else check_labels_beside(y, "p", table.shape, classes)
        chosen = table.argmax(axis=1)
        if assigned is not None:
            chosen = check_labels_beside(assigned, "p", table.shape, classes, "assigned")
    n = table.shape[1]
    if n not in (3, 4):
        raise ValueError(
            f"p must have 3 classes (a triangle) or 4 (a tetrahedron); found {n}. latent_space draws latents of any "
            "number of classes"
        )
    names = names_of_columns(class_names, classes, n)
    if not isinstance(lines, bool | np.bool_ | str) or lines not in (False, True, "true", "assigned"):
        raise ValueError(f"lines must be False, True, 'true' or 'assigned'; found {lines!r}")
    if lines in (True, "true") and true is None:
        raise ValueError("lines to the true classes' corners need y; give it, or lines='assigned'")
    if ax is None:
        ax = new_axes(4.6, 4.4) if n == 3 else new_axes(5.2, 4.8, projection="3d")
    elif n == 4 and check_axes(ax).name != "3d":
        raise ValueError('ax must have projection="3d" for four classes; found a plane one')
    at = corners(n)
    _draw_frame(check_axes(ax), at)
    places = table @ at
    if lines:
        goals = chosen if lines == "assigned" or true is None else true
        segments = np.stack([places, at[goals]], axis=1)
        _add_segments(ax, segments, color=GRAY, linewidths=0.5, alpha=0.6, zorder=2)
    draw_samples(ax, places, chosen if true is None else true, chosen, n)
    _name_corners(ax, at, names, true, chosen)
    if true is not None:
        write: Any = getattr(ax, "text2D", ax.text)
        write(0.0, 1.0, KEY, transform=ax.transAxes, va="top", fontsize=7.5, color="#444444")
    if title:
        ax.set_title(title, fontsize=10)
    return figure_of(ax)


def _draw_frame(ax: Any, at: NDArray[np.float64]) -> None:
    """Draw the sides and borders, and set limits that leave room for the names."""
    sides, borders = _borders(at)
    _add_segments(ax, np.array(sides), color=BLACK, linewidths=1.2, zorder=1)
    _add_segments(ax, np.array(borders), color=BLACK, linewidths=0.8, linestyles="dashed", alpha=0.6, zorder=1)
    low, high = at.min(axis=0), at.max(axis=0)
    ax.set_axis_off()
    if len(at) == 4:
        ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
        ax.set_box_aspect(high - low, zoom=0.88)
        ax.view_init(elev=22, azim=-106)  # no corner hides another
    else:
        ax.set(xlim=(low[0] - 0.3, high[0] + 0.3), ylim=(low[1] - 0.3, high[1] + 0.28), aspect="equal")


def _add_segments(ax: Any, segments: NDArray[np.float64], **style: Any) -> None:
    if segments.shape[-1] == 3:
        ax.add_collection3d(Line3DCollection(segments, **style))
    else:
        ax.add_collection(LineCollection([*segments], **style))


def _name_corners(
    ax: Any, at: NDArray[np.float64], names: Sequence[str], true: NDArray[Any] | None, chosen: NDArray[Any]
) -> None:
    """Write the name of each corner's class and, with labels, its correctness rate."""
    n = len(at)
    for k, ((color, _), name) in enumerate(zip(class_style(n), names, strict=True)):
        text = literal(name)
        members = chosen == k
        if true is not None and members.any():
            text += f"\nCR {np.mean(true[members] == k):.2f} of {members.sum()}"
        elif true is not None:
            text += "\nnever assigned"
        if n == 4:
            place, vertical = NAMES_AT[k] * at[k], "center"
        else:  # the last corner is the top one
            place, vertical = at[k] + [0.0, 0.09 if k == 2 else -0.09], "bottom" if k == 2 else "top"
        ax.text(*place, text, ha="center", va=vertical, fontsize=8.5, color=BLACK, zorder=6)
        ax.scatter(*at[k][:, None], s=28, c=color, marker="D", edgecolors=BLACK, linewidths=0.6, zorder=5)
