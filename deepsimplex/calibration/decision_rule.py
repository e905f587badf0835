"""Base class of the rules that decide by class probabilities, for a class or for none."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from deepsimplex._utils.array_operations import is_tensor
from deepsimplex._utils.parameters import Fitted
from deepsimplex._utils.validation import check_probabilities


class DecisionRule(Fitted, ABC):
    """Base class of the rules that ``set_decision`` of a classifier takes.

    A subclass defines ``decide_tensor``, in TensorFlow, whose operations take arrays too, so that exports
    have it. A rule that is fitted to held-out
    samples defines ``fit`` and lists what it sets in ``fitted_attributes``. Arguments of the constructor are kept as
    attributes of the same names. Register the class with ``keras.saving.register_keras_serializable``, so that
    classifiers that hold it can be saved.

    Examples
    --------
    The second of two classes from a probability of 0.2 on:

    >>> import tensorflow as tf
    >>> class Threshold(DecisionRule):
    ...     def __init__(self, threshold=0.2):
    ...         self.threshold = threshold
    ...
    ...     def decide_tensor(self, p):
    ...         return tf.cast(p[:, 1] >= self.threshold, tf.int64)
    >>> Threshold().decide([[0.9, 0.1], [0.7, 0.3]])
    array([0, 1])
    """

    @abstractmethod
    def decide_tensor(self, p: Any) -> Any:
        """Return class numbers [N], int64, and -1 for abstentions, of probabilities [N, n], an array or a tensor."""

    def fit(self, p: ArrayLike, y: ArrayLike, *, classes: Sequence[Any] | None = None) -> Self:
        """Return the rule, which depends on no samples unless a subclass fits it to them."""
        return self

    def decide(self, p: Any) -> Any:
        """Decide by class probabilities.

        Parameters
        ----------
        p : array_like or tensor, shape [N, n]
            Arrays are checked; tensors are not, and may be symbolic.

        Returns
        -------
        ndarray or tensor of int64, shape [N]
            Class numbers, and -1 for abstentions.

        Raises
        ------
        NotFittedError
            Before ``fit`` of a rule that needs it.
        ValueError
            For probabilities that are none, or of another number of classes than the rule's.
        """
        self._check_fitted()
        if is_tensor(p):
            return self.decide_tensor(p)
        return np.asarray(self.decide_tensor(check_probabilities(p)))
