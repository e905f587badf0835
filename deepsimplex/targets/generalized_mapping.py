"""CASIMAC's generalized mapping from neighbor distances to coefficients of the vertices [CASIMAC Eq. 32-33]."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.validation import check_number

Reduction = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def mean(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of each row: the repulsion of Eq. 6."""
    return distances.mean(axis=1)


def inverse_mean(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / mean of each row: the attraction of Eq. 5."""
    return 1 / distances.mean(axis=1)


def per_count(function: Reduction, distances: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    """Apply ``function`` to the finite values of every row of inf-padded distances [M, k]."""
    counts = np.isfinite(distances).sum(axis=1)
    values = np.empty(len(distances))
    for count in np.unique(counts):
        rows = counts == count
        values[rows] = checked(function, distances[rows, :count], name)
    return values


def checked(function: Reduction, argument: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    """Return ``function(argument)``; raise unless it is one finite, non-negative value per row (Eq. 32-33)."""
    values = np.asarray(function(argument), dtype=np.float64)
    if values.shape != argument.shape[:1]:
        raise ValueError(f"{name} must return one value per row of {argument.shape}; found shape {values.shape}")
    wrong = ~(np.isfinite(values) & (values >= 0))
    if np.any(wrong):
        raise ValueError(f"{name} must return finite values that are not negative; found {values[np.argmax(wrong)]}")
    return values


def check_class_sizes(labels: NDArray[np.int64], num_classes: int, *, attraction: bool, repulsion: bool) -> None:
    """Raise ValueError if a class has too few samples: attraction needs two samples of each, repulsion one."""
    sizes = np.bincount(labels, minlength=num_classes)
    if repulsion and not np.all(sizes):
        raise ValueError(
            "every class needs samples, since latents are repelled by distances to each; found none of class "
            f"{_listed(np.flatnonzero(sizes == 0))} among num_classes={num_classes} in y. Renumber the "
            "others, or use a target made from labels alone (ILR, Dirichlet, OneHot, Vertices)"
        )
    if attraction and np.any(sizes == 1):
        raise ValueError(
            "attraction needs at least two samples of a class; found a single one of class "
            f"{_listed(np.flatnonzero(sizes == 1))}. Add samples, or set attraction_strength=0 (gamma=1)"
        )


def check_attraction(distances: NDArray[np.float64], labels: NDArray[np.int64]) -> None:
    """Raise ValueError if a sample has no neighbor in its class at positive distance: ``distances`` [N, k] are inf."""
    missing = np.flatnonzero(np.isinf(distances[:, 0]))
    if len(missing):
        raise ValueError(
            "attraction needs a sample in x of the same class at positive distance (Eq. 7a); found none for "
            f"{len(missing)} samples, the first at index {missing[0]} in class {labels[missing[0]]}, of which all "
            "others are copies. Remove copies, or set attraction_strength=0 (gamma=1)"
        )


def _listed(classes: NDArray[np.int64]) -> str:
    shown = ", ".join(str(c) for c in classes[:10])
    return shown if len(classes) <= 10 else f"{shown} and {len(classes) - 10} more"


def root_mean_square(latents: NDArray[np.float64]) -> float:
    """Root mean square of latents; 1 where all are 0, as for samples that lie in every class at once."""
    largest = float(np.abs(latents).max(initial=0.0))  # apart, since squares overflow where sizes do not
    return largest * float(np.sqrt(np.mean(np.square(latents / largest)))) if largest else 1.0


def strengths(repulsion: float, attraction: float, gamma: float | None) -> tuple[float, float]:
    """Return beta and alpha, of the two strengths or of gamma (Eq. 19)."""
    beta = check_number(repulsion, "repulsion_strength", least=0)
    alpha = check_number(attraction, "attraction_strength", least=0)
    if gamma is not None:
        if (beta, alpha) != (1.0, 0.0):
            raise ValueError(
                "gamma sets repulsion_strength=gamma and attraction_strength=1-gamma: give gamma or the strengths, "
                f"not both; found gamma={gamma!r}, repulsion_strength={repulsion!r}, attraction_strength={attraction!r}"
            )
        beta = check_number(gamma, "gamma", least=0, most=1)
        alpha = 1 - beta
    if alpha == 0 and beta == 0:
        raise ValueError("repulsion_strength and attraction_strength must not both be 0: every latent would be 0")
    return beta, alpha
