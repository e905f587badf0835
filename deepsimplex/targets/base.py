"""What every target is: labels, and for some the samples, become Gaussian observations in latent space."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import check_labels, check_same_length
from deepsimplex.latent import LatentGaussian

Readout = Literal["argmax", "softmax"]


@dataclass(frozen=True)
class Candidates:
    """Values of one argument of a target among which data may choose.

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


class Target(ABC):
    """A rule that turns labels (and samples) into Gaussian observations in latent space.

    Its geometry, ``latent_dim``, ``scores`` and ``noise``, follows from the number of classes alone: a reloaded model
    carries no training samples and still reads out its latents.

    Attributes
    ----------
    name : str
        The target's name in configurations.
    default_readout : {"argmax", "softmax"}
        The readout its latents are made for.
    needs_samples : bool
        Whether latents depend on the samples, not on the labels alone.
    candidates : Candidates or None
        How far apart the target's paper tries to put the classes; None where there is nothing to choose.
    num_classes_ : int
        Number of classes n, after fit.
    """

    name: ClassVar[str]
    default_readout: Readout
    needs_samples: bool = False
    candidates: ClassVar[Candidates | None] = None
    num_classes_: int

    @abstractmethod
    def latent_dim(self, n: int) -> int:
        """Number of latent dimensions L for n classes."""

    @abstractmethod
    def scores(self, n: int) -> NDArray[np.float64]:
        """Matrix S, shape [n, L]: the class of a latent f is argmax S f, its composition softmax S f."""

    @abstractmethod
    def noise(self, n: int) -> NDArray[np.float64] | None:
        """Standard deviations, shape [1, 1] or [1, L], that the readout adds to a head's own; None for no noise.

        A head trained with the target's own variance in its loss predicts the latent without that noise, and must be
        read out with it.
        """

    @abstractmethod
    def fit(self, x: Any, y: ArrayLike, num_classes: int | None = None) -> Self:
        """Take the training samples x [N, ...] and labels y; None for ``num_classes`` counts them from y."""

    @abstractmethod
    def fit_transform(self, x: Any, y: ArrayLike, num_classes: int | None = None) -> LatentGaussian:
        """Fit, and give the observations of the training samples themselves (NumPy, float64)."""

    @abstractmethod
    def transform(self, x: Any, y: ArrayLike) -> LatentGaussian:
        """Give the observations of other labeled samples, after fit (NumPy, float64)."""

    @abstractmethod
    def get_config(self) -> dict[str, Any]:
        """The target as plain JSON, from which ``get_target`` makes it again, unfitted."""

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
        """Whether ``transform`` has what it needs: the number of classes, and training samples where they matter."""
        return hasattr(self, "num_classes_")

    def __repr__(self) -> str:
        arguments = (f"{key}={value!r}" for key, value in self.get_config().items() if key != "name")
        return f"{type(self).__name__}({', '.join(arguments)})"


class LabelTarget(Target):
    """A target made from labels alone; it takes soft labels too, and x may be None everywhere.

    Classes without samples are no obstacle: pass ``num_classes``.
    """

    @abstractmethod
    def latents(self, memberships: NDArray[np.float64]) -> LatentGaussian:
        """Observations of soft labels, rows [N, n] that are non-negative and sum to one."""

    def table(self, n: int) -> LatentGaussian:
        """The observations of the n classes themselves, in order: row y is the latent of the hard label y.

        Streams of data look their labels up in it.
        """
        return self.latents(np.eye(n))

    def fit(self, x: Any, y: ArrayLike, num_classes: int | None = None) -> Self:
        """Take the number of classes from y, or from ``num_classes``; an array x is only counted."""
        _, n = check_labels(y, num_classes, soft=True)
        _check_counts(x, y)
        self.scores(n)  # parameters that do not fit n speak up now
        self.noise(n)
        self.num_classes_ = n
        return self

    def fit_transform(self, x: Any, y: ArrayLike, num_classes: int | None = None) -> LatentGaussian:
        """Fit, and give the observations of the labels y, hard [N] or soft [N, n]."""
        return self.fit(x, y, num_classes).transform(x, y)

    def transform(self, x: Any, y: ArrayLike) -> LatentGaussian:
        """Give the observations of the labels y: hard [N] after fit, soft [N, n] at any time."""
        labels, n = check_labels(y, getattr(self, "num_classes_", None), soft=True)
        _check_counts(x, y)
        if labels.ndim == 2:
            return self.latents(labels)
        if not self.is_fitted:  # the largest label seen here need not be the largest there is
            raise ValueError(f"{type(self).__name__} target: call fit(x, y) first, or look labels up in table(n)")
        return self.table(n)[labels]


def _check_counts(x: Any, y: ArrayLike) -> None:
    # What is not one array (None, or the several inputs of a model) has no number of samples to compare.
    if hasattr(x, "shape"):
        check_same_length(x, np.asarray(y))


def without_name(config: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments in a configuration: everything but the name."""
    return {key: value for key, value in config.items() if key != "name"}
