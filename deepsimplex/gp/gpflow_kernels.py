"""GPflow's kernels, by name or as objects, as functions of unconstrained hyperparameters."""

import copy
import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from deepsimplex._utils.messages import did_you_mean
from deepsimplex.kernels import median_distance

with warnings.catch_warnings():  # their own imports are deprecated in TensorFlow
    warnings.simplefilter("ignore", DeprecationWarning)
    warnings.filterwarnings("ignore", "pkg_resources is deprecated", UserWarning)
    import check_shapes

    # Writing the shapes into GPflow's docstrings takes longer than the rest of its import.
    _docstrings = check_shapes.get_rewrite_docstrings()
    check_shapes.set_rewrite_docstrings(None)
    import gpflow
check_shapes.set_rewrite_docstrings(_docstrings)

# Functions of hyperparameters and blocks of rows: traced once for all numbers of rows.
compiled = functools.partial(tf.function, autograph=False, reduce_retracing=True)


class SquaredExponential(gpflow.kernels.SquaredExponential):
    """GPflow's kernel, of squared distances that round-off does not make negative.

    Those of nearly equal rows are differences of large numbers, and small lengthscales enlarge their error: the
    exponential would overflow.
    """

    def K_r2(self, r2: Any) -> Any:
        """Compute the kernel of squared distances in units of the lengthscales."""
        return super().K_r2(tf.maximum(r2, 0.0))


KERNELS: dict[str, Any] = {
    "rbf": SquaredExponential,
    "matern32": gpflow.kernels.Matern32,
    "matern52": gpflow.kernels.Matern52,
}
_PROTOTYPES = {name: kind() for name, kind in KERNELS.items()}
_HYPERPARAMETERS = ("variance", "lengthscales")
# Number of rows among which the median distance is computed.
_ROWS = 1000


@dataclass(frozen=True)
class NamedKernel:
    """A kernel by name. Its hyperparameters are the logarithms of the variance and of the lengthscales.

    Equal kernels are interchangeable: functions compiled for one are reused by all fits.

    Parameters
    ----------
    name : {"rbf", "matern32", "matern52"}
    ard : bool
        Whether there is one lengthscale per feature (automatic relevance determination), shape [d].
    """

    name: str
    ard: bool

    def bind(self, values: Sequence[Any]) -> Any:
        """Return a kernel with these hyperparameters."""
        kernel = copy.copy(_PROTOTYPES[self.name])
        for name, value in zip(_HYPERPARAMETERS, values, strict=True):
            object.__setattr__(kernel, name, tf.exp(value))  # tensors in place of GPflow's parameters
        return kernel

    def sources(self, values: Sequence[Any]) -> list[Any]:
        """Return the tensors to differentiate by."""
        return list(values)

    def pairs(self, X: Any) -> Any:
        """Return what ``matrix`` needs of features X: squared distances [N, N] if there is one lengthscale, else X."""
        return X if self.ard else gpflow.utilities.ops.square_distance(X, None)

    def matrix(self, kernel: Any, pairs: Any) -> Any:
        """Compute K(X, X) [N, N] by a bound kernel."""
        return kernel(pairs) if self.ard else kernel.K_r2(pairs / tf.square(kernel.lengthscales))

    def at(self, values: Sequence[Any]) -> Any:
        """Return a new GPflow kernel with these hyperparameters."""
        return kernel_from_state({"name": self.name, **self.hyperparameters(values)})

    def hyperparameters(self, values: Sequence[Any]) -> dict[str, NDArray[np.float64]]:
        """Return the hyperparameters by GPflow's names."""
        return {name: np.exp(np.asarray(value)) for name, value in zip(_HYPERPARAMETERS, values, strict=True)}


class GivenKernel:
    """A user's GPflow kernel. Its hyperparameters are the values of its trainable variables.

    Parameters
    ----------
    kernel : gpflow.kernels.Kernel
        Copied.
    """

    def __init__(self, kernel: Any) -> None:
        self._kernel = copy.deepcopy(kernel)

    @property
    def start(self) -> list[NDArray[np.float64]]:
        """Hyperparameters of the kernel as it was given."""
        return [variable.numpy() for variable in self._kernel.trainable_variables]

    def bind(self, values: Sequence[Any]) -> Any:
        """Return the kernel with these hyperparameters."""
        for variable, value in zip(self._kernel.trainable_variables, values, strict=True):
            variable.assign(value)
        return self._kernel

    def sources(self, values: Sequence[Any]) -> list[Any]:
        """Return the variables to differentiate by."""
        return list(self._kernel.trainable_variables)

    def pairs(self, X: Any) -> Any:
        """Return X: a given kernel is evaluated on the features themselves."""
        return X

    def matrix(self, kernel: Any, pairs: Any) -> Any:
        """Compute K(X, X) [N, N] by a bound kernel."""
        return kernel(pairs)

    def at(self, values: Sequence[Any]) -> Any:
        """Return a copy of the kernel with these hyperparameters."""
        return copy.deepcopy(self.bind(values))

    def hyperparameters(self, values: Sequence[Any]) -> dict[str, NDArray[np.float64]]:
        """Return the hyperparameters by GPflow's names."""
        named = gpflow.utilities.parameter_dict(self.bind(values))
        return {path.lstrip("."): np.asarray(parameter.numpy()) for path, parameter in named.items()}


def make_kernel(
    spec: str | Any, X: NDArray[np.float64], ard: bool, rng: np.random.Generator, variance: float = 1.0
) -> tuple[NamedKernel | GivenKernel, list[NDArray[np.float64]]]:
    """Make a kernel for the features X [N, d], and the hyperparameters to start from.

    Parameters
    ----------
    spec : str or gpflow.kernels.Kernel
        "rbf", "matern32", "matern52", or a GPflow kernel, which is copied and starts as it is.
    X : ndarray, shape [N, d]
        The lengthscale starts at the median distance between (at most a thousand of) its distinct rows.
    ard : bool
        Whether every feature has its own lengthscale.
    rng : numpy.random.Generator
        Chooses the rows.
    variance : float
        The variance to start from. Default 1.

    Raises
    ------
    TypeError, ValueError
        For any other ``spec``, and for features whose distances overflow.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [3.0]])
    >>> kernel, start = make_kernel("rbf", X, ard=False, rng=np.random.default_rng(0))
    >>> float(kernel.hyperparameters(start)["lengthscales"].round(6))
    2.0
    """
    if X.shape[1] == 0:
        raise ValueError("X must have at least 1 column; found 0")
    if isinstance(spec, gpflow.kernels.Kernel):
        given = GivenKernel(spec)
        return given, given.start
    if not isinstance(spec, str):
        raise TypeError(f"kernel must be a name or a gpflow.kernels.Kernel; found {type(spec).__name__}")
    if spec not in KERNELS:
        hint = did_you_mean(spec, KERNELS)
        raise ValueError(f"kernel must be one of {', '.join(KERNELS)} or a gpflow.kernels.Kernel; found {spec!r}{hint}")
    rows = X if len(X) <= _ROWS else X[np.sort(rng.choice(len(X), _ROWS, replace=False))]
    length = median_distance(rows)
    if not np.isfinite(length):
        raise ValueError("X holds features too large for their distances to be computed; scale_features=True helps")
    lengthscales = np.full(X.shape[1], length) if ard else length
    return NamedKernel(spec, ard), [np.asarray(np.log(variance)), np.asarray(np.log(lengthscales))]


def kernel_state(kernel: Any) -> Any:
    """Return a GPflow kernel's name and hyperparameters as NumPy arrays; a kernel without a name as it is."""
    # A kernel of some of the features only is not determined by its name.
    all_features = isinstance(kernel.active_dims, slice) and kernel.active_dims == slice(None)
    names = [name for name, kind in KERNELS.items() if type(kernel) is kind and all_features]
    if not names:
        return kernel
    return {"name": names[0], **{name: getattr(kernel, name).numpy() for name in _HYPERPARAMETERS}}


def kernel_from_state(state: Any) -> Any:
    """Return the GPflow kernel of ``kernel_state``."""
    if not isinstance(state, dict):
        return state
    kernel = KERNELS[state["name"]]()
    exponential = gpflow.utilities.positive(lower=0.0, base="exp")
    for name in _HYPERPARAMETERS:
        setattr(kernel, name, gpflow.Parameter(state[name], transform=exponential, dtype=np.float64))
    return kernel
