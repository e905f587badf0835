"""Choice of a target's smoothing (ILR) or concentration (Dirichlet) by the likelihood of labels."""

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from deepsimplex.samples import ArraySamples, Labels
from deepsimplex.targets import TARGETS, Target

Smoothing = Literal["validate", "train"]
# One row in ten is held out.
_HELD_OUT = 10


def select_target(
    classifier: Any, samples: Any, labels: Labels, seed: int
) -> tuple[Target, float | None, dict[float, float]]:
    """Choose the target's smoothing or concentration with the least negative log-likelihood.

    Parameters
    ----------
    classifier : SimplexGaussianProcess
        Copies of it are fitted, all with the same seed.
    samples : Samples
        Features, label values and weights; ``ArraySamples`` if there is anything to choose.
    labels : Labels
    seed : int

    Returns
    -------
    target : Target
    value : float or None
        None if nothing is to be chosen.
    scores : dict of float to float
        Negative log-likelihood by value.

    Raises
    ------
    ValueError
        If ``smoothing`` is unknown, or the target has nothing to choose.
    """
    target = TARGETS.get(classifier.target)
    if classifier.smoothing is None:
        return target, None, {}
    choices = _choices(classifier.smoothing, target)
    train = test = np.arange(len(labels))
    if classifier.smoothing == "validate":
        train, test = hold_out(labels.hard, seed)
    scores = {}
    for value, candidate in choices.items():
        settings = {"inference": classifier.inference_, "smoothing": None, "random_state": seed}
        copy = clone(classifier).set_params(target=candidate, **settings)
        copy._fit_process(copy._observed(samples.part(train), labels[train], candidate), seed)
        scores[value] = _negative_log_likelihood(copy, samples.part(test), len(labels.classes))
    best = min(scores, key=scores.__getitem__)
    return choices[best], best, scores


def _negative_log_likelihood(classifier: Any, samples: ArraySamples, n: int) -> float:
    """Compute the weighted mean over samples, which are read in blocks."""
    total = total_weight = 0.0
    for X, values, weights in samples.blocks():
        shares = np.eye(n)[values] if values.ndim == 1 else values
        total += float(weights @ np.sum(shares * classifier.predict_log_proba(X), axis=1))
        total_weight += float(weights.sum())
    return -total / total_weight


def _choices(smoothing: Any, target: Target) -> dict[float, Target]:
    """Return the target with each of its candidates."""
    if smoothing not in get_args(Smoothing):
        raise ValueError(f"smoothing must be None or one of {', '.join(get_args(Smoothing))}; found {smoothing!r}")
    candidates = target.candidates
    if candidates is None:
        raise ValueError(f"smoothing={smoothing!r} needs a target with candidates (ILR, Dirichlet); found {target!r}")
    return {
        value: target.from_config(target.get_config() | {candidates.argument: value}) for value in candidates.values
    }


def hold_out(y: NDArray[np.int64], seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split rows: a tenth of every class is held out, as nearly as whole rows allow.

    Parameters
    ----------
    y : ndarray, shape [N]
        Numbers of classes. A class of a single row is not held out.
    seed : int

    Returns
    -------
    train, held_out : ndarray of int
        Both sorted.

    Raises
    ------
    ValueError
        If no class has two rows.

    Examples
    --------
    >>> train, held_out = hold_out(np.repeat([0, 1, 2], [20, 10, 1]), seed=0)
    >>> len(train), len(held_out), 30 in train
    (28, 3, True)
    """
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(np.flatnonzero(np.bincount(y)[y] > 1))
    if not len(shuffled):
        raise ValueError("smoothing='validate' needs a class of at least two samples; found single ones. Use 'train'")
    # Every tenth row in the order of the classes.
    by_class = shuffled[np.argsort(y[shuffled], kind="stable")]
    held_out = np.sort(by_class[rng.integers(min(_HELD_OUT, len(by_class))) :: _HELD_OUT])
    return np.setdiff1d(np.arange(len(y)), held_out), held_out
