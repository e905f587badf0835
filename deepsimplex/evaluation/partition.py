"""Standardized partition spaces: what memberships are worth on a test set, made comparable [SPS]."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from deepsimplex._utils.stacklevel import callers_stacklevel
from deepsimplex._utils.validation import check_whole
from deepsimplex.evaluation.inputs import check_probabilities
from deepsimplex.evaluation.named_labels import check_classes, check_named_labels
from deepsimplex.evaluation.partition_measures import INSTEAD, mean_closeness
from deepsimplex.evaluation.partition_result import PartitionRegion, StandardizedPartition
from deepsimplex.evaluation.partition_scaling import scale_region

MOST_ALONE = 0.1
"""Share of samples alone in their region above which a partition comes with a warning."""


def warn_of_samples_alone(partitions: Mapping[str, StandardizedPartition]) -> None:
    """Warn of the partitions, by name, that more samples than ``MOST_ALONE`` are alone in their region of."""
    found = {name: partition for name, partition in partitions.items() if partition.alone > MOST_ALONE}
    if not found:
        return
    worst = max(found, key=lambda name: found[name].alone)
    of_name = f" of {worst!r}" if worst else ""
    partition = found[worst]
    instead = "a larger test set" if partition.depth == 1 else "a smaller depth or a larger test set"
    warnings.warn(
        f"{partition.alone:.0%} of the {len(partition.membership)} samples{of_name} are alone in their region at "
        f"depth {partition.depth}: they scale to 1 where they are right and to 0 where not, so that the "
        f"accuracy Ac rises whatever the classifier is worth. Take {instead}",
        UserWarning,
        stacklevel=callers_stacklevel(),
    )


def standardized_partition(
    y: ArrayLike,
    membership: ArrayLike,
    assigned: ArrayLike | None = None,
    depth: int = 1,
    *,
    classes: Sequence[Any] | None = None,
) -> StandardizedPartition:
    """Scale memberships to what they are worth on a test set, and measure them [SPS].

    Samples with the same assigned class form a region. The memberships in that class resemble a beta distribution;
    they are moved, quantile by quantile, to the one whose mean is the share of the region that is right and whose
    certainty is min(N_T, alpha + beta) (sec. 4, i and ii). The memberships in the other classes keep their ratios.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        True classes of a test set that the classifier did not learn from: numbers 0..n-1, or names that ``classes``
        holds.
    membership : array_like, shape [N, n]
        Class probabilities, or other memberships in the simplex (``standardized_memberships``).
    assigned : array_like, shape [N] or [N, 1], optional
        Assigned classes, labeled as ``y``. Default: each row's largest membership, the lowest class among equals.
        They rank first whatever their membership.
    depth : int
        From 1 to n - 1: how many of a sample's classes, ranked by membership, define its region. Memberships are
        scaled rank by rank, each towards the share that the samples of the region show for it, among those that the
        higher ranks left. The number of possible regions grows as n! / (n - depth)!: choose it so that few samples are
        alone in theirs (``StandardizedPartition.alone``).
    classes : sequence of length n, optional
        The name of each column of ``membership``, for labels that are not 0..n-1.

    Returns
    -------
    StandardizedPartition

    Raises
    ------
    TypeError
        When labels are not numbers and ``classes`` is not given.
    ValueError
        When an argument breaks the above.

    Warns
    -----
    UserWarning
        When more than a tenth of the samples are alone in their region. What such a sample scales to is its own label:
        with many of them the accuracy Ac nears 1 for any classifier.

    Notes
    -----
    At rank j > 1 the certainty is min(N_j, alpha + beta), N_j being the samples of the region that truly belong to none
    of the classes ranked higher, for only they tell how rank j and those below share what is left.

    Two formulas are not as printed: alpha + beta = mean (1 - mean) / variance - 1 (the method of moments, which the
    paper names, has the minus 1), and the distance from the centroid to a corner is sqrt((n - 1) / n), without which
    the centroid would not get the 0 that the paper asks for. Where the paper is silent: a class that is never assigned
    has no region; correctness 0 and 1 scale to 0 and 1; a region of one sample, of equal confidences or of a variance
    that no beta distribution has scales to its correctness (``PartitionRegion.note`` says so); ties take the lowest
    class, where the paper draws lots; where a membership is 1 the others have no ratio to keep and stay 0. A row of a
    classifier that gives memberships of 0 and 1 only thus sums to its region's correctness, not to 1.

    Examples
    --------
    >>> p = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.4, 0.6], [0.2, 0.8], [0.3, 0.7]]
    >>> partition = standardized_partition([0, 0, 1, 1, 1, 0], p)
    >>> partition.membership.round(3)
    array([[0.887, 0.113],
           [0.717, 0.283],
           [0.387, 0.613],
           [0.596, 0.404],
           [0.085, 0.915],
           [0.312, 0.688]])
    >>> print(partition)
    6 samples, 2 classes, depth 1, 0.0% alone in their region
    <BLANKLINE>
    correctness CR                   0.6667
    accuracy Ac                      0.2823
    ability to separate AS           0.3326
    confidence                       0.6663
    unscaled accuracy Ac             0.2667
    unscaled ability to separate AS  0.4667
    unscaled confidence              0.7333
    <BLANKLINE>
    region  samples  correctness  confidence  scaled
    0             3       0.6667      0.7667  0.6637
    1             3       0.6667      0.7000  0.6690
    """
    partition = partition_of(y, membership, assigned, depth, classes)
    warn_of_samples_alone({"": partition})
    return partition


def partition_of(
    y: ArrayLike,
    membership: ArrayLike,
    assigned: ArrayLike | None,
    depth: int,
    classes: Sequence[Any] | None,
) -> StandardizedPartition:
    """``standardized_partition`` without its warning."""
    given = check_probabilities(membership, "membership", INSTEAD)
    samples, n = given.shape
    names = check_classes(classes, n)
    true = check_named_labels(y, "y", classes, given.shape)
    if check_whole(depth, "depth", 1) > n - 1:
        raise ValueError(f"depth must be at most the number of classes less one, {n - 1}; found {depth!r}")
    precision = float(np.finfo(given.dtype).eps)
    table = given.astype(np.float64)
    # Stable: the lowest class comes first among equals.
    order = np.argsort(-table, axis=1, kind="stable")
    if assigned is not None:
        first = check_named_labels(assigned, "assigned", classes, given.shape)
        others = order[order != first[:, None]].reshape(samples, n - 1)
        order = np.column_stack([first, others])

    scaled, regions = np.empty_like(table), []
    ranks, members = np.unique(order[:, :depth], axis=0, return_inverse=True)
    members = members.reshape(samples)  # NumPy 2.0 alone gives it as a column
    by_region = np.split(np.argsort(members, kind="stable"), np.cumsum(np.bincount(members))[:-1])
    for rank, rows in zip(ranks, by_region, strict=True):
        counts = np.bincount(true[rows], minlength=n)[rank]
        labels = [names[column] for column in rank]
        columns = order[rows]
        before = np.take_along_axis(table[rows], columns, axis=1)
        after, levels = scale_region(before, labels, counts.tolist(), precision)
        within = np.empty_like(after)
        np.put_along_axis(within, columns, after, axis=1)
        scaled[rows] = within
        regions.append(
            PartitionRegion(
                order=tuple(labels),
                samples=len(rows),
                correctness=float(counts[0] / len(rows)),
                confidence=float(before[:, 0].mean()),
                scaled_confidence=float(after[:, 0].mean()),
                levels=levels,
            )
        )
    chosen = order[:, 0]
    return StandardizedPartition(
        membership=scaled,
        y=true,
        assigned=chosen,
        classes=names,
        depth=int(depth),
        correctness=float(np.mean(chosen == true)),
        accuracy=mean_closeness(scaled, true),
        ability_to_separate=mean_closeness(scaled, chosen),
        confidence=float(np.mean(scaled[np.arange(samples), chosen])),
        unscaled_accuracy=mean_closeness(table, true),
        unscaled_ability_to_separate=mean_closeness(table, chosen),
        unscaled_confidence=float(np.mean(table[np.arange(samples), chosen])),
        regions=tuple(regions),
    )
