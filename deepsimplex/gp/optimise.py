"""Hyperparameters by L-BFGS, from several starts on request."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Evaluation = tuple[float, Sequence[NDArray[np.float64]]]


def minimise(
    evaluate: Callable[[], Evaluation],
    variables: Sequence[Any],
    max_iterations: int,
    restarts: int = 0,
    rng: np.random.Generator | None = None,
    report: Callable[[int, float], None] | None = None,
) -> float:
    """Leave the variables where ``evaluate`` is least.

    Parameters
    ----------
    evaluate : callable
        The value at the variables as they are, and its derivative by each of them.
    variables : sequence of tf.Variable
        Unconstrained.
    max_iterations : int
        Of every start. Zero leaves everything as it is.
    restarts : int
        Further starts, at the first one times exp of normal noise. The best end is kept. Default 0.
    rng : numpy.random.Generator, optional
        Draws them; needed where there are any.
    report : callable, optional
        Called with the number of the iteration, from 1, and the value there.

    Returns
    -------
    float
        The least value.
    """
    if not variables or max_iterations == 0:
        return evaluate()[0]
    start = _pack([variable.numpy() for variable in variables])
    best_value, best = np.inf, start
    iteration = 0

    def at(theta: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        nonlocal best_value, best
        _assign(variables, theta)
        value, gradients = evaluate()
        if value < best_value:
            best_value, best = value, theta.copy()
        return value, _pack(gradients)

    def count(intermediate_result: Any) -> None:
        nonlocal iteration
        iteration += 1
        if report is not None:
            report(iteration, float(intermediate_result.fun))

    for attempt in range(restarts + 1):
        noise = 0.0 if attempt == 0 or rng is None else rng.normal(size=start.shape)
        options = {"maxiter": max_iterations, "maxcor": 20, "ftol": 1e-7, "gtol": 1e-4}
        minimize(at, start + noise, jac=True, method="L-BFGS-B", options=options, callback=count)
    _assign(variables, best)
    return float(best_value)


def _pack(parts: Sequence[Any]) -> NDArray[np.float64]:
    return np.concatenate([np.ravel(np.asarray(part, dtype=np.float64)) for part in parts])


def _assign(variables: Sequence[Any], theta: NDArray[np.float64]) -> None:
    start = 0
    for variable in variables:
        size = int(np.prod(variable.shape, dtype=int))
        variable.assign(theta[start : start + size].reshape(variable.shape))
        start += size
