"""Base classes of targets, which turn labels and samples into Gaussian observations in latent space."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.array_operations import keras
from deepsimplex._utils.parameters import Parameters, constructor_parameters
from deepsimplex._utils.validation import check_labels
from deepsimplex.latent import LatentGaussian


class Candidates(NamedTuple):
    """Values of one argument of a target among which a classifier selects by its likelihood.

    Attributes
    ----------
    argument : str
    values : tuple of float

    Examples
    --------
    >>> from deepsimplex.targets import ILR
    >>> ILR.candidates.argument, len(ILR.candidates.values)
    ('smoothing', 6)
    """

    argument: str
    values: tuple[float, ...]


class Target(Parameters, ABC):
    """Base class of targets: rules that turn labels (and samples) into Gaussian observations in latent space.

    ``scores``, ``noise`` and ``latent_dim`` follow from the number of classes alone: a reloaded model can read
    out latents without the training samples.

    To define your own target, subclass this class, or ``LabelTarget`` if it needs labels only, store every argument of
    the constructor as an attribute of the same name, and register the class with
    ``keras.saving.register_keras_serializable(package=...)``: it then trains, saves and loads like the others, and
    configurations name it as "module:Class".

    Attributes
    ----------
    default_readout : str
        Readout that the latents are made for, "argmax" or "softmax". The default is "argmax".
    needs_samples : bool
        Whether latents depend on the samples, not on the labels alone. The default is True.
    sums_features : bool
        Whether latents come from distances that add up the samples' features. The default is False.
    candidates : Candidates or None
        Values of an argument for a classifier to select among. None (default): nothing to select.
    num_classes_ : int
        Number of classes n, after fit.

    Examples
    --------
    >>> from deepsimplex.targets import ILR
    >>> target = ILR(0.9)
    >>> isinstance(target, Target), target.fit_transform(None, [0, 1, 2]).loc.shape, target.scores(3).shape
    (True, (3, 2), (3, 2))
    """

    default_readout: str = "argmax"
    needs_samples: bool = True
    sums_features: bool = False
    candidates: ClassVar[Candidates | None] = None
    num_classes_: int

    @abstractmethod
    def scores(self, n: int) -> NDArray[np.float64]:
        """Matrix S, shape [n, L]: the class of a latent f is argmax S f, its composition softmax S f."""

    @abstractmethod
    def fit(self, x: Any, y: ArrayLike, num_classes: int | None = None) -> Self:
        """Fit to training samples x [N, ...] and labels y; with ``num_classes`` None the number is taken from y."""

    @abstractmethod
    def fit_transform(self, x: Any, y: ArrayLike, num_classes: int | None = None) -> LatentGaussian:
        """Fit, and return the observations of the training samples (NumPy, float64)."""

    @abstractmethod
    def transform(self, x: Any, y: ArrayLike) -> LatentGaussian:
        """Return the observations of other labeled samples, after fit (NumPy, float64)."""

    def latent_dim(self, n: int) -> int:
        """Number of latent dimensions L for n classes."""
        return self.scores(n).shape[1]

    def noise(self, n: int) -> NDArray[np.float64] | None:
        """Standard deviations [1, 1] or [1, L] of the noise that the readout adds to a head's latents. Default None.

        ``losses.LatentNLL`` adds the variance of the target's noise to that of the head, so that the head learns the
        rest. The readout must then add it again.
        """
        return None

    def table(self, n: int) -> LatentGaussian | None:
        """Observations of the n classes, row y for the hard label y. None (default) if latents need samples."""
        return None

    def neighbor_error(self) -> float | None:
        """Leave-one-out error of the nearest neighbor among the training samples, after fit.

        None (default) for targets that compare no samples. ``losses.Composition`` computes its default mass from it, or
        else from the features of training samples.
        """
        return None

    def searches(self) -> list[bool]:
        """For every neighbor search that the latents come from, whether a cache was used. Default: an empty list."""
        return []

    def recall(self) -> float | None:
        """Share of the true neighbors found, the smallest of several searches. None (default) if all are exact."""
        return None

    def default_loss(self) -> Any:
        """Loss of a classifier that is compiled without one. The default is ``losses.LatentNLL()``."""
        from deepsimplex.losses import LatentNLL  # imported here: it imports Keras

        return LatentNLL()

    @property
    def latent_dim_(self) -> int:
        """Number of latent dimensions L, after fit."""
        return self.latent_dim(self.num_classes_)

    @property
    def scores_(self) -> NDArray[np.float64]:
        """Matrix S of the readout, shape [n, L], after fit."""
        return self.scores(self.num_classes_)

    @property
    def is_fitted(self) -> bool:
        """Whether the target is fitted: it has the number of classes and, if it needs them, the training samples."""
        return hasattr(self, "num_classes_")

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor as plain JSON, read from the attributes of the same names."""
        return {
            key: keras.saving.serialize_keras_object(getattr(self, key)) for key in constructor_parameters(type(self))
        }

    def __repr__(self) -> str:
        parameters = constructor_parameters(type(self))
        values = {key: getattr(self, key) for key in parameters if hasattr(self, key)}
        given = {key: value for key, value in values.items() if repr(value) != repr(parameters[key].default)}
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in given.items())})"


class LabelTarget(Target):
    """Base class of targets made from labels alone; they take soft labels too, and x may be None everywhere.

    Classes without samples are allowed: pass ``num_classes``.

    Examples
    --------
    >>> @keras.saving.register_keras_serializable(package="example")
    ... class Corners(LabelTarget):
    ...     def __init__(self, radius=1.0):
    ...         self.radius = radius
    ...
    ...     def scores(self, n):
    ...         return np.eye(n)
    ...
    ...     def latents(self, memberships):
    ...         return LatentGaussian(self.radius * memberships, np.zeros((len(memberships), 1)))
    >>> Corners(2.0).fit_transform(None, [0, 1]).loc
    array([[2., 0.],
           [0., 2.]])
    """

    needs_samples: bool = False

    @abstractmethod
    def latents(self, memberships: NDArray[np.float64]) -> LatentGaussian:
        """Observations of soft labels, rows [N, n] that are non-negative and sum to one."""

    def table(self, n: int) -> LatentGaussian:
        """Observations of the n classes, in order: row y is the latent of the hard label y."""
        return self.latents(np.eye(n))

    def fit(self, x: Any, y: ArrayLike, num_classes: int | None = None) -> Self:
        """Take the number of classes from y, or from ``num_classes``; only the rows of an array x are counted."""
        _, n = check_labels(y, num_classes, rows=_num_rows(x), soft=True)
        self.scores(n)  # arguments that do not suit n raise now
        self.noise(n)
        self.num_classes_ = n
        return self

    def fit_transform(self, x: Any, y: ArrayLike, num_classes: int | None = None) -> LatentGaussian:
        """Fit, and return the observations of the labels y, hard [N] or soft [N, n]."""
        return self.fit(x, y, num_classes).transform(x, y)

    def transform(self, x: Any, y: ArrayLike) -> LatentGaussian:
        """Return the observations of the labels y: hard [N] after fit, soft [N, n] at any time."""
        labels, n = check_labels(y, self.num_classes_ if self.is_fitted else None, rows=_num_rows(x), soft=True)
        if labels.ndim == 2:
            return self.latents(labels)
        if not self.is_fitted:  # the largest label of these samples need not be the largest of all
            raise ValueError(f"{type(self).__name__} target: call fit(x, y) first, or look labels up in table(n)")
        return self.table(n)[labels]


def _num_rows(x: Any) -> int | None:
    # Only one array has a number of samples to compare, not None or the several inputs of a model.
    if hasattr(x, "shape") and not len(x.shape):
        raise ValueError("x must have shape [N, ...], a row per sample; found a single number")
    return len(x) if hasattr(x, "shape") else None
