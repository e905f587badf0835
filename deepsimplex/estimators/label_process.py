"""Gaussian process on labels, solved in closed form: what ``SimplexGaussianProcess`` fits by default."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from keras import ops
from numpy.typing import NDArray

from deepsimplex._utils.memory import check_memory
from deepsimplex._utils.portable_operations import precise_dtype
from deepsimplex.heads import ClosedFormHead
from deepsimplex.kernels.closed_form import ROWS
from deepsimplex.kernels.feature_kernel import COEFFICIENTS, Transformation
from deepsimplex.kernels.stationary import operations
from deepsimplex.latent import LatentGaussian
from deepsimplex.readout import LeftOutLatents, LeftOutSoftmax
from deepsimplex.samples import Samples

# Inducing rows at most, by default: up to as many rows the process is exact.
INDUCING = 2000
# Matrices [N, N] that an exact fit holds at once.
_MATRICES = 12
# Bound of clipped columns, and the value beyond which they are on it; a normal distribution's distance of quartiles in
# standard deviations, and what is no more than round-off of a column whose largest number is one.
_BOUND, _FARTHEST, _QUARTILES, _ROUND_OFF = 3.0, 1e6, 1.349, 1e-14


class SmoothClip(NamedTuple):
    """Columns in robust units, whose outliers are drawn in smoothly: z / sqrt(1 + (z / 3)^2), which stays within 3.

    Few values far away would otherwise make up a column's standard deviation, and all distances.

    Attributes
    ----------
    center, width : ndarray, shape [d]
        Medians, and distances between the quartiles in units of those of a standard normal distribution.

    Notes
    -----
    Holzmueller, Grinsztajn, Steinwart: *Better by Default: Strong Pre-Tuned MLPs and Boosted Trees on Tabular Data*,
    2024.

    Examples
    --------
    >>> clip = SmoothClip.of(np.array([[0.0], [1.0], [2.0], [3.0], [1e6]]))
    >>> clip(np.array([[2.0], [1e6], [1e300]])).round(3).tolist()
    [[0.0], [3.0], [3.0]]
    """

    center: NDArray[np.float64]
    width: NDArray[np.float64]

    @classmethod
    def of(cls, X: NDArray[Any]) -> "SmoothClip":
        """Take the units of rows X [N, d]; a column of which half is constant has that of its standard deviation."""
        X = np.asarray(X, np.float64)
        largest = np.abs(X).max(axis=0)
        scale = np.where(largest > 0, largest, 1.0)
        scaled = X / scale  # squares neither overflow nor vanish
        lower, center, upper = np.quantile(scaled, (0.25, 0.5, 0.75), axis=0)
        width, deviation = (upper - lower) / _QUARTILES, scaled.std(axis=0)
        width = np.where(width > _ROUND_OFF, width, np.where(deviation > _ROUND_OFF, deviation, 1.0))
        return cls(center * scale, width * scale)

    def __call__(self, x: Any) -> Any:
        """Return clipped columns of x [N, d], an array or a tensor."""
        xp = operations(x)
        center, width = self if xp is np else (ops.cast(part, x.dtype) for part in self)
        z = xp.clip((x - center) / width, -_FARTHEST, _FARTHEST)
        return z / xp.sqrt(1.0 + (z / _BOUND) ** 2)


class LabelPosterior(tf.Module):
    """A solved ``ClosedFormHead`` and its readout.

    Parameters
    ----------
    head : ClosedFormHead
    readout : LeftOutSoftmax
    clip : SmoothClip, optional
        Applied to features first. Default None: they are taken as they are.
    """

    def __init__(self, head: ClosedFormHead, readout: LeftOutSoftmax, clip: SmoothClip | None = None) -> None:
        super().__init__()
        self.head, self.readout, self.clip = head, readout, clip

    @classmethod
    def unsolved(cls, num_classes: int, inducing: int, clip: SmoothClip | None) -> "LabelPosterior":
        """Create a head without weights, and the readout of its scores."""
        head = ClosedFormHead(num_classes, inducing, dtype="float64")
        return cls(head, LeftOutSoftmax(head.target.scores(num_classes), dtype="float64"), clip)

    def clipped(self, x: Any) -> Any:
        """Return the features that the head takes."""
        return x if self.clip is None else self.clip(x)

    def clipped_samples(self, samples: Samples) -> Samples:
        """Return samples with these features."""
        return samples.map(lambda x, *others: (self.clipped(np.asarray(x, np.float64)), *others))

    def __call__(self, x: Any) -> dict[str, Any]:
        """Return latents of features x [N, d], in operations that can be exported."""
        latent = self.head(self.clipped(tf.cast(x, precise_dtype())))
        return {name: tf.cast(part, precise_dtype()) for name, part in latent.items()}

    def predict(self, X: NDArray[np.float64]) -> LatentGaussian:
        """Return the latents of features X [N, d]."""
        return self.head.predict(self.clipped(X))

    def predict_means(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return their means [N, L] alone."""
        return self.head.predict_means(self.clipped(X))

    @property
    def kernel(self) -> dict[str, Any]:
        """The kernel by name, its numbers and the noise, in units of transformed features."""
        regression = self.head.regression
        kernel = regression.kernel
        name = min(COEFFICIENTS, key=lambda name: float(np.abs(kernel.coefficients - COEFFICIENTS[name]).max()))
        numbers = {"lengthscale": kernel.lengthscale, "linear": kernel.linear / kernel.power, "noise": regression.noise}
        return {"name": name, **{key: float(value) for key, value in numbers.items()}}

    def extended(self, samples: Samples, inducing: int) -> "LabelPosterior":
        """Return a posterior with further rows, which are inducing if all rows are, up to ``inducing`` of them."""
        other = self.copied(max(self.head.inducing, min(self.head.regression.num_rows + samples.num_rows, inducing)))
        other.head.partial_fit(self.clipped_samples(samples))
        return other

    def reduced(self, samples: Samples) -> "LabelPosterior":
        """Return a posterior without some of its rows."""
        other = self.copied(self.head.inducing)
        other.head.forget(self.clipped_samples(samples))
        return other

    def copied(self, inducing: int) -> "LabelPosterior":
        """Return a copy, with room for as many inducing rows."""
        return LabelPosterior(self.head.with_inducing(inducing), self.readout, self.clip)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays from which ``from_state`` restores the posterior."""
        weights = {f"head_{weight.name}": np.asarray(weight) for weight in self.head.weights}
        readout = {f"readout_{weight.name}": np.asarray(weight) for weight in self.readout.weights}
        clip = {} if self.clip is None else self.clip._asdict()
        return {**weights, **readout, **clip, **self.head.state()}

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]]) -> "LabelPosterior":
        """Restore the posterior from the arrays of ``state``."""
        (inducing, n), (d, _) = state["head_moments"].shape, state["head_points"].shape
        clip = SmoothClip(state["center"], state["width"]) if "center" in state else None
        posterior = cls.unsolved(n, inducing, clip)
        head, readout = posterior.head, posterior.readout
        head.build((None, d))
        readout.build({"loc": (None, head.latent_dim)})
        for layer, prefix in ((head, "head"), (readout, "readout")):
            for weight in layer.weights:
                weight.assign(state[f"{prefix}_{weight.name}"])
        head.load_state(state)
        return posterior

    def __getstate__(self) -> dict[str, NDArray[Any]]:
        """Return arrays: TensorFlow's variables cannot be pickled everywhere."""
        return self.state()

    def __setstate__(self, state: dict[str, NDArray[Any]]) -> None:
        other = self.from_state(state)
        self.__init__(other.head, other.readout, other.clip)  # type: ignore[misc]


@dataclass(eq=False)
class LabelProcess:
    """Fit of a ``ClosedFormHead`` and its readout to rows of a table.

    Parameters
    ----------
    inducing : int
        Inducing rows at most.
    scale_features : bool
        Whether columns are clipped smoothly and standardized.
    random_state : int
        Seed of all draws.

    Attributes
    ----------
    posterior_ : LabelPosterior
    n_iter_ : int
        1: one solve.

    Examples
    --------
    >>> from deepsimplex.samples import ArraySamples
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> process = LabelProcess(60, True, 0)
    >>> left_out, p = process.fit_samples(ArraySamples(X, y, np.ones(60)), 2)
    >>> bool(np.mean(p.argmax(axis=1) == y) > 0.9)
    True
    """

    inducing: int
    scale_features: bool
    random_state: int
    n_iter_: int = field(default=1, init=False)

    def make_exact(self, N: int) -> None:
        """Make all of N rows inducing; raise an error for more than memory, or 10,000, allow."""
        check_memory(_MATRICES * float(N) ** 2, f"an exact Gaussian process of {N:,} rows X", "use inference='auto'")
        if N > ROWS:
            raise ValueError(f"inference='exact' must have at most {ROWS:,} rows X with target='auto'; found {N:,}")
        self.inducing = N

    def fit_samples(
        self, samples: Samples, num_classes: int, groups: NDArray[Any] | None = None
    ) -> tuple[LeftOutLatents, NDArray[np.float64]]:
        """Fit to features X [N, d], labels [N] or [N, n] and weights [N].

        Returns
        -------
        left_out : LeftOutLatents
        p : ndarray, shape [R, n]
            Class probabilities of the rows that were left out.
        """
        clip = SmoothClip.of(samples.draw(ROWS, self.random_state).columns[0]) if self.scale_features else None
        transformation: Transformation = "raw" if clip is None else "standardized"
        posterior = LabelPosterior.unsolved(num_classes, min(self.inducing, samples.num_rows), clip)
        left_out = posterior.head.solve(
            posterior.clipped_samples(samples),
            groups=groups,
            seed=self.random_state,
            transformations=[transformation],
        )
        self.posterior_ = posterior
        return left_out, np.exp(posterior.readout.cross_fit(left_out))
