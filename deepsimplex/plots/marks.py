"""Marks of samples that tell two classes: the true one inside, the assigned one around it ([SPS] Fig. 1)."""

from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from numpy.typing import NDArray

from deepsimplex.plots.style import class_style


def draw_marks(ax: Any, places: NDArray[np.floating], inner: NDArray[Any], ring: NDArray[Any], n: int) -> None:
    """Scatter samples at ``places`` [N, 2] or [N, 3] with the colours of two classes each; the wrong ones on top.

    Ten classes have a colour of their own; further ones take them again with another marker, that of ``inner``.
    """
    style = class_style(n)
    colours = np.array([to_rgb(colour) for colour, _ in style])
    markers = np.array([marker for _, marker in style])[inner]
    size = float(np.clip(9000 / len(places), 10, 46))
    depth = {"depthshade": False} if places.shape[1] == 3 else {}
    for wrong in (False, True):
        for marker in dict.fromkeys(markers.tolist()):
            chosen = (markers == marker) & ((inner != ring) == wrong)
            if chosen.any():
                ax.scatter(
                    *places[chosen].T,
                    s=size,
                    c=colours[inner[chosen]],
                    edgecolors=colours[ring[chosen]],
                    marker=marker,
                    linewidths=0.28 * np.sqrt(size),
                    zorder=4 if wrong else 3,
                    label="wrong" if wrong else "right",
                    **depth,
                )


def write_key(ax: Any) -> None:
    """Say in a corner of the axes what the two colours mean."""
    write = ax.text2D if ax.name == "3d" else ax.text
    write(
        0.0, 1.0, "inner colour: true\nring: assigned", transform=ax.transAxes, va="top", fontsize=7.5, color="#444444"
    )
