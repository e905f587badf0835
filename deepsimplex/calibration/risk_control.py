"""Risk control: the threshold of probability that decides most, while errors stay below a bound with confidence."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.array_operations import operations
from deepsimplex._utils.messages import guided
from deepsimplex._utils.registry import registered
from deepsimplex._utils.validation import (
    check_array,
    check_choice,
    check_class_names,
    check_labels_and_probabilities,
    check_number,
    check_probabilities,
    class_number,
)
from deepsimplex.calibration.decision_rule import DecisionRule

Risk = Literal["selective_error", "miscoverage", "false_negative_rate", "rejection_rate"]
Method = Literal["learn_then_test", "conformal"]
Loss = Callable[[NDArray[Any], NDArray[np.int64], float], ArrayLike]

# Probabilities that are tried as thresholds of "selective_error", in equal steps of their log-odds, before 0, which
# decides for everything.
_GRID = np.append(1.0 / (1.0 + np.exp(-np.linspace(12.0, -12.0, 241))), 0.0)
# Of "selective_error": one held-out sample in so many only tells where tests begin, the safest threshold with an
# expected p-value of this part of delta, or the lowest.
_PILOT, _PART = 10, 0.001


@registered
class RiskControl(DecisionRule):
    """Threshold of probability with the most decisions among those whose risk is below a bound, with confidence.

    The guarantee requires nothing of the classifier: only that held-out and new samples are drawn independently from
    one source. Over draws of the held-out samples, the risk on new ones is at most ``bound`` with probability at least
    1 - ``delta``. Samples that belong together, such as images of one patient, are not independent: take one of each.

    Parameters
    ----------
    bound : float
        Largest risk allowed, between 0 and 1.
    risk : {"selective_error", "miscoverage", "false_negative_rate", "rejection_rate"} or callable
        "selective_error", the default: the error rate among accepted samples, whose largest probability reaches the
        threshold; the others are left to a person. "miscoverage": the share of samples whose true class is not in the
        set of the classes that reach the threshold. "false_negative_rate": the share of the samples of class
        ``positive`` whose probability of it does not reach the threshold, 1 - sensitivity. "rejection_rate": the share
        of samples whose largest probability does not reach the threshold: known samples that are taken for unknown.
        A callable takes p [N, n], y [N] and a threshold, and returns losses [N] in [0, 1]: a cost, divided by the
        largest. NaN is a sample that does not count at this threshold, as one that is not accepted.
    delta : float
        Probability that the guarantee fails, between 0 and 1. Default 0.1. Without effect on "conformal".
    method : {"learn_then_test", "conformal"}
        "learn_then_test", the default: with confidence. "conformal": the mean risk over draws of the held-out samples
        is at most ``bound``, for losses of every sample that do not fall along the thresholds, which "selective_error"
        does not have; needs fewer samples.
    thresholds : array_like, optional
        In the order of risk, safest first; a callable needs them. Default None: for "selective_error" 242 from nearly 1
        to 0, for the others the probabilities of the held-out samples themselves.
    positive : int or label, optional
        Class for "false_negative_rate": its name if ``fit`` gets ``classes``, or its number. Default None: class 1 of
        the classes 0 and 1; others must be given.

    Attributes
    ----------
    threshold_ : float
    positive_ : int
        Number of the class ``positive``; None without "false_negative_rate".
    risk_ : float
        Risk at the threshold on the held-out samples; lower than ``bound``.

    Raises
    ------
    ValueError
        For bounds outside of (0, 1); by ``fit``, if no threshold is safe, for losses outside of [0, 1], and without the
        class ``positive`` among others than 0 and 1.

    Notes
    -----
    Angelopoulos, Bates, Candès, Jordan, Lei: *Learn then Test: Calibrating Predictive Algorithms to Achieve Risk
    Control*, 2021. Each threshold has a p-value of the hypothesis that its risk is above the bound: that of the
    binomial distribution for the three risks by name, whose losses are 0 or 1, and Hoeffding and Bentkus' for others.
    Thresholds pass in their order as long as p-values are at most ``delta``, and the last that passes is taken. The
    safest thresholds of "selective_error" accept too few samples to pass: tests begin where they are expected to pass
    by the probabilities of every tenth sample, which the tests leave out.

    The other risks by name rise with the threshold. Then all thresholds pass up to the k-th smallest of the m
    probabilities that count, for the largest k with P(Bin(m, bound) < k) <= delta: the confidence is 1 - delta, and
    more only by what one sample adds (at a bound of 0.05, 2% with 1000 samples, 5% with 200).

    ``decide`` gives for "selective_error" and "rejection_rate" the likeliest class, or -1 below the threshold; for
    "false_negative_rate" the class ``positive`` from the threshold on, else the likeliest of the others; for
    "miscoverage" the class of sets of one, else -1.

    Angelopoulos, Bates, Fisch, Lei, Schuster: *Conformal Risk Control*, 2024: the last threshold with
    (m risk + 1) / (m + 1) <= bound, for m samples.

    Examples
    --------
    Which samples may be decided without a person, if one decision in twenty may be wrong:

    >>> rng = np.random.default_rng(0)
    >>> p = rng.dirichlet(np.full(3, 0.3), 4000)
    >>> y = np.argmax(np.log(p) + rng.gumbel(size=p.shape), axis=1)
    >>> control = RiskControl(0.05).fit(p[:2000], y[:2000])
    >>> accepted = control.predict(p[2000:])
    >>> error = np.mean(p[2000:].argmax(axis=1)[accepted] != y[2000:][accepted])
    >>> bool(error <= 0.05), bool(accepted.mean() > 0.3)
    (True, True)
    """

    fitted_attributes = ("positive_", "threshold_", "risk_")
    positive_: int | None
    threshold_: float
    risk_: float

    def __init__(
        self,
        bound: float,
        risk: Risk | Loss = "selective_error",
        delta: float = 0.1,
        method: Method = "learn_then_test",
        thresholds: ArrayLike | None = None,
        positive: Any = None,
    ) -> None:
        self.bound = check_number(bound, "bound", 0, below=1)
        self.risk = risk if callable(risk) else check_choice(risk, "risk", get_args(Risk), "a callable or one of")
        self.delta = check_number(delta, "delta", 0, below=1)
        self.method = check_choice(method, "method", get_args(Method))
        if method == "conformal" and risk == "selective_error":
            raise ValueError(
                "method must be 'learn_then_test' for risk='selective_error', which may fall along the thresholds; "
                "found 'conformal'"
            )
        if thresholds is None and callable(risk):
            raise ValueError("thresholds must be given, safest first, for a risk that is a callable")
        self.thresholds = None if thresholds is None else check_array(thresholds, "thresholds", "[T]", least=1)
        self.positive = positive

    def fit(self, p: ArrayLike, y: ArrayLike, *, classes: Sequence[Any] | None = None) -> Self:
        """Fit the threshold to class probabilities [N, n] of held-out samples and their labels [N].

        The samples must not have been used to train, nor to calibrate, the classifier. Labels are numbers 0..n-1, or
        names that ``classes`` holds, the name of each column of ``p``.
        """
        labels, probabilities = check_labels_and_probabilities(y, p, classes)
        names = check_class_names(classes, probabilities.shape[1])
        self.positive_ = class_number(self.positive, names) if self.risk == "false_negative_rate" else None
        thresholds: Any = self.thresholds
        if self.risk == "selective_error":
            pilot = np.arange(len(labels)) % _PILOT == 0
            thresholds = _GRID if thresholds is None else thresholds
            thresholds = thresholds[self._start(probabilities[pilot], thresholds, int(np.sum(~pilot))) :]
            m, total = _errors_above(probabilities[~pilot], labels[~pilot], thresholds)
        elif callable(self.risk):
            m, total = self._sums_of_losses(probabilities, labels, thresholds)
        else:
            scores = np.sort(self._scores(probabilities, labels))
            if thresholds is None:
                thresholds = np.unique(scores) if len(scores) else np.zeros(1)
            total = np.searchsorted(scores, thresholds)
            m = np.full(len(thresholds), len(scores))
        risks = np.divide(total, m, out=np.ones(len(m)), where=m > 0)
        least = math.ceil(math.log(self.delta) / math.log1p(-self.bound))
        if self.method == "conformal":
            safe, least = (total + 1.0) / (m + 1.0) <= self.bound, math.ceil(1.0 / self.bound - 1e-9) - 1
        else:
            p_values = p_values_of_risk(risks, m, self.bound, binary=not callable(self.risk))
            safe = np.cumprod(p_values <= self.delta).astype(bool)
        if not safe.any():
            count = f"{m[0]} held-out {'' if self.positive_ is None else repr(names[self.positive_]) + ' '}samples"
            if self.risk == "selective_error":
                count += f" that are accepted, of {len(labels)},"
            confidence = "" if self.method == "conformal" else f" with confidence {1.0 - self.delta:g}"
            bound = f"a bound of {self.bound:g}{confidence}"
            raise guided(
                "decisions.md#keep-a-promise",
                f"{count} cannot prove {bound}, even with no error among them: at least {least} are needed. Hold out "
                "more, or allow a higher bound"
                if total[0] == 0
                else f"{count} have a risk of {risks[0]:.3g} at the safest threshold, {thresholds[0]:.3g}: it cannot "
                f"prove {bound}. Hold out more, or allow a higher bound",
            )
        last = int(np.flatnonzero(safe)[-1])
        self.threshold_, self.risk_ = float(thresholds[last]), float(risks[last])
        return self

    def _scores(self, p: NDArray[Any], y: NDArray[np.int64]) -> NDArray[Any]:
        """Return the probabilities [m] that should reach the threshold, of the samples that count."""
        if self.risk == "rejection_rate":
            return p.max(axis=1)
        scores = p[np.arange(len(y)), y]
        return scores if self.risk == "miscoverage" else scores[y == self.positive_]

    def _start(self, pilot: NDArray[Any], thresholds: NDArray[np.float64], samples: int) -> int:
        """Return the first threshold that ``samples`` are expected to pass, by probabilities ``pilot`` [M, n]."""
        confidence = pilot.max(axis=1)
        accepted = confidence >= thresholds[:, np.newaxis]
        share, error = accepted.mean(axis=1), (accepted * (1.0 - confidence)).mean(axis=1)
        m = np.floor(samples * share).astype(int)
        risks = np.divide(error, share, out=np.ones(len(share)), where=share > 0)
        expected = p_values_of_risk(risks, m, self.bound, binary=True)
        return int(np.argmax(expected <= max(expected.min(), _PART * self.delta)))

    def _sums_of_losses(self, p: NDArray[Any], y: NDArray[np.int64], thresholds: Any) -> tuple[Any, Any]:
        """Return how many samples count at each threshold [T], and the sums of their losses, for a callable."""
        loss: Any = self.risk
        losses = [loss(p, y, float(threshold)) for threshold in thresholds]
        each = np.stack([check_array(one, "losses of risk", "[N]", rows=len(y), finite=False) for one in losses])
        if np.any((each < 0) | (each > 1)):
            worst = each[(each < 0) | (each > 1)][0]
            raise ValueError(f"risk must return losses in [0, 1]; found {worst:g}. Divide costs by the largest")
        counted = ~np.isnan(each)
        falls = np.any(counted != counted[0]) or np.any(np.diff(each[:, counted[0]], axis=0) < 0)
        if self.method == "conformal" and falls:
            raise ValueError("risk must have losses that do not fall along the thresholds for method='conformal'")
        return counted.sum(axis=1), np.nansum(each, axis=1)

    def predict(self, p: ArrayLike) -> NDArray[np.bool_]:
        """Return the decisions for class probabilities [N, n] at the fitted threshold.

        Returns
        -------
        ndarray of bool
            Of "selective_error" and "rejection_rate" [N], whether each sample is accepted; of "miscoverage" [N, n],
            whether each class is in the set; of "false_negative_rate" [N], whether each sample counts as positive.

        Raises
        ------
        ValueError
            For a risk that is a callable: compare with ``threshold_`` as it does.
        """
        self._check_fitted()
        self._check_named()
        return self._reached(check_probabilities(p))

    def decide_tensor(self, p: Any) -> Any:
        """Return the decisions [N] of class probabilities [N, n], an array or a tensor."""
        self._check_named()
        ops = operations(p)
        reached, likeliest = self._reached(p), ops.argmax(p, axis=1)
        if self.risk == "false_negative_rate":
            others = ops.argmax(p - 2.0 * ops.one_hot([self.positive_], p.shape[1], dtype=p.dtype), axis=1)
            return ops.where(reached, ops.constant(self.positive_, ops.int64), others)
        if self.risk == "miscoverage":
            reached = ops.reduce_sum(ops.cast(reached, ops.int32), axis=1) == 1
        return ops.where(reached, likeliest, ops.constant(-1, ops.int64))

    def _check_named(self) -> None:
        if callable(self.risk):
            raise ValueError("risk must be one by name to decide; a callable compares with threshold_ itself")

    def _reached(self, p: Any) -> Any:
        """Return whether probabilities [N, n] reach the threshold: of every class, or of the one asked."""
        ops = operations(p)
        if self.risk == "miscoverage":
            return p >= ops.constant(self.threshold_, p.dtype)
        column = p[:, self.positive_] if self.risk == "false_negative_rate" else ops.reduce_max(p, axis=1)
        return column >= ops.constant(self.threshold_, p.dtype)


def _errors_above(p: NDArray[Any], y: NDArray[np.int64], thresholds: Any) -> tuple[Any, Any]:
    """Return how many samples have a largest probability of at least each threshold [T], and how many are errors."""
    order = np.argsort(p.max(axis=1))
    errors = np.append(0, np.cumsum((np.argmax(p, axis=1) != y)[order]))
    below = np.searchsorted(p.max(axis=1)[order], thresholds)
    return len(y) - below, errors[-1] - errors[below]


def p_values_of_risk(
    risks: NDArray[np.float64], m: NDArray[np.int64], bound: float, *, binary: bool = False
) -> NDArray[np.float64]:
    """Return p-values of the hypotheses that risks are above a bound.

    Parameters
    ----------
    risks : ndarray, shape [T]
        Means of losses in [0, 1].
    m : ndarray of int, shape [T]
        Numbers of samples.
    bound : float
    binary : bool
        Whether losses are 0 or 1, for the exact binomial tail. Default False: the smaller one of Hoeffding's and
        Bentkus' bounds (Bates, Angelopoulos, Lei, Malik, Jordan: *Distribution-Free, Risk-Controlling Prediction Sets*,
        2021).

    Examples
    --------
    >>> p_values_of_risk(np.array([0.02, 0.05]), np.array([100, 100]), 0.1).round(4)
    array([0.0053, 0.1565])
    """
    from scipy.special import rel_entr
    from scipy.stats import binom

    if binary:
        return np.asarray(binom.cdf(np.rint(m * risks), m, bound))
    below = np.minimum(risks, bound)
    divergence = rel_entr(below, bound) + rel_entr(1.0 - below, 1.0 - bound)
    # Rounding must not make 2 of 0.02 * 100.
    bentkus = math.e * binom.cdf(np.ceil(m * risks - 1e-9), m, bound)
    return np.minimum(np.minimum(np.exp(-m * divergence), bentkus), 1.0)
