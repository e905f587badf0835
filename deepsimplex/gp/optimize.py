"""L-BFGS over hyperparameters, from one or several starts, and the steps that are passed to callbacks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize
from sklearn.exceptions import ConvergenceWarning

from deepsimplex._utils.messages import warn_caller
from deepsimplex.gp.cholesky import SingularError
from deepsimplex.gp.posterior import Posterior

Arrays = list[NDArray[np.float64]]
Report = Callable[[int, float, Sequence[Any]], None]


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
    """The end of an optimization: hyperparameters, the objective there, and the number of iterations."""

    values: Any
    objective: float
    n_iter: int


def minimize(
    evaluate: Callable[[Arrays], tuple[float, Sequence[Any]]],
    start: Sequence[Any],
    max_iter: int,
    n_restarts: int = 0,
    spreads: Sequence[float] = (),
    rng: np.random.Generator | None = None,
    report: Report | None = None,
) -> Optimum:
    """Minimize a function of arrays by L-BFGS.

    Parameters
    ----------
    evaluate : callable
        Returns the value at a list of arrays and the derivative by each of them. ``SingularError`` and values that are
        not finite make the line search backtrack; at the first start they are an error.
    start : sequence of ndarray
        Unconstrained.
    max_iter : int
        Iterations of every start. Zero only evaluates.
    n_restarts : int
        Further starts, at the first one plus normal noise; the best end is kept. Default 0.
    spreads : sequence of float
        Standard deviation of that noise for each array. Needed for restarts.
    rng : numpy.random.Generator, optional
        Draws the noise. Needed for restarts.
    report : callable, optional
        Called with the number of the iteration, from 1, the value and the arrays there.

    Warns
    -----
    ConvergenceWarning
        When ``max_iter`` ended the search that found the least value.
    """
    start = [np.asarray(part, dtype=np.float64) for part in start]
    if not start or max_iter == 0:
        return Optimum(start, evaluate(start)[0], 0)
    search = _Search(evaluate, [part.shape for part in start], report)
    search.run(_pack(start), max_iter)
    for _ in range(n_restarts):
        assert rng is not None
        noise = [spread * rng.normal(size=part.shape) for spread, part in zip(spreads, start, strict=True)]
        search.run(_pack(start) + _pack(noise), max_iter)
    if search.cut_short:
        warn_caller(
            f"the hyperparameters were still moving after max_iter={max_iter}: raise it, or scale the features if they "
            "are not",
            ConvergenceWarning,
        )
    return Optimum(search.unpack(search.best), search.least, search.iteration)


class _Search:
    """Searches from several starts that share the best point found."""

    def __init__(self, evaluate: Any, shapes: list[tuple[int, ...]], report: Report | None) -> None:
        self._evaluate, self._shapes, self._report = evaluate, shapes, report
        self._highest, self.iteration = -np.inf, 0
        self.least, self.best, self.cut_short = np.inf, np.empty(0), False

    def unpack(self, theta: NDArray[np.float64]) -> Arrays:
        """Return the arrays that the vector holds."""
        ends = np.cumsum([int(np.prod(shape, dtype=int)) for shape in self._shapes])
        return [part.reshape(shape) for part, shape in zip(np.split(theta, ends[:-1]), self._shapes, strict=True)]

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
            value, derivatives = self._evaluate(self.unpack(theta))
            slope = _pack(derivatives)
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
            value, theta = float(intermediate_result.fun), intermediate_result.x.copy()
            self._report(self.iteration, value, self.unpack(theta))


def _pack(parts: Sequence[Any]) -> NDArray[np.float64]:
    return np.concatenate([np.ravel(np.asarray(part, dtype=np.float64)) for part in parts])
