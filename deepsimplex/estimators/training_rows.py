"""Training samples of the Gaussian-process classifiers: arrays, memory maps or a tf.data.Dataset, read in blocks."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.batching import check_finite_dataset
from deepsimplex._utils.validation import check_sample_weight
from deepsimplex.estimators.labels import Labels, check_finite, checked_rows, class_numbers, hard_labels
from deepsimplex.samples.samples import check_not_given_with_stream

if TYPE_CHECKING:
    from deepsimplex.gp.rows import Arrays, Rows


@dataclass(frozen=True)
class TrainingRows:
    """Checked training samples; those of weight 0 are left out.

    Parameters
    ----------
    rows : Rows
        Features X [N, d], memberships as ``Labels`` has them, and weights [N]; see ``deepsimplex.gp.rows``.
    labels : Labels
        Of all rows of arrays; of a data set one per class, so that memory does not grow with N.
    """

    rows: "Rows"
    labels: Labels

    @classmethod
    def of(cls, classifier: Any, X: Any, y: Any, sample_weight: Any) -> Self:
        """Check the data of a classifier's ``fit``, and set its ``classes_`` and scikit-learn's attributes."""
        make = cls._of_dataset if isinstance(X, tf.data.Dataset) else cls._of_arrays
        return make(classifier, X, y, sample_weight)

    def part(self, index: NDArray[np.int64]) -> "TrainingRows":
        """Return some of the samples of arrays, by their positions."""
        rows: Any = self.rows
        return TrainingRows(rows.part(index), self.labels[index])

    @classmethod
    def _of_arrays(cls, classifier: Any, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> Self:
        from deepsimplex.gp.rows import ArrayRows  # GPflow takes seconds to import

        features, labels, weights = classifier._readable(X, y, sample_weight)
        used = weights > 0

        def in_double_precision(x: Any, *others: Any) -> "Arrays":
            return np.asarray(x, dtype=np.float64), *others

        rows = ArrayRows(features, labels.memberships, weights, used=used)
        return cls(rows.map(in_double_precision), labels if used.all() else labels[used])

    @classmethod
    def _of_dataset(cls, classifier: Any, X: Any, y: None, sample_weight: None) -> Self:
        from deepsimplex.gp.rows import DatasetRows, read_batches

        check_not_given_with_stream(y=y, sample_weight=sample_weight, batch_size=classifier.batch_size)
        _check_dataset(X)
        num_rows = num_batches = 0
        soft, found = False, np.empty(0)

        def used(x: Any, y: Any, weights: Any = None) -> "Arrays":
            return _used(classifier, num_batches == 0, x, y, weights)

        def described(x: Any, y: Any, _: Any) -> tuple[int, bool, NDArray[Any]]:
            return len(x), y.ndim == 2, _classes_of(y, classifier.classes)

        for count, shares, classes in read_batches(X, used, described):
            num_rows, num_batches, soft = num_rows + count, num_batches + 1, shares
            found = np.union1d(found, classes) if len(found) else classes
        if num_rows < 2:
            raise ValueError(f"X must yield at least 2 samples of a weight above 0; found {num_rows}")
        labels = Labels(found, np.eye(len(found))) if soft else Labels.of(found, classifier.classes)
        classifier.classes_ = labels.classes

        def numbered(x: Any, y: Any, weights: Any) -> "Arrays":
            if y.ndim == 1:
                return x, class_numbers(y, labels.classes), weights
            return x, Labels.of(y, labels.classes).memberships, weights

        counts = {"num_features": classifier.n_features_in_, "num_rows": num_rows, "num_batches": num_batches}
        return cls(DatasetRows(X, used, **counts).map(numbered), labels)


def _check_dataset(X: Any) -> None:
    """Raise an error unless X is a finite tf.data.Dataset of batches of numeric features and labels."""
    spec = X.element_spec
    if not (isinstance(spec, tuple) and len(spec) in (2, 3) and all(isinstance(part, tf.TensorSpec) for part in spec)):
        raise ValueError(
            "X must be a tf.data.Dataset of batches (features, label) or (features, label, sample_weight), each a "
            f"tensor; found {spec}"
        )
    if not (spec[0].dtype.is_floating or spec[0].dtype.is_integer or spec[0].dtype.is_bool):
        raise TypeError(f"X must hold real numbers; found dtype {spec[0].dtype.name}")
    if spec[0].shape.rank != 2 or spec[1].shape.rank not in (1, 2):
        raise ValueError(
            "X must be a tf.data.Dataset of batches, features [N, d] and labels [N] or [N, n]: dataset.batch(512); "
            f"found shapes {spec[0].shape} and {spec[1].shape}"
        )
    check_finite_dataset(X, "X")


def _used(classifier: Any, first: bool, x: Any, y: Any, weights: Any) -> "Arrays":
    """Check a batch of a data set, and return its samples of weight above 0."""
    features = checked_rows(classifier, x, reset=first, ensure_all_finite=False)
    check_finite(features)
    if len(y) != len(x):
        raise ValueError(f"X and y must have as many rows; found {len(x)} and {len(y)}")
    weights = check_sample_weight(weights, len(x), all_zero=True)
    used = weights > 0
    labels = (y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y)[used]
    if labels.dtype.kind == "O":  # TensorFlow's text
        labels = np.char.decode(labels.astype(np.bytes_))
    return features[used], labels, weights[used]


def _classes_of(y: NDArray[Any], classes: Any) -> NDArray[Any]:
    """Check the labels of a batch, and return the classes among them, or all of soft labels."""
    if y.ndim == 2:
        return Labels.of(y, classes).classes
    if classes is not None:
        Labels.of(y, classes)
    return np.unique(hard_labels(y))
