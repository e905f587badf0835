"""One-hot targets: least-squares classification."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deepsimplex.geometry.vertices import check_num_classes
from deepsimplex.latent import LatentGaussian
from deepsimplex.targets.base import LabelTarget, Readout


class OneHot(LabelTarget):
    """The unit vector of each class, L = n, without noise of its own.

    The least-squares baseline of [GPD] (GPR and NKRR on labels), to be calibrated on held-out data.

    Examples
    --------
    >>> OneHot().fit_transform(None, [1, 0]).loc
    array([[0., 1.],
           [1., 0.]])
    """

    name: ClassVar[str] = "one_hot"
    default_readout: Readout = "argmax"

    def latent_dim(self, n: int) -> int:
        """Number of latent dimensions, L = n."""
        return check_num_classes(n)

    def scores(self, n: int) -> NDArray[np.float64]:
        """The identity, shape [n, n]: each class has its own latent dimension."""
        return np.eye(check_num_classes(n))

    def noise(self, n: int) -> None:
        """None: the targets carry no noise."""
        check_num_classes(n)

    def latents(self, memberships: NDArray[np.float64]) -> LatentGaussian:
        """The memberships themselves, shape [N, n], with scale zero [N, 1]."""
        return LatentGaussian(np.array(memberships), np.zeros((len(memberships), 1)))

    def get_config(self) -> dict[str, Any]:
        """The target as plain JSON."""
        return {"name": self.name}
