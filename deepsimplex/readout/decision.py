"""Decision function between two classes [CASIMAC Eq. 40]."""

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from deepsimplex.latent import LatentGaussian
from deepsimplex.readout.arguments import latent_is_tensor, tensors
from deepsimplex.readout.scores import Scores


def decision_function(latent: LatentGaussian | dict[str, Any], j: int, k: int, scores: ArrayLike | None = None) -> Any:
    """Signed distance of the latent means from the boundary between classes j and k, positive on j's side.

    Parameters
    ----------
    latent : LatentGaussian or dict
        Latents, in NumPy arrays or tensors; only ``loc`` matters.
    j, k : int
        Two different classes in 0..n-1.
    scores : array_like, shape [n, L], optional
        Scores S; None stands for the vertices.

    Returns
    -------
    ndarray or tensor, shape [N]
        loc . (s_j - s_k) / ||s_j - s_k|| [CASIMAC Eq. 40], in latent units.

    Raises
    ------
    ValueError
        When j or k is no class, or both have the same scores.

    Examples
    --------
    >>> import numpy as np
    >>> decision_function({"loc": np.array([[0.3, 0.7]]), "scale": np.ones((1, 1))}, 1, 2)
    array([0.7])
    """
    latent = LatentGaussian.of(latent)
    S = Scores.of(scores, latent.latent_dim).matrix
    for name, value in (("j", j), ("k", k)):
        if not 0 <= value < len(S) or int(value) != value:
            raise ValueError(f"{name} must be a class in 0..{len(S) - 1}; found {value!r}")
    difference = S[int(j)] - S[int(k)]
    length = np.linalg.norm(difference)
    if length == 0:
        raise ValueError(f"j and k must be classes of different scores; found j = {j}, k = {k}")
    if not latent_is_tensor(latent):
        return latent.loc @ (difference / length).astype(latent.loc.dtype)
    loc, _ = tensors(latent)
    return tf.linalg.matvec(loc, tf.constant(difference / length, loc.dtype))
