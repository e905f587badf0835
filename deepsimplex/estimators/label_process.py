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
from deepsimplex.kernels.closed_form import ROWS, default_inducing
from deepsimplex.kernels.feature_kernel import COEFFICIENTS
from deepsimplex.kernels.stationary import operations
from deepsimplex.latent import LatentGaussian
from deepsimplex.readout import LeftOutLatents, LeftOutSoftmax
from deepsimplex.samples import Samples

# Matrices [N, N] that an exact fit holds at once.
_MATRICES = 12
# Bound of clipped columns, and the value beyond which they are on it; a normal distribution's distance of quartiles in
# standard deviations, and what is no more than round-off of a column whose largest number is one.
_BOUND, _FARTHEST, _QUARTILES, _ROUND_OFF = 3.0, 1e6, 1.349, 1e-14
# Steps of a column: one for so many rows, at least and at most so many; fewer, but at least one, where the steps of all
# columns would be more than the last number.
_ROWS_OF_STEP, _FEWEST_STEPS, _MOST_STEPS, _STEP_COLUMNS = 50, 4, 16, 2000
# Least width of a step, in standard deviations of the column.
_NARROWEST = 0.05


class SmoothSteps(NamedTuple):
    """Columns without far outliers, in standard deviations, beside smooth steps of each at its quantiles.

    Outliers are drawn in smoothly: with z in robust units, z / sqrt(1 + (z / 3)^2) stays within 3. Few values far away
    would otherwise make up a column's standard deviation, and all distances. Steps tanh((z - t_k) / w_k) sqrt(w_k) at
    quantiles t_k, whose distance is w_k, add about |z - z'| to the squared distance of rows: kernels of it may change
    quickly along single columns, as trees do, and a linear part is a sum of functions of single columns.

    Attributes
    ----------
    center, width : ndarray, shape [d]
        Medians, and distances between the quartiles in units of those of a standard normal distribution.
    mean, deviation : ndarray, shape [d]
        Of clipped columns.
    thresholds, step_widths : ndarray, shape [d, K]
        t_k and w_k in units of standardized columns, widths 0 where a column has fewer than K steps.

    Notes
    -----
    Clipping: Holzmueller, Grinsztajn, Steinwart: *Better by Default: Strong Pre-Tuned MLPs and Boosted Trees on Tabular
    Data*, 2024. Steps: a smooth form of the piecewise linear encoding of Gorishniy, Rubachev, Babenko: *On Embeddings
    for Numerical Features in Tabular Deep Learning*, 2022.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0], [1e6]])
    >>> steps = SmoothSteps.of(X)
    >>> steps(X).shape  # the column and four steps
    (5, 5)
    >>> steps(np.array([[1e6], [1e300]])).round(3)[:, 0].tolist()
    [1.804, 1.804]
    """

    center: NDArray[np.float64]
    width: NDArray[np.float64]
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    thresholds: NDArray[np.float64]
    step_widths: NDArray[np.float64]

    @classmethod
    def of(cls, X: NDArray[Any]) -> "SmoothSteps":
        """Take the units and steps of rows X [N, d]."""
        X = np.asarray(X, np.float64)
        N, d = X.shape
        largest = np.abs(X).max(axis=0)
        scale = np.where(largest > 0, largest, 1.0)
        scaled = X / scale  # squares neither overflow nor vanish
        lower, center, upper = np.quantile(scaled, (0.25, 0.5, 0.75), axis=0)
        width = (upper - lower) / _QUARTILES
        rounding = _ROUND_OFF * np.abs([lower, center, upper]).max(axis=0)
        for j in np.flatnonzero(width <= rounding):  # half of the column is constant
            width[j] = _deviation(scaled[:, j] - center[j], rounding[j])
        clipped = _clipped(X, center * scale, width * scale)
        mean, deviation = clipped.mean(axis=0), clipped.std(axis=0)
        deviation = np.where(deviation > _ROUND_OFF, deviation, 1.0)
        K = max(min(int(np.clip(N // _ROWS_OF_STEP, _FEWEST_STEPS, _MOST_STEPS)), _STEP_COLUMNS // d), 1)
        thresholds, widths = np.zeros((2, d, K))
        quantiles = np.quantile((clipped - mean) / deviation, (np.arange(K) + 0.5) / K, axis=0).T
        for column, values in enumerate(map(np.unique, quantiles)):
            thresholds[column, : len(values)] = values
            gaps = np.gradient(values) if len(values) > 1 else np.ones(len(values))
            widths[column, : len(values)] = np.maximum(gaps, _NARROWEST)
        return cls(center * scale, width * scale, mean, deviation, thresholds, widths)

    def __call__(self, x: Any) -> Any:
        """Return columns and steps [N, d + d K] of x [N, d], an array or a tensor."""
        xp = operations(x)
        steps = self if xp is np else SmoothSteps(*(ops.cast(part, x.dtype) for part in self))
        z = (_clipped(x, steps.center, steps.width) - steps.mean) / steps.deviation
        distances = (z[:, :, None] - steps.thresholds) / xp.maximum(steps.step_widths, _NARROWEST)
        stepped = xp.tanh(distances) * xp.sqrt(steps.step_widths)
        return xp.concatenate([z, xp.reshape(stepped, (-1, self.thresholds.size))], axis=1)


def _deviation(differences: NDArray[np.float64], rounding: float) -> float:
    """Return the standard deviation of differences [N] from a median, of which few may be outliers; 1 if all vanish.

    Outliers are moved to ten times the median of the differences that do not vanish.
    """
    others = np.abs(differences)[np.abs(differences) > rounding]
    if not len(others):
        return 1.0
    farthest = 10.0 * np.median(others)
    return float(np.std(np.clip(differences, -farthest, farthest) / farthest) * farthest)


def _clipped(x: Any, center: Any, width: Any) -> Any:
    xp = operations(x)
    z = xp.clip((x - center) / width, -_FARTHEST, _FARTHEST)
    return z / xp.sqrt(1.0 + (z / _BOUND) ** 2)


class LabelPosterior(tf.Module):
    """A solved ``ClosedFormHead`` and its readout.

    Parameters
    ----------
    head : ClosedFormHead
    readout : LeftOutSoftmax
    steps : SmoothSteps, optional
        Applied to features first. Default None: they are taken as they are.
    """

    def __init__(self, head: ClosedFormHead, readout: LeftOutSoftmax, steps: SmoothSteps | None = None) -> None:
        super().__init__()
        self.head, self.readout, self.steps = head, readout, steps

    @classmethod
    def unsolved(cls, num_classes: int, inducing: int, steps: SmoothSteps | None) -> "LabelPosterior":
        """Create a head without weights, and the readout of its scores."""
        head = ClosedFormHead(num_classes, inducing, dtype="float64")
        return cls(head, LeftOutSoftmax(head.target.scores(num_classes), dtype="float64"), steps)

    def features(self, x: Any) -> Any:
        """Return the features that the head takes."""
        return x if self.steps is None else self.steps(x)

    def feature_samples(self, samples: Samples) -> Samples:
        """Return samples with these features."""
        return samples.map(lambda x, *others: (self.features(np.asarray(x, np.float64)), *others))

    def __call__(self, x: Any) -> dict[str, Any]:
        """Return latents of features x [N, d], in operations that can be exported."""
        latent = self.head(self.features(tf.cast(x, precise_dtype())))
        return {name: tf.cast(part, precise_dtype()) for name, part in latent.items()}

    def without(self, x: Any, influence: Any, residuals: Any) -> Any:
        """Return latent means [N, m, L] of features x [N, d] without each of m rows: see ``ClosedFormHead.without``."""
        return self.head.without(self.features(tf.cast(x, precise_dtype())), influence, residuals)

    def predict(self, X: NDArray[np.float64]) -> LatentGaussian:
        """Return the latents of features X [N, d]."""
        return self.head.predict(self.features(X))

    def predict_means(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return their means [N, L] alone."""
        return self.head.predict_means(self.features(X))

    @property
    def kernel(self) -> dict[str, Any]:
        """The kernel by name, its numbers and the noise, in units of transformed features."""
        regression = self.head.regression
        kernel = regression.kernel
        name = min(COEFFICIENTS, key=lambda name: float(np.abs(kernel.coefficients - COEFFICIENTS[name]).max()))
        numbers = {"lengthscale": kernel.lengthscale, "linear": kernel.linear / kernel.power, "noise": regression.noise}
        return {"name": name, **{key: float(value) for key, value in numbers.items()}}

    def extended(self, samples: Samples, inducing: int | None) -> "LabelPosterior":
        """Return a posterior with further rows, which are inducing if all rows are, up to ``inducing`` of them."""
        inducing = inducing or default_inducing(self.head.num_classes)
        other = self.copied(max(self.head.inducing, min(self.head.regression.num_rows + samples.num_rows, inducing)))
        other.head.partial_fit(self.feature_samples(samples))
        return other

    def reduced(self, samples: Samples) -> "LabelPosterior":
        """Return a posterior without some of its rows."""
        other = self.copied(self.head.inducing)
        other.head.forget(self.feature_samples(samples))
        return other

    def copied(self, inducing: int) -> "LabelPosterior":
        """Return a copy, with room for as many inducing rows."""
        return LabelPosterior(self.head.with_inducing(inducing), self.readout, self.steps)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays from which ``from_state`` restores the posterior."""
        weights = {f"head_{weight.name}": np.asarray(weight) for weight in self.head.weights}
        readout = {f"readout_{weight.name}": np.asarray(weight) for weight in self.readout.weights}
        steps = {} if self.steps is None else self.steps._asdict()
        return {**weights, **readout, **steps, **self.head.state()}

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]]) -> "LabelPosterior":
        """Restore the posterior from the arrays of ``state``."""
        (inducing, n), (_, d) = state["head_moments"].shape, state["head_points"].shape
        steps = SmoothSteps(*(state[name] for name in SmoothSteps._fields)) if "center" in state else None
        posterior = cls.unsolved(n, inducing, steps)
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
        self.__init__(other.head, other.readout, other.steps)  # type: ignore[misc]


@dataclass(eq=False)
class LabelProcess:
    """Fit of a ``ClosedFormHead`` and its readout to rows of a table.

    Parameters
    ----------
    inducing : int or None
        Inducing rows at most: up to as many rows the process is exact. None: ``kernels.default_inducing``.
    scale_features : bool
        Whether columns are standardized, without far outliers, and get smooth steps.
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

    inducing: int | None
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
        steps = SmoothSteps.of(samples.draw(ROWS, self.random_state).columns[0]) if self.scale_features else None
        inducing = self.inducing or default_inducing(num_classes)
        posterior = LabelPosterior.unsolved(num_classes, min(inducing, samples.num_rows), steps)
        left_out = posterior.head.solve(
            posterior.feature_samples(samples),
            groups=groups,
            seed=self.random_state,
            transformations=["raw"],
        )
        self.posterior_ = posterior
        return left_out, np.exp(posterior.readout.cross_fit(left_out))
