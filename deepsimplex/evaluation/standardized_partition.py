"""Standardized partitions: memberships scaled to the correctness shown on a test set, and their measures [SPS]."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.messages import warn_caller
from deepsimplex._utils.validation import check_class_names, check_labels_beside, check_whole
from deepsimplex.evaluation.json_values import JSONResult, json_value, text_table
from deepsimplex.evaluation.memberships import check_membership, mean_closeness
from deepsimplex.evaluation.partition_scaling import BetaScaling, scale_region

MOST_ALONE = 0.1
"""Share of samples alone in their region above which a warning is issued."""
REGIONS_SHOWN = 30
SYMBOLS = {"correctness": "CR", "accuracy": "Ac", "ability_to_separate": "AS"}
"""Symbols of the measures in [SPS] sec. 5."""
SCALED_MEASURES = ("correctness", "accuracy", "ability_to_separate", "confidence")
MEASURES = (*SCALED_MEASURES, *(f"unscaled_{name}" for name in SCALED_MEASURES[1:]))


def measure_title(name: str) -> str:
    """The title of a measure in tables, with the paper's symbol: its accuracy is not the fraction of correct samples.

    Examples
    --------
    >>> measure_title("unscaled_accuracy")
    'unscaled accuracy Ac'
    """
    return " ".join([name.replace("_", " "), *filter(None, [SYMBOLS.get(name.removeprefix("unscaled_"))])])


@dataclass(frozen=True)
class PartitionRegion:
    """A region: test samples with the same classes of highest membership, and their scaling.

    Attributes
    ----------
    order : tuple
        The classes of rank 1 (the assigned one) to ``depth``.
    samples : int
        N_T: number of test samples in the region.
    correctness : float
        Fraction of them whose true class is the assigned one, to which their mean confidence is moved.
    confidence, scaled_confidence : float
        Mean membership in the assigned class before and after scaling.
    levels : tuple of BetaScaling
        The beta distributions of each rank; those of the confidences are ``levels[0]``.

    Examples
    --------
    >>> region = standardized_partition([0, 0, 1], [[0.9, 0.1], [0.6, 0.4], [0.7, 0.3]]).regions[0]
    >>> region.label, region.samples, round(region.correctness, 4), round(region.levels[0].alpha, 4)
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
    def note(self) -> str:
        """Empty, or why no beta distribution fits the confidences."""
        return self.levels[0].note

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain values; NaN becomes None."""
        return json_value(dataclasses.asdict(self))


@dataclass(frozen=True, eq=False)
class StandardizedPartition(JSONResult):
    """Scaled memberships of a test set and their measures; ``str`` gives a table.

    Attributes
    ----------
    membership : ndarray, shape [N, n], float64
        Scaled memberships. Rows sum to 1, or to less if scaling takes mass from a class and all others have
        membership 0, so that there is no ratio to share it in.
    y, assigned : ndarray, shape [N], int64
        True and assigned classes as column numbers. The assigned class need not have the largest scaled membership.
    classes : tuple of length n
        Names of the columns.
    depth : int
        Number of ranks that define a region.
    correctness : float
        CR: fraction of samples whose assigned class is the true one.
    accuracy : float
        Ac of the scaled memberships, as ``partition_accuracy``.
    ability_to_separate : float
        AS of the scaled memberships and the assigned classes, as ``ability_to_separate``.
    confidence : float
        Mean scaled membership in the assigned class.
    unscaled_accuracy, unscaled_ability_to_separate, unscaled_confidence : float
        The same of the memberships given.
    regions : tuple of PartitionRegion
        In the order of their classes.

    Examples
    --------
    >>> p = [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.3, 0.7]]
    >>> partition = standardized_partition(["a", "a", "b", "a"], p, classes=["a", "b"])
    >>> partition.membership
    array([[1.        , 0.        ],
           [1.        , 0.        ],
           [0.25321485, 0.74678515],
           [0.76716707, 0.23283293]])
    >>> partition.correctness, round(partition.accuracy, 4), partition.regions[1].label
    (0.75, 0.757, 'b')
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

    @property
    def alone(self) -> float:
        """Fraction of samples that are the only ones of their region.

        They are scaled to 1 if they are correct and to 0 if not, so that the measures describe the classifier less the
        larger this fraction is: at depth n - 1 with every sample alone the accuracy is 1.
        """
        return sum(region.samples for region in self.regions if region.samples == 1) / len(self.membership)

    def measures(self) -> dict[str, float]:
        """Return the numbers of the whole partition by name."""
        return {name: getattr(self, name) for name in MEASURES}

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the arrays as plain values."""
        head = {"samples": len(self.membership), "classes": json_value(self.classes), "depth": self.depth}
        regions = [region.as_dict() for region in self.regions]
        return {**head, "alone": self.alone, **self.measures(), "regions": regions}

    def __str__(self) -> str:
        samples, n = self.membership.shape
        lines = [f"{samples} samples, {n} classes, depth {self.depth}, {self.alone:.1%} alone in their region", ""]
        lines.append(text_table([[measure_title(name), f"{value:z.4f}"] for name, value in self.measures().items()]))
        largest = np.argsort([-region.samples for region in self.regions], kind="stable")[:REGIONS_SHOWN]
        shown = [self.regions[position] for position in np.sort(largest)]
        names = [" > ".join(map(str, region.order)) for region in shown]
        width = max(map(len, [*names, "region"]))
        lines += ["", f"{'region':<{width}}  samples  correctness  confidence  scaled"]
        for name, region in zip(names, shown, strict=True):
            line = (
                f"{name:<{width}}  {region.samples:>7}  {region.correctness:>11.4f}  {region.confidence:>10.4f}  "
                f"{region.scaled_confidence:>6.4f}  {region.note}"
            )
            lines.append(line.rstrip())
        if len(shown) < len(self.regions):
            lines.append(f"... and {len(self.regions) - len(shown)} more, none larger")
        return "\n".join(lines)


def standardized_partition(
    y: ArrayLike,
    membership: ArrayLike,
    assigned: ArrayLike | None = None,
    depth: int = 1,
    *,
    classes: Sequence[Any] | None = None,
) -> StandardizedPartition:
    """Scale memberships to the correctness that they show on a test set, and measure them [SPS].

    Samples with the same assigned class form a region. Their memberships in that class are modeled by a beta
    distribution and moved, quantile by quantile, to the one whose mean is the fraction of correct samples in the
    region and whose certainty is min(N_T, alpha + beta) (sec. 4, i and ii). The memberships in the other classes keep
    their ratios.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes of a test set that the classifier was not trained on: numbers 0..n-1, or names that ``classes``
        holds.
    membership : array_like, shape [N, n]
        Class probabilities, or other memberships in the simplex (``standardized_memberships``).
    assigned : array_like, shape [N], [N, 1] or one-hot [N, n], optional
        Assigned classes, labeled as ``y``. They rank first whatever their membership. Default: each row's largest
        membership, the lowest class among equals.
    depth : int
        From 1 to n - 1: how many of a sample's classes, ranked by membership, define its region. Memberships are
        scaled rank by rank, each towards its frequency in the region among the samples that the higher ranks left. The
        number of possible regions grows as n! / (n - depth)!: choose it such that few samples are alone in theirs
        (``StandardizedPartition.alone``).
    classes : sequence of length n, optional
        The name of each column of ``membership``, for labels that are not 0..n-1.

    Returns
    -------
    StandardizedPartition

    Raises
    ------
    TypeError
        If labels are not numbers and ``classes`` is not given.
    ValueError
        If an argument is not as above.

    Warns
    -----
    UserWarning
        If more than a tenth of the samples are alone in their region. Such a sample is scaled to its own label: with
        many of them the accuracy Ac approaches 1 for any classifier.

    Notes
    -----
    At rank j > 1 the certainty is min(N_j, alpha + beta), N_j being the samples of the region that belong to none of
    the classes ranked higher.

    Two formulas differ from the printed ones: alpha + beta = mean (1 - mean) / variance - 1 (the method of moments,
    which the paper names, subtracts 1), and the distance from the centroid to a corner is sqrt((n - 1) / n), which
    gives the centroid the value 0 that the paper requires. Where the paper makes no statement: a class that is never
    assigned has no region; correctness 0 and 1 scale to 0 and 1; a region of one sample, of equal confidences or of a
    variance that no beta distribution has is scaled to its correctness (see ``PartitionRegion.note``); ties take the
    lowest class, where the paper chooses at random; where a membership is 1 the others stay 0. A row of a classifier
    with memberships 0 and 1 only thus sums to its region's correctness, not to 1.

    Examples
    --------
    >>> p = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.4, 0.6], [0.2, 0.8], [0.3, 0.7]]
    >>> partition = standardized_partition([0, 0, 1, 1, 1, 0], p)
    >>> partition.membership[:3].round(3)
    array([[0.887, 0.113],
           [0.717, 0.283],
           [0.387, 0.613]])
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
    partition = scaled_partition(y, membership, assigned, depth, classes)
    warn_samples_alone({"": partition})
    return partition


def warn_samples_alone(partitions: Mapping[str, StandardizedPartition]) -> None:
    """Warn if a partition has a larger share of samples alone in their region than ``MOST_ALONE``, about the worst."""
    worst = max(partitions, key=lambda name: partitions[name].alone)
    partition = partitions[worst]
    if partition.alone <= MOST_ALONE:
        return
    instead = "a larger test set" if partition.depth == 1 else "a smaller depth or a larger test set"
    warn_caller(
        f"{partition.alone:.0%} of the {len(partition.membership)} samples{f' of {worst!r}' if worst else ''} are "
        f"alone in their region at depth {partition.depth}: they are scaled to 1 if they are correct and to 0 if not, "
        f"so that the accuracy Ac is high for any classifier. Use {instead}",
    )


def scaled_partition(
    y: ArrayLike,
    membership: ArrayLike,
    assigned: ArrayLike | None,
    depth: int,
    classes: Sequence[Any] | None,
) -> StandardizedPartition:
    """Compute ``standardized_partition`` without its warning."""
    given = check_membership(membership)
    samples, n = given.shape
    names = check_class_names(classes, n, of="membership")
    true = check_labels_beside(y, "membership", given.shape, classes)
    check_whole(depth, "depth", 1, n - 1)
    precision = float(np.finfo(given.dtype).eps)
    table = given.astype(np.float64)
    # Stable: the lowest class comes first among equals.
    order = np.argsort(-table, axis=1, kind="stable")
    if assigned is not None:
        first = check_labels_beside(assigned, "membership", given.shape, classes, "assigned")
        others = order[order != first[:, None]].reshape(samples, n - 1)
        order = np.column_stack([first, others])

    scaled, regions = np.empty_like(table), []
    ranks, members = np.unique(order[:, :depth], axis=0, return_inverse=True)
    members = members.reshape(samples)  # NumPy 2.0 alone returns a column
    by_region = np.split(np.argsort(members, kind="stable"), np.cumsum(np.bincount(members))[:-1])
    for rank, rows in zip(ranks, by_region, strict=True):
        counts = np.bincount(true[rows], minlength=n)[rank]
        labels = [names[column] for column in rank]
        columns = order[rows]
        before = np.take_along_axis(table[rows], columns, axis=1)
        after, levels = scale_region(before, labels, counts.tolist(), precision)
        scaled[rows[:, None], columns] = after
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
    measures = {"correctness": float(np.mean(chosen == true))}
    for prefix, values in (("", scaled), ("unscaled_", table)):
        measures[f"{prefix}accuracy"] = mean_closeness(values, true)
        measures[f"{prefix}ability_to_separate"] = mean_closeness(values, chosen)
        measures[f"{prefix}confidence"] = float(np.mean(values[np.arange(samples), chosen]))
    return StandardizedPartition(scaled, true, chosen, names, int(depth), regions=tuple(regions), **measures)
