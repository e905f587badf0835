"""Several classifiers in the same standardized partition space [SPS]."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from deepsimplex.evaluation.partition import StandardizedPartition, standardized_partition


@dataclass(frozen=True, eq=False)
class PartitionComparison:
    """Standardized partitions of several classifiers; ``str`` gives a table and ``as_dict`` numbers for JSON.

    Attributes
    ----------
    partitions : dict of str to StandardizedPartition
        In the order given.

    Examples
    --------
    >>> comparison = compare_partitions([0, 1], {"sure": [[0.9, 0.1], [0.8, 0.2]], "unsure": [[0.5, 0.5]] * 2})
    >>> comparison.partitions["sure"].correctness
    0.5
    """

    partitions: dict[str, StandardizedPartition]

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """Each classifier's ``StandardizedPartition.as_dict``, by name."""
        return {name: partition.as_dict() for name, partition in self.partitions.items()}

    def __str__(self) -> str:
        heads = {
            "correctness": "correctness",
            "accuracy": "accuracy",
            "ability_to_separate": "ability to separate",
            "confidence": "confidence",
        }
        width = max(map(len, self.partitions))
        lines = ["  ".join([" " * width, *heads.values()])]
        for name, partition in self.partitions.items():
            measures = partition.measures()
            cells = [f"{measures[key]:>{len(head)}.4f}" for key, head in heads.items()]
            lines.append("  ".join([f"{name:<{width}}", *cells]))
        return "\n".join(lines)


def compare_partitions(
    y: ArrayLike,
    memberships: Mapping[str, ArrayLike],
    assigned: Mapping[str, ArrayLike] | None = None,
    depth: int = 1,
    *,
    classes: Sequence[Any] | None = None,
) -> PartitionComparison:
    """Scale several classifiers' memberships on one test set and set their measures side by side [SPS] sec. 5.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        True classes of the test samples.
    memberships : mapping of str to array_like, shape [N, n]
        Each classifier's memberships of these samples, in the same order.
    assigned : mapping of str to array_like, optional
        Assigned classes of some of the classifiers; those left out take their largest membership.
    depth, classes
        As in ``standardized_partition``.

    Returns
    -------
    PartitionComparison

    Raises
    ------
    TypeError, ValueError
        As ``standardized_partition``, naming the classifier.

    Examples
    --------
    >>> p = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.4, 0.6], [0.2, 0.8], [0.3, 0.7]]
    >>> print(compare_partitions([0, 0, 1, 1, 1, 0], {"network": p, "coin": [[0.5, 0.5]] * 6}))
             correctness  accuracy  ability to separate  confidence
    network       0.6667    0.2823               0.3326      0.6663
    coin          0.5000    0.0000               0.0000      0.5000
    """
    if not isinstance(memberships, Mapping) or not memberships:
        found = "an empty mapping" if isinstance(memberships, Mapping) else type(memberships).__name__
        raise ValueError(
            f"memberships must map at least one classifier's name to its memberships; found {found}. "
            "One classifier alone: {'name': membership}, or standardized_partition(y, membership)"
        )
    assigned = {} if assigned is None else assigned
    unknown = [name for name in assigned if name not in memberships]
    if unknown:
        raise ValueError(f"assigned must hold names that memberships holds; found {unknown[0]!r}")
    partitions: dict[str, StandardizedPartition] = {}
    for name, membership in memberships.items():
        try:
            partition = standardized_partition(y, membership, assigned.get(name), depth, classes=classes)
        except (TypeError, ValueError) as error:
            raise type(error)(f"classifier {name!r}: {error}") from error
        partitions[str(name)] = partition
    widths = {name: partition.membership.shape[1] for name, partition in partitions.items()}
    if len(set(widths.values())) > 1:
        raise ValueError(f"memberships must have the same classes for every classifier; found columns {widths}")
    return PartitionComparison(partitions)
