"""Split conformal prediction: sets of classes that hold the true one with a guaranteed frequency."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.array_operations import is_tensor, numpy_dtype, operations
from deepsimplex._utils.messages import guided, listed
from deepsimplex._utils.parameters import Fitted
from deepsimplex._utils.portable_operations import precise_dtype
from deepsimplex._utils.registry import registered
from deepsimplex._utils.validation import (
    check_choice,
    check_flag,
    check_groups,
    check_labels_and_probabilities,
    check_number,
    check_probabilities,
    check_whole,
)

ConformalMethod = Literal["lac", "aps", "raps"]


@registered
class ConformalSets(Fitted):
    """Sets of classes from class probabilities, which hold the true class with at least the stated frequency.

    The guarantee requires nothing of the classifier: only that the held-out samples of ``fit`` and those to be
    predicted are exchangeable, as samples of one source drawn at random are. The better the probabilities, the smaller
    the sets.

    Parameters
    ----------
    coverage : float
        Guaranteed frequency, between 0 and 1. Default 0.9.
    method : {"lac", "aps", "raps"}
        "lac", the default: all classes above one threshold of probability, the smallest sets on average; few or none
        for atypical samples. "aps": the likeliest classes until their sum reaches a threshold, so that sets grow where
        a sample is hard. "raps": the same with a penalty of the classes after the likeliest few, against long tails.
    by_class : bool
        Whether the guarantee holds for the samples of every class, with a threshold for each. Default False: for all
        samples together.
    penalty : float
        Of "raps", for each class after the first ``free_classes``. Default 0.01.
    free_classes : int
        Number of likeliest classes without penalty. Default 5. Both defaults are the paper's, for images of many
        classes.
    seed : int
        Seed of the random part of "aps" and "raps". Default 0.
    allow_empty : bool
        Whether sets may be empty. Default True, which keeps the coverage near the one asked for. False adds the most
        probable class to empty sets: coverage can only grow, and so does the mean size.

    Attributes
    ----------
    thresholds_ : ndarray, shape [1] or [n]; [G, 1] or [G, n] with groups
        Largest scores in the sets; one for each class with ``by_class``, and for each group.
    groups_ : ndarray, shape [G]
        Names or numbers of the groups; empty without them.

    Raises
    ------
    ValueError
        For a coverage outside of (0, 1) or another method; by ``fit`` for fewer samples than coverage / (1 - coverage),
        of every class with ``by_class``, of every group, and of every class in every group with both; by ``predict``
        for a group that ``fit`` had no samples of, about which nothing can be guaranteed.

    Notes
    -----
    Of m held-out samples with the scores s_i of their true classes the threshold is the k-th smallest,
    k = ceil((m + 1) coverage). The true class of a new sample is in its set with probability at least ``coverage``,
    and, if no two scores are equal, at most ``coverage`` + 1 / (m + 1), over draws of both (Vovk et al. 2005). Scores
    of a class y of rank r: "lac" 1 - p_y (Sadinle et al. 2019); "aps" the sum of the probabilities down to p_y minus
    u p_y (Romano et al. 2020); "raps" penalty * max(r - free_classes, 0) more (Angelopoulos et al. 2021).

    The random u in [0, 1) is drawn from the probabilities themselves: a sample has the same set in any batch. Samples
    of equal probabilities, as of a tree or of quantized outputs, therefore have equal u, where the papers draw one for
    each: their scores are tied, and coverage may exceed the upper bound, by as much as the ties' share. With all
    probabilities 1 / n "lac" holds every class.

    Classes and groups are the categories of Mondrian conformal prediction (Vovk et al. 2005, sec. 4.5): the guarantee
    holds in each, at the cost of a threshold from fewer samples.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> p = rng.dirichlet(np.ones(3), 1000)
    >>> y = np.array([rng.choice(3, p=row) for row in p])
    >>> sets = ConformalSets(coverage=0.8).fit(p[:500], y[:500])
    >>> sets.predict(p[500:502])
    array([[False,  True,  True],
           [False,  True,  True]])
    >>> bool(np.mean(sets.predict(p[500:])[np.arange(500), y[500:]]) > 0.77)
    True
    """

    fitted_attributes: ClassVar[tuple[str, ...]] = ("thresholds_", "groups_")
    thresholds_: NDArray[np.float64]
    groups_: NDArray[Any]

    def __init__(
        self,
        coverage: float = 0.9,
        method: ConformalMethod = "lac",
        by_class: bool = False,
        penalty: float = 0.01,
        free_classes: int = 5,
        seed: int = 0,
        allow_empty: bool = True,
    ) -> None:
        self.coverage = check_number(coverage, "coverage", 0, below=1)
        self.method = check_choice(method, "method", get_args(ConformalMethod))
        self.by_class = check_flag(by_class, "by_class")
        self.penalty = check_number(penalty, "penalty", least=0)
        self.free_classes = check_whole(free_classes, "free_classes", 0)
        self.seed = check_whole(seed, "seed", 0)
        self.allow_empty = check_flag(allow_empty, "allow_empty")

    def fit(
        self, p: ArrayLike, y: ArrayLike, *, classes: Sequence[Any] | None = None, groups: ArrayLike | None = None
    ) -> Self:
        """Fit the thresholds to class probabilities [N, n] of held-out samples and their labels [N].

        The samples must not have been used to train, nor to calibrate, the classifier. Labels are numbers 0..n-1, or
        names that ``classes`` holds, the name of each column of ``p``. With ``groups`` [N], names or numbers (sites,
        devices, sexes), the guarantee holds for the samples of every group, and ``predict`` needs them too.
        """
        labels, probabilities = check_labels_and_probabilities(y, p, classes)
        scores = self._scores(probabilities.astype(np.float64))
        true_class_scores = scores[np.arange(len(labels)), labels]
        values = None if groups is None else _group_values(groups, len(labels))
        categories = {"": np.ones(len(labels), bool)}
        if self.by_class:
            categories = {f" of class {k}": labels == k for k in range(probabilities.shape[1])}
        unique: NDArray[Any] = np.array([]) if values is None else np.unique(values)
        parts = {f" of group {group!r}": values == group for group in unique.tolist()} or {"": np.array(True)}
        thresholds = [
            [self._threshold(true_class_scores[part & category], of + name) for name, category in categories.items()]
            for of, part in parts.items()
        ]
        self.thresholds_, self.groups_ = np.array(thresholds if len(unique) else thresholds[0]), unique
        return self

    def _threshold(self, scores: NDArray[np.float64], category: str) -> float:
        """Return the threshold of scores [m]; ``category`` names their group and class in the message."""
        m = len(scores)
        smallest = math.ceil((m + 1) * self.coverage - 1e-9)  # 0.9 * 10 is 9, not 10
        if smallest > m:
            raise guided(
                "decisions.md#return-a-set",
                f"y must hold at least {least_samples(self.coverage)} samples{category} for coverage = "
                f"{self.coverage:g}; found {m}. Hold out more, or lower the coverage",
            )
        return float(np.partition(scores, smallest - 1)[smallest - 1])

    @property
    def needs_groups(self) -> bool:
        """Whether ``predict`` needs the groups of samples."""
        return len(getattr(self, "groups_", ())) > 0

    def predict(self, p: Any, groups: ArrayLike | None = None) -> Any:
        """Return the sets of class probabilities.

        Parameters
        ----------
        p : array_like or tensor, shape [N, n]
            Arrays are checked; tensors are not, and may be symbolic.
        groups : array_like, shape [N], optional
            The group of every row, among those of ``fit``, if that had groups.

        Returns
        -------
        ndarray or tensor of bool, shape [N, n]
            Whether each class is in the set. Sets may be empty where no class is as likely as the true ones of the
            held-out samples were, but for ``allow_empty=False``.
        """
        self._check_fitted()
        p = p if is_tensor(p) else check_probabilities(p)
        n = self.thresholds_.shape[-1]
        if self.by_class and p.shape[1] != n:
            raise ValueError(f"p must have shape [N, {n}], as in fit; found {tuple(p.shape)}")
        thresholds = self._thresholds_of(groups, p.shape[0])
        ops, dtype = operations(p), precise_dtype()
        # Round-off of probabilities in single precision must not leave out the sample that made the threshold.
        slack = 4.0 * float(np.finfo(numpy_dtype(p)).eps)
        return self._filled(self._scores(ops.cast(p, dtype)) <= ops.constant(thresholds + slack, dtype), p)

    def _filled(self, sets: Any, p: Any) -> Any:
        """Return sets [N, n] with the most probable class added to empty ones, unless these are allowed."""
        if self.allow_empty:
            return sets
        ops = operations(p)
        is_empty = ops.reduce_sum(ops.cast(sets, ops.int32), axis=-1, keepdims=True) == 0
        likeliest = ops.one_hot(ops.argmax(p, axis=-1), p.shape[-1], dtype=ops.int32) == 1
        return sets | (is_empty & likeliest)

    def _thresholds_of(self, groups: ArrayLike | None, rows: int) -> NDArray[np.float64]:
        """Return the thresholds of every row, [N, 1] or [N, n], or without groups those of all, [1] or [n]."""
        known = {group: i for i, group in enumerate(self.groups_.tolist())}
        names = listed(map(repr, known), 5)
        if groups is None and known:
            raise guided(
                "decisions.md#return-a-set",
                f"groups must be given: every group, {names}, has a threshold. An export has no input of groups, and "
                "needs sets that conformalize has fitted without them",
            )
        if groups is None:
            return self.thresholds_
        if not known:
            raise ValueError("groups must be given in the fit, too: the sets have one threshold for all of them")
        values = _group_values(groups, rows).tolist()
        if unknown := next((repr(value) for value in values if value not in known), None):
            raise ValueError(f"groups must be those of the held-out samples, {names}; found {unknown}")
        return self.thresholds_[[known[value] for value in values]]

    def _scores(self, p: Any) -> Any:
        """Compute nonconformity scores [N, n] of all classes."""
        if self.method == "lac":
            return 1.0 - p
        ops = operations(p)
        order = ops.argsort(p, axis=-1, direction="DESCENDING", stable=True)
        rank = ops.argsort(order, axis=-1)
        down_to = ops.cumsum(ops.gather(p, order, batch_dims=1), axis=-1)
        scores = ops.gather(down_to, rank, batch_dims=1) - self._uniform(p) * p
        if self.method == "raps":
            scores += self.penalty * ops.cast(ops.maximum(rank + 1 - self.free_classes, 0), p.dtype)
        return scores

    def _uniform(self, p: Any) -> Any:
        """Compute pseudo-random numbers [N, 1] in [0, 1): fractional parts of weighted sums of the probabilities."""
        weights = np.random.default_rng(self.seed).uniform(1e3, 1e4, p.shape[-1])
        ops = operations(p)
        total = ops.linalg.matvec(p, ops.constant(weights, p.dtype))[:, np.newaxis]
        return total - ops.floor(total)


def _group_values(groups: ArrayLike, rows: int) -> NDArray[Any]:
    """Return groups [N] as an array of numbers or of text."""
    values = check_groups(groups, rows, "row of p")
    if values.dtype.kind == "O":
        values = np.array(values.tolist())
    if values.dtype.kind not in "biufU":
        raise TypeError(f"groups must be names or numbers; found dtype {values.dtype}")
    return values


def least_samples(coverage: float) -> int:
    """Return the number of held-out samples that sets of a coverage need at least.

    Examples
    --------
    >>> least_samples(0.9)
    9
    """
    return math.ceil(coverage / (1.0 - coverage) - 1e-9)
