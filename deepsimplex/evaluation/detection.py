"""Does uncertainty tell samples from elsewhere: out-of-distribution detection."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex.evaluation.inputs import unmasked
from deepsimplex.evaluation.prepared import Prepared


def _check_scores(scores: ArrayLike, name: str) -> NDArray[np.float64]:
    array = unmasked(scores, name)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} must hold one number for each sample, [N] with N >= 1; found shape {array.shape} and dtype "
            f"{array.dtype}. Probabilities p [N, n] become scores with 1 - p.max(axis=1)"
        )
    missing = np.isnan(array.astype(np.float64))
    if missing.any():
        raise ValueError(f"{name} must not hold NaN; found {missing.sum()}, the first in row {int(np.argmax(missing))}")
    return array.astype(np.float64)


def prepare_out_of_distribution_auroc(inside: ArrayLike, outside: ArrayLike) -> Prepared:
    """See ``out_of_distribution_auroc``."""
    inside, outside = _check_scores(inside, "inside"), _check_scores(outside, "outside")

    def finish(scores: NDArray[np.float64], is_outside: NDArray[np.bool_]) -> float:
        within, beyond = np.sort(scores[~is_outside]), np.sort(scores[is_outside])
        below, not_above = (int(np.searchsorted(within, beyond, side=side).sum()) for side in ("left", "right"))
        return (below + not_above) / (2 * len(within) * len(beyond))

    is_outside = np.arange(len(inside) + len(outside)) >= len(inside)
    return Prepared(finish, (np.concatenate([inside, outside]), is_outside), strata=is_outside)


def out_of_distribution_auroc(inside: ArrayLike, outside: ArrayLike) -> float:
    """Area under the ROC curve of a score that should be larger for samples from outside the training distribution.

    It is the chance that a sample from outside scores above one from inside, a tie counting half.

    Parameters
    ----------
    inside, outside : array_like, shapes [N], [M]
        Scores of samples like those trained on, and of others: the larger, the stranger. Of class probabilities p take
        ``1 - p.max(axis=1)``; of a latent Gaussian its scale may serve. Infinite ones rank last or first.

    Returns
    -------
    float
        In [0, 1]: 1 tells them apart, 1/2 is chance, less has the sign wrong.

    Raises
    ------
    ValueError
        When either is empty (the area is undefined), holds NaN or is not a vector.

    Examples
    --------
    >>> out_of_distribution_auroc([0.1, 0.2, 0.3], [0.3, 0.9])
    0.9166666666666666
    """
    return float(prepare_out_of_distribution_auroc(inside, outside).value())
