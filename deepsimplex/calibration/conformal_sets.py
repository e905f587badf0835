"""Split conformal prediction: sets of classes that hold the true one with a guaranteed frequency."""

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.parameters import Fitted
from deepsimplex._utils.portable_operations import precise_dtype
from deepsimplex._utils.validation import (
    check_choice,
    check_flag,
    check_labels_and_probabilities,
    check_number,
    check_probabilities,
    check_whole,
)
from deepsimplex.latent import is_tensor

ConformalMethod = Literal["lac", "aps", "raps"]


@keras.saving.register_keras_serializable(package="deepsimplex")
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

    Attributes
    ----------
    thresholds_ : ndarray, shape [1] or [n]
        Largest scores in the sets; one for each class with ``by_class``.

    Raises
    ------
    ValueError
        For a coverage outside of (0, 1) or another method; by ``fit`` for fewer samples than coverage / (1 - coverage),
        of every class with ``by_class``.

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

    fitted_attributes = ("thresholds_",)
    thresholds_: NDArray[np.float64]

    def __init__(
        self,
        coverage: float = 0.9,
        method: ConformalMethod = "lac",
        by_class: bool = False,
        penalty: float = 0.01,
        free_classes: int = 5,
        seed: int = 0,
    ) -> None:
        self.coverage = check_number(coverage, "coverage", 0, below=1)
        self.method = check_choice(method, "method", get_args(ConformalMethod))
        self.by_class = check_flag(by_class, "by_class")
        self.penalty = check_number(penalty, "penalty", least=0)
        self.free_classes = check_whole(free_classes, "free_classes", 0)
        self.seed = check_whole(seed, "seed", 0)

    def fit(self, p: ArrayLike, y: ArrayLike, *, classes: Sequence[Any] | None = None) -> "ConformalSets":
        """Fit the thresholds to class probabilities [N, n] of held-out samples and their labels [N].

        The samples must not have been used to train, nor to calibrate, the classifier. Labels are numbers 0..n-1, or
        names that ``classes`` holds, the name of each column of ``p``.
        """
        labels, probabilities = check_labels_and_probabilities(y, p, classes)
        scores = self._scores(tf.constant(probabilities, tf.float64)).numpy()
        true_class_scores = scores[np.arange(len(labels)), labels]
        groups = {"": true_class_scores}
        if self.by_class:
            groups = {f" of class {k}": true_class_scores[labels == k] for k in range(probabilities.shape[1])}
        self.thresholds_ = np.array([self._threshold(group, name) for name, group in groups.items()])
        return self

    def _threshold(self, scores: NDArray[np.float64], group: str) -> float:
        """Return the threshold of scores [m]; ``group`` names their class in the message."""
        m = len(scores)
        smallest = math.ceil((m + 1) * self.coverage - 1e-9)  # 0.9 * 10 is 9, not 10
        if smallest > m:
            raise ValueError(
                f"y must hold at least {least_samples(self.coverage)} samples{group} for coverage = {self.coverage:g}; "
                f"found {m}. Hold out more, or lower the coverage"
            )
        return float(np.partition(scores, smallest - 1)[smallest - 1])

    def predict(self, p: Any) -> Any:
        """Return the sets of class probabilities.

        Parameters
        ----------
        p : array_like or tensor, shape [N, n]
            Arrays are checked; tensors are not, and may be symbolic.

        Returns
        -------
        ndarray or tensor of bool, shape [N, n]
            Whether each class is in the set. Sets of "lac" may be empty: no class is as likely as those of the held-out
            samples were.
        """
        self._check_fitted()
        if not is_tensor(p):
            return self.predict(tf.constant(check_probabilities(p))).numpy()
        if self.by_class and p.shape[1] != len(self.thresholds_):
            raise ValueError(f"p must have shape [N, {len(self.thresholds_)}], as in fit; found {tuple(p.shape)}")
        dtype = precise_dtype()
        # Round-off of probabilities in single precision must not leave out the sample that made the threshold.
        slack = 4.0 * float(np.finfo(p.dtype.as_numpy_dtype).eps)
        return self._scores(tf.cast(p, dtype)) <= tf.constant(self.thresholds_ + slack, dtype)

    def _scores(self, p: Any) -> Any:
        """Compute nonconformity scores [N, n] of all classes."""
        if self.method == "lac":
            return 1.0 - p
        order = tf.argsort(p, axis=-1, direction="DESCENDING", stable=True)
        rank = tf.argsort(order, axis=-1)
        down_to = tf.cumsum(tf.gather(p, order, batch_dims=1), axis=-1)
        scores = tf.gather(down_to, rank, batch_dims=1) - self._uniform(p) * p
        if self.method == "raps":
            scores += self.penalty * tf.cast(tf.maximum(rank + 1 - self.free_classes, 0), p.dtype)
        return scores

    def _uniform(self, p: Any) -> Any:
        """Compute pseudo-random numbers [N, 1] in [0, 1): fractional parts of weighted sums of the probabilities."""
        weights = np.random.default_rng(self.seed).uniform(1e3, 1e4, p.shape[-1])
        total = tf.linalg.matvec(p, tf.constant(weights, p.dtype))[:, tf.newaxis]
        return total - tf.floor(total)


def least_samples(coverage: float) -> int:
    """Return the number of held-out samples that sets of a coverage need at least.

    Examples
    --------
    >>> least_samples(0.9)
    9
    """
    return math.ceil(coverage / (1.0 - coverage) - 1e-9)
