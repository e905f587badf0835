"""Slow oracles of ``deepsimplex.distances``: loops and scikit-image."""

import numpy as np
from skimage.metrics import structural_similarity


def euclidean(a, b):
    return float(np.sqrt(np.sum((np.asarray(a, np.float64) - np.asarray(b, np.float64)) ** 2)))


def cityblock(a, b):
    return float(np.sum(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64))))


def ssim(window, data_range=1.0):
    """1 - SSIM of two images, [H, W] or [H, W, C], in float64."""

    def distance(a, b):
        return 1.0 - structural_similarity(
            np.asarray(a, np.float64),
            np.asarray(b, np.float64),
            win_size=window,
            data_range=data_range,
            channel_axis=-1 if np.ndim(a) == 3 else None,
        )

    return distance


def pairwise(distance, X, Y):
    return np.array([[distance(a, b) for b in Y] for a in X]).reshape(len(X), len(Y))


def class_neighbors(D, y, num_classes, k, itself, positive_class=None):
    """Neighbors by sorting every row of a matrix of distances D [M, N], lowest index first among ties.

    ``itself`` [M] is the column that is the row's own sample, or None; ``positive_class`` [M] the class in which zero
    distances do not count, or None.
    """
    distances = np.full((len(D), num_classes, k), np.inf)
    indices = np.full((len(D), num_classes, k), -1)
    for i, row in enumerate(D):
        for label in range(num_classes):
            candidates = [j for j in range(len(y)) if y[j] == label and (itself is None or j != itself[i])]
            if positive_class is not None and positive_class[i] == label:
                candidates = [j for j in candidates if row[j] > 0]
            for place, j in enumerate(sorted(candidates, key=lambda j: (row[j], j))[:k]):
                distances[i, label, place] = row[j]
                indices[i, label, place] = j
    return distances, indices
