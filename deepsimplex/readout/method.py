"""Which method a readout takes."""

from typing import Any

from numpy.typing import ArrayLike

from deepsimplex.latent import LatentGaussian
from deepsimplex.readout.argmax_probabilities import Method
from deepsimplex.readout.layers import READOUTS


def method_for(
    latent: LatentGaussian | dict[str, Any],
    scores: ArrayLike | None = None,
    method: Method = "auto",
    readout: str = "argmax",
) -> str:
    """Return the method that ``argmax`` or ``softmax`` uses for these latents.

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
        For an unknown readout, and what the readout itself refuses.

    Examples
    --------
    >>> import numpy as np
    >>> loc = np.zeros((1, 3))
    >>> method_for({"loc": loc, "scale": np.ones((1, 1))}), method_for({"loc": loc, "scale": np.ones((1, 3))})
    ('exact', 'quasi_monte_carlo')
    """
    latent = LatentGaussian.of(latent)
    layer = READOUTS.get(readout, scores=scores, method=method)
    return layer.rule_for(latent.latent_dim, latent.covariance).method
