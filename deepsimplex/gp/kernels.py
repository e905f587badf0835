"""Kernels by name, with hyperparameters that start where the data are and are learned as logarithms."""

import copy
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from deepsimplex._utils.names import did_you_mean
from deepsimplex._utils.spread import median_distance
from deepsimplex.gp.library import gpflow

KernelName = Literal["rbf", "matern32", "matern52"]
KERNELS: dict[str, Any] = {
    "rbf": gpflow.kernels.SquaredExponential,
    "matern32": gpflow.kernels.Matern32,
    "matern52": gpflow.kernels.Matern52,
}
# Rows among which the typical distance is taken.
_ROWS = 1000


def positive(value: Any) -> Any:
    """A GPflow parameter above zero that optimizers see as its logarithm: scales are learned by ratios."""
    return gpflow.Parameter(value, transform=gpflow.utilities.positive(lower=0.0, base="exp"), dtype=np.float64)


def kernel_state(kernel: Any) -> Any:
    """What a kernel is made of, in NumPy: its name and hyperparameters; a kernel of another class is its own state."""
    name = _name_of(kernel)
    if name is None:
        return kernel
    return {"name": name, "variance": kernel.variance.numpy(), "lengthscales": kernel.lengthscales.numpy()}


def kernel_from_state(state: Any) -> Any:
    """The kernel of ``kernel_state``."""
    if not isinstance(state, dict):
        return state
    kernel = KERNELS[state["name"]]()
    kernel.variance, kernel.lengthscales = positive(state["variance"]), positive(state["lengthscales"])
    return kernel


def _name_of(kernel: Any) -> str | None:
    """The name of a kernel that is its name and hyperparameters, and nothing more; None for others."""
    # One that looks at some of the features only is more.
    of_all = isinstance(kernel.active_dims, slice) and kernel.active_dims == slice(None)
    names = [name for name, kind in KERNELS.items() if type(kernel) is kind and of_all]
    return names[0] if names else None


def covariance_function(kernel: Any, X: NDArray[np.float64]) -> Callable[[], Any]:
    """A function that gives K(X, X) [N, N] at the kernel's hyperparameters as they are, in TensorFlow.

    Where all features share one lengthscale the distances are computed once, here: N^2 numbers that are kept.
    """
    if _name_of(kernel) is None or kernel.lengthscales.shape.rank:
        return lambda: kernel(X)
    squares = gpflow.utilities.ops.square_distance(tf.constant(X), None)
    return lambda: kernel.K_r2(squares / tf.square(kernel.lengthscales))


def kernel_hyperparameters(kernel: Any) -> dict[str, NDArray[np.float64]]:
    """A kernel's hyperparameters by GPflow's names for them."""
    named = gpflow.utilities.parameter_dict(kernel)
    return {path.lstrip("."): np.asarray(parameter.numpy()) for path, parameter in named.items()}


def make_kernel(
    spec: str | Any, X: NDArray[np.float64], ard: bool, rng: np.random.Generator, variance: float = 1.0
) -> Any:
    """A kernel of one's own for the features X [N, d].

    Parameters
    ----------
    spec : str or gpflow.kernels.Kernel
        "rbf", "matern32", "matern52", or a GPflow kernel, of which a copy is returned as it is.
    X : ndarray, shape [N, d]
        The lengthscale starts at the median distance between (at most a thousand of) its rows, the variance at
        ``variance``.
    ard : bool
        Whether every feature has a lengthscale of its own (automatic relevance determination).
    rng : numpy.random.Generator
        Chooses the rows.
    variance : float
        Default 1.

    Returns
    -------
    gpflow.kernels.Kernel

    Raises
    ------
    TypeError, ValueError
        For what is neither a kernel nor the name of one.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [3.0]])
    >>> float(make_kernel("rbf", X, ard=False, rng=np.random.default_rng(0)).lengthscales.numpy())
    2.0
    """
    if isinstance(spec, gpflow.kernels.Kernel):
        return copy.deepcopy(spec)
    if not isinstance(spec, str):
        raise TypeError(f"kernel must be a name or a gpflow.kernels.Kernel; found {type(spec).__name__}")
    if spec not in KERNELS:
        hint = did_you_mean(spec, KERNELS)
        raise ValueError(f"kernel must be one of {', '.join(KERNELS)} or a gpflow.kernels.Kernel; found {spec!r}{hint}")
    rows = X if len(X) <= _ROWS else X[np.sort(rng.choice(len(X), _ROWS, replace=False))]
    length = median_distance(rows)
    if not np.isfinite(length):
        raise ValueError("X holds features too large for their distances to be computed; scale_features=True helps")
    kernel = KERNELS[spec]()
    kernel.variance = positive(variance)
    kernel.lengthscales = positive(np.full(X.shape[1], length) if ard else length)
    return kernel
