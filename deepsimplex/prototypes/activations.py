"""What a sample's relative distance costs: the activations Phi of GLVQ and GMLVQ."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.names import did_you_mean


class Activation(ABC):
    """A function Phi that grows."""

    @abstractmethod
    def __call__(self, mu: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Phi and its derivative at relative distances mu [N], from -1 (well classified) to 1."""


@dataclass(frozen=True)
class Linear(Activation):
    """Phi(mu) = mu: every sample counts, however far from the decision.

    Examples
    --------
    >>> Linear()(np.array([-0.5, 0.5]))
    (array([-0.5,  0.5]), array([1., 1.]))
    """

    def __call__(self, mu: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return mu, np.ones_like(mu)


@dataclass(frozen=True)
class Sigmoid(Activation):
    """Phi(mu) = 1 / (1 + exp(-steepness mu)): the steeper, the more it counts errors, and samples near the decision.

    Parameters
    ----------
    steepness : float
        Above 0. With 1 it is all but linear, mu being no further from zero than 1.

    Examples
    --------
    >>> phi, slope = Sigmoid(4.0)(np.array([0.0, 1.0]))
    >>> phi.round(3).tolist(), slope.round(3).tolist()
    ([0.5, 0.982], [1.0, 0.071])
    """

    steepness: float = 1.0

    def __call__(self, mu: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        # By the hyperbolic tangent, which does not overflow.
        phi = 0.5 + 0.5 * np.tanh(0.5 * self.steepness * mu)
        return phi, self.steepness * phi * (1.0 - phi)


def make_activation(name: str, steepness: float) -> Activation:
    """The activation of that name.

    Parameters
    ----------
    name : {"sigmoid", "linear"}
    steepness : float
        Of the sigmoid.

    Raises
    ------
    ValueError
        For another name, and a steepness that is not above 0.

    Examples
    --------
    >>> make_activation("sigmoid", 2.0)
    Sigmoid(steepness=2.0)
    """
    if not 0.0 < steepness < np.inf:
        raise ValueError(f"steepness must be above 0 and finite; found {steepness!r}")
    if name == "linear":
        return Linear()
    if name == "sigmoid":
        return Sigmoid(float(steepness))
    known = ("sigmoid", "linear")
    raise ValueError(f"activation must be one of {', '.join(known)}; found {name!r}{did_you_mean(name, known)}")
