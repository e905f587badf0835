"""Aitchison geometry: compositions as a Euclidean vector space, and log-ratio coordinates in it."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from deepsimplex._utils.validation import check_array
from deepsimplex.geometry.vertices import check_coordinates, helmert


def check_composition(pi: ArrayLike, name: str = "pi") -> NDArray[np.float64]:
    """Return compositions [..., n] as float64; raise unless they have at least two parts, finite and positive."""
    parts = check_array(pi, name)
    if parts.ndim == 0 or parts.shape[-1] < 2:
        raise ValueError(f"{name} must have shape [..., n] with n >= 2 parts; found shape {parts.shape}")
    if not np.all(parts > 0):
        raise ValueError(
            f"{name} must have positive parts, since log-ratios of zero do not exist; found a smallest part of "
            f"{parts.min()}. Smooth it first, e.g. lambda * {name} + (1 - lambda) / n"
        )
    return parts


def closure(pi: ArrayLike) -> NDArray[np.float64]:
    """Scale compositions [..., n] so that their parts sum to one.

    Examples
    --------
    >>> closure([1.0, 3.0])
    array([0.25, 0.75])
    """
    parts = check_composition(pi)
    return parts / parts.sum(axis=-1, keepdims=True)


def clr(pi: ArrayLike) -> NDArray[np.float64]:
    """Centered log-ratio coordinates, log pi - mean(log pi).

    Parameters
    ----------
    pi : array_like, shape [..., n]
        Compositions with positive parts; their sum does not matter.

    Returns
    -------
    ndarray, shape [..., n], float64
        Coordinates that sum to zero.

    Examples
    --------
    >>> clr([1.0, 1.0, np.e]).round(3)
    array([-0.333, -0.333,  0.667])
    """
    return _centered(np.log(check_composition(pi)))


def _centered(logarithm: NDArray[np.float64]) -> NDArray[np.float64]:
    return logarithm - logarithm.mean(axis=-1, keepdims=True)


def shares(logarithm: NDArray[np.float64]) -> NDArray[np.float64]:
    """Softmax over the last axis of any finite numbers: differences that overflow are shares of zero."""
    with np.errstate(over="ignore"):
        return softmax(logarithm, axis=-1)


def _logarithms(x: ArrayLike, y: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Logarithms of two compositions that can be broadcast."""
    one, other = np.log(check_composition(x, "x")), np.log(check_composition(y, "y"))
    _check_broadcast("x", one, "y", other)
    return one, other


def _check_broadcast(name: str, array: NDArray[np.float64], other_name: str, other: NDArray[np.float64]) -> None:
    try:
        np.broadcast_shapes(array.shape, other.shape)
    except ValueError:
        raise ValueError(
            f"{name} and {other_name} must have shapes that fit; found {array.shape} and {other.shape}"
        ) from None


def ilr(pi: ArrayLike) -> NDArray[np.float64]:
    """Isometric log-ratio coordinates, V log pi with the Helmert basis V [ILR-GP sec. 3.1].

    Parameters
    ----------
    pi : array_like, shape [..., n]
        Compositions with positive parts; their sum does not matter.

    Returns
    -------
    ndarray, shape [..., n - 1], float64
        Coordinates in which Aitchison distances are Euclidean ones.

    Examples
    --------
    >>> ilr([0.5, 0.25, 0.25]).round(3)
    array([0.49 , 0.283])
    """
    centered = clr(pi)
    return centered @ helmert(centered.shape[-1]).T


def ilr_inverse(z: ArrayLike) -> NDArray[np.float64]:
    """Compositions of isometric log-ratio coordinates, softmax(V^T z).

    Parameters
    ----------
    z : array_like, shape [..., n - 1]

    Returns
    -------
    ndarray, shape [..., n], float64
        Compositions that sum to one.

    Examples
    --------
    >>> ilr_inverse([0.0, 0.0]).round(3)
    array([0.333, 0.333, 0.333])
    """
    coordinates = check_coordinates(z, "z")
    return shares(coordinates @ helmert(coordinates.shape[-1] + 1))


def alr(pi: ArrayLike) -> NDArray[np.float64]:
    """Additive log-ratio coordinates, log(pi_k / pi_n) for k < n: shape [..., n] to [..., n - 1].

    Examples
    --------
    >>> alr([0.5, 0.25, 0.25]).round(3)
    array([0.693, 0.   ])
    """
    logarithm = np.log(check_composition(pi))
    return logarithm[..., :-1] - logarithm[..., -1:]


def alr_inverse(a: ArrayLike) -> NDArray[np.float64]:
    """Compositions of additive log-ratio coordinates: shape [..., n - 1] to [..., n], summing to one.

    Examples
    --------
    >>> alr_inverse([0.0, 0.0]).round(3)
    array([0.333, 0.333, 0.333])
    """
    coordinates = check_coordinates(a, "a")
    return shares(np.concatenate([coordinates, np.zeros_like(coordinates[..., :1])], axis=-1))


def perturb(x: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
    """Sum of the Aitchison vector space: the closed part-wise product of two compositions [..., n].

    Examples
    --------
    >>> perturb([0.5, 0.5], [0.2, 0.8])
    array([0.2, 0.8])
    """
    return shares(np.add(*_logarithms(x, y)))


def power(x: ArrayLike, a: ArrayLike) -> NDArray[np.float64]:
    """Scalar multiple of the Aitchison vector space: the closed part-wise power of compositions [..., n].

    Parameters
    ----------
    x : array_like, shape [..., n]
    a : array_like
        Exponents, broadcast over the leading axes of ``x``.

    Examples
    --------
    >>> power([0.2, 0.8], 0.0)
    array([0.5, 0.5])
    """
    exponents = check_array(a, "a")[..., None]
    logarithm = np.log(check_composition(x, "x"))
    _check_broadcast("a", exponents, "x", logarithm)
    ends = (extreme(logarithm, axis=-1, keepdims=True) for extreme in (np.max, np.min))
    with np.errstate(over="ignore"):  # only parts whose share is 0 overflow: the largest product is 0
        return shares(exponents * (logarithm - np.where(exponents >= 0, *ends)))


def aitchison_inner(x: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
    """Aitchison inner product, (1/2n) sum_ij log(x_i/x_j) log(y_i/y_j) = <ilr x, ilr y>: [..., n] to [...].

    Examples
    --------
    >>> float(aitchison_inner([1.0, np.e], [1.0, np.e]).round(3))
    0.5
    """
    return np.sum(np.multiply(*map(_centered, _logarithms(x, y))), axis=-1)


def aitchison_norm(x: ArrayLike) -> NDArray[np.float64]:
    """Aitchison norm of compositions: [..., n] to [...].

    Examples
    --------
    >>> float(aitchison_norm([1.0, 1.0]))
    0.0
    """
    return np.linalg.norm(_centered(np.log(check_composition(x, "x"))), axis=-1)


def aitchison_distance(x: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
    """Aitchison distance between compositions, ||ilr x - ilr y||: [..., n] to [...].

    Examples
    --------
    >>> float(aitchison_distance([0.5, 0.5], [0.2, 0.8]).round(3))
    0.98
    """
    return np.linalg.norm(np.subtract(*map(_centered, _logarithms(x, y))), axis=-1)
