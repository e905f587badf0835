"""Rows in pieces, in graphs and eagerly: memory grows with the piece, not with the batch, for gradients too."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def map_rows(compute: Callable[[Any, Any], Any], loc: Any, scale: Any, row_size: int, budget: int) -> Any:
    """Apply ``compute(loc, scale) -> [rows, n]`` to pieces of the rows and join the answers.

    A gradient computes them again, piece by piece.

    Parameters
    ----------
    compute : callable
        Works on each row by itself.
    loc, scale : tensor, shapes [N, L] and [N, ...]
    row_size : int
        Numbers in the largest intermediate tensor of one row.
    budget : int
        Numbers that this tensor may hold for a piece.

    Returns
    -------
    tensor, shape [N, n]
    """
    most = max(1, budget // row_size)
    static = loc.shape[0]
    if static is not None and static <= most:
        return compute(loc, scale)
    return _whole_or_in_pieces(compute, most)(loc, scale)


def _whole_or_in_pieces(compute: Callable[[Any, Any], Any], most: int) -> Callable[[Any, Any], Any]:
    """The computation on many rows, or an unknown number: a loop, even of one turn, costs more than most batches do."""

    def slopes(loc: Any, scale: Any, upstream: Any) -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            tape.watch([loc, scale])
            answer = compute(loc, scale)
        gradients = tape.gradient(answer, [loc, scale], upstream)
        if any(gradient is None for gradient in gradients):
            raise ValueError("probabilities counted among draws have no derivatives: take another method")
        return tuple(gradients)

    @tf.custom_gradient
    def run(loc: Any, scale: Any) -> tuple[Any, Any]:
        def whole_or_not(function: Callable[..., Any], signature: Any, *parts: Any) -> Any:
            if loc.shape[0] is not None:
                return _in_pieces(function, signature, most, *parts)
            whole = tf.shape(loc)[0] <= most
            return tf.cond(whole, lambda: function(*parts), lambda: _in_pieces(function, signature, most, *parts))

        # Hidden from a tape that is open outside: eagerly it would keep every tensor of every piece.
        answer = whole_or_not(compute, loc.dtype, tf.stop_gradient(loc), tf.stop_gradient(scale))

        # Computed again, piece by piece: memory stays bounded, and nothing passes from branch to branch.
        def gradient(upstream: Any) -> Any:
            return whole_or_not(slopes, (loc.dtype, scale.dtype), loc, scale, upstream)

        return answer, gradient

    return run


def _in_pieces(compute: Callable[..., Any], signature: Any, most: int, *parts: Any) -> Any:
    # Python numbers where the batch size is known: XLA wants the shapes of a loop to be constants.
    static = parts[0].shape[0]
    rows = tf.shape(parts[0])[0] if static is None else static
    pieces = -(-rows // most) if static is not None else tf.maximum(1, -(-rows // most))
    size = -(-rows // pieces)
    padding = pieces * size - rows

    def split(tensor: Any) -> Any:
        trailing = list(tensor.shape[1:])
        # Ones: a padded row must be an ordinary Gaussian, since its gradient is computed too.
        padded = tf.pad(tensor, [[0, padding]] + [[0, 0]] * len(trailing), constant_values=1.0)
        return tf.reshape(padded, [pieces, size, *trailing])

    def join(tensor: Any) -> Any:
        return tf.ensure_shape(
            tf.reshape(tensor, [pieces * size, *tensor.shape[2:]])[:rows], [static, *tensor.shape[2:]]
        )

    pieced = tuple(split(part) for part in parts)
    answer = tf.map_fn(lambda piece: compute(*piece), pieced, fn_output_signature=signature, parallel_iterations=1)
    return tf.nest.map_structure(join, answer)
