"""Vertex targets: every class at its corner of the regular simplex."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deepsimplex.geometry import vertices
from deepsimplex.geometry.vertices import check_num_classes
from deepsimplex.latent import LatentGaussian
from deepsimplex.targets.base import LabelTarget, Readout


class Vertices(LabelTarget):
    """The vertex p_y of each class, L = n - 1, without noise of its own: -1 and +1 of [GPLVQ] for n classes.

    The latents of [CASIMAC Eq. 4] without their distances, and those that ``heads.PrototypeGaussianProcess``
    begins with. Soft labels q lie between the vertices, at sum_k q_k p_k.

    Examples
    --------
    >>> Vertices().fit_transform(None, [0, 1, 2]).loc.round(3)
    array([[ 1.   ,  0.   ],
           [-0.5  ,  0.866],
           [-0.5  , -0.866]])
    """

    name: ClassVar[str] = "vertices"
    default_readout: Readout = "argmax"

    def latent_dim(self, n: int) -> int:
        """Number of latent dimensions, L = n - 1."""
        return check_num_classes(n) - 1

    def scores(self, n: int) -> NDArray[np.float64]:
        """The vertices themselves, shape [n, n - 1]."""
        return vertices(n)

    def noise(self, n: int) -> None:
        """None: the targets carry no noise."""
        check_num_classes(n)

    def latents(self, memberships: NDArray[np.float64]) -> LatentGaussian:
        """Points [N, n - 1] of the simplex that soft labels [N, n] are the coordinates of, with scale zero [N, 1]."""
        return LatentGaussian(memberships @ vertices(memberships.shape[1]), np.zeros((len(memberships), 1)))

    def get_config(self) -> dict[str, Any]:
        """The target as plain JSON."""
        return {"name": self.name}
