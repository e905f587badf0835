"""Learning Vector Quantization by Hebbian steps as scikit-learn classifiers: LVQ1 and LVQ2."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from deepsimplex._utils.validation import check_number, check_whole
from deepsimplex.estimators.prototype_classifier import Algorithm, PrototypeClassifier
from deepsimplex.prototypes import fit_lvq


@dataclass(eq=False, repr=False, kw_only=True)
class LVQ1(PrototypeClassifier):
    """Learning Vector Quantization: samples attract prototypes of their class and repel others, one by one.

    Parameters
    ----------
    prototypes_per_class : int
        A class with fewer distinct samples gets as many as those. Default 1.
    initialization : {"means", "samples", "k-means++"}
        See ``deepsimplex.prototypes.initial_prototypes``. Default "means", less sensitive to outliers than
        samples, which the thesis draws.
    learning_rate : float
        Initial step, as a fraction of the way to a sample, at most 1. Default 0.05.
    decay : bool
        Whether the learning rate decreases linearly to zero, so that prototypes converge. Default True; the thesis
        keeps 0.01 for 250 epochs.
    max_iter : int
        Number of epochs, passes over the training samples. Default 100.
    scale_features : bool
        Whether to scale features to unit standard deviation. Default True, since distances are sums over features.
    class_weight : dict or "balanced", optional
        Weights of the classes by name, 1 for those that are left out, times those of the samples; "balanced": inversely
        proportional to the numbers of samples, as in scikit-learn. Default None: all samples alike.
    classes : array_like, shape [n], optional
        All classes, if y may lack some. Default: those of y.
    random_state : int, numpy.random.RandomState or None
        Seed of the initialization and of the order of the samples. Default 0: the same data give the same classifier.

    Attributes
    ----------
    classes_ : ndarray, shape [n]
    prototypes_ : ndarray, shape [P, d]
        In the units of the features.
    prototype_labels_ : ndarray, shape [P]
    wins_ : ndarray, shape [P]
        Number of training samples to which each prototype is the nearest.
    temperature_ : float
    objective_ : float
        Number of misclassified training samples, or their total weight.
    n_iter_ : int
    n_features_in_ : int

    Notes
    -----
    [GPLVQ Eq. 3.1]. LVQ has no probabilities of its own. They are softmax(-mu / T) of the relative distances mu that
    GLVQ minimizes, with the temperature T of largest likelihood for the smoothed training labels. The likeliest class
    is that of the nearest prototype; far from all prototypes all classes are about equally likely.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = LVQ1(prototypes_per_class=2).fit(X[::2], y[::2])
    >>> bool(classifier.score(X[1::2], y[1::2]) > 0.85)
    True
    """

    learning_rate: float = 0.05
    decay: bool = True
    max_iter: int = 100

    def _algorithm(self, num_features: int, rng: np.random.Generator) -> Algorithm:
        return _lvq(self, rng)


@dataclass(eq=False, repr=False, kw_only=True)
class LVQ2(PrototypeClassifier):
    """LVQ1 in which a misclassified sample also attracts the nearest prototype of its class.

    Parameters
    ----------
    prototypes_per_class, initialization, learning_rate, decay, max_iter, scale_features, class_weight, classes
    random_state
        See ``LVQ1``.
    window : float, optional
        Above 0, at most 1: a misclassified sample moves prototypes only if the ratio of its distances to them is at
        least (1 - window) to (1 + window). Default: always, as in the thesis.

    Attributes
    ----------
    classes_, prototypes_, prototype_labels_, wins_, temperature_, objective_, n_iter_, n_features_in_
        See ``LVQ1``.

    Notes
    -----
    [GPLVQ ch. 3], whose LVQ2 is LVQ1 with that addition. Kohonen's has the window and moves nothing for samples that
    are classified correctly. Probabilities: see ``LVQ1``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = LVQ2(prototypes_per_class=2).fit(X[::2], y[::2])
    >>> bool(classifier.score(X[1::2], y[1::2]) > 0.85)
    True
    """

    window: float | None = None
    learning_rate: float = 0.05
    decay: bool = True
    max_iter: int = 100

    def _algorithm(self, num_features: int, rng: np.random.Generator) -> Algorithm:
        if self.window is not None:
            check_number(self.window, "window, unless it is None,", 0.0, 1.0)
        return partial(_lvq(self, rng), also_correct=True, window=self.window)


def _lvq(classifier: LVQ1 | LVQ2, rng: np.random.Generator) -> Algorithm:
    check_number(classifier.learning_rate, "learning_rate", 0.0, 1.0)
    check_whole(classifier.max_iter, "max_iter", 0)
    settings: dict[str, Any] = {name: getattr(classifier, name) for name in ("learning_rate", "decay", "max_iter")}
    return partial(fit_lvq, **settings, rng=rng)
