"""Hyperparameters by L-BFGS, from several starts on request."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize
from sklearn.exceptions import ConvergenceWarning

from deepsimplex._utils.stacklevel import callers_stacklevel
from deepsimplex.gp.cholesky import SingularError

Evaluation = tuple[float, Sequence[NDArray[np.float64]]]


def minimize(
    evaluate: Callable[[], Evaluation],
    variables: Sequence[Any],
    max_iterations: int,
    restarts: int = 0,
    spreads: Sequence[float] = (),
    rng: np.random.Generator | None = None,
    report: Callable[[int, float], None] | None = None,
) -> float:
    """Leave the variables where ``evaluate`` is least.

    Parameters
    ----------
    evaluate : callable
        The value at the variables as they are, and its derivative by each of them. Where it raises ``SingularError``
        the search turns back, as it does from what is not finite, unless it has come from nowhere yet.
    variables : sequence of tf.Variable
        Unconstrained.
    max_iterations : int
        Of every start. Zero leaves everything as it is.
    restarts : int
        Further starts, at the first one plus normal noise. The best end is kept. Default 0.
    spreads : sequence of float
        Standard deviation of that noise for each of the variables; needed where there are restarts, as is
    rng : numpy.random.Generator, optional
        which draws it.
    report : callable, optional
        Called with the number of the iteration, from 1, and the value there.

    Returns
    -------
    float
        The least value.

    Warns
    -----
    ConvergenceWarning
        When ``max_iterations`` ended the search that found the least value.
    """
    if not variables or max_iterations == 0:
        return evaluate()[0]
    start = _pack([variable.numpy() for variable in variables])
    search = _Search(evaluate, variables, report)
    search.run(start, max_iterations)
    for _ in range(restarts):
        assert rng is not None
        noise = _pack([spread * rng.normal(size=v.shape) for spread, v in zip(spreads, variables, strict=True)])
        search.run(start + noise, max_iterations)
    _assign(variables, search.best)
    if search.cut_short:
        warnings.warn(
            f"the hyperparameters were still moving after max_iterations={max_iterations}: raise it, or scale the "
            "features if they are not",
            ConvergenceWarning,
            stacklevel=callers_stacklevel(),
        )
    return search.least


class _Search:
    """Searches that share the best point they came by."""

    def __init__(
        self, evaluate: Callable[[], Evaluation], variables: Sequence[Any], report: Callable[[int, float], None] | None
    ) -> None:
        self._evaluate, self._variables, self._report = evaluate, variables, report
        self._iteration, self._highest = 0, -np.inf
        self.least, self.best, self.cut_short = np.inf, _pack([v.numpy() for v in variables]), False

    def run(self, start: NDArray[np.float64], max_iterations: int) -> None:
        """From one start; from the first there must be a way, others may lie where there is none."""
        before, self._highest = self.least, -np.inf
        options = {"maxiter": max_iterations, "maxcor": 20, "ftol": 1e-7, "gtol": 1e-4}
        try:
            end = optimize.minimize(self._at, start, jac=True, method="L-BFGS-B", options=options, callback=self._count)
        except SingularError:
            if not np.isfinite(before):
                raise
            return
        if self.least < before:
            self.cut_short = end.nit >= max_iterations

    def _at(self, theta: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        _assign(self._variables, theta)
        try:
            value, slope = self._finite()
        except SingularError:
            if not np.isfinite(self._highest):
                raise
            # A wall above all that this search has seen, which sends it back by a good deal, not to where it stood.
            return self._highest + max(1.0, abs(self._highest)), np.zeros_like(theta)
        self._highest = max(self._highest, value)
        if value < self.least:
            self.least, self.best = value, theta.copy()
        return value, slope

    def _finite(self) -> tuple[float, NDArray[np.float64]]:
        value, gradients = self._evaluate()
        slope = _pack(gradients)
        if not (np.isfinite(value) and np.isfinite(slope).all()):
            raise SingularError("the likelihood or its derivatives are not finite: are features too large?")
        return float(value), slope

    def _count(self, intermediate_result: Any) -> None:
        self._iteration += 1
        if self._report is not None:
            self._report(self._iteration, float(intermediate_result.fun))


def _pack(parts: Sequence[Any]) -> NDArray[np.float64]:
    return np.concatenate([np.ravel(np.asarray(part, dtype=np.float64)) for part in parts])


def _assign(variables: Sequence[Any], theta: NDArray[np.float64]) -> None:
    start = 0
    for variable in variables:
        size = int(np.prod(variable.shape, dtype=int))
        variable.assign(theta[start : start + size].reshape(variable.shape))
        start += size
