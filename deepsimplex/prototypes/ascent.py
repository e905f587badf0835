"""GPLVQ: samples are presented one by one, and move the prototypes that win them up the likelihood."""

import numpy as np
from numpy.typing import NDArray

from deepsimplex.prototypes.decision import squared_distances
from deepsimplex.prototypes.likelihood import LEAST_NOISE, Rule, check_rule, covariance, log_likelihood


class LikelihoodAscent:
    """Samples that move prototypes, one by one, up the likelihood of their labels.

    The winner, the nearest prototype, moves by w + rate g (x - w) [GPLVQ Eq. 4.7], no further than the distance to the
    sample, towards it or away.

    Parameters
    ----------
    X : ndarray, shape [N, d]
    lengthscale : float
        alpha, of the squared exponential kernel.
    noise : float
        Variance s^2 of the labels, at least 0; taken for 1e-6 where it is less.
    rule : {"autodiff", "thesis"}
        Whose g: ``pull_of_likelihood`` or ``pull_of_thesis``. Default "autodiff".

    Raises
    ------
    ValueError
        For another rule.

    Notes
    -----
    The rate is that of features in lengthscales: the thesis's eta is rate alpha^2. Without the bound on a step, noise
    near zero or a large rate throws prototypes to where nothing finds them any more.

    Examples
    --------
    >>> y, c, W = np.array([-1.0, 1.0]), np.array([-1.0, 1.0]), np.array([[0.5], [2.1]])
    >>> ascent = LikelihoodAscent(np.array([[0.0], [2.0]]), lengthscale=1.0, noise=0.5)
    >>> before = ascent.objective(y, W, c)
    >>> ascent.present(y, W, c, order=np.arange(2), rates=np.full(2, 0.1))
    >>> W.round(2).tolist(), ascent.objective(y, W, c) < before
    ([[0.44], [2.08]], True)
    """

    def __init__(self, X: NDArray[np.float64], *, lengthscale: float, noise: float, rule: Rule = "autodiff") -> None:
        check_rule(rule)
        self._X, self._lengthscale, self._noise, self._rule = X, lengthscale, max(noise, LEAST_NOISE), rule

    def present(
        self,
        y: NDArray[np.float64],
        W: NDArray[np.float64],
        c: NDArray[np.float64],
        order: NDArray[np.int64],
        rates: NDArray[np.float64],
    ) -> None:
        """Move the prototypes W [P, d] in place.

        Parameters
        ----------
        y : ndarray, shape [N]
            Labels of the samples, +-1.
        W : ndarray, shape [P, d]
        c : ndarray, shape [P]
            Labels of the prototypes, +-1.
        order : ndarray
            Rows of X, in turn.
        rates : ndarray
            The learning rate of each.
        """
        from deepsimplex.prototypes._ascent import present  # numba takes a second to import

        present(self._X, y, W, c, order, rates, self._lengthscale, self._noise, self._rule == "thesis")

    def objective(self, y: NDArray[np.float64], W: NDArray[np.float64], c: NDArray[np.float64]) -> float:
        """-log N(y), given the winner alone, a sum over the samples."""
        distances = squared_distances(self._X, W)
        winner = np.argmin(distances, axis=1)
        k = covariance(distances[np.arange(len(winner)), winner], self._lengthscale)
        return -float(np.sum(log_likelihood(k, c[winner] * y, self._noise)))
