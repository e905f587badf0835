"""All scores of one set of predictions, as one table."""

import dataclasses
from dataclasses import dataclass

from numpy.typing import ArrayLike

from deepsimplex.evaluation.inputs import check_labels_and_probabilities
from deepsimplex.evaluation.reliability import expected_calibration_error
from deepsimplex.evaluation.scores import accuracy, brier_score, negative_log_likelihood


@dataclass(frozen=True)
class Report:
    """Scores of class probabilities; ``str`` gives a table and ``as_dict`` plain numbers for JSON.

    Attributes
    ----------
    samples, classes : int
        N and n.
    accuracy, negative_log_likelihood, brier_score, expected_calibration_error : float
        As the functions of the same names.
    bins : int
        Bins of the expected calibration error.

    Examples
    --------
    >>> report([0, 1], [[0.9, 0.1], [0.2, 0.8]]).as_dict()["accuracy"]
    1.0
    """

    samples: int
    classes: int
    accuracy: float
    negative_log_likelihood: float
    brier_score: float
    expected_calibration_error: float
    bins: int

    def as_dict(self) -> dict[str, int | float]:
        """The fields by name, in order."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        rows = {name.replace("_", " "): value for name, value in self.as_dict().items()}
        width = max(map(len, rows))
        return "\n".join(
            f"{name:<{width}}  {value:>10{'.4f' if isinstance(value, float) else 'd'}}" for name, value in rows.items()
        )


def report(y: ArrayLike, p: ArrayLike, bins: int = 15) -> Report:
    """Score class probabilities against labels.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        Class numbers 0..n-1.
    p : array_like, shape [N, n]
        Class probabilities.
    bins : int
        Bins of the expected calibration error, 15 by default.

    Returns
    -------
    Report

    Examples
    --------
    >>> print(report([0, 1], [[0.9, 0.1], [0.2, 0.8]]))
    samples                              2
    classes                              2
    accuracy                        1.0000
    negative log likelihood         0.1643
    brier score                     0.0250
    expected calibration error      0.1500
    bins                                15
    """
    labels, probabilities = check_labels_and_probabilities(y, p)
    samples, classes = probabilities.shape
    return Report(
        samples=samples,
        classes=classes,
        accuracy=accuracy(labels, probabilities),
        negative_log_likelihood=negative_log_likelihood(labels, probabilities),
        brier_score=brier_score(labels, probabilities),
        expected_calibration_error=expected_calibration_error(labels, probabilities, bins),
        bins=bins,
    )
