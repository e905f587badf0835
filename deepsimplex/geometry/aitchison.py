"""Aitchison geometry: compositions as a Euclidean vector space, and log-ratio coordinates in it."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from deepsimplex._utils.validation import check_array
from deepsimplex.geometry.vertices import check_coordinates, helmert


def check_composition(pi: ArrayLike, name: str = "pi", axis: int = -1, *, zeros: bool = False) -> NDArray[np.float64]:
    """Return compositions as float64 [..., n], the parts of ``axis`` last; raise unless they have two or more.

    Parts must be finite and positive; with ``zeros`` only one of each composition must be positive.
    """
    parts = _last(check_array(pi, name), axis)
    if parts.ndim == 0 or parts.shape[-1] < 2:
        raise ValueError(f"{name} must have shape [..., n] with n >= 2 parts; found shape {parts.shape}")
    if zeros and not (np.all(parts >= 0) and np.all(parts.max(axis=-1) > 0)):
        raise ValueError(
            f"{name} must not have negative parts, nor compositions of zeros alone; found a smallest part of "
            f"{parts.min()} and a smallest largest part of {parts.max(axis=-1).min()}"
        )
    if not zeros and not np.all(parts > 0):
        raise ValueError(
            f"{name} must have positive parts, since log-ratios of zero do not exist; found a smallest part of "
            f"{parts.min()}. Replace zeros first: multiplicative_replacement({name})"
        )
    return parts


def _last(array: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Move an axis to the end; a number has none, which other checks refuse."""
    if array.ndim and not (isinstance(axis, int | np.integer) and -array.ndim <= axis < array.ndim):
        raise ValueError(f"axis must be one of the {array.ndim} axes, or a negative number of it; found {axis!r}")
    return np.moveaxis(array, axis, -1) if array.ndim else array


def closure(pi: ArrayLike, axis: int = -1) -> NDArray[np.float64]:
    """Scale compositions so that their parts sum to one.

    Parameters
    ----------
    pi : array_like, shape [..., n]
        Parts that are not negative; zeros stay zeros. At least one part of a composition is positive.
    axis : int
        Axis of the parts. Default -1, the last.

    Returns
    -------
    ndarray, shape as ``pi``, float64

    Examples
    --------
    >>> closure([1.0, 3.0, 0.0])
    array([0.25, 0.75, 0.  ])
    """
    parts = check_composition(pi, axis=axis, zeros=True)
    scaled = np.ldexp(parts, -np.frexp(parts.max(axis=-1, keepdims=True))[1])  # exact, and the sum does not overflow
    return np.moveaxis(scaled / scaled.sum(axis=-1, keepdims=True), -1, axis)


def multiplicative_replacement(
    pi: ArrayLike, delta: float | ArrayLike | None = None, axis: int = -1
) -> NDArray[np.float64]:
    """Replace zeros of compositions by small parts, keeping the ratios of all other parts.

    Parameters
    ----------
    pi : array_like, shape [..., n]
        Parts that are not negative; their sum does not matter.
    delta : float or array_like, shape [n], optional
        Parts that replace zeros, in shares of the whole: one for all, or one for each part. Default None: 1 / n^2.
    axis : int
        Axis of the parts. Default -1, the last.

    Returns
    -------
    ndarray, shape as ``pi``, float64
        Positive parts that sum to one: delta for zeros, p (1 - sum of the deltas of the composition) for others.

    Raises
    ------
    ValueError
        If the deltas of a composition sum to 1 or more.

    Notes
    -----
    Martin-Fernandez, Barcelo-Vidal, Pawlowsky-Glahn: *Dealing with Zeros and Missing Values in Compositional Data Sets
    Using Nonparametric Imputation*, 2003.

    Examples
    --------
    >>> multiplicative_replacement([0.2, 0.4, 0.4, 0.0])
    array([0.1875, 0.375 , 0.375 , 0.0625])
    """
    parts = np.moveaxis(closure(pi, axis), axis, -1)
    n = parts.shape[-1]
    shares = check_array(1.0 / n**2 if delta is None else delta, "delta")
    if shares.shape not in ((), (n,)) or not np.all(shares > 0):
        raise ValueError(f"delta must be a positive number, or one for each of {n} parts; found {delta!r}")
    replaced = np.where(parts == 0, shares, 0.0)
    rest = 1.0 - replaced.sum(axis=-1, keepdims=True)
    if not np.all(rest > 0):
        raise ValueError(f"delta must leave a share to other parts; found {delta!r}, which sums to {1.0 - rest.min()}")
    return np.moveaxis(replaced + rest * parts, -1, axis)


def clr(pi: ArrayLike, axis: int = -1) -> NDArray[np.float64]:
    """Centered log-ratio coordinates, log pi - mean(log pi).

    Parameters
    ----------
    pi : array_like, shape [..., n]
        Compositions with positive parts; their sum does not matter.
    axis : int
        Axis of the parts. Default -1, the last.

    Returns
    -------
    ndarray, shape as ``pi``, float64
        Coordinates that sum to zero.

    Examples
    --------
    >>> clr([1.0, 1.0, np.e]).round(3)
    array([-0.333, -0.333,  0.667])
    """
    return np.moveaxis(_centered(np.log(check_composition(pi, axis=axis))), -1, axis)


def clr_inverse(c: ArrayLike, axis: int = -1) -> NDArray[np.float64]:
    """Compositions of centered log-ratio coordinates, softmax(c), which sum to one.

    Parameters
    ----------
    c : array_like, shape [..., n]
        Coordinates; a constant that is added to all does not matter.
    axis : int
        Axis of the coordinates. Default -1, the last.

    Returns
    -------
    ndarray, shape as ``c``, float64

    Examples
    --------
    >>> clr_inverse(clr([0.2, 0.3, 0.5]))
    array([0.2, 0.3, 0.5])
    """
    return np.moveaxis(shares(_last(check_coordinates(c, "c"), axis)), -1, axis)


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


def ilr(pi: ArrayLike, basis: ArrayLike | None = None, axis: int = -1) -> NDArray[np.float64]:
    """Isometric log-ratio coordinates, V log pi [ILR-GP sec. 3.1].

    Parameters
    ----------
    pi : array_like, shape [..., n]
        Compositions with positive parts; their sum does not matter.
    basis : array_like, shape [n - 1, n], optional
        V: orthonormal rows, each of which sums to zero. Default None: ``helmert(n)``.
    axis : int
        Axis of the parts, and of the coordinates. Default -1, the last.

    Returns
    -------
    ndarray, shape [..., n - 1], float64
        Coordinates in which Aitchison distances are Euclidean ones.

    Examples
    --------
    >>> ilr([0.5, 0.25, 0.25]).round(3)
    array([0.49 , 0.283])
    """
    parts = check_composition(pi, axis=axis)
    return np.moveaxis(_centered(np.log(parts)) @ _check_basis(basis, parts.shape[-1]).T, -1, axis)


def ilr_inverse(z: ArrayLike, basis: ArrayLike | None = None, axis: int = -1) -> NDArray[np.float64]:
    """Compositions of isometric log-ratio coordinates, softmax(V^T z).

    Parameters
    ----------
    z : array_like, shape [..., n - 1]
    basis, axis
        As given to ``ilr``.

    Returns
    -------
    ndarray, shape [..., n], float64
        Compositions that sum to one.

    Examples
    --------
    >>> ilr_inverse([0.0, 0.0]).round(3)
    array([0.333, 0.333, 0.333])
    """
    coordinates = _last(check_coordinates(z, "z"), axis)
    return np.moveaxis(shares(coordinates @ _check_basis(basis, coordinates.shape[-1] + 1)), -1, axis)


def _check_basis(basis: ArrayLike | None, n: int) -> NDArray[np.float64]:
    """Return an orthonormal basis [n - 1, n] of the vectors that sum to zero, by default Helmert's."""
    if basis is None:
        return helmert(n)
    V = check_array(basis, "basis")
    if V.shape != (n - 1, n):
        raise ValueError(f"basis must have shape [{n - 1}, {n}] for compositions of {n} parts; found shape {V.shape}")
    if not (np.allclose(V @ V.T, np.eye(n - 1), atol=1e-6) and np.allclose(V.sum(axis=1), 0.0, atol=1e-6)):
        raise ValueError(
            f"basis must have orthonormal rows, each of which sums to zero, as helmert({n}) has; found others"
        )
    return V


def alr(pi: ArrayLike, reference: int = -1, axis: int = -1) -> NDArray[np.float64]:
    """Additive log-ratio coordinates, log(pi_k / pi_r) of all parts k but the reference r.

    Parameters
    ----------
    pi : array_like, shape [..., n]
        Compositions with positive parts; their sum does not matter.
    reference : int
        Position of the part r that others are divided by. Default -1, the last.
    axis : int
        Axis of the parts, and of the coordinates. Default -1, the last.

    Returns
    -------
    ndarray, shape [..., n - 1], float64

    Examples
    --------
    >>> alr([0.5, 0.25, 0.25]).round(3), alr([0.5, 0.25, 0.25], reference=0).round(3)
    (array([0.693, 0.   ]), array([-0.693, -0.693]))
    """
    logarithm = np.log(check_composition(pi, axis=axis))
    position = _check_reference(reference, logarithm.shape[-1])
    ratios = np.delete(logarithm, position, axis=-1) - logarithm[..., position, None]
    return np.moveaxis(ratios, -1, axis)


def alr_inverse(a: ArrayLike, reference: int = -1, axis: int = -1) -> NDArray[np.float64]:
    """Compositions of additive log-ratio coordinates: shape [..., n - 1] to [..., n], summing to one.

    Parameters
    ----------
    a : array_like, shape [..., n - 1]
    reference, axis
        As given to ``alr``.

    Returns
    -------
    ndarray, shape [..., n], float64

    Examples
    --------
    >>> alr_inverse([0.0, 0.0]).round(3)
    array([0.333, 0.333, 0.333])
    """
    coordinates = _last(check_coordinates(a, "a"), axis)
    position = _check_reference(reference, coordinates.shape[-1] + 1)
    return np.moveaxis(shares(np.insert(coordinates, position, 0.0, axis=-1)), -1, axis)


def _check_reference(reference: int, n: int) -> int:
    """Return the position of a part, from 0."""
    if isinstance(reference, bool) or not isinstance(reference, int | np.integer) or not -n <= reference < n:
        raise ValueError(f"reference must be the position of one of {n} parts, -{n} to {n - 1}; found {reference!r}")
    return int(reference) % n


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
