"""Readouts by name: the one table to which a new readout adds a row."""

from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike

from deepsimplex._utils.names import did_you_mean
from deepsimplex.readout.layers import ArgmaxReadout, Readout, SoftmaxReadout

READOUTS: dict[str, type[Readout]] = {"argmax": ArgmaxReadout, "softmax": SoftmaxReadout}


def named_readout(name: str) -> type[Readout]:
    """The layer of a readout by name, and with it the readout's rule; an unknown name is told the nearest known."""
    if name not in READOUTS:
        raise ValueError(f"readout must be one of {', '.join(READOUTS)}; found {name!r}{did_you_mean(name, READOUTS)}")
    return READOUTS[name]


def readout_name(layer: keras.layers.Layer) -> str | None:
    """The name of a layer's readout; None for a layer of none of them.

    Examples
    --------
    >>> readout_name(ArgmaxReadout())
    'argmax'
    """
    return next((name for name, kind in READOUTS.items() if isinstance(layer, kind)), None)


def readout_layer(spec: str | keras.layers.Layer, scores: ArrayLike | None = None, **options: Any) -> Any:
    """Make the layer of a readout by name, or return a layer as it is.

    Parameters
    ----------
    spec : str or keras.layers.Layer
        "argmax", "softmax", or a layer from a dict {"loc", "scale"} to class probabilities.
    scores : array_like, shape [n, L], optional
        Scores S. A layer of this package that was made without takes them too; one that has its own keeps them.
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
    if isinstance(spec, Readout) and spec.scores is None and scores is not None:
        return type(spec).from_config({**spec.get_config(), "scores": np.asarray(scores).tolist()})
    if isinstance(spec, keras.layers.Layer):
        return spec
    if not isinstance(spec, str):
        raise TypeError(f"readout must be one of {', '.join(READOUTS)}, or a layer; found {type(spec).__name__}")
    return named_readout(spec)(scores=scores, **options)
