"""Scores S f of a latent point f: their moments under a latent Gaussian, and the decision function of two classes."""

import math
from collections.abc import Hashable
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.portable_operations import diag_part
from deepsimplex._utils.validation import check_array
from deepsimplex.geometry import vertices
from deepsimplex.latent import LatentGaussian

LARGEST = 1e100
"""Largest score of a class, whose squares do not overflow."""
MANY_CLASSES = 64
"""From this number of classes on, time and memory that grow with its square, or with nodes for each, are avoided."""


def check_scores(scores: ArrayLike | None) -> NDArray[np.float64] | None:
    """Return a score matrix [n, L], n >= 2, as float64; None, which stands for the vertices, as it is."""
    if scores is None:
        return None
    matrix = check_array(scores, "scores", "[n, L]", least=2)
    if (largest := np.abs(matrix).max(initial=0.0)) > LARGEST:
        raise ValueError(
            f"scores must lie between -{LARGEST:g} and {LARGEST:g}, so that their squares are finite; found "
            f"{largest:g} in size"
        )
    return matrix


class Scores:
    """The score matrix S: class y scores ``S[y] . f`` at a latent point f.

    Parameters
    ----------
    scores : ndarray, shape [n, L], or None
        P, tau P, V^T or I, or any other real matrix, as ``check_scores`` returns it. None stands for the vertices P.
    latent_dim : int
        L, the number of latent dimensions.

    Attributes
    ----------
    matrix : ndarray, shape [n, L]
    num_classes : int
        n.
    centered : ndarray, shape [n, L]
        S minus its mean row: a shift common to all classes changes neither argmax nor softmax.
    """

    def __init__(self, scores: NDArray[np.float64] | None, latent_dim: int) -> None:
        self.matrix = vertices(latent_dim + 1) if scores is None else scores
        if self.matrix.shape[1] != latent_dim:
            raise ValueError(
                f"scores must have shape [n, L] with the L = {latent_dim} of the latent; found {self.matrix.shape}"
            )
        self.num_classes = len(self.matrix)
        self.centered = self.matrix - self.matrix.mean(axis=0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scores) and np.array_equal(self.matrix, other.matrix)

    def __hash__(self) -> int:
        return hash((self.matrix.shape, self.matrix.tobytes()))

    @cached_property
    def independent_variance(self) -> float | None:
        """The alpha of S S^T = alpha I + beta 11^T, or None if the Gram matrix has another form.

        Under isotropic noise of variance s^2 the scores then equal, up to a shift common to all of them, independent
        Gaussians of variance alpha s^2: the vertices have alpha = n/(n-1), V^T and I have alpha = 1.
        """
        n = self.num_classes
        if self._staircase is not None:  # whose columns are orthogonal if they sum to zero, as they do here
            squares = np.sum(np.square(self.centered), axis=0)
            return float(squares[0]) if np.allclose(squares, squares[0], rtol=1e-6, atol=0.0) else None
        gram = self.centered @ self.centered.T
        alpha = float(np.trace(gram)) / (n - 1)
        simplex = alpha * (np.eye(n) - 1.0 / n)
        return alpha if alpha > 0 and np.allclose(gram, simplex, rtol=0.0, atol=1e-6 * alpha) else None

    @cached_property
    def identity_factor(self) -> float | None:
        """The c of S = c I, c > 0, or None: then independent latent components are independent scores."""
        n, dims = self.matrix.shape
        if n != dims or self.matrix[0, 0] <= 0:
            return None
        factor = float(self.matrix[0, 0])
        return factor if np.allclose(self.matrix, factor * np.eye(n), rtol=0.0, atol=1e-6 * factor) else None

    @cached_property
    def _staircase(self) -> tuple[NDArray[np.float64], NDArray[np.float64], bool] | None:
        """Diagonal d and constants b [n - 1] of S = diag(d) above a row of zeros, plus b_l in all of column l below it.

        The vertices have this form, and the Helmert basis with the order of rows and columns reversed (True). None for
        scores of another form, and for few classes, whose product with the matrix takes no time.
        """
        n, dims = self.matrix.shape
        if n < MANY_CLASSES or dims != n - 1:
            return None
        for flipped in (False, True):
            S = self.centered[::-1, ::-1] if flipped else self.centered
            d, b = S.diagonal(), S[-1]
            # The last row is below the diagonal in every column.
            expected = np.tril(np.broadcast_to(b, S.shape), k=-1)
            expected[range(dims), range(dims)] = d
            if np.allclose(S, expected, rtol=0.0, atol=1e-12 * np.abs(S).max()):
                return (d[::-1], b[::-1], True) if flipped else (d, b, False)
        return None

    def independent_moments(self, loc: Any, scale: Any) -> tuple[Any, Any]:
        """Means [N, n] and standard deviations [N, 1] or [N, n] of independent scores."""
        if scale.shape[-1] == 1:
            assert self.independent_variance is not None
            return self.mean(loc), self.independent_variance**0.5 * tf.abs(scale)
        assert self.identity_factor is not None
        return self.identity_factor * loc, self.identity_factor * tf.abs(scale)

    def moments(self, loc: Any, scale: Any) -> tuple[Any, Any]:
        """Means [N, n] of the centered scores, and the factor G [N, n, L] of their covariance G G^T."""
        S = tf.constant(self.centered, scale.dtype)
        if len(scale.shape) == 2:
            factor = S * scale[:, tf.newaxis, :]
        else:
            factor = tf.matmul(S, tf.linalg.band_part(scale, -1, 0))
        return self.mean(loc), factor

    def mean_variance(self, scale: Any) -> Any:
        """Mean variance of the scores [N, 1], of independent ones under one variance, without their covariance."""
        if len(scale.shape) == 2:  # broadcast: a single standard deviation is that of all dimensions
            squares = np.sum(np.square(self.centered), axis=0) / (self.num_classes - 1)
            return tf.reduce_sum(tf.square(scale) * tf.constant(squares, scale.dtype), axis=-1, keepdims=True)
        gram = self.centered.T @ self.centered / (self.num_classes - 1)
        factor = tf.linalg.band_part(scale, -1, 0)
        products = factor * tf.matmul(tf.constant(gram, scale.dtype), factor)
        return tf.reduce_sum(products, axis=[1, 2])[:, tf.newaxis]

    def mean(self, loc: Any) -> Any:
        """Mean scores minus their mean over classes, shape [N, n]."""
        if self._staircase is None:
            return tf.matmul(loc, tf.constant(self.centered.T, loc.dtype))
        d, b, flipped = self._staircase
        n, size = self.num_classes, math.isqrt(self.num_classes)
        blocks = -(-n // size)
        on_diagonal = tf.pad(loc * tf.constant(d, loc.dtype), [[0, 0], [1, 0] if flipped else [0, 1]])
        # Sums of b_l f_l over the columns before each row (from it on, if flipped), in blocks and over whole blocks.
        below = tf.pad(loc * tf.constant(b, loc.dtype), [[0, 0], [0, blocks * size - n + 1]])
        below = tf.reshape(below, [-1, blocks, size])
        inside, across = (np.tril(np.ones((k, k))) if flipped else np.triu(np.ones((k, k)), 1) for k in (size, blocks))
        across -= np.eye(blocks) if flipped else 0.0
        whole = tf.matmul(tf.reduce_sum(below, axis=2), tf.constant(across, loc.dtype))
        parts = tf.matmul(tf.reshape(below, [-1, size]), tf.constant(inside, loc.dtype))
        sums = tf.reshape(parts, [-1, blocks, size]) + whole[:, :, tf.newaxis]
        return on_diagonal + tf.slice(tf.reshape(sums, [-1, blocks * size]), [0, 0], [-1, n])


def difference(mean: Any, factor: Any) -> tuple[Any, Any]:
    """Mean and variance, both [N, 1], of the first score minus the second, from the moments of the scores."""
    variance = tf.reduce_sum(tf.square(factor[:, 0] - factor[:, 1]), axis=-1, keepdims=True)
    return mean[:, :1] - mean[:, 1:2], variance


def noise_floor(mean: Any) -> Any:
    """Smallest standard deviation of a score above round-off, shape [N, 1].

    Scores closer to one another than this (6e-6 of the largest in float32, 2e-12 in float64) count as tied. With this
    floor, values and gradients stay finite at scale zero.
    """
    numbers = np.finfo(mean.dtype.as_numpy_dtype)
    largest = tf.reduce_max(tf.abs(mean), axis=-1, keepdims=True)
    return tf.stop_gradient(float(numbers.eps) ** 0.75 * largest + float(numbers.tiny) ** 0.25)


def score_covariance(mean: Any, factor: Any) -> Any:
    """Covariance of the scores [N, n, n] from its factor [N, n, L], with noise added that makes it positive definite.

    Independent noise on every score, as small as possible, makes the Cholesky factor of a singular covariance exist: it
    exceeds the round-off of the products, which is relative to the largest variance.
    """
    covariance = tf.matmul(factor, factor, transpose_b=True)
    variances = diag_part(covariance)
    eps = float(np.finfo(mean.dtype.as_numpy_dtype).eps)
    largest = tf.stop_gradient(tf.reduce_max(variances, axis=-1, keepdims=True))
    jitter = tf.square(noise_floor(mean)) + 4.0 * mean.shape[-1] * eps * largest
    # Not set_diag, whose gradient XLA cannot compile for batches of any size.
    return covariance + jitter[:, :, tf.newaxis] * tf.eye(mean.shape[-1], dtype=mean.dtype)


def decision_function(latent: LatentGaussian | dict[str, Any], j: int, k: int, scores: ArrayLike | None = None) -> Any:
    """Signed distance of the latent means from the boundary between classes j and k, positive on j's side.

    Parameters
    ----------
    latent : LatentGaussian or dict
        Latents, in NumPy arrays or tensors; only ``loc`` matters.
    j, k : int
        Two different classes in 0..n-1.
    scores : array_like, shape [n, L], optional
        Scores S; None stands for the vertices.

    Returns
    -------
    ndarray or tensor, shape [N]
        loc . (s_j - s_k) / ||s_j - s_k|| [CASIMAC Eq. 40], in latent units.

    Raises
    ------
    ValueError
        When j or k is not a class, or both have the same scores.

    Examples
    --------
    >>> import numpy as np
    >>> decision_function({"loc": np.array([[0.3, 0.7]]), "scale": np.ones((1, 1))}, 1, 2)
    array([0.7])
    """
    latent = LatentGaussian.of(latent)
    S = Scores(check_scores(scores), latent.latent_dim).matrix
    for name, value in (("j", j), ("k", k)):
        if not isinstance(value, Hashable) or value not in range(len(S)):
            raise ValueError(f"{name} must be a class in 0..{len(S) - 1}; found {value!r}")
    difference = S[int(j)] - S[int(k)]
    length = np.linalg.norm(difference)
    if length == 0:
        raise ValueError(f"j and k must be classes of different scores; found j = {j}, k = {k}")
    if not latent.holds_tensors:
        return latent.loc @ (difference / length).astype(latent.loc.dtype)
    loc, _ = latent.tensors()
    return tf.linalg.matvec(loc, tf.constant(difference / length, loc.dtype))
