"""GPLVQ: how likely the winning prototype makes the label of a sample, and which way it is to move."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from deepsimplex.names import did_you_mean
from deepsimplex.prototypes.decision import squared_distances

Rule = Literal["autodiff", "thesis"]
RULES: tuple[Rule, ...] = ("autodiff", "thesis")
# Least noise: with none, the variance vanishes where a prototype meets a sample, or another prototype.
LEAST_NOISE = 1e-6


def covariance(squared: NDArray[np.float64], lengthscale: float) -> NDArray[np.float64]:
    """k(x, w) = exp(-|x - w|^2 / (2 alpha^2)) of squared distances [GPLVQ Eq. B.1].

    Examples
    --------
    >>> covariance(np.array([0.0, 4.0]), 2.0).round(4).tolist()
    [1.0, 0.6065]
    """
    with np.errstate(over="ignore"):  # so far away that nothing is left
        return np.exp(-0.5 * squared / lengthscale**2)


def log_likelihood(k: Any, agree: Any, noise: float) -> Any:
    """log N(y | m, V) of a label y = +-1, given one prototype alone.

    Parameters
    ----------
    k : array_like
        Covariance of sample and prototype, k(x, w) = exp(-|x - w|^2 / (2 alpha^2)), from 0 to 1.
    agree : array_like
        c y: +1 where the labels y of the sample and c of the prototype agree, else -1.
    noise : float
        Variance s^2 of the prototypes' labels, above 0.

    Returns
    -------
    array_like
        With m = c k / (1 + s^2) and V = 1 - k^2 / (1 + s^2): the Gaussian process on that prototype [GPLVQ Eq. B.24].

    Notes
    -----
    [GPLVQ Eq. 4.3-4.4] put the prototype where the mean m belongs and the sample where the label y does; only the
    reading of its appendix, which this is, is a density of y.

    Examples
    --------
    >>> float(log_likelihood(1.0, 1, 0.5)) > float(log_likelihood(0.5, 1, 0.5)) > float(log_likelihood(0.5, -1, 0.5))
    True
    """
    mean, variance = k / (1.0 + noise), 1.0 - k * k / (1.0 + noise)
    return -0.5 * (np.log(2.0 * np.pi * variance) + (agree - mean) ** 2 / variance)


def pull_of_likelihood(k: Any, agree: Any, noise: float) -> Any:
    """The number g with which the gradient by w of ``log_likelihood`` is g (x - w) / alpha^2.

    Parameters
    ----------
    k, agree, noise
        See ``log_likelihood``.

    Returns
    -------
    array_like
        k / ((1 + s^2) V^2) ((a - m) V + k m (2 a - k - m)), a = c y and m = k / (1 + s^2): of the sign of a, since m is
        below k and k at most 1. A sample draws the prototype that agrees with it and drives off one that does not, by
        the likelihood itself, which holds both labels.

    Notes
    -----
    The derivative of log N, which the appendix of [GPLVQ] misses: from log(1 / V) in the place of log(1 / V) / 2 it has
    a first term of twice the size, and of the wrong sign [GPLVQ Eq. B.7-B.30], with which samples may drive off
    prototypes that agree with them.

    Examples
    --------
    >>> pull_of_likelihood(np.array([0.9, 0.1]), np.array([1, -1]), 0.5).round(3).tolist()
    [1.287, -0.073]
    """
    mean, variance = k / (1.0 + noise), 1.0 - k * k / (1.0 + noise)
    return k / ((1.0 + noise) * variance**2) * ((agree - mean) * variance + k * mean * (2.0 * agree - k - mean))


def pull_of_thesis(k: Any, agree: Any, noise: float) -> Any:
    """``pull_of_likelihood`` as [GPLVQ Eq. 4.5] has it: without the term of log V, and with that of the mean twice.

    Parameters
    ----------
    k, agree, noise
        See ``log_likelihood``.

    Returns
    -------
    array_like
        k / ((1 + s^2) V^2) (2 (a - m) V - k (1 - a m)^2), of the sign of a too.

    Examples
    --------
    >>> pull_of_thesis(np.array([0.9, 0.1]), np.array([1, -1]), 0.5).round(3).tolist()
    [0.635, -0.151]
    """
    mean, variance = k / (1.0 + noise), 1.0 - k * k / (1.0 + noise)
    return k / ((1.0 + noise) * variance**2) * (2.0 * (agree - mean) * variance - k * (1.0 - agree * mean) ** 2)


def check_rule(rule: Any) -> None:
    """An error that names what is no rule.

    Examples
    --------
    >>> check_rule("thesys")
    Traceback (most recent call last):
    ValueError: rule must be one of autodiff, thesis; found 'thesys'; did you mean 'thesis'?
    """
    if rule not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}; found {rule!r}{did_you_mean(rule, RULES)}")


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
        from deepsimplex.prototypes._likelihood import present  # numba takes a second to import

        present(self._X, y, W, c, order, rates, self._lengthscale, self._noise, self._rule == "thesis")

    def objective(self, y: NDArray[np.float64], W: NDArray[np.float64], c: NDArray[np.float64]) -> float:
        """-log N(y), given the winner alone, a sum over the samples."""
        distances = squared_distances(self._X, W)
        winner = np.argmin(distances, axis=1)
        k = covariance(distances[np.arange(len(winner)), winner], self._lengthscale)
        return -float(np.sum(log_likelihood(k, c[winner] * y, self._noise)))
