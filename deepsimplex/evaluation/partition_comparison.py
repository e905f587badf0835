"""Compare several classifiers in the same standardized partition space [SPS] sec. 5."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from deepsimplex.evaluation.json_values import JSONResult, text_table
from deepsimplex.evaluation.standardized_partition import (
    SCALED_MEASURES,
    StandardizedPartition,
    measure_title,
    scaled_partition,
    warn_samples_alone,
)


@dataclass(frozen=True, eq=False)
class PartitionComparison(JSONResult):
    """Standardized partitions of several classifiers; ``str`` gives a table, ``as_dict`` numbers, ``to_json`` text.

    The last column of the table is the fraction of samples that are alone in their region
    (``StandardizedPartition.alone``): measures are comparable if it is small for all.

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
        """Return each classifier's ``StandardizedPartition.as_dict``, by name."""
        return {name: partition.as_dict() for name, partition in self.partitions.items()}

    def __str__(self) -> str:
        depths = {partition.depth for partition in self.partitions.values()}
        rows = [[f"depth {', '.join(map(str, sorted(depths)))}", *map(measure_title, SCALED_MEASURES), "alone"]]
        for name, partition in self.partitions.items():
            values = [*map(partition.measures().__getitem__, SCALED_MEASURES), partition.alone]
            rows.append([name, *(f"{value:z.4f}" for value in values)])
        return text_table(rows)


def compare_partitions(
    y: ArrayLike,
    memberships: Mapping[str, ArrayLike],
    assigned: Mapping[str, ArrayLike] | None = None,
    depth: int = 1,
    *,
    classes: Sequence[Any] | None = None,
) -> PartitionComparison:
    """Scale the memberships of several classifiers on one test set and compare their measures [SPS] sec. 5.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes of the test samples.
    memberships : mapping of str to array_like, shape [N, n]
        Each classifier's memberships of these samples, in the same order.
    assigned : mapping of str to array_like, optional
        Assigned classes of some of the classifiers; the others take their largest membership.
    depth, classes
        As in ``standardized_partition``.

    Returns
    -------
    PartitionComparison

    Raises
    ------
    TypeError, ValueError
        As ``standardized_partition``; the message names the classifier.

    Warns
    -----
    UserWarning
        As ``standardized_partition``, once, naming the classifier with the most samples alone in their region.

    Examples
    --------
    >>> p = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.4, 0.6], [0.2, 0.8], [0.3, 0.7]]
    >>> print(compare_partitions([0, 0, 1, 1, 1, 0], {"network": p, "coin": [[0.5, 0.5]] * 6}))
    depth 1  correctness CR  accuracy Ac  ability to separate AS  confidence   alone
    network          0.6667       0.2823                  0.3326      0.6663  0.0000
    coin             0.5000       0.0000                  0.0000      0.5000  0.0000
    """
    if not isinstance(memberships, Mapping) or not memberships:
        raise ValueError(
            f"memberships must map at least one classifier's name to its memberships; found {memberships!r:.60}. "
            "For one classifier: {'name': membership}, or standardized_partition(y, membership)"
        )
    assigned = {} if assigned is None else assigned
    if not isinstance(assigned, Mapping):
        raise TypeError(f"assigned must map classifiers' names to classes; found {assigned!r}")
    unknown = [name for name in assigned if name not in memberships]
    if unknown:
        raise ValueError(f"assigned must hold names that memberships holds; found {unknown[0]!r}")
    texts = list(map(str, memberships))
    twice = [name for name in memberships if texts.count(str(name)) > 1]
    if twice:
        raise ValueError(f"memberships must have names that differ as text; found {', '.join(map(repr, twice))}")
    partitions: dict[str, StandardizedPartition] = {}
    for name, membership in memberships.items():
        try:
            partitions[str(name)] = scaled_partition(y, membership, assigned.get(name), depth, classes)
        except (TypeError, ValueError) as error:
            raise type(error)(f"classifier {name!r}: {error}") from error
    widths = {name: partition.membership.shape[1] for name, partition in partitions.items()}
    if len(set(widths.values())) > 1:
        raise ValueError(f"memberships must have the same classes for every classifier; found columns {widths}")
    warn_samples_alone(partitions)
    return PartitionComparison(partitions)
