"""Gaussian process on labels, solved in closed form: what ``SimplexGaussianProcess`` fits by default."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from deepsimplex._utils.memory import check_memory
from deepsimplex._utils.portable_operations import precise_dtype
from deepsimplex.heads import ClosedFormHead
from deepsimplex.kernels.closed_form import ROWS
from deepsimplex.kernels.feature_kernel import COEFFICIENTS
from deepsimplex.latent import LatentGaussian
from deepsimplex.readout import LeftOutLatents, LeftOutSoftmax
from deepsimplex.samples import Samples

# Inducing rows at most, by default: up to as many rows the process is exact.
INDUCING = 2000
# Matrices [N, N] that an exact fit holds at once.
_MATRICES = 12


class LabelPosterior(tf.Module):
    """A solved ``ClosedFormHead`` and its readout.

    Parameters
    ----------
    head : ClosedFormHead
    readout : LeftOutSoftmax
    """

    def __init__(self, head: ClosedFormHead, readout: LeftOutSoftmax) -> None:
        super().__init__()
        self.head, self.readout = head, readout

    @classmethod
    def unsolved(cls, num_classes: int, inducing: int) -> "LabelPosterior":
        """Create a head without weights, and the readout of its scores."""
        head = ClosedFormHead(num_classes, inducing, dtype="float64")
        return cls(head, LeftOutSoftmax(head.target.scores(num_classes), dtype="float64"))

    def __call__(self, x: Any) -> dict[str, Any]:
        """Return latents of features x [N, d], in operations that can be exported."""
        return {name: tf.cast(part, precise_dtype()) for name, part in self.head(x).items()}

    def predict(self, X: NDArray[np.float64]) -> LatentGaussian:
        """Return the latents of features X [N, d]."""
        return self.head.predict(X)

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
        other.head.partial_fit(samples)
        return other

    def reduced(self, samples: Samples) -> "LabelPosterior":
        """Return a posterior without some of its rows."""
        other = self.copied(self.head.inducing)
        other.head.forget(samples)
        return other

    def copied(self, inducing: int) -> "LabelPosterior":
        """Return a copy, with room for as many inducing rows."""
        head = self.head.with_inducing(inducing)
        return LabelPosterior(head, self.readout)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays from which ``from_state`` restores the posterior."""
        weights = {f"head_{weight.name}": np.asarray(weight) for weight in self.head.weights}
        readout = {f"readout_{weight.name}": np.asarray(weight) for weight in self.readout.weights}
        return {**weights, **readout, "signatures": self.head.signatures}

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]]) -> "LabelPosterior":
        """Restore the posterior from the arrays of ``state``."""
        (inducing, n), (d, _) = state["head_moments"].shape, state["head_points"].shape
        posterior = cls.unsolved(n, inducing)
        head, readout = posterior.head, posterior.readout
        head.build((None, d))
        readout.build({"loc": (None, head.latent_dim)})
        for layer, prefix in ((head, "head"), (readout, "readout")):
            for weight in layer.weights:
                weight.assign(state[f"{prefix}_{weight.name}"])
        head.signatures = state["signatures"]
        return posterior

    def __getstate__(self) -> dict[str, NDArray[Any]]:
        """Return arrays: TensorFlow's variables cannot be pickled everywhere."""
        return self.state()

    def __setstate__(self, state: dict[str, NDArray[Any]]) -> None:
        other = self.from_state(state)
        self.__init__(other.head, other.readout)  # type: ignore[misc]


@dataclass(eq=False)
class LabelProcess:
    """Fit of a ``ClosedFormHead`` and its readout to rows of a table.

    Parameters
    ----------
    inducing : int
        Inducing rows at most.
    scale_features : bool
        Whether columns are standardized.
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
        posterior = LabelPosterior.unsolved(num_classes, min(self.inducing, samples.num_rows))
        options = {"transformations": ["standardized" if self.scale_features else "raw"]}
        left_out = posterior.head.solve(samples, groups=groups, seed=self.random_state, **options)
        self.posterior_ = posterior
        return left_out, posterior.readout.cross_fit(left_out)
