"""Slow oracles of the evaluation room, one sample at a time."""

import itertools
import math

import numpy as np


def expected_calibration_error(y: np.ndarray, p: np.ndarray, bins: int, weights: np.ndarray | None = None) -> float:
    """math.md sections 6 and 8: right-closed bins of equal width, the first closed at 0."""
    samples, n = p.shape
    weights = np.ones(samples) if weights is None else weights
    confidences, events = [], []
    for i in range(samples):
        if n == 2:
            confidences.append(float(p[i, 1]))
            events.append(float(y[i] == 1))
        else:
            best = max(range(n), key=lambda k: (p[i, k], -k))
            confidences.append(float(p[i, best]))
            events.append(float(y[i] == best))
    error = 0.0
    for b in range(bins):
        inside = [
            i for i in range(samples) if b / bins < confidences[i] <= (b + 1) / bins or (b == 0 and confidences[i] == 0)
        ]
        error += abs(sum(weights[i] * (confidences[i] - events[i]) for i in inside))
    return error / float(sum(weights))


def top_k_accuracy(y: np.ndarray, p: np.ndarray, k: int) -> float:
    """Sort the classes of each sample, lower classes first among equals."""
    hits = 0
    for i in range(len(y)):
        order = sorted(range(p.shape[1]), key=lambda c: (-p[i, c], c))
        hits += int(y[i]) in order[:k]
    return hits / len(y)


def negative_log_likelihood(y: np.ndarray, p: np.ndarray) -> float:
    return -sum(math.log(p[i, y[i]]) for i in range(len(y))) / len(y)


def confidences_and_events(y: np.ndarray, p: np.ndarray) -> tuple[list[float], list[float]]:
    """The top label for more than two classes, class 1 for two."""
    if p.shape[1] == 2:
        return [float(q) for q in p[:, 1]], [float(label == 1) for label in y]
    best = [max(range(p.shape[1]), key=lambda k, i=i: (p[i, k], -k)) for i in range(len(y))]
    return [float(p[i, k]) for i, k in enumerate(best)], [float(y[i] == k) for i, k in enumerate(best)]


def filled_bins(confidences: list[float], events: list[float], bins: int) -> list[tuple[int, float, float]]:
    """Samples, mean confidence and frequency of every right-closed bin of equal width that holds samples."""
    filled = []
    for b in range(bins):
        inside = [i for i, c in enumerate(confidences) if b / bins < c <= (b + 1) / bins or (b == 0 and c == 0)]
        if inside:
            share = len(inside)
            filled.append((share, sum(confidences[i] for i in inside) / share, sum(events[i] for i in inside) / share))
    return filled


def adaptive_calibration_error(y: np.ndarray, p: np.ndarray, bins: int) -> float:
    """Deal the samples in order into bins; then every tie joins the first bin that holds one of its confidence."""
    confidences, events = confidences_and_events(y, p)
    samples = len(y)
    order = sorted(range(samples), key=lambda i: confidences[i])
    home: dict[float, int] = {}
    gaps = [0.0] * bins
    for rank, i in enumerate(order, start=1):
        b = next(b for b in range(bins) if rank <= math.ceil(samples * (b + 1) / bins))
        b = home.setdefault(confidences[i], b)
        gaps[b] += confidences[i] - events[i]
    return sum(map(abs, gaps)) / samples


def maximum_calibration_error(y: np.ndarray, p: np.ndarray, bins: int) -> float:
    return max(abs(c - f) for _, c, f in filled_bins(*confidences_and_events(y, p), bins))


def classwise_calibration_error(y: np.ndarray, p: np.ndarray, bins: int) -> float:
    error = 0.0
    for k in range(p.shape[1]):
        curve = filled_bins([float(q) for q in p[:, k]], [float(label == k) for label in y], bins)
        error += sum(count * abs(c - f) for count, c, f in curve) / len(y)
    return error / p.shape[1]


def area_deviation(y: np.ndarray, p: np.ndarray, bins: int, steps: int = 2000) -> float:
    """Each straight piece by the midpoints of many short steps: right to about 1 / steps^2."""
    points = [(0.0, 0.0), *((c, f) for _, c, f in filled_bins(*confidences_and_events(y, p), bins)), (1.0, 1.0)]
    area = 0.0
    for (x0, f0), (x1, f1) in itertools.pairwise(points):
        for step in range(steps):
            t = (step + 0.5) / steps
            area += abs(f0 + t * (f1 - f0) - x0 - t * (x1 - x0)) * (x1 - x0) / steps
    return area


def brier_decomposition(y: np.ndarray, p: np.ndarray, bins: int | None) -> tuple[float, float, float]:
    """Murphy's three terms, class against the rest, in bins or among equal probabilities."""
    samples, n = p.shape
    reliability = resolution = uncertainty = 0.0
    for k in range(n):
        groups: dict[float, list[int]] = {}
        for i in range(samples):
            q = float(p[i, k])
            key = q if bins is None else next(b for b in range(bins) if q <= (b + 1) / bins or b == bins - 1)
            groups.setdefault(key, []).append(i)
        base = sum(label == k for label in y) / samples
        uncertainty += base * (1 - base)
        for members in groups.values():
            mean = sum(float(p[i, k]) for i in members) / len(members)
            frequency = sum(y[i] == k for i in members) / len(members)
            reliability += len(members) / samples * (mean - frequency) ** 2
            resolution += len(members) / samples * (frequency - base) ** 2
    halves = 2 if n == 2 else 1
    return reliability / halves, resolution / halves, uncertainty / halves


def risks(confidences: np.ndarray, wrong: np.ndarray) -> list[float]:
    """Risk at 1..N accepted samples, averaged over every order of the samples that is sorted by confidence."""
    orders = [
        order
        for order in itertools.permutations(range(len(wrong)))
        if all(confidences[a] >= confidences[b] for a, b in itertools.pairwise(order))
    ]
    return [
        sum(sum(bool(wrong[i]) for i in order[:k]) / k for order in orders) / len(orders)
        for k in range(1, len(wrong) + 1)
    ]


def auroc(inside: np.ndarray, outside: np.ndarray) -> float:
    """Every pair of a sample from inside and one from outside."""
    wins = sum(float(b > a) + 0.5 * float(b == a) for a in inside for b in outside)
    return wins / (len(inside) * len(outside))
