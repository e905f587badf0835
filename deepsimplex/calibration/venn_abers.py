"""Venn-Abers prediction: a lower and an upper probability of every class, from two isotonic regressions each."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.array_operations import numpy_dtype, operations
from deepsimplex._utils.portable_operations import count_at_most
from deepsimplex._utils.registry import registered
from deepsimplex._utils.validation import check_probabilities
from deepsimplex.calibration.calibrator import ProbabilityCalibration, check_all_classes, check_columns, padded_table

# Follows the scores of a class with fewer different ones than others: above every probability.
_BEYOND = 2.0


@registered
class VennAbers(ProbabilityCalibration):
    """Give every class a lower and an upper probability, of which one is calibrated whatever the classifier.

    They are the isotonic regressions of the held-out samples and the new one, with each of both labels in turn: far
    apart where held-out samples are few. ``transform`` merges them to one probability, which is never 0 nor 1, and
    normalizes over more than two classes, each of which is one against the rest. The likeliest class may change.

    Attributes
    ----------
    scores_ : ndarray, shape [n, K], or [1, K] for two classes
        Different probabilities of each class among the held-out samples, ascending; for two classes, of the second
        only. Shorter rows end with 2.
    lower_, upper_ : ndarray, shape [n, K + 1], or [1, K + 1]
        Lower probabilities by the number of scores that are at most the new one, upper ones by the number of those
        below it.

    Raises
    ------
    ValueError
        By ``fit``, if held-out samples lack a class; by ``transform``, for another number of classes.

    Notes
    -----
    Vovk, Petej, Fedorova: *Large-Scale Probabilistic Predictors With and Without Guarantees of Validity*, 2015:
    inductive Venn-Abers predictors. Of two classes the probability of the second that is right, p_1 where its label
    is 1 and p_0 where it is 0, is perfectly calibrated if held-out and new samples are exchangeable. The merged one,
    p_1 / (1 - p_0 + p_1), minimizes the largest regret in NLL. Both are constant between scores, and tabled for all
    of them, so that exports hold them exactly.

    Examples
    --------
    >>> p, y = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.1, 0.9]], [0, 1, 0, 1]
    >>> venn_abers = VennAbers().fit(p, y)
    >>> lower, upper = venn_abers.probability_intervals([[0.5, 0.5]])
    >>> lower.round(2), upper.round(2)
    (array([[0.33, 0.33]]), array([[0.67, 0.67]]))
    >>> venn_abers.transform([[0.5, 0.5], [0.05, 0.95]]).round(2)
    array([[0.5 , 0.5 ],
           [0.33, 0.67]])
    """

    fitted_attributes = ("scores_", "lower_", "upper_")
    has_gradient = False  # of steps
    scores_: NDArray[np.float64]
    lower_: NDArray[np.float64]
    upper_: NDArray[np.float64]

    def _fit(self, p: NDArray[np.float64], y: NDArray[np.int64], weights: NDArray[np.float64], floor: float) -> None:
        n = p.shape[1]
        check_all_classes(y, n, "VennAbers")
        scores, lower, upper = [], [], []
        for k in [1] if n == 2 else range(n):
            different, at = np.unique(p[:, k], return_inverse=True)
            counts, events = np.bincount(at, weights), np.bincount(at, weights * (y == k))
            scores.append(different)
            lower.append(np.append(0.0, 1.0 - _with_another_event(counts[::-1], (counts - events)[::-1])[::-1]))
            upper.append(np.append(_with_another_event(counts, events), 1.0))
        longest = max(map(len, scores))
        self.scores_ = np.stack([np.pad(row, (0, longest - len(row)), constant_values=_BEYOND) for row in scores])
        self.lower_, self.upper_ = padded_table(lower), padded_table(upper)

    def probability_intervals(self, p: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the lower and the upper probability of every class, both [N, n], for class probabilities [N, n].

        Those of more than two classes are not normalized: each class is one against the rest.
        """
        self._check_fitted()
        complement, upper = self._bounds(check_probabilities(p).astype(np.float64))
        lower = 1.0 - complement
        if lower.shape[1] > 1:
            return lower, upper
        return np.hstack([1.0 - upper, lower]), np.hstack([1.0 - lower, upper])

    def _bounds(self, p: Any) -> tuple[Any, Any]:
        """Return one minus lower probabilities, and upper ones, [N, n]; for two classes [N, 1], of the second.

        The difference is tabled: LiteRT's converter takes one from what was gathered, the wrong way round.
        """
        check_columns(p, len(self.scores_))
        ops = operations(p)
        columns = ops.transpose(p[:, 1:] if p.shape[1] == 2 else p)
        scores = self.scores_.astype(numpy_dtype(p))
        below = scores.shape[1] - count_at_most(-scores[:, ::-1], -columns)
        complement, upper = (
            ops.transpose(ops.gather(ops.constant(table, p.dtype), at, batch_dims=1))
            for table, at in ((1.0 - self.lower_, count_at_most(scores, columns)), (self.upper_, below))
        )
        return complement, upper

    def _transform(self, p: Any, floor: float) -> Any:
        complement, upper = self._bounds(p)
        ops = operations(p)
        merged = upper / (complement + upper)
        if p.shape[1] == 2:
            return ops.concat([1.0 - merged, merged], axis=1)
        return merged / ops.reduce_sum(merged, axis=1, keepdims=True)


def _with_another_event(counts: NDArray[Any], events: NDArray[Any]) -> NDArray[np.float64]:
    """Return the isotonic regression at every score of samples with one more event at that score.

    ``counts`` [m] are the samples at each score, and ``events`` [m] those among them with label 1. The value is the
    slope of the common tangent below the cumulative sums before the score, and those after it, moved by the event.
    """
    m = len(counts)
    x, y = np.append(0.0, np.cumsum(counts)).tolist(), np.append(0.0, np.cumsum(events)).tolist()
    before, after = list(range(-1, m)), list(range(1, m + 2))

    def slope(a: int, b: int, added: int = 0) -> float:
        return (y[b] - y[a] + added) / (x[b] - x[a] + added)

    # The neighbors on the convex hulls below points 0..a, and b..m.
    for a in range(2, m + 1):
        while before[a] > 0 and slope(before[before[a]], a) >= slope(before[a], a):
            before[a] = before[before[a]]
    for b in range(m - 2, -1, -1):
        while after[b] < m and slope(b, after[after[b]]) <= slope(b, after[b]):
            after[b] = after[after[b]]
    values = np.empty(m)
    for j in range(m):
        a, b = j, j + 1
        while True:
            if b < m and slope(a, after[b], 1) <= slope(a, b, 1):
                b = after[b]
            elif a > 0 and slope(before[a], b, 1) >= slope(a, b, 1):
                a = before[a]
            else:
                break
        values[j] = slope(a, b, 1)
    return values
