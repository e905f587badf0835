"""Dirichlet targets: labels as log-normal approximations of Gamma variables."""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.registry import registered
from deepsimplex._utils.validation import check_number
from deepsimplex.geometry.vertices import check_num_classes
from deepsimplex.latent import LatentGaussian
from deepsimplex.targets.target import Candidates, LabelTarget


@registered
class Dirichlet(LabelTarget):
    """Labels as Dirichlet variables in log space, L = n, with noise per sample and class [GPD sec. 4].

    With alpha_c = 1{y = c} + concentration, the observation of class c is m_c = log alpha_c - s2_c / 2 with variance
    s2_c = log(1 + 1 / alpha_c). Soft labels put their memberships in the place of 1{y = c}.

    Latents are read out without that noise (``noise`` is None), whether a head or a Gaussian process predicts them: it
    is as large for certain samples as for uncertain ones, so that adding it would flatten all probabilities.

    Parameters
    ----------
    concentration : float
        alpha_eps > 0, the pseudo-count of every class. The default is 0.01; the paper
        chooses it by the training likelihood.

    Examples
    --------
    >>> latent = Dirichlet(0.01).fit_transform(None, [0], num_classes=2)
    >>> latent.loc.round(3), latent.scale.round(3)
    (array([[-0.334, -6.913]]), array([[0.83 , 2.148]]))
    """

    default_readout: str = "softmax"
    # [GPD sec. 5] and [ILR-GP] Table 3 select among these.
    candidates: ClassVar[Candidates | None] = Candidates("concentration", (0.1, 0.01, 0.001, 0.0001))

    def __init__(self, concentration: float = 0.01) -> None:
        self.concentration = check_number(concentration, "concentration", above=0)

    def scores(self, n: int) -> NDArray[np.float64]:
        """The identity, shape [n, n]: the latents are logarithms of class weights."""
        return np.eye(check_num_classes(n))

    def latents(self, memberships: NDArray[np.float64]) -> LatentGaussian:
        """Observations [N, n] with diagonal scale [N, n] of soft labels [N, n]."""
        alpha = memberships + self.concentration
        variance = np.log1p(1 / alpha)
        return LatentGaussian(np.log(alpha) - variance / 2, np.sqrt(variance))
