"""Labels of every kind as one type: class numbers, names, one-hot rows, soft labels and latents."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from deepsimplex._utils.validation import check_class_names, check_labels, label_array, unmasked
from deepsimplex.latent import LatentGaussian


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels of N samples.

    Attributes
    ----------
    classes : ndarray, shape [n]
        Names of the classes, in the order of the columns of probabilities.
    values : ndarray, shape [N] (int64) or [N, n] (float64)
        Class numbers, or soft labels.
    latents : LatentGaussian or None
        Latents, if they were given in place of labels; ``values`` are then the classes that they are nearest to.

    Examples
    --------
    >>> labels = Labels.of(["dog", "cat", "dog"])
    >>> labels.values, labels.classes.tolist()
    (array([1, 0, 1]), ['cat', 'dog'])
    >>> Labels.of([[0.2, 0.8]], num_classes=2).hard
    array([1])
    """

    classes: NDArray[Any]
    values: NDArray[Any]
    latents: LatentGaussian | None = None

    @classmethod
    def of(
        cls,
        y: Any,
        num_classes: int | None = None,
        classes: Any = None,
        *,
        scores: NDArray[Any] | None = None,
        soft: bool = True,
        rows: int | None = None,
        name: str = "y",
        of: str = "x",
    ) -> Self:
        """Check labels, number their classes, and tell latents from soft labels.

        Parameters
        ----------
        y : labels [N] or [N, 1], one-hot or soft labels [N, n]; LatentGaussian, dict {"loc", "scale"} or latents [N, L]
        num_classes : int, optional
            Number of classes n: labels are then class numbers 0 to n - 1.
        classes : array_like, shape [n], optional
            Names of all classes. Default None: with ``num_classes`` the numbers, else those of y, sorted.
        scores : ndarray, shape [n, L], optional
            Scores S of a latent space, whose class of a latent f is argmax S f: y may then hold latents. Floats [N, L]
            are latents without noise, unless L is n (soft labels) or 1 (a column of labels).
        soft : bool
            Whether soft labels are accepted. Default True; else rows [N, n] must be one-hot.
        rows, name, of
            As in ``check_labels``.

        Raises
        ------
        TypeError, ValueError
            For labels that are masked, missing, out of range, not among ``classes``, or of a single class that was not
            named.
        """
        if scores is not None:
            num_classes = len(scores)
            if holds_latents(y, scores):
                latents = LatentGaussian.of(y) if isinstance(y, LatentGaussian | dict) else _without_noise(y)
                latents = latents.numpy()
                return cls(np.arange(num_classes), np.argmax(latents.loc @ scores.T, axis=-1), latents)
        elif isinstance(y, LatentGaussian | dict):
            raise ValueError(f"{name} must hold class labels; found latents")
        if num_classes is not None and classes is None:
            values, n = check_labels(y, num_classes, name=name, rows=rows, of=of, soft=soft)
            return cls(np.arange(n), values)
        y = label_array(y, name)
        if y.ndim == 2 and y.shape[1] > 1:
            values, n = check_labels(y, name=name, rows=rows, of=of, soft=soft)
            check_class_names(classes, n, of=f"soft labels {name}")
            return cls(np.arange(n) if classes is None else np.asarray(classes), values)
        y = y[:, 0] if y.ndim == 2 else y
        names = np.unique(y) if classes is None else unmasked(classes, "classes")
        if names.ndim != 1:
            raise ValueError(f"classes must have shape [n]; found shape {names.shape}")
        check_class_names(names.tolist(), len(names), of="probabilities")
        numbers = class_numbers(y, names, name)
        if len(names) < 2:
            alone = names.tolist()[0]
            raise ValueError(
                f"{name} must name at least 2 classes; found one class alone, {alone!r}. Name the others in classes"
            )
        return cls(names, numbers)

    @staticmethod
    def example(spec: Any, scores: NDArray[Any]) -> Any:
        """Return the labels or latents of one sample that match the specification of a data set's labels.

        Examples
        --------
        >>> Labels.example(tf.TensorSpec([None, 3], "float32"), np.eye(3))
        array([[1., 0., 0.]])
        """
        n, latent_dim = scores.shape
        if isinstance(spec, dict):
            return {"loc": np.zeros((1, spec["loc"].shape[1])), "scale": np.ones((1, *spec["scale"].shape[1:]))}
        if is_hard(spec):
            return np.zeros(1, np.int64)
        if spec.shape[1] == n:
            return np.eye(n)[:1]
        if holds_latents(spec, scores):
            return np.zeros((1, spec.shape[1]))
        raise ValueError(
            f"a tf.data.Dataset must yield labels [N], soft labels [N, {n}], latents [N, {latent_dim}] or dicts "
            f"{{'loc', 'scale'}} beside its samples; found {spec}"
        )

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> "Labels":
        """The labels of some samples."""
        return Labels(self.classes, self.values[rows], None if self.latents is None else self.latents[rows])

    @property
    def is_soft(self) -> bool:
        """Whether labels are shares of the classes."""
        return self.values.ndim == 2

    @property
    def hard(self) -> NDArray[np.int64]:
        """The number of the likeliest class of every sample."""
        return np.argmax(self.values, axis=1) if self.is_soft else self.values


def holds_latents(y: Any, scores: NDArray[Any]) -> bool:
    """Return whether ``y``, an array or its specification, holds latents of a space with scores [n, L], not labels."""
    if isinstance(y, LatentGaussian | dict):
        return True
    n, latent_dim = scores.shape
    if not (hasattr(y, "dtype") and tf.as_dtype(y.dtype).is_floating and len(y.shape) == 2):
        return False
    return y.shape[1] == latent_dim and 1 < latent_dim != n


def is_hard(spec: Any) -> bool:
    """Return whether a specification of labels is that of labels [N] or [N, 1]."""
    return not isinstance(spec, dict) and (len(spec.shape) == 1 or spec.shape[1:] == [1])


def class_numbers(y: NDArray[Any], names: Sequence[Any] | NDArray[Any], name: str = "y") -> NDArray[np.int64]:
    """Return the positions [N] of hard labels y [N] among the names of the classes."""
    names = np.asarray(names)
    unknown = np.setdiff1d(y, names)
    if len(unknown):
        row = int(np.argmax(np.isin(y, unknown)))
        raise ValueError(
            f"{name} holds labels that classes={names.tolist()} does not: {unknown.tolist()}, the first in row {row}"
        )
    order = np.argsort(names)
    return order[np.searchsorted(names, y, sorter=order)].astype(np.int64)


def _without_noise(loc: Any) -> LatentGaussian:
    return LatentGaussian(loc, np.zeros((len(loc), 1), loc.dtype))
