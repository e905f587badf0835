"""Forms of labels and class probabilities that a loss or a metric compares, found by a trial on a few samples."""

import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

# From labels [N] or [N, n] and class probabilities [N, n] to what a loss or a metric is called with.
FORMS: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "numbers": lambda label, p: (class_numbers(label), p),
    "rows": lambda label, p: (label_rows(label, p), p),
    "predicted": lambda label, p: (class_numbers(label), tf.argmax(p, axis=-1)),
    "second": lambda label, p: (label_rows(label, p)[:, 1:], p[:, 1:]),
}


def is_soft(y_true: Any) -> bool:
    """Return whether labels have a column for every class."""
    return len(y_true.shape) == 2 and y_true.shape[1] != 1


def class_numbers(label: Any) -> Any:
    """Labels as class numbers [N]: of soft labels those of the largest shares."""
    return tf.argmax(label, axis=-1) if is_soft(label) else label


def label_rows(label: Any, p: Any) -> Any:
    """Labels as rows [N, n], one-hot or soft, in the dtype of the probabilities."""
    if is_soft(label):
        return tf.cast(label, p.dtype)
    return tf.one_hot(tf.cast(tf.reshape(label, [-1]), tf.int32), p.shape[1], dtype=p.dtype)


def accepted_forms(
    compare: Callable[[Any, Any], Any], n: int, *, binary: bool = False, hinted: bool = False
) -> list[str]:
    """Return the names of ``FORMS`` that a loss or a metric compares, or none where a trial does not tell.

    Parameters
    ----------
    compare : callable
        From labels and outputs to a value, an array or a structure of them.
    n : int
        Number of classes.
    binary : bool
        Whether the probability of class 1 alone is tried first. Default False.
    hinted : bool
        Whether a form is also taken where only the others raise. Default False: nothing is known of ``compare``.

    Notes
    -----
    A form is accepted if the value is the same after the classes are renumbered, in labels and probabilities, and
    another after they are renumbered in probabilities alone. The number of samples differs from that of the classes,
    so that arrays that do not belong together do not broadcast.

    Examples
    --------
    >>> accepted_forms(keras.losses.sparse_categorical_crossentropy, 3)
    ['numbers']
    >>> accepted_forms(keras.losses.mean_squared_error, 3)
    ['rows']
    """
    label = np.array([0, 0, 1, n - 1] + [2] * (n == 4))
    other = (label + 1) % n
    outputs = [0.1 / (n - 1) + (0.9 - 0.1 / (n - 1)) * np.eye(n, dtype="float32")[y] for y in (label, other)]
    p, other_p = (tf.constant(rows, tf.float32) for rows in outputs)

    def values(form: str) -> list[NDArray[Any]] | None:
        pairs = ((label, p), (other, other_p), (label, other_p))
        try:
            return [_flat(compare(*FORMS[form](tf.constant(y, tf.int64), q))) for y, q in pairs]
        except Exception:  # of any kind: losses and metrics have no common one
            return None

    def tells_apart(form: str) -> bool:
        if (given := tried[form]) is None:
            return False
        same, renumbered, wrong = given
        return _close(same, renumbered) and not _close(same, wrong)

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        tried = {form: values(form) for form in FORMS if form != "second" or (binary and n == 2)}
    if tried.get("second") is not None:
        return ["second"]
    accepted = [form for form in ("numbers", "rows") if tells_apart(form)] or ["predicted"] * tells_apart("predicted")
    if not accepted and hinted:
        accepted = [form for form in ("rows", "numbers") if tried[form] is not None][:1]
    return accepted


def in_accepted_form(forms: list[str], label: Any, p: Any) -> tuple[Any, Any]:
    """Return labels and probabilities in the accepted form that is nearest to how labels were given."""
    if not forms:
        return label, p
    given = "rows" if is_soft(label) else "numbers"
    return FORMS[given if given in forms else forms[0]](label, p)


def _flat(value: Any) -> NDArray[Any]:
    leaves = [np.ravel(keras.ops.convert_to_numpy(leaf)) for leaf in keras.tree.flatten(value)]
    return np.sort(np.concatenate(leaves).astype(np.float64))  # values of classes come in another order


def _close(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-4, atol=1e-6)
