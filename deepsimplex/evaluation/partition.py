"""Standardized partition spaces: what memberships are worth on a test set, made comparable [SPS]."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex.checks import check_whole
from deepsimplex.evaluation.inputs import check_probabilities
from deepsimplex.evaluation.named_labels import check_classes, check_named_labels
from deepsimplex.evaluation.partition_scaling import BetaScaling, scale_region

INSTEAD = "standardized_memberships makes memberships of scores"


def plain(value: Any) -> Any:
    """A label or number as JSON knows it: NumPy's become Python's, NaN becomes None, other objects their text."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def mean_closeness(membership: NDArray[np.floating], corners: NDArray[np.int64]) -> float:
    """1 where all memberships lie in their corners, 0 where all lie in the centroid [SPS] sec. 5."""
    n = membership.shape[1]
    residuals = membership.astype(np.float64)
    residuals[np.arange(len(residuals)), corners] -= 1
    return float(1 - np.mean(np.linalg.norm(residuals, axis=1)) / np.sqrt((n - 1) / n))


def partition_accuracy(y: ArrayLike, membership: ArrayLike, *, classes: Sequence[Any] | None = None) -> float:
    """Accuracy Ac of memberships as they are: how near they lie to the corners of the true classes [SPS] sec. 5.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    membership : array_like, shape [N, n]
        In the simplex; scaled (``standardized_partition(...).membership``) or not.
    classes : sequence of length n, optional
        The name of each column of ``membership``.

    Returns
    -------
    float
        1 where every row lies in the right corner, 0 where all lie in the centroid, 1 - sqrt(2 n / (n - 1)) where
        every row lies in a wrong corner.

    Notes
    -----
    The paper prints (G - 1) / G as the distance from the centroid to a corner. It is sqrt((G - 1) / G), and only this
    gives the 1 and the 0 that the paper asks for.

    Examples
    --------
    >>> partition_accuracy([0, 1], [[1, 0, 0], [0, 1, 0]])
    1.0
    >>> round(partition_accuracy([0, 1], [[0.6, 0.2, 0.2], [0.5, 0.5, 0.0]]), 4)
    0.267
    """
    table = check_probabilities(membership, "membership", INSTEAD)
    return mean_closeness(table, check_named_labels(y, "y", classes, table.shape))


def ability_to_separate(
    membership: ArrayLike, assigned: ArrayLike | None = None, *, classes: Sequence[Any] | None = None
) -> float:
    """Ability to separate AS of memberships as they are: nearness to the corners of the assigned classes [SPS] sec. 5.

    Parameters
    ----------
    membership : array_like, shape [N, n]
        In the simplex; scaled or not.
    assigned : array_like, shape [N] or [N, 1], optional
        Assigned classes. Default: each row's largest membership, the lowest class among equals. For scaled
        memberships give the classes assigned before scaling, as the paper does.
    classes : sequence of length n, optional
        The name of each column of ``membership``.

    Returns
    -------
    float
        1 where every row lies in a corner and 0 where all lie in the centroid (see ``partition_accuracy``).

    Examples
    --------
    >>> round(ability_to_separate([[0.6, 0.2, 0.2], [0.5, 0.5, 0.0]]), 4)
    0.267
    """
    table = check_probabilities(membership, "membership", INSTEAD)
    corners = (
        table.argmax(axis=1) if assigned is None else check_named_labels(assigned, "assigned", classes, table.shape)
    )
    return mean_closeness(table, corners)


@dataclass(frozen=True)
class PartitionRegion:
    """Test samples whose classes have the same first ranks by membership, and how they were scaled.

    Attributes
    ----------
    order : tuple
        The classes of rank 1 (the assigned one) to ``depth``.
    samples : int
        N_T: test samples in the region.
    correctness : float
        Share of them whose true class is the assigned one: where their confidence is moved.
    confidence, scaled_confidence : float
        Mean membership in the assigned class before and after scaling.
    levels : tuple of BetaScaling
        The beta distributions of each rank; ``alpha``, ``beta``, ``scaled_alpha`` and ``scaled_beta`` are the first's.

    Examples
    --------
    >>> region = standardized_partition([0, 0, 1], [[0.9, 0.1], [0.6, 0.4], [0.7, 0.3]]).regions[0]
    >>> region.label, region.samples, round(region.correctness, 4), round(region.alpha, 4)
    (0, 3, 0.6667, 5.4127)
    """

    order: tuple[Any, ...]
    samples: int
    correctness: float
    confidence: float
    scaled_confidence: float
    levels: tuple[BetaScaling, ...]

    @property
    def label(self) -> Any:
        """The assigned class."""
        return self.order[0]

    @property
    def alpha(self) -> float:
        """First parameter of the beta distribution matched to the confidences."""
        return self.levels[0].alpha

    @property
    def beta(self) -> float:
        """Second parameter of the beta distribution matched to the confidences."""
        return self.levels[0].beta

    @property
    def scaled_alpha(self) -> float:
        """First parameter of the beta distribution that the confidences are moved to."""
        return self.levels[0].scaled_alpha

    @property
    def scaled_beta(self) -> float:
        """Second parameter of the beta distribution that the confidences are moved to."""
        return self.levels[0].scaled_beta

    @property
    def note(self) -> str:
        """Empty, or why no beta distribution could be matched to the confidences."""
        return self.levels[0].note

    def as_dict(self) -> dict[str, Any]:
        """The fields as JSON knows them: NaN becomes None."""
        return {
            "order": [plain(label) for label in self.order],
            "samples": self.samples,
            "correctness": self.correctness,
            "confidence": self.confidence,
            "scaled_confidence": self.scaled_confidence,
            "levels": [{key: plain(value) for key, value in vars(level).items()} for level in self.levels],
        }


@dataclass(frozen=True, eq=False)
class StandardizedPartition:
    """A classifier's memberships on a test set, scaled so that they say what they are worth there [SPS].

    ``str`` gives a table and ``as_dict`` plain numbers for JSON.

    Attributes
    ----------
    membership : ndarray, shape [N, n]
        Scaled memberships.
    y, assigned : ndarray, shape [N], int64
        True and assigned classes, as columns of ``membership``; the assignment is that before scaling.
    classes : tuple of length n
        The name of each column; 0..n-1 unless given.
    depth : int
        How many ranks define a region.
    correctness : float
        Share of samples whose assigned class is the true one.
    accuracy, ability_to_separate : float
        Ac and AS of the scaled memberships [SPS] sec. 5.
    confidence : float
        Mean scaled membership in the assigned class.
    unscaled_accuracy, unscaled_ability_to_separate, unscaled_confidence : float
        The same of the memberships as they were given.
    regions : tuple of PartitionRegion
        In the order of their classes; an order that no sample has is left out.

    Examples
    --------
    >>> partition = standardized_partition(["a", "b", "a"], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]], classes=["a", "b"])
    >>> partition.membership
    array([[1.        , 0.        ],
           [0.25321485, 0.74678515],
           [0.76716707, 0.23283293]])
    >>> round(partition.correctness, 4), round(partition.accuracy, 4), partition.regions[1].label
    (0.6667, 0.676, 'b')
    """

    membership: NDArray[np.float64]
    y: NDArray[np.int64]
    assigned: NDArray[np.int64]
    classes: tuple[Any, ...]
    depth: int
    correctness: float
    accuracy: float
    ability_to_separate: float
    confidence: float
    unscaled_accuracy: float
    unscaled_ability_to_separate: float
    unscaled_confidence: float
    regions: tuple[PartitionRegion, ...]

    def measures(self) -> dict[str, float]:
        """The numbers of the whole partition by name, without arrays and regions."""
        return {
            "correctness": self.correctness,
            "accuracy": self.accuracy,
            "ability_to_separate": self.ability_to_separate,
            "confidence": self.confidence,
            "unscaled_accuracy": self.unscaled_accuracy,
            "unscaled_ability_to_separate": self.unscaled_ability_to_separate,
            "unscaled_confidence": self.unscaled_confidence,
        }

    def as_dict(self) -> dict[str, Any]:
        """Everything but the arrays, as JSON knows it."""
        samples, n = self.membership.shape
        return {
            "samples": samples,
            "classes": [plain(name) for name in self.classes][:n],
            "depth": self.depth,
            **self.measures(),
            "regions": [region.as_dict() for region in self.regions],
        }

    def __str__(self) -> str:
        samples, n = self.membership.shape
        lines = [f"{samples} samples, {n} classes, depth {self.depth}", ""]
        lines += [f"{name.replace('_', ' '):<28}{value:>8.4f}" for name, value in self.measures().items()]
        names = [" > ".join(map(str, region.order)) for region in self.regions]
        width = max(map(len, [*names, "region"]))
        lines += ["", f"{'region':<{width}}  samples  correctness  confidence  scaled"]
        for name, region in zip(names, self.regions, strict=True):
            line = (
                f"{name:<{width}}  {region.samples:>7}  {region.correctness:>11.4f}  {region.confidence:>10.4f}  "
                f"{region.scaled_confidence:>6.4f}  {region.note}"
            )
            lines.append(line.rstrip())
        return "\n".join(lines)


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
        Assigned classes, labelled as ``y``. Default: each row's largest membership, the lowest class among equals.
        They rank first whatever their membership.
    depth : int
        From 1 to n - 1: how many of a sample's classes, ranked by membership, define its region. Memberships are
        scaled rank by rank, each towards the share that the samples of the region show for it, among those that the
        higher ranks left. The number of possible regions grows as n! / (n - depth)!.
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

    Notes
    -----
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
    6 samples, 2 classes, depth 1
    <BLANKLINE>
    correctness                   0.6667
    accuracy                      0.2823
    ability to separate           0.3326
    confidence                    0.6663
    unscaled accuracy             0.2667
    unscaled ability to separate  0.4667
    unscaled confidence           0.7333
    <BLANKLINE>
    region  samples  correctness  confidence  scaled
    0             3       0.6667      0.7667  0.6637
    1             3       0.6667      0.7000  0.6690
    """
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
