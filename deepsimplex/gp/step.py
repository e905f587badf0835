"""What one step of an optimization has come to, for those who watch it."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deepsimplex.gp.posterior import Posterior


@dataclass(frozen=True)
class Step:
    """A step of an optimization.

    Attributes
    ----------
    iteration : int
        From 1, over all starts.
    objective : float
        What is minimized, there.
    hyperparameters : dict of str to ndarray
        The kernel's, named as GPflow names them ("variance", "lengthscales"), and "noise" where that is learned: in
        units of scaled features and latents.
    posterior : callable
        Makes the posterior there: worth some steps' time. To be called inside the callback, while the optimization
        stands still, or it raises RuntimeError; the posterior that it gives may be kept.

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


def tell(
    callback: Callback,
    iteration: int,
    objective: float,
    hyperparameters: dict[str, NDArray[np.float64]],
    posterior: Callable[[], Posterior],
) -> None:
    """Call the callback with a step, whose posterior can be made until the callback returns.

    Parameters
    ----------
    callback : callable
    iteration, objective, hyperparameters
        See ``Step``.
    posterior : callable
        Makes the posterior of the optimization as it is when called.
    """
    make: Callable[[], Posterior] | None = posterior

    def posterior_of_step() -> Posterior:
        if make is None:
            raise RuntimeError(
                f"the optimization has gone on since iteration {iteration}: call the step's posterior(), or "
                "classifier(), inside the callback, and keep what it returns"
            )
        return make()

    try:
        callback(Step(iteration, objective, hyperparameters, posterior_of_step))
    finally:
        make = None  # a step that is kept holds no training data either
