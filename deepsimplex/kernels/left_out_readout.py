"""A softmax of affine and logarithmic scores, fitted by the likelihood of left-out rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from deepsimplex.kernels.blas_threads import shares_cores

Array = NDArray[np.float64]

LOWEST = -30.0
"""Least argument of the logarithm of softplus, which is linear below and would underflow."""
# Normal prior of a, g, log t and c, in units of the scores' root mean square, of the offsets, and of the weights of the
# two curves that a and g stand for once t and c are known.
_PRIOR_MEAN = np.array([0.0, 0.0, np.log(3.0), 0.5])
_PRIOR_DEVIATION = np.array([10.0, 5.0, 0.5, 1.0])
_OFFSET_DEVIATION = 1.0
_WEIGHT_DEVIATION = 5.0
# Rows that t and c are fitted to at most, or those with so many scores if that is more: two numbers need no more.
_ROWS_OF_NUMBERS, _SCORES_OF_NUMBERS = 2000, 200_000
# Penalties of the matrix among which is chosen, from one that allows none.
PENALTIES = (np.inf, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3)
# Share of the labels that is spread over all classes, in units of the squared rate of left-out rows whose class is not
# the likeliest; and the share by which the folds' negative log-likelihood may grow by it.
_SPREAD, _TOLERATED = 1 / 3, 0.01
# Rows of any class that the labels are spread by as if there were: none is far too sure of few rows that are all right,
# a whole one is not sure enough of a hundred.
_EVEN_ROWS = 0.5
# Nats by which rows must be likelier where labels may be wrong: half the 95% point of chi-squared, rounded up. With
# labels that are right the gain was at most 1.2 (digits, breast cancer, wine, images of CIFAR-10 and CIFAR-100).
_EVIDENCE = 2.0
_NOISE_BOUNDS = (1e-6, 0.9)


@dataclass(frozen=True, eq=False)
class LeftOutReadout:
    """Class probabilities (1 - e) softmax(a s + g log softplus(t s + c) + A s + b) + e / n of scores s [N, n].

    The logarithm turns regressed labels, which are shares of the classes, into log-probabilities; where it is not
    needed g is near zero. a s + g log softplus(t s + c) falls nowhere between the least and the largest score: a
    left-out row has a lower score for its class than others have, as one row of the class is missing, and of few rows
    this is most that the numbers would be fitted to. The matrix is A = R W^T, with R [n, r] fitted and W [n, r] the
    scores' leading directions. e is the share of labels that tell nothing, as those that were mistaken at random: no
    softmax of the scores is sure of most rows and wrong about a twentieth of them. It is 0 unless left-out rows are
    clearly likelier with it, and folds, too.

    Attributes
    ----------
    numbers : ndarray, shape [5]
        a, g, t, c and e.
    offset : ndarray, shape [n]
        b.
    matrix : ndarray, shape [n, n]
        A.
    penalty : float
        Chosen weight of the squared norm of A.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(3, size=500)
    >>> scores = np.eye(3)[y] + 0.5 * rng.normal(size=(500, 3))
    >>> readout = LeftOutReadout.fit(scores, np.eye(3)[y], penalties=[10.0])
    >>> bool(-np.log(readout(scores)[np.arange(500), y]).mean() < 0.3)
    True
    """

    numbers: Array
    offset: Array
    matrix: Array
    penalty: float

    @classmethod
    @shares_cores
    def fit(
        cls,
        scores: Array,
        labels: Array,
        folds: Sequence[tuple[Array, Array, NDArray[np.bool_]]] = (),
        penalties: Sequence[float] = PENALTIES,
        rank: int = 128,
        mistaken: bool = True,
    ) -> "LeftOutReadout":
        """Fit to left-out scores [N, n] and labels [N, n], with the penalty of the matrix that predicts best.

        A small share of the labels is spread over all classes, as numbers that are fitted to few rows are too sure
        otherwise: as if half of a row more were of any class, and more the more rows are missed, unless folds are
        clearly less likely by that.

        Parameters
        ----------
        scores, labels : ndarray, shape [N, n]
        folds : sequence of tuple
            For every fold: scores of the other rows, left out, and of the fold's, both predicted without the fold; and
            which rows are the fold's, bool [N]. Scores that were left out one by one would not do: those of other rows
            depend on the fold's labels. Default: none, for a single penalty and labels as they are.
        penalties : sequence of float
            In descending order; the search ends where two in a row have not improved. The first allows no matrix.
        rank : int
            Largest rank of the matrix. Default 128, which costs as much for a thousand classes as for a hundred.
        mistaken : bool
            Whether labels may be wrong, e above 0: if rows are clearly likelier so, and folds, too. Default True.
        """
        unit = float(np.sqrt(np.mean(np.square(scores)))) or 1.0
        directions = _leading_directions(scores, rank)
        candidates = [_Curve(scores / unit, *numbers) for numbers in _fit_numbers(scores / unit, labels, mistaken)]

        def affine(curve: _Curve, scores: Array, labels: Array) -> _Affine:
            return _Affine(curve.columns(scores / unit), scores / unit @ directions, labels, curve.e)

        curve, penalty, share = candidates[-1], penalties[0], 0.0
        if folds:
            choices = []
            for candidate in candidates:
                parts = [
                    (affine(candidate, kept, labels[~held]).spread(), affine(candidate, others, labels[held]))
                    for kept, others, held in folds
                ]
                choices.append((*_choose_penalty(parts, penalties, [None] * len(parts)), candidate, parts))
            penalty, loss, starts, curve, parts = min(choices, key=lambda choice: choice[1])
            missed = scores.argmax(axis=1) != labels.argmax(axis=1)
            share = _SPREAD * np.average(missed, weights=labels.sum(axis=1)) ** 2
            spread = [(others.spread(share), held) for others, held in parts]
            if _choose_penalty(spread, [penalty], starts)[1] >= (1.0 + _TOLERATED) * loss:
                share = 0.0
        weights, offset, R = affine(curve, scores, labels).spread().spread(share).minimize(penalty)
        a, g = curve.factors(*weights)
        numbers = np.array([a / unit, g, curve.t / unit, curve.c, curve.e])
        fitted = cls(numbers, offset, R @ directions.T / unit, float(penalty))
        logits = fitted.logits(scores)
        if np.vdot(scores - scores.mean(axis=1, keepdims=True), logits - logits.mean(axis=0)) >= 0.0:
            return fitted
        # Where features tell nothing a left-out row is farthest from its label, which falling logits would betray:
        # classes have their frequencies, with one row shared by all.
        offset = np.log(labels.sum(axis=0) + 1.0 / labels.shape[1])
        constant = np.array([0.0, 0.0, *numbers[2:4], 0.0])
        return cls(constant, offset - offset.mean(), np.zeros_like(fitted.matrix), fitted.penalty)

    def logits(self, scores: Array) -> Array:
        """Arguments [N, n] of the softmax."""
        a, g, t, c, _ = self.numbers
        return a * scores + g * log_softplus(t * scores + c) + scores @ self.matrix.T + self.offset

    def __call__(self, scores: Array) -> Array:
        """Class probabilities [N, n]."""
        return np.exp(self.log_probabilities(scores))

    def log_probabilities(self, scores: Array) -> Array:
        """Logarithms of the class probabilities [N, n]."""
        log_p, e = log_softmax(self.logits(scores)), self.numbers[4]
        return np.log((1.0 - e) * np.exp(log_p) + e / log_p.shape[1]) if e else log_p


def log_softmax(logits: Array) -> Array:
    """Logarithms of the softmax of rows [N, n].

    Examples
    --------
    >>> log_softmax(np.zeros((1, 2))).round(3)
    array([[-0.693, -0.693]])
    """
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=1, keepdims=True))


def shifted_exponentials(logits: Array) -> tuple[Array, Array]:
    """Subtract from rows [N, n] their largest, in place, and return the exponentials and their sums [N, 1].

    Examples
    --------
    >>> shifted_exponentials(np.full((1, 2), 5.0))[1]
    array([[2.]])
    """
    logits -= logits.max(axis=1, keepdims=True)
    p = np.exp(logits)
    return p, p.sum(axis=1, keepdims=True)


def log_softplus(x: Array) -> Array:
    """log log(1 + exp(x)), linear below -30.

    Examples
    --------
    >>> log_softplus(np.array([-50.0, 0.0])).round(3)
    array([-30.   ,  -0.367])
    """
    return np.log(np.logaddexp(0.0, np.maximum(x, LOWEST)))


class _Curve:
    """a s + g log softplus(t s + c) as weights, not negative, of two curves that rise between two scores."""

    def __init__(self, scores: Array, t: float, c: float, e: float) -> None:
        self.t, self.c, self.e = t, c, e
        ends = np.maximum(t * np.array([scores.min(), scores.max()]) + c, LOWEST)
        self._steepest, self._flattest = t * expit(ends) / np.logaddexp(0.0, ends)

    def columns(self, scores: Array) -> Array:
        """Two curves at scores [N, n]: one rises to the largest score, where it is flat, the other from the least."""
        logarithms = log_softplus(self.t * scores + self.c)
        return np.stack([logarithms - self._flattest * scores, self._steepest * scores - logarithms])

    def factors(self, early: float, late: float) -> tuple[float, float]:
        """Return a and g of the curves' weights."""
        return self._steepest * late - self._flattest * early, early - late


def _fit_numbers(scores: Array, labels: Array, mistaken: bool) -> list[tuple[float, float, float]]:
    """Fit t and c, together with a, g and the offsets that go with them, without a matrix, to some of the rows.

    Return them with e = 0, and, if labels may be mistaken and the rows are clearly likelier so, with e fitted, too.
    """
    rows = max(_ROWS_OF_NUMBERS, _SCORES_OF_NUMBERS // scores.shape[1])
    some = np.random.default_rng(0).permutation(len(scores))[:rows]
    scores, labels = scores[some], labels[some]
    n, totals = scores.shape[1], labels.sum(axis=1, keepdims=True)
    mean, deviation = np.zeros(4 + n), np.full(4 + n, _OFFSET_DEVIATION)
    mean[:4], deviation[:4] = _PRIOR_MEAN, _PRIOR_DEVIATION

    def objective(values: Array) -> tuple[float, Array]:
        (a, g, log_t, c), offset = values[:4], values[4 : 4 + n]
        e = values[4 + n] if len(values) > 4 + n else 0.0
        t = np.exp(log_t)
        u = np.maximum(t * scores + c, LOWEST)
        logarithm = log_softplus(u)
        loss, G, by_noise = _loss(a * scores + g * logarithm + offset, labels, totals, e)
        inner = g * G * expit(u) * np.exp(-logarithm)
        numbers = [np.vdot(G, scores), np.vdot(G, logarithm), t * np.vdot(inner, scores), inner.sum()]
        away = (values[: 4 + n] - mean) / deviation
        gradient = np.append(np.concatenate([numbers, G.sum(axis=0)]) + away / deviation, by_noise)
        return loss + 0.5 * float(np.vdot(away, away)), gradient[: len(values)]

    start = np.concatenate([[3.0, 1.0], _PRIOR_MEAN[2:], np.zeros(n)])
    unit = 1.0 / np.sqrt(deviation**-2.0 + 0.1 * len(scores) / n)
    plain = _minimize(objective, start, unit, 1e-6)
    found = [np.append(plain, 0.0)]
    if mistaken:
        bounds = [(None, None)] * len(start) + [_NOISE_BOUNDS]
        noisy = _minimize(objective, np.append(plain, 0.02), np.append(unit, 0.05), 1e-6, bounds)
        if objective(noisy)[0] < objective(plain)[0] - _EVIDENCE:
            found.append(noisy)
    return [(float(np.exp(values[2])), float(values[3]), float(values[-1])) for values in found]


def _loss(logits: Array, labels: Array, totals: Array, noise: float) -> tuple[float, Array, float]:
    """Negative log-likelihood of labels [N, n] under (1 - e) softmax + e / n, its derivatives by logits and by e.

    ``totals`` [N, 1] are the sums of the labels' rows; logits are overwritten.
    """
    p, normalizers = shifted_exponentials(logits)
    p /= normalizers
    if noise == 0.0:
        loss = float(np.vdot(totals, np.log(normalizers)) - np.vdot(labels, logits))
        p *= totals
        p -= labels
        return loss, p, 0.0
    n = labels.shape[1]
    q = (1.0 - noise) * p + noise / n
    likely = labels * (1.0 - noise) * p / q
    by_noise = float(np.vdot(labels, (p - 1.0 / n) / q))
    return -float(np.vdot(labels, np.log(q))), likely.sum(axis=1, keepdims=True) * p - likely, by_noise


class _Affine:
    """Penalized likelihood, which is convex for e = 0, of weights of two columns [N, n], offsets [n] and R [n, r]."""

    def __init__(self, columns: Array, projected: Array, labels: Array, noise: float) -> None:
        self._columns, self._projected, self._labels, self._noise = columns, projected, labels, noise
        self._totals = labels.sum(axis=1, keepdims=True)
        self.num_classes, self._r = labels.shape[1], projected.shape[1]

    def spread(self, share: float | None = None) -> "_Affine":
        """Return the likelihood with a share of the labels spread over all classes, by default that of `_EVEN_ROWS`."""
        share = _EVEN_ROWS / (_EVEN_ROWS + float(self._totals.sum())) if share is None else share
        labels = (1.0 - share) * self._labels + share * self._totals / self.num_classes
        return _Affine(self._columns, self._projected, labels, self._noise)

    def evaluate(self, values: Array) -> tuple[float, Array]:
        """Return the negative log-likelihood and its gradient; without R where the values end before it."""
        n = self.num_classes
        logits = np.tensordot(values[:2], self._columns, 1)
        logits += values[2 : 2 + n]
        R = values[2 + n :].reshape(-1, self._r)
        if len(R):
            logits += self._projected @ R.T
        loss, G, _ = _loss(logits, self._labels, self._totals, self._noise)
        parts = [np.tensordot(self._columns, G, 2), G.sum(axis=0)]
        if len(R):
            parts.append((G.T @ self._projected).ravel())
        return loss, np.concatenate(parts)

    def solve(self, penalty: float, start: Array | None = None) -> Array:
        """Minimize the penalized loss; an infinite penalty allows no R."""
        n, r = self.num_classes, self._r
        size = 2 + n + (n * r if np.isfinite(penalty) else 0)
        values = np.zeros(size)
        values[:2] = 1.0
        if start is not None:
            values[: len(start)] = start
        precision, rows = np.empty(size), len(self._totals)
        precision[:2], precision[2 : 2 + n], precision[2 + n :] = (
            _WEIGHT_DEVIATION**-2.0,
            _OFFSET_DEVIATION**-2.0,
            2.0 * penalty,
        )
        # Steps are in units of the curvature, so that they are alike in all directions.
        curvature = np.full(size, 0.3 * rows / n)
        if np.isfinite(penalty):
            curvature[2 + n :] = np.tile(0.3 / n * np.sum(np.square(self._projected), axis=0), n)
        curvature[:2] = 0.1 * rows

        def objective(values: Array) -> tuple[float, Array]:
            loss, gradient = self.evaluate(values)
            return loss + 0.5 * float(np.vdot(precision * values, values)), gradient + precision * values

        bounds = [(0.0, None)] * 2 + [(None, None)] * (size - 2)
        return _minimize(objective, values, 1.0 / np.sqrt(precision + curvature), 1e-6, bounds)

    def minimize(self, penalty: float) -> tuple[Array, Array, Array]:
        """Return the weights of the two columns, the offsets [n] and R [n, r]."""
        n, r = self.num_classes, self._r
        values = self.solve(penalty)
        R = values[2 + n :].reshape(n, r) if np.isfinite(penalty) else np.zeros((n, r))
        return values[:2], values[2 : 2 + n], R


def _choose_penalty(
    parts: list[tuple[_Affine, _Affine]], penalties: Sequence[float], starts: Sequence[Array | None]
) -> tuple[float, float, list[Array]]:
    """Choose the penalty under which folds are likeliest, given the likelihoods of the other and of the fold's rows.

    Also return the folds' negative log-likelihood, and the solutions for the other rows; the first is sought from
    ``starts``.
    """
    best, chosen, worse = np.inf, penalties[0], 0
    kept: list[Array] = []
    for penalty in penalties:
        values = [others.solve(penalty, start) for (others, _), start in zip(parts, starts, strict=True)]
        total = sum([held.evaluate(value)[0] for (_, held), value in zip(parts, values, strict=True)])
        starts = values
        if total < best:
            best, chosen, kept, worse = total, penalty, values, 0
        else:
            worse += 1
        if worse == 2:
            break
    return chosen, best, kept


def _minimize(
    objective: Callable[[Array], tuple[float, Array]],
    start: Array,
    unit: Array,
    ftol: float,
    bounds: Sequence[tuple[float | None, float | None]] | None = None,
) -> Array:
    """Minimize in units of the curvature."""

    def scaled(values: Array) -> tuple[float, Array]:
        loss, gradient = objective(values * unit)
        return loss, gradient * unit

    if bounds:
        bounds = [(low and low / u, high and high / u) for (low, high), u in zip(bounds, unit, strict=True)]
    options = {"maxiter": 200, "ftol": ftol}
    return minimize(scaled, start / unit, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x * unit


def _leading_directions(scores: Array, rank: int) -> Array:
    """Orthonormal directions [n, r] of the scores' largest second moments."""
    _, vectors = np.linalg.eigh(scores.T @ scores)
    return vectors[:, ::-1][:, :rank]
