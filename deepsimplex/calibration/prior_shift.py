"""Class frequencies that differ where a classifier is used: known, or estimated from unlabeled samples."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.array_operations import is_tensor, operations
from deepsimplex._utils.parameters import Fitted
from deepsimplex._utils.portable_operations import precise_dtype
from deepsimplex._utils.registry import registered
from deepsimplex._utils.validation import check_array, check_number, check_probabilities, check_whole
from deepsimplex.calibration.calibrator import check_columns

Array = NDArray[np.float64]
# Largest change of a frequency in the last step of expectation maximization, of the estimate and of the bootstrap, and
# most steps of both.
_TOLERANCES, _STEPS = (1e-9, 1e-5), (20_000, 1_000)
# Bootstrap samples, and numbers of a block of them.
_REPLICATES, _BLOCK = 400, 2**22
# Least frequency that is divided by, and round-off of a sum of frequencies.
_LEAST, _ROUND_OFF = 1e-12, 1e-12


@registered
class PriorShift(Fitted):
    """Class probabilities for other class frequencies (priors) than those they are calibrated for.

    It is right where the samples of every class are as before, and only the classes are more or less frequent (label
    shift): another clinic with as many patients of each stage of a disease, but other shares of the stages.

    Parameters
    ----------
    trained : array_like, shape [n]
        Frequencies of the classes where the probabilities are calibrated, or counts: positive numbers, which are
        divided by their sum.
    frequencies : array_like, shape [n], optional
        Known frequencies where the classifier is used, or counts. Default None: ``fit`` estimates them.
    held_out : int, optional
        Number of samples that ``trained`` was estimated from, for the test and the interval. Default None: known
        exactly.
    level : float
        Of the intervals, between 0 and 1. Default 0.95.
    seed : int
        Of the bootstrap. Default 0.

    Attributes
    ----------
    frequencies_ : ndarray, shape [n]
        Known or estimated.
    lower_, upper_ : ndarray, shape [n]
        Ends of the interval of each frequency: percentiles of 400 bootstrap samples; of known ones the frequencies.
    p_value_ : float or None
        Of the test that no class has become more or less frequent, at least 1 / 401; None for known frequencies.

    Raises
    ------
    ValueError
        For frequencies that are negative or not finite, or zero in ``trained``; by ``fit`` for fewer samples than
        classes + 1.

    Notes
    -----
    Of probabilities p_k, calibrated for frequencies q, those for frequencies w are p_k w_k / q_k, normalized. Unknown w
    maximize the likelihood of unlabeled samples, sum_i log sum_k p_ik w_k / q_k, which is concave, by expectation
    maximization (Saerens, Latinne, Decaestecker 2002). One more sample, of all classes in the shares q, keeps classes
    that no sample resembles possible. Probabilities should be calibrated by bias-corrected temperature scaling first
    (Alexandari, Kundaje, Shrikumar 2020); q is their mean over held-out samples.

    The test is the likelihood ratio test of w = q. Its null distribution is that of 400 samples drawn from the
    unlabeled ones with probabilities in proportion to 1 / sum_k p_ik w_k / q_k, which gives them the frequencies q,
    against the mean of as many further draws as ``held_out``: a miscalibration alone, the same in both, raises no false
    alarm. Any other change that moves the mean of p is detected, too.

    The bootstrap of the interval draws unlabeled samples, and q by the same weights from ``held_out`` samples; other
    errors of the calibration are not in it.

    Examples
    --------
    Class 1 is three times as frequent as among the training samples:

    >>> rng = np.random.default_rng(0)
    >>> y = (rng.random(2000) < 0.6).astype(int)
    >>> odds = 0.25 * np.exp(2.0 * rng.normal(2.0 * y - 1.0))  # N(-1, 1) or N(1, 1), as if 0.2 were of class 1
    >>> p = np.column_stack([1.0 / (1.0 + odds), odds / (1.0 + odds)])
    >>> shift = PriorShift(trained=[0.8, 0.2]).fit(p)
    >>> shift.frequencies_.round(2), bool(shift.lower_[1] < 0.6 < shift.upper_[1]), shift.p_value_ < 0.01
    (array([0.4, 0.6]), True, True)
    >>> PriorShift([0.8, 0.2], [0.4, 0.6]).transform([[0.8, 0.2]])
    array([[0.4, 0.6]])
    """

    fitted_attributes = ("frequencies_", "lower_", "upper_", "p_value_")
    frequencies_: Array
    lower_: Array
    upper_: Array
    p_value_: float | None

    def __init__(
        self,
        trained: ArrayLike,
        frequencies: ArrayLike | None = None,
        held_out: int | None = None,
        level: float = 0.95,
        seed: int = 0,
    ) -> None:
        self.trained = _shares(trained, "trained")
        if (self.trained == 0).any():
            absent = int(np.argmin(self.trained))
            raise ValueError(f"trained must be above 0 for every class; found 0 for class {absent}")
        self.frequencies = None if frequencies is None else _shares(frequencies, "frequencies", len(self.trained))
        self.held_out = None if held_out is None else check_whole(held_out, "held_out", 1)
        self.level = check_number(level, "level", 0, below=1)
        self.seed = check_whole(seed, "seed", 0)
        if self.frequencies is not None:
            self.frequencies_ = self.lower_ = self.upper_ = self.frequencies
            self.p_value_ = None

    def fit(self, p: ArrayLike) -> Self:
        """Estimate the frequencies from class probabilities [N, n] of unlabeled samples, calibrated for ``trained``.

        The samples are drawn at random where the classifier is used, each by itself: of samples that belong together,
        such as images of one patient, take one. Otherwise the interval is too narrow and the p-value too small, while
        the frequencies are as good an estimate.
        """
        n = len(self.trained)
        table = check_probabilities(p, num_classes=n).astype(np.float64)
        N = len(table)
        if n >= N:
            raise ValueError(f"p must have more rows than classes, at least {n + 1}; found {N}")
        if self.frequencies is not None:
            raise ValueError("frequencies must not be given for fit, which estimates them")
        q, tail, ones = self.trained[:, np.newaxis], (1.0 - self.level) / 2.0, np.ones((N, 1))
        w = _maximize(table, ones, q, q, _TOLERANCES[0], _STEPS[0])
        start = np.maximum(w, 1e-3)
        # Divided by their likelihood ratios, samples have the frequencies q.
        inverse = 1.0 / (table @ (w / q))[:, 0]
        inverse /= inverse.sum()
        estimates = self._bootstrap(
            table, np.full(N, 1.0 / N), inverse, lambda counts, q: _maximize(table, counts, q, start).T
        )
        null = self._bootstrap(table, inverse, inverse, lambda counts, q: _likelihood_ratios(table, counts, q))
        self.frequencies_ = w[:, 0]
        self.lower_, self.upper_ = np.quantile(estimates, [tail, 1.0 - tail], axis=0)
        self.p_value_ = float((1 + np.sum(null >= _likelihood_ratios(table, ones, q))) / (1 + _REPLICATES))
        return self

    def _bootstrap(self, p: Array, weights: Array, inverse: Array, statistic: Callable[[Array, Array], Array]) -> Array:
        """Return a statistic of counts [N, B] of samples p [N, n], drawn by weights, and of frequencies q [n, B].

        The frequencies are drawn by the weights ``inverse`` if they are those of held-out samples.
        """
        rng, N = np.random.default_rng(self.seed), len(p)
        parts = []
        for block in np.array_split(np.arange(_REPLICATES), -(-_REPLICATES * N // _BLOCK)):
            counts = rng.multinomial(N, weights, len(block)).T.astype(np.float64)
            q = np.tile(inverse, (len(block), 1))
            if self.held_out is not None:
                q = rng.multinomial(self.held_out, inverse, len(block)) / self.held_out
            parts.append(statistic(counts, np.maximum((q @ p).T, _LEAST)))
        return np.concatenate(parts)

    def transform(self, p: Any) -> Any:
        """Return class probabilities for the new frequencies.

        Parameters
        ----------
        p : array_like or tensor, shape [N, n]
            Calibrated for ``trained``. Arrays are checked; tensors are not, and may be symbolic.

        Returns
        -------
        ndarray or tensor, shape [N, n]
            Of the dtype of ``p``.
        """
        self._check_fitted()
        return self.apply_probabilities(p if is_tensor(p) else check_probabilities(p))

    def apply_probabilities(self, p: Any) -> Any:
        """Return the same as ``transform`` of probabilities that are not checked."""
        check_columns(p, len(self.trained))
        ops = operations(p)
        precise = ops.cast(p, precise_dtype())
        weighted = precise * ops.constant(np.maximum(self.frequencies_, _LEAST) / self.trained, precise.dtype)
        return ops.cast(weighted / ops.reduce_sum(weighted, axis=1, keepdims=True), p.dtype)


def _shares(numbers: ArrayLike, name: str, n: int | None = None) -> Array:
    """Return frequencies [n] of frequencies or counts."""
    array = check_array(numbers, name, "[n]", rows=n, least=2, of="classes")
    if (array < 0).any() or array.sum() == 0:
        raise ValueError(f"{name} must not be negative, nor all be 0; found {array.tolist()}")
    total = array.sum()
    return array if abs(total - 1.0) < _ROUND_OFF else array / total  # so that they stay in files


def _maximize(
    p: Array, counts: Array, q: Array, start: Array, tolerance: float = _TOLERANCES[1], steps: int = _STEPS[1]
) -> Array:
    """Return the likeliest frequencies [n, B] with one more sample, by expectation maximization from a start [n, B].

    Samples p [N, n] count as often as ``counts`` [N, B] say, and q [n, B] are the frequencies that p is calibrated for.
    """
    w, total = np.broadcast_to(start / start.sum(axis=0), q.shape), counts.sum(axis=0) + 1.0
    for _ in range(steps):
        ratio = w / q
        fitted = (ratio * (p.T @ (counts / np.maximum(p @ ratio, _LEAST))) + q / q.sum(axis=0)) / total
        change = np.abs(fitted - w).max()
        w = fitted
        if change < tolerance:
            break
    return w / w.sum(axis=0)


def _likelihood_ratios(p: Array, counts: Array, q: Array) -> Array:
    """Return twice the log-likelihoods [B] of the likeliest frequencies, less those of q [n, B]."""
    w = _maximize(p, counts, q, q)
    return 2.0 * np.sum(counts * np.log(p @ (w / q)), axis=0)
