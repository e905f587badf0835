"""ILR targets: smoothed labels in isometric log-ratio coordinates."""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from deepsimplex._utils.registry import registered
from deepsimplex._utils.validation import check_number
from deepsimplex.geometry import helmert
from deepsimplex.geometry.vertices import check_num_classes
from deepsimplex.latent import LatentGaussian
from deepsimplex.targets.target import Candidates, LabelTarget


@registered
class ILR(LabelTarget):
    """Smoothed labels in ILR coordinates, L = n - 1, with the same noise for all [ILR-GP sec. 3.1].

    pi = lambda q + (1 - lambda) / n with q the one-hot or soft label, z = ilr(pi), observed as N(z, sigma^2 I).

    Parameters
    ----------
    smoothing : float
        lambda, strictly between 0 and 1: the larger, the farther apart the classes. The default is 0.99.
    overlap : float
        delta, strictly between 0 and 1: sigma is the largest that [ILR-GP] Proposition 1 allows for the probability
        that an observation lies nearer the center of another class to be at most delta. The default is 0.01. With
        two classes it must lie below 1/2.
    noise_scale : float, optional
        sigma >= 0 itself, instead of the bound; ``overlap`` then has no effect.

    Examples
    --------
    >>> latent = ILR().fit_transform(None, [0, 1])
    >>> latent.loc.round(3), latent.scale.round(3)
    (array([[ 3.743],
           [-3.743]]), array([[1.609],
           [1.609]]))
    """

    default_readout: str = "softmax"
    # Those that [ILR-GP] Table 3 selects, and 0.9.
    candidates: ClassVar[Candidates | None] = Candidates("smoothing", (0.9, 0.95, 0.99, 0.999, 0.9999, 0.999999))

    def __init__(self, smoothing: float = 0.99, overlap: float = 0.01, noise_scale: float | None = None) -> None:
        self.smoothing = check_number(smoothing, "smoothing", above=0, below=1)
        self.overlap = check_number(overlap, "overlap", above=0, below=1)
        self.noise_scale = None if noise_scale is None else check_number(noise_scale, "noise_scale", least=0)

    def scores(self, n: int) -> NDArray[np.float64]:
        """V^T, shape [n, n - 1]: the composition of a latent z is softmax(V^T z)."""
        return helmert(n).T

    def separation(self, n: int) -> float:
        """Distance between the centers of any two classes, sqrt(2) log(1 + lambda n / (1 - lambda))."""
        return float(np.sqrt(2) * np.log1p(self.smoothing * check_num_classes(n) / (1 - self.smoothing)))

    def noise(self, n: int) -> NDArray[np.float64]:
        """sigma, shape [1, 1]: as given, else the bound of [ILR-GP] Proposition 1, Delta / (2 Phi^-1(1 - delta/(n-1))).

        Raises
        ------
        ValueError
            When the bound does not exist: overlap >= (n - 1) / 2.
        """
        separation = self.separation(n)
        if self.noise_scale is not None:
            return np.full((1, 1), self.noise_scale)
        if self.overlap >= (n - 1) / 2:
            raise ValueError(f"overlap must lie below (n - 1) / 2 = {(n - 1) / 2} for n = {n}; found {self.overlap}")
        return np.full((1, 1), -separation / (2 * ndtri(self.overlap / (n - 1))))

    def latents(self, memberships: NDArray[np.float64]) -> LatentGaussian:
        """Observations [N, n - 1] with isotropic scale [N, 1] of soft labels [N, n]."""
        n = memberships.shape[1]
        loc = np.log(self.smoothing * memberships + (1 - self.smoothing) / n) @ self.scores(n)
        return LatentGaussian(loc, np.repeat(self.noise(n), len(loc), axis=0))
