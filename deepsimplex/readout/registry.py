"""Readouts by name: the one table to which a new readout adds a row."""

import difflib
from typing import Any

import keras
from numpy.typing import ArrayLike

from deepsimplex.readout.layers import ArgmaxReadout, SoftmaxReadout

READOUTS: dict[str, type[keras.layers.Layer]] = {"argmax": ArgmaxReadout, "softmax": SoftmaxReadout}


def readout_layer(spec: str | keras.layers.Layer, scores: ArrayLike | None = None, **options: Any) -> Any:
    """Make the layer of a readout by name, or return a layer as it is.

    Parameters
    ----------
    spec : str or keras.layers.Layer
        "argmax", "softmax", or a layer from a dict {"loc", "scale"} to class probabilities, which has its own scores.
    scores : array_like, shape [n, L], optional
        Scores S of a readout made by name.
    **options
        Further arguments of the layer.

    Raises
    ------
    ValueError
        When the name is unknown; the nearest known is named.

    Examples
    --------
    >>> readout_layer("softmax").name.startswith("softmax")
    True
    """
    if isinstance(spec, keras.layers.Layer):
        return spec
    if spec not in READOUTS:
        near = difflib.get_close_matches(str(spec), READOUTS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"readout must be one of {', '.join(READOUTS)} or a layer; found {spec!r}{hint}")
    return READOUTS[spec](scores=scores, **options)
