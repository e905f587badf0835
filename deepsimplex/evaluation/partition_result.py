"""A standardized partition [SPS] and its regions: numbers, a table, JSON."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex.evaluation.partition_scaling import BetaScaling
from deepsimplex.evaluation.plain import as_json, plain

REGIONS_SHOWN = 30
SYMBOLS = {"correctness": "CR", "accuracy": "Ac", "ability_to_separate": "AS"}  # of [SPS] sec. 5


def measure_title(name: str) -> str:
    """What a table calls a measure: with the paper's symbol, as its accuracy is not the share of right ones."""
    return " ".join([name.replace("_", " "), *filter(None, [SYMBOLS.get(name.removeprefix("unscaled_"))])])


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
    >>> from deepsimplex.evaluation import standardized_partition
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
            "order": plain(self.order),
            "samples": self.samples,
            "correctness": self.correctness,
            "confidence": self.confidence,
            "scaled_confidence": self.scaled_confidence,
            "levels": [plain(vars(level)) for level in self.levels],
        }


@dataclass(frozen=True, eq=False)
class StandardizedPartition:
    """A classifier's memberships on a test set, scaled so that they say what they are worth there [SPS].

    ``str`` gives a table, ``as_dict`` plain numbers and ``to_json`` text.

    Attributes
    ----------
    membership : ndarray, shape [N, n]
        Scaled memberships. A row sums to 1, or to less, down to 0, where what scaling takes from a class would fall to
        classes whose memberships are all 0 and have no ratio to share it in.
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
        In the order of their classes; an order that no sample has is left out. The table shows the 30 with the most
        samples.

    Examples
    --------
    >>> from deepsimplex.evaluation import standardized_partition
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
        """Share of samples that are the only ones of their region.

        They scale to 1 where they are right and to 0 where not, so that the measures say less of the classifier the
        larger this share is: at depth n - 1 with every sample alone the accuracy is 1.
        """
        return sum(region.samples for region in self.regions if region.samples == 1) / len(self.membership)

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
        return {
            "samples": len(self.membership),
            "classes": plain(self.classes),
            "depth": self.depth,
            "alone": self.alone,
            **self.measures(),
            "regions": [region.as_dict() for region in self.regions],
        }

    def to_json(self, indent: int | None = 2) -> str:
        """``as_dict`` as JSON that any reader takes."""
        return as_json(self.as_dict(), indent)

    def __str__(self) -> str:
        samples, n = self.membership.shape
        lines = [f"{samples} samples, {n} classes, depth {self.depth}, {self.alone:.1%} alone in their region", ""]
        lines += [f"{measure_title(name):<31}{value:>z8.4f}" for name, value in self.measures().items()]
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
