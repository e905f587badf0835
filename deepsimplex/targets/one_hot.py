"""One-hot and vertex targets: one point of latent space for each class."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.registry import registered
from deepsimplex.geometry import vertices
from deepsimplex.geometry.vertices import check_num_classes
from deepsimplex.latent import LatentGaussian
from deepsimplex.targets.target import LabelTarget


@registered
class Vertices(LabelTarget):
    """The vertex p_y of the regular simplex for each class, L = n - 1, without noise.

    The latents of [CASIMAC Eq. 4] without distances, a generalization of the labels -1 and +1 of [GPLVQ] to n classes,
    and the default of ``heads.PrototypeGaussianProcess``. Soft labels q lie between the vertices, at sum_k q_k p_k.

    Examples
    --------
    >>> Vertices().fit_transform(None, [0, 1, 2]).loc.round(3)
    array([[ 1.   ,  0.   ],
           [-0.5  ,  0.866],
           [-0.5  , -0.866]])
    """

    def scores(self, n: int) -> NDArray[np.float64]:
        """The vertices themselves, shape [n, n - 1]."""
        return vertices(n)

    def default_loss(self) -> Any:
        """``losses.Composition()``: cross-entropy with labels that are the softer the harder the data."""
        from deepsimplex.losses import Composition  # imported here: it imports Keras

        return Composition()

    def latents(self, memberships: NDArray[np.float64]) -> LatentGaussian:
        """Points [N, n - 1] with barycentric coordinates [N, n], and scale zero [N, 1]."""
        return LatentGaussian(memberships @ vertices(memberships.shape[1]), np.zeros((len(memberships), 1)))


@registered
class OneHot(LabelTarget):
    """The unit vector of each class, L = n, without noise: least-squares classification.

    The baseline of [GPD] (GPR and NKRR on labels), to be calibrated on held-out data.

    Examples
    --------
    >>> OneHot().fit_transform(None, [1, 0]).loc
    array([[0., 1.],
           [1., 0.]])
    """

    def scores(self, n: int) -> NDArray[np.float64]:
        """The identity, shape [n, n]: each class has its own latent dimension."""
        return np.eye(check_num_classes(n))

    def latents(self, memberships: NDArray[np.float64]) -> LatentGaussian:
        """The memberships themselves, shape [N, n], with scale zero [N, 1]."""
        return LatentGaussian(np.array(memberships), np.zeros((len(memberships), 1)))
