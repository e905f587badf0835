"""Which method a readout takes."""

from typing import Any, Literal

from numpy.typing import ArrayLike

from deepsimplex.latent import LatentGaussian
from deepsimplex.readout.argmax_probabilities import Method
from deepsimplex.readout.registry import named_readout
from deepsimplex.readout.rule import Rule


def method_for(
    latent: LatentGaussian | dict[str, Any],
    scores: ArrayLike | None = None,
    method: Method = "auto",
    readout: Literal["argmax", "softmax"] = "argmax",
) -> str:
    """Say which method ``argmax`` or ``softmax`` uses for these latents.

    Parameters
    ----------
    latent : LatentGaussian or dict
    scores : array_like, shape [n, L], optional
    method : str
        As for the readout.
    readout : {"argmax", "softmax"}

    Returns
    -------
    str
        "exact", "quasi_monte_carlo" or "monte_carlo".

    Raises
    ------
    ValueError
        For an unknown readout, and what the readout itself would refuse.

    Examples
    --------
    >>> import numpy as np
    >>> loc = np.zeros((1, 3))
    >>> method_for({"loc": loc, "scale": np.ones((1, 1))}), method_for({"loc": loc, "scale": np.ones((1, 3))})
    ('exact', 'quasi_monte_carlo')
    """
    return rule_for(LatentGaussian.of(latent), scores, method, readout).method


def rule_for(latent: LatentGaussian, scores: ArrayLike | None, method: str, readout: str) -> Rule:
    """The settled way in which a readout by name reads latents like these."""
    return named_readout(readout).rule.of(latent.latent_dim, latent.covariance, scores, method, None, 0)
