"""L-BFGS over hyperparameters, from one or several starts, and the steps that are passed to callbacks."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from scipy import optimize
from sklearn.exceptions import ConvergenceWarning

from deepsimplex._utils.messages import warn_caller
from deepsimplex.gp.cholesky import SingularError
from deepsimplex.gp.posterior import Posterior

Report = Callable[[int, float, Any], None]


@dataclass(frozen=True)
class Step:
    """A step of an optimization, as callbacks of ``fit`` receive it.

    Attributes
    ----------
    iteration : int
        From 1, over all starts.
    objective : float
        The value that is minimized.
    hyperparameters : dict of str to ndarray
        The kernel's, by GPflow's names ("variance", "lengthscales"), and "noise" if that is learned: in units of
        scaled features and latents.
    posterior : callable
        Computes the posterior at this step, which costs as much as several steps. Keeping a step keeps the training
        samples in memory.

    Examples
    --------
    >>> from deepsimplex import LatentGaussian
    >>> from deepsimplex.gp import ExactGaussianProcess
    >>> X, steps = np.linspace(0.0, 6.0, 20)[:, None], []
    >>> observation = LatentGaussian(np.sin(X), np.full((20, 1), 0.01))
    >>> process = ExactGaussianProcess().fit(X, observation, callback=steps.append)
    >>> steps[0].iteration, sorted(steps[0].hyperparameters)
    (1, ['lengthscales', 'variance'])
    """

    iteration: int
    objective: float
    hyperparameters: dict[str, NDArray[np.float64]]
    posterior: Callable[[], Posterior]


Callback = Callable[[Step], None]


class Optimum(NamedTuple):
    """Result of an optimization: hyperparameters, value of the objective, number of iterations."""

    values: Any
    objective: float
    n_iter: int


def pack(values: Any) -> NDArray[np.float64]:
    """Join all arrays of a nested structure into one vector.

    Examples
    --------
    >>> pack({"kernel": [np.array(1.0), np.array([2.0, 3.0])], "noise": np.array(4.0)})
    array([1., 2., 3., 4.])
    """
    parts = [np.ravel(np.asarray(part, dtype=np.float64)) for part in tf.nest.flatten(values)]
    return np.concatenate([np.empty(0), *parts])


def unpack(theta: NDArray[np.float64], like: Any) -> Any:
    """Split a vector into arrays of the same structure and shapes as ``like``."""
    shapes = [np.shape(part) for part in tf.nest.flatten(like)]
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    parts = zip(np.split(theta, ends[:-1]), shapes, strict=True) if shapes else ()
    return tf.nest.pack_sequence_as(like, [part.reshape(shape) for part, shape in parts])


def minimize(
    evaluate: Callable[[Any], tuple[float, Any]], starts: Sequence[Any], max_iter: int, report: Report | None = None
) -> Optimum:
    """Minimize a function of a nested structure of arrays by L-BFGS from one or several starts.

    Parameters
    ----------
    evaluate : callable
        Returns the value at a structure of arrays and its derivatives in the same structure. ``SingularError`` and
        values that are not finite make the line search backtrack; at the first start they are an error.
    starts : sequence of structures of ndarray
        Unconstrained. The best end is kept.
    max_iter : int
        Iterations of every start. Zero only evaluates the first.
    report : callable, optional
        Called with the number of the iteration, from 1 over all starts, the value and the arrays there.

    Warns
    -----
    ConvergenceWarning
        If ``max_iter`` ended the search that found the least value.
    """
    if max_iter == 0 or not len(pack(starts[0])):
        return Optimum(starts[0], evaluate(starts[0])[0], 0)
    search = _Search(evaluate, starts[0], report)
    for start in starts:
        search.run(pack(start), max_iter)
    if search.cut_short:
        hint = "raise it, or scale the features"
        warn_caller(f"the hyperparameters were still moving after max_iter={max_iter}: {hint}", ConvergenceWarning)
    return Optimum(unpack(search.best, starts[0]), search.least, search.iteration)


class _Search:
    """Searches from several starts that share the best point found."""

    def __init__(self, evaluate: Any, like: Any, report: Report | None) -> None:
        self._evaluate, self._like, self._report = evaluate, like, report
        self._highest, self.iteration = -np.inf, 0
        self.least, self.best, self.cut_short = np.inf, np.empty(0), False

    def run(self, start: NDArray[np.float64], max_iter: int) -> None:
        """Run L-BFGS from one start. A singular covariance is an error only in the first."""
        before, self._highest = self.least, -np.inf
        options = {"maxiter": max_iter, "maxcor": 20, "ftol": 1e-7, "gtol": 1e-4}
        try:
            end = optimize.minimize(self._at, start, jac=True, method="L-BFGS-B", options=options, callback=self._count)
        except SingularError:
            if not np.isfinite(before):
                raise
            return
        if self.least < before:
            self.cut_short = end.nit >= max_iter

    def _at(self, theta: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        try:
            value, derivatives = self._evaluate(unpack(theta, self._like))
            slope = pack(derivatives)
            if not (np.isfinite(value) and np.isfinite(slope).all()):
                raise SingularError("the likelihood or its derivatives are not finite: are features too large?")
        except SingularError:
            if not np.isfinite(self._highest):
                raise
            # Higher than all values of this search, so that the line search backtracks.
            return self._highest + max(1.0, abs(self._highest)), np.zeros_like(theta)
        self._highest = max(self._highest, value)
        if value < self.least:
            self.least, self.best = float(value), theta.copy()
        return float(value), slope

    def _count(self, intermediate_result: Any) -> None:
        self.iteration += 1
        if self._report is not None:
            theta = intermediate_result.x.copy()
            self._report(self.iteration, float(intermediate_result.fun), unpack(theta, self._like))
