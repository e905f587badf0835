"""Vertices of the regular simplex, and the Helmert basis they come from."""

import numbers
from typing import Literal, get_args

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import check_array, check_choice

Construction = Literal["iterative", "helmert"]
CONSTRUCTIONS: tuple[str, ...] = get_args(Construction)


MOST_VERTICES = 2**14  # whose matrix takes 2 GiB


def check_num_classes(n: int) -> int:
    """Return a number of classes, a whole number of at least 2 and at most ``MOST_VERTICES``, as an int."""
    if not isinstance(n, numbers.Real) or isinstance(n, bool) or n % 1 != 0 or n < 2:
        raise ValueError(f"n must be a whole number of classes, at least 2; found {n!r}")
    if n > MOST_VERTICES:
        raise ValueError(f"n must be at most {MOST_VERTICES} classes, since a matrix has a row for each; found {n!r}")
    return int(n)


def check_coordinates(z: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return latent coordinates ``z`` [..., n - 1] as float64; raise unless they are finite and n >= 2."""
    coordinates = check_array(z, name)
    if coordinates.ndim == 0 or coordinates.shape[-1] < 1:
        raise ValueError(f"{name} must have shape [..., n - 1] with n >= 2; found shape {coordinates.shape}")
    return coordinates


def helmert(n: int) -> NDArray[np.float64]:
    """Orthonormal Helmert (ILR) basis V of the hyperplane of zero-sum vectors.

    Parameters
    ----------
    n : int
        Number of classes, at least 2.

    Returns
    -------
    ndarray, shape [n - 1, n], float64
        Row i is (1, ..., 1, -i, 0, ..., 0) / sqrt(i (i + 1)) with i ones, so that
        V V^T = I, V 1 = 0 and V^T V = I - 11^T / n. [ILR-GP] sec. 3.1.

    Examples
    --------
    >>> helmert(3).round(3)
    array([[ 0.707, -0.707,  0.   ],
           [ 0.408,  0.408, -0.816]])
    """
    return scipy.linalg.helmert(check_num_classes(n))


def vertices(n: int, construction: Construction = "iterative") -> NDArray[np.float64]:
    """Vertices P of the regular (n-1)-simplex of unit circumradius around the origin.

    Parameters
    ----------
    n : int
        Number of classes, at least 2.
    construction : {"iterative", "helmert"}
        "iterative" is [CASIMAC] B.1, with p_1 = (1, 0, ..., 0). "helmert" is sqrt(n/(n-1)) V^T, whose latent
        coordinates are ILR coordinates up to that factor. Both have the same Gram matrix and differ by an
        orthogonal map; latents of one must not be read with the other.

    Returns
    -------
    ndarray, shape [n, n - 1], float64
        Rows p_i with ||p_i|| = 1, p_i.p_j = -1/(n-1) and sum_i p_i = 0 [CASIMAC Eq. 5, 30-31].

    Examples
    --------
    >>> vertices(3).round(3)
    array([[ 1.   ,  0.   ],
           [-0.5  ,  0.866],
           [-0.5  , -0.866]])
    """
    n = check_num_classes(n)
    if check_choice(construction, "construction", CONSTRUCTIONS) == "helmert":
        return np.sqrt(n / (n - 1)) * scipy.linalg.helmert(n).T
    # B.1 fixes coordinate j of every later vertex by ||p_j|| = 1 and p_j.p_k = -1/(n-1). The recursion has the
    # closed solution below (column j sums to zero over the vertices j.. that it touches), free of its round-off.
    j = np.arange(n - 1)
    diagonal = np.sqrt(n * (n - 1 - j) / ((n - 1) * (n - j)))
    P = np.tril(np.broadcast_to(-diagonal / (n - 1 - j), (n, n - 1)), k=-1)
    P[j, j] = diagonal
    return P


def nearest_vertex(f: ArrayLike, construction: Construction = "iterative") -> NDArray[np.int64]:
    """Class of each latent point: the vertex nearest to it.

    Parameters
    ----------
    f : array_like, shape [..., n - 1]
        Latent points in the coordinates of ``vertices(n, construction)``.
    construction : {"iterative", "helmert"}
        The construction the latents were made with.

    Returns
    -------
    ndarray, shape [...], int64
        argmin_k ||f - p_k|| = argmax_k p_k.f [CASIMAC Eq. 10, with the erratum: arg min, not min]; the lowest class
        where several are equally near.

    Examples
    --------
    >>> nearest_vertex([[0.2, -0.9], [3.0, 0.1]])
    array([2, 0])
    """
    latents = check_coordinates(f, "f")
    return np.argmax(latents @ vertices(latents.shape[-1] + 1, construction).T, axis=-1)
