"""The bijection between the latent space of the vertices and the probability simplex [CASIMAC B.5]."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import check_array, check_number
from deepsimplex.geometry.aitchison import check_composition, shares
from deepsimplex.geometry.vertices import Construction, check_coordinates, vertices


def to_probability_simplex(
    f: ArrayLike, tau: float = 1.0, construction: Construction = "iterative"
) -> NDArray[np.float64]:
    """Map latents to the probability simplex, S_tau(f) = softmax(tau P f) [CASIMAC Eq. 41].

    Parameters
    ----------
    f : array_like, shape [..., n - 1]
        Latent points in the coordinates of ``vertices(n, construction)``.
    tau : float
        Scale, positive; ``tau_from`` computes one from latents. The default 1 leaves the latents' own scale.
    construction : {"iterative", "helmert"}
        The construction the latents were made with.

    Returns
    -------
    ndarray, shape [..., n], float64
        Points that sum to one.

    Examples
    --------
    >>> to_probability_simplex([[0.0, 0.0]]).round(3)
    array([[0.333, 0.333, 0.333]])
    """
    latents = check_coordinates(f, "f")
    return shares(check_number(tau, "tau", above=0) * (latents @ vertices(latents.shape[-1] + 1, construction).T))


def from_probability_simplex(
    s: ArrayLike, tau: float = 1.0, construction: Construction = "iterative"
) -> NDArray[np.float64]:
    """Map the probability simplex to latents, ((n-1)/(n tau)) P^T log s [CASIMAC Eq. 42].

    Parameters
    ----------
    s : array_like, shape [..., n]
        Points of the open simplex: positive parts.
    tau : float
        The scale given to ``to_probability_simplex``.
    construction : {"iterative", "helmert"}

    Returns
    -------
    ndarray, shape [..., n - 1], float64

    Examples
    --------
    >>> from_probability_simplex(to_probability_simplex([[0.3, -0.2]])).round(3)
    array([[ 0.3, -0.2]])
    """
    points = check_composition(s, "s")
    n = points.shape[-1]
    return (n - 1) / (n * check_number(tau, "tau", above=0)) * (np.log(points) @ vertices(n, construction))


def tau_from(latents: ArrayLike) -> float:
    """Scale for plots, tau_sigma = 1 / min_i std_i of the training latents [CASIMAC B.5].

    Parameters
    ----------
    latents : array_like, shape [N, n - 1]
        Training latents; every dimension must vary.

    Returns
    -------
    float

    Examples
    --------
    >>> tau_from([[0.0, 1.0], [2.0, 5.0]])
    1.0
    """
    points = check_array(latents, "latents", "[N, n - 1]", least=1)
    if not points.shape[1]:
        raise ValueError("latents must have at least one dimension; found none")
    # The range, not the standard deviation: that of equal numbers is round-off rather than 0.
    spread = np.ptp(points, axis=0)
    if spread.min() == 0:
        raise ValueError("latents must vary in every dimension; found one in which all are equal")
    std = float(np.min(spread * (points / spread).std(axis=0)))  # squares of tiny numbers would vanish
    return check_number(1.0 / std, "1 / the least standard deviation of latents")
