"""Colors, markers, axes and legends that the figures share."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from deepsimplex._utils.validation import check_class_names, check_names

# Okabe and Ito's colors for color-blind readers, of different lightness in gray, and three dark ones: CIEDE2000 of any
# two stays above 10 where protanopia, deuteranopia and tritanopia are simulated (Machado et al. 2009). Black is left to
# borders and edges.
BLUE = "#0072B2"
ORANGE = "#E69F00"
VERMILLION = "#D55E00"
GREEN = "#009E73"
PURPLE = "#CC79A7"
SKY = "#56B4E9"
YELLOW = "#F0E442"
WINE = "#661100"
INDIGO = "#332288"
CHARCOAL = "#222222"
GRAY = "#999999"
BLACK = "#000000"

CLASS_COLORS = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILLION, YELLOW, CHARCOAL, INDIGO, WINE)
CLASS_MARKERS = ("o", "s", "^", "D", "v")


def class_style(n: int) -> list[tuple[str, str]]:
    """Return the color and marker of each of n classes, all different up to fifty.

    Examples
    --------
    >>> class_style(2)
    [('#0072B2', 'o'), ('#E69F00', 'o')]
    >>> class_style(11)[-1]
    ('#0072B2', 's')
    """
    colors, markers = len(CLASS_COLORS), len(CLASS_MARKERS)
    return [(CLASS_COLORS[k % colors], CLASS_MARKERS[k // colors % markers]) for k in range(n)]


def literal(text: str) -> str:
    """Escape dollar signs, which would begin a formula in Matplotlib.

    Examples
    --------
    >>> literal("$5 or $6")
    '\\\\$5 or \\\\$6'
    """
    return text.replace("$", r"\$")


def shortened(text: str, most: int) -> str:
    """Cut text to so many characters, the last an ellipsis, and escape dollar signs.

    Examples
    --------
    >>> shortened("chihuahua", 5), shortened("pug", 5)
    ('chih…', 'pug')
    """
    return literal(text if len(text) <= most else f"{text[: most - 1]}…")


def new_axes(width: float, height: float, **options: Any) -> Any:
    """Return the axes of a new figure, whose size is in inches."""
    return Figure(figsize=(width, height), dpi=120, layout="constrained").add_subplot(**options)


def names_of_columns(
    class_names: Sequence[str] | None, classes: Sequence[Any] | None, n: int, of: str = "columns of p"
) -> list[str]:
    """Return the names of n classes for display: ``class_names``; without, ``classes`` as text, or their numbers."""
    return check_names(class_names, n, "class_names", of) or [str(k) for k in check_class_names(classes, n)]


def check_only(only: Any, classes: Sequence[Any], wanted: str, *, three: bool = False) -> list[int]:
    """Return the numbers of chosen classes, none twice: at least one, or three; ``wanted`` describes the choice."""
    chosen = list(only) if np.iterable(only) and not isinstance(only, str) else []
    known = all(isinstance(k, Hashable) and k in classes for k in chosen)
    if not chosen or not known or len(set(chosen)) != len(chosen) or (three and len(chosen) != 3):
        raise ValueError(f"only must hold {wanted}; found {only!r}")
    return [classes.index(k) for k in chosen]


def check_axes(ax: Any) -> Any:
    """Return the axes to draw on; raise TypeError for anything else."""
    if not isinstance(ax, Axes):
        raise TypeError(f"ax must be matplotlib.axes.Axes; found {ax!r}")
    return ax


def figure_of(ax: Axes) -> Figure:
    """Return the figure of axes, also of those in a subfigure."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def mark(marker: str, color: str, label: str, size: float = 6.0, **options: Any) -> Line2D:
    """Return a single marker for a legend."""
    return Line2D([], [], linestyle="none", marker=marker, color=color, markersize=size, label=label, **options)


def side_legend(ax: Axes, handles: Sequence[Any], **options: Any) -> None:
    """Draw a legend to the right of axes, in columns of at most 18 entries."""
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0, "frameon": False}
    ax.legend(handles=handles, fontsize=8, ncols=-(-len(handles) // 18), **place, **options)
