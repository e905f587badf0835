"""Marks of samples that tell two classes: the true one inside, the assigned one around it ([SPS] Fig. 1)."""

from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from numpy.typing import NDArray

from deepsimplex.plots.style import class_style


def draw_marks(ax: Any, places: NDArray[np.floating], inner: NDArray[Any], ring: NDArray[Any], n: int) -> None:
    """Scatter samples at ``places`` [N, 2] or [N, 3] with the colors of two classes each; the wrong ones on top.

    Ten classes have a color of their own; further ones take them again with another marker, that of ``inner``.
    """
    style = class_style(n)
    colors = np.array([to_rgb(color) for color, _ in style])
    markers = np.array([marker for _, marker in style])[inner]
    size = float(np.clip(9000 / len(places), 12, 40))
    depth = {"depthshade": False} if places.shape[1] == 3 else {}
    for wrong in (False, True):
        # A wrong sample is drawn larger: half of its ring lies outside.
        area, width = (1.5 * size, 0.45 * np.sqrt(size)) if wrong else (size, 0.2 * np.sqrt(size))
        for marker in dict.fromkeys(markers.tolist()):
            chosen = (markers == marker) & ((inner != ring) == wrong)
            if chosen.any():
                ax.scatter(
                    *places[chosen].T,
                    s=area,
                    c=colors[inner[chosen]],
                    edgecolors=colors[ring[chosen]],
                    marker=marker,
                    linewidths=width,
                    zorder=4 if wrong else 3,
                    label="wrong" if wrong else "right",
                    **depth,
                )


KEY = "inside: true\nring: assigned"
"""What the two colors mean, for a legend or a corner of the axes."""
