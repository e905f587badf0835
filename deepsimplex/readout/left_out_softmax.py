"""Softmax of affine and logarithmic scores, fitted to the latents of left-out samples."""

from typing import Any, Self

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from deepsimplex._utils.portable_operations import softplus
from deepsimplex.kernels import LeftOutReadout
from deepsimplex.kernels.left_out_readout import LOWEST
from deepsimplex.latent import LatentGaussian
from deepsimplex.readout.layers import Readout
from deepsimplex.readout.left_out_latents import LeftOutLatents
from deepsimplex.readout.score_matrix import Scores


@keras.saving.register_keras_serializable(package="deepsimplex")
class LeftOutSoftmax(Readout):
    """Class probabilities (1 - e) softmax(a s + g log softplus(t s + c) + A s + b) + e / n of the scores s = S mu.

    mu is the mean of the latents, and e the share of the training labels that tell nothing, as mistaken ones.

    Its numbers are weights, which are not trained: ``adapt`` fits them to left-out latents, so that probabilities are
    calibrated without held-out samples. The variance of the latents does not enter: given the mean it does not predict
    errors of left-out samples. Until then probabilities are softmax(s).

    Parameters
    ----------
    scores : array_like, shape [n, L], optional
        Scores S; None stands for the vertices, L = n - 1.
    num_points : int, optional
        Sobol points of ``intervals``.
    seed : int
    **kwargs
        Arguments of keras.layers.Layer.

    Examples
    --------
    >>> latent = {"loc": np.array([[1.0, 0.0]], "float32"), "scale": np.array([[0.1]], "float32")}
    >>> LeftOutSoftmax()(latent).numpy().round(2)
    array([[0.69, 0.15, 0.15]], dtype=float32)
    """

    uses_scale = False

    def build(self, input_shape: dict[str, Any]) -> None:
        """Create the weights."""
        n = Scores(self.scores, input_shape["loc"][-1]).num_classes
        start = np.array([1.0, 0.0, 1.0, 0.0, 0.0])
        options = {"dtype": "float32", "autocast": False, "trainable": False}
        self.numbers = self.add_weight((5,), lambda *_, **__: start, name="numbers", **options)
        self.offset = self.add_weight((n,), "zeros", name="offset", **options)
        self.matrix = self.add_weight((n, n), "zeros", name="matrix", **options)
        self.built = True

    def adapt(self, left_out: LeftOutLatents) -> Self:
        """Fit the weights to latents of left-out samples, as ``heads.ClosedFormHead.solve`` returns them."""
        self._fit(left_out)
        return self

    @property
    def label_noise(self) -> float:
        """Share e of the training labels that tell nothing, as those mistaken at random; 0 without evidence for it.

        Examples
        --------
        >>> LeftOutSoftmax().label_noise  # of a readout that is not fitted
        0.0
        """
        return float(self.numbers[4]) if self.built else 0.0

    def cross_fit(self, left_out: LeftOutLatents) -> NDArray[np.float64]:
        """Adapt, and return log class probabilities [N, n] of the left-out samples.

        Those of a sample in a fold are by weights that are fitted anew without the fold, so that they are not more
        likely than those of new samples.
        """
        fitted, scores, folds = self._fit(left_out)
        log_p, labels, mistaken = fitted.log_probabilities(scores), left_out.labels, self.label_noise > 0.0
        for others, _, is_held in folds:
            readout = LeftOutReadout.fit(others, labels[~is_held], penalties=[fitted.penalty], mistaken=mistaken)
            log_p[is_held] = readout.log_probabilities(scores[is_held])
        return log_p

    def _fit(self, left_out: LeftOutLatents) -> tuple[LeftOutReadout, Any, list[tuple[Any, Any, NDArray[np.bool_]]]]:
        """Fit the weights; also return what they are, the scores [N, n], and those of the folds."""
        if not isinstance(left_out, LeftOutLatents):
            raise TypeError(f"left_out must be LeftOutLatents, as ClosedFormHead.solve returns; found {left_out!r:.80}")
        loc = left_out.loc
        if not self.built:
            self.build({"loc": (None, loc.shape[1])})
        S = Scores(self.scores, loc.shape[1]).matrix.T
        scores, folds = loc @ S, [(others @ S, held @ S, is_held) for others, held, is_held in left_out.folds]
        fitted = LeftOutReadout.fit(scores, left_out.labels, folds)
        for weight, value in zip(
            (self.numbers, self.offset, self.matrix), (fitted.numbers, fitted.offset, fitted.matrix), strict=True
        ):
            weight.assign(value)
        return fitted, scores, folds

    def add_classes(self, classes: NDArray[np.int64]) -> Self:
        """Give classes, by number, the mean offset of the others: their own is that of classes without samples."""
        offset = np.asarray(self.offset).copy()
        offset[classes] = np.delete(offset, classes).mean()
        self.offset.assign(offset)
        return self

    def call(self, latent: dict[str, Any], training: bool | None = None) -> Any:
        """Compute class probabilities [N, n], float32, or float64 for a float64 latent."""
        return self.class_probabilities(LatentGaussian.of(latent).tensors()[0])

    def log_probabilities(self, latent: dict[str, Any]) -> Any:
        """Logarithms of the class probabilities [N, n]."""
        logits = self._logits(LatentGaussian.of(latent).tensors()[0])
        with_noise = ops.log(ops.maximum(self._probabilities(logits), 1e-30))
        return ops.where(self.numbers[4] > 0.0, with_noise, ops.log_softmax(logits, axis=-1))

    def class_probabilities(self, points: Any) -> Any:
        """Class probabilities [..., n] at latent points [..., L]."""
        return self._probabilities(self._logits(points))

    def _probabilities(self, logits: Any) -> Any:
        p = ops.softmax(logits, axis=-1)
        e = ops.cast(self.numbers[4], p.dtype)
        return (1.0 - e) * p + e / p.shape[-1]

    def _logits(self, points: Any) -> Any:
        scores = self.score(points)
        numbers, offset, matrix = (ops.cast(w, scores.dtype) for w in (self.numbers, self.offset, self.matrix))
        logarithms = ops.log(softplus(ops.maximum(numbers[2] * scores + numbers[3], LOWEST)))
        affine = ops.matmul(scores, ops.transpose(matrix)) + offset
        return numbers[0] * scores + numbers[1] * logarithms + affine
