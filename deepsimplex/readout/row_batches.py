"""Row-wise TensorFlow functions in batches of rows that bound the memory, also of their gradients."""

from collections.abc import Callable
from functools import partial
from typing import Any

import tensorflow as tf

# Numbers in the largest tensor of a batch of rows. Small batches stay in the processor's cache.
_BUDGET = 2**20


def batch_rows(row_size: int) -> int:
    """Return the rows of a batch, given the numbers in the largest intermediate tensor of one row."""
    return max(1, _BUDGET // row_size)


def in_row_batches(compute: Callable[[Any, Any], Any], loc: Any, scale: Any, most: int) -> Any:
    """Apply a row-wise ``compute(loc, scale) -> [rows, n]`` to at most ``most`` rows at a time and join the results.

    The gradient computes them again, batch by batch.
    """
    rows = loc.shape[0]
    if rows is not None and rows <= most:
        return compute(loc, scale)

    def apply(function: Callable[..., Any], signature: Any, *arguments: Any) -> Any:
        def batches() -> Any:
            return in_batches(function, signature, most, *arguments)

        if rows is not None:
            return batches()
        # Even a loop of one iteration is slow.
        return tf.cond(tf.shape(arguments[0])[0] <= most, lambda: function(*arguments), batches)

    @tf.custom_gradient
    def run(loc: Any, scale: Any) -> tuple[Any, Any]:
        # Not recorded by an outer gradient tape, which would keep every tensor of every batch in eager mode.
        result = apply(compute, loc.dtype, tf.stop_gradient(loc), tf.stop_gradient(scale))

        # Computed again, batch by batch: memory stays bounded, and nothing passes from branch to branch.
        def gradient(upstream: Any) -> Any:
            product = partial(vector_jacobian_product, compute)
            return apply(product, (loc.dtype, scale.dtype), loc, scale, upstream)

        return result, gradient

    return run(loc, scale)


def vector_jacobian_product(compute: Callable[[Any, Any], Any], loc: Any, scale: Any, upstream: Any) -> tuple[Any, ...]:
    """Derivatives by ``loc`` and ``scale`` of the sum of ``upstream`` times ``compute(loc, scale)``."""
    with tf.GradientTape() as tape:
        tape.watch([loc, scale])
        result = compute(loc, scale)
    gradients = tape.gradient(result, [loc, scale], upstream)
    if any(gradient is None for gradient in gradients):
        raise ValueError("probabilities counted among draws have no derivatives: take another method")
    return tuple(gradients)


def in_batches(compute: Callable[..., Any], signature: Any, most: int, *arguments: Any) -> Any:
    """Apply a row-wise function to at most ``most`` rows at a time, in a TensorFlow loop, and join the results.

    Parameters
    ----------
    compute : callable
        (arguments...) -> tensor, or structure of tensors, whose rows depend on those of the arguments alone.
    signature : tf.DType, or structure of such
        Dtypes of the results.
    most : int
        Rows at a time.
    *arguments : tensor, shape [N, ...]
        N may be unknown in a graph.
    """
    # Python numbers where the number of rows is known: XLA requires the shapes of a loop to be constants.
    static = arguments[0].shape[0]
    rows = tf.shape(arguments[0])[0] if static is None else static
    batches = -(-rows // most) if static is not None else tf.maximum(1, -(-rows // most))
    size = -(-rows // batches)
    padding = batches * size - rows

    def split(tensor: Any) -> Any:
        trailing = list(tensor.shape[1:])
        # Ones: a padded row must be an ordinary Gaussian, since its gradient is computed too.
        padded = tf.pad(tensor, [[0, padding]] + [[0, 0]] * len(trailing), constant_values=1.0)
        return tf.reshape(padded, [batches, size, *trailing])

    def join(tensor: Any) -> Any:
        rest = tensor.shape[2:]
        return tf.ensure_shape(tf.reshape(tensor, [batches * size, *rest])[:rows], [static, *rest])

    split_arguments = tuple(split(argument) for argument in arguments)
    result = tf.map_fn(
        lambda batch: compute(*batch), split_arguments, fn_output_signature=signature, parallel_iterations=1
    )
    return tf.nest.map_structure(join, result)
