"""GPLVQ: how likely the winning prototype makes the label of a sample, and which way that moves it."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.names import did_you_mean

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
