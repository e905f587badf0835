"""Labels and class probabilities of a classifier for test data, from one pass over it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.validation import check_labels_and_probabilities, check_sample_weight


class LabeledPredictions(NamedTuple):
    """Labels, class probabilities, class names and weights, in the order of the samples as they were read.

    Attributes
    ----------
    y : ndarray, shape [N]
        True classes, named as in ``classes``.
    p : ndarray, shape [N, n]
        Class probabilities.
    classes : ndarray, shape [n]
        The name of each column of ``p``.
    sample_weight : ndarray, shape [N], or None
        Weights, if the data hold them.

    Examples
    --------
    >>> predicted = LabeledPredictions(np.array(["dog"]), np.array([[0.2, 0.8]]), np.array(["cat", "dog"]))
    >>> predicted.p.argmax(axis=1)
    array([1])
    """

    y: NDArray[Any]
    p: NDArray[Any]
    classes: NDArray[Any]
    sample_weight: NDArray[Any] | None = None


def predicts(model: Any) -> bool:
    """Return whether an object is a classifier, rather than labels."""
    return callable(getattr(model, "predict", None))


def labeled_predictions(model: Any, data: Any, *, classes: Sequence[Any] | None = None) -> LabeledPredictions:
    """Read the labels and predict the class probabilities of test data in one pass.

    Two passes, one for the labels and one for ``model.predict``, do not belong together where a data set is shuffled
    anew in each: the accuracy is then that of chance.

    Parameters
    ----------
    model : classifier
        Fitted, with ``predict_proba``, as all classifiers of this package and of scikit-learn have, or a Keras model of
        class probabilities [N, n], or [N, 1] for the probability of class 1 of two.
    data : (x, y), tf.data.Dataset, keras.utils.PyDataset or generator
        Samples and labels: class numbers, one-hot rows, or names as in ``classes``; then weights of the samples, if
        there are any: (x, y, sample_weight). Batches must end.
    classes : sequence of length n, optional
        The name of each column. Default None: ``model.classes_`` or ``model.class_names``, or numbers.

    Returns
    -------
    LabeledPredictions
        Its parts are the arguments of every score: ``y, p, classes=classes, sample_weight=sample_weight``.

    Raises
    ------
    TypeError, ValueError
        For another ``model`` or ``data``, labels that are no classes, and weights of some batches alone.

    Examples
    --------
    >>> import deepsimplex as ds
    >>> import tensorflow as tf
    >>> (x, y), (x_test, y_test) = ds.datasets.load("digits")
    >>> classifier = ds.GLVQ(max_iter=5, random_state=0).fit(x[:200].reshape(200, -1), y[:200])
    >>> shuffled = tf.data.Dataset.from_tensor_slices((x_test.reshape(-1, 64), y_test)).shuffle(500).batch(50)
    >>> y, p, classes, _ = labeled_predictions(classifier, shuffled)
    >>> accuracy = classifier.score(x_test.reshape(-1, 64), y_test)
    >>> bool(abs(np.mean(classes[p.argmax(axis=1)] == y) - accuracy) < 1e-9)
    True
    """
    parts = [(_probabilities(model, x), *columns) for x, *columns in _blocks(data)]
    if not parts:
        raise ValueError("data must hold at least one sample; found none")
    p, y, *weights = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    y = np.array([text.decode() if isinstance(text, bytes) else text for text in y]) if y.dtype.kind in "OS" else y
    names = getattr(model, "classes_", None) if classes is None else classes
    known = names
    if names is None:
        names = getattr(model, "class_names", None) or range(p.shape[1])
        # Labels of a Keras classifier are class numbers, or names.
        known = names if y.dtype.kind in "UO" else None
    numbers = check_labels_and_probabilities(y, p, known)[0]
    names = np.asarray(names)
    return LabeledPredictions(names[numbers], p, names, check_sample_weight(weights[0], len(y)) if weights else None)


def _blocks(data: Any) -> Any:
    """Yield samples, labels and weights, if there are any: all of (x, y), or joined batches of a stream."""
    # Imported here: TensorFlow takes seconds, and arrays do without.
    from deepsimplex.samples import Samples, is_stream

    columns = data if isinstance(data, tuple | list) else None
    if columns is None and not is_stream(data):
        raise TypeError(
            f"data must be (x, y), a tf.data.Dataset, PyDataset or generator of batches; found {type(data).__name__}"
        )
    for block in [columns] if columns is not None else Samples.of(data, labeled=True, name="data").blocks():
        if len(block) not in (2, 3):
            raise ValueError(f"data must hold (x, y) or (x, y, sample_weight); found {len(block)} columns")
        yield block[0], *(np.asarray(column) for column in block[1:] if column is not None)


def _probabilities(model: Any, x: Any) -> NDArray[Any]:
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(x))
    if not (predicts(model) and hasattr(model, "compile")):
        raise TypeError(f"model must have predict_proba, or be a Keras model; found {type(model).__name__}")
    p = np.asarray(model.predict(x, verbose=0))
    return np.column_stack([1 - p, p]) if p.ndim == 2 and p.shape[1] == 1 else p
