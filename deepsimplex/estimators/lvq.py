"""Learning Vector Quantization as scikit-learn classifiers: LVQ1 and LVQ2 by Hebbian steps; GLVQ, GMLVQ and LGMLVQ."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from deepsimplex.estimators.prototype_classifier import PrototypeClassifier
from deepsimplex.prototypes import PrototypeFit, fit_glvq, fit_gmlvq, fit_lvq


@dataclass(eq=False, repr=False, kw_only=True)
class LVQ1(PrototypeClassifier):
    """Learning Vector Quantization: samples attract prototypes of their class and repel others, one by one.

    Parameters
    ----------
    prototypes_per_class : int, mapping or sequence of int
        One number for all classes; numbers by class name, 1 for those that are left out; or one for each of
        ``classes_``, in their order. A class with fewer distinct samples gets as many as those. Default 1.
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
        All classes, if y may lack some, in any order. Default None: those of y.
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

    def _fit_prototypes(self, X: Any, y: Any, W: Any, labels: Any, rng: Any, **options: Any) -> PrototypeFit:
        return fit_lvq(X, y, W, labels, **self._parameters("learning_rate", "decay", "max_iter"), rng=rng, **options)


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

    def _fit_prototypes(self, X: Any, y: Any, W: Any, labels: Any, rng: Any, **options: Any) -> PrototypeFit:
        parameters = self._parameters("window", "learning_rate", "decay", "max_iter")
        return fit_lvq(X, y, W, labels, also_correct=True, **parameters, rng=rng, **options)


@dataclass(eq=False, repr=False, kw_only=True)
class GLVQ(PrototypeClassifier):
    """Generalized LVQ: prototypes that minimize the relative distances of samples to their own class and the others.

    Parameters
    ----------
    prototypes_per_class, initialization, scale_features, class_weight, classes
        See ``LVQ1``.
    activation : {"sigmoid", "linear"}
        Function of the relative distance in the cost. Default "sigmoid": samples near the decision boundary count most.
    steepness : float
        Slope of the sigmoid; with 1 almost linear. Many classes, whose samples are all near a boundary, need more.
        Default 2.
    max_iter : int
        Maximum number of iterations of L-BFGS. Default 200.
    tol : float
        Stop when the relative decrease of the cost is below this. Default 1e-6.
    random_state : int, numpy.random.RandomState or None
        Seed of the initialization, the only random step. Default 0: the same data give the same classifier.

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
        Cost, a sum over the training samples.
    n_iter_ : int
    n_features_in_ : int

    Notes
    -----
    [GPLVQ Eq. 3.2], minimized over all samples at once with the exact gradient instead of sample by sample: repeatable
    and without a learning rate. Probabilities: see ``LVQ1``.

    The cost is a plain sum over samples, and at its minimum a rare class may be ignored: with one sample in a hundred,
    its prototype can be driven out of the data, with a warning. To avoid this, use ``class_weight="balanced"``, a
    larger steepness, which counts such samples in full, more prototypes, or ``GMLVQ``, whose penalty keeps prototypes
    near the class means.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = GLVQ(prototypes_per_class=2).fit(X[::2], y[::2])
    >>> bool(classifier.score(X[1::2], y[1::2]) > 0.85)
    True
    """

    activation: Literal["sigmoid", "linear"] = "sigmoid"
    steepness: float = 2.0
    max_iter: int = 200
    tol: float = 1e-6

    def _fit_prototypes(self, X: Any, y: Any, W: Any, labels: Any, rng: Any, **options: Any) -> PrototypeFit:
        return fit_glvq(X, y, W, labels, **self._parameters("activation", "steepness", "max_iter", "tol"), **options)


@dataclass(eq=False, repr=False, kw_only=True)
class GMLVQ(ClassNamePrefixFeaturesOutMixin, TransformerMixin, PrototypeClassifier):
    """Generalized matrix LVQ: GLVQ that also learns the metric of its distances, ||Omega (x - w)||^2.

    Parameters
    ----------
    prototypes_per_class, initialization, activation, steepness, max_iter, tol, scale_features
    class_weight, classes, random_state
        See ``GLVQ``.
    rank : int, optional
        Number of rows of Omega, at most the number of features: distances are computed from that many linear
        combinations of features. Default: the number of features.
    regularization : float
        Weight, in samples, of the penalties: on directions in which Omega vanishes (without penalty, all but a few do)
        and, with one prototype per class, on the distance of prototypes from the class means. Default 8.

    Attributes
    ----------
    classes_, prototypes_, prototype_labels_, wins_, temperature_, n_iter_, n_features_in_
        See ``GLVQ``.
    omega_ : ndarray, shape [m, d]
        For scaled features; the squares of its entries sum to one.
    relevance_ : ndarray, shape [d]
        Contribution of every feature to distances: the diagonal of Omega^T Omega. Sums to one.
    objective_ : float
        Cost and penalties, a sum over the training samples.

    Notes
    -----
    [GPLVQ Eq. 3.2-3.5]. The metric starts as that of linear discriminant analysis, and the penalties shrink it towards
    that (``deepsimplex.prototypes.fit_gmlvq``); regularization=0 gives the thesis's cost. Relevances of correlated
    features may be large and cancel out. Probabilities: see ``LVQ1``.

    ``transform`` maps rows to Omega x: of ``rank=2`` a plane in which squared distances to the prototypes decide.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = GMLVQ().fit(X[::2], y[::2])
    >>> bool(classifier.score(X[1::2], y[1::2]) > 0.95), classifier.relevance_.argsort()[-2:].tolist()
    (True, [3, 2])
    >>> GMLVQ(rank=2).fit_transform(X, y).shape
    (150, 2)
    """

    rank: int | None = None
    regularization: float = 8.0
    activation: Literal["sigmoid", "linear"] = "sigmoid"
    steepness: float = 2.0
    max_iter: int = 200
    tol: float = 1e-6

    def _fit_prototypes(self, X: Any, y: Any, W: Any, labels: Any, rng: Any, **options: Any) -> PrototypeFit:
        parameters = self._parameters("rank", "regularization", "activation", "steepness", "max_iter", "tol")
        return fit_gmlvq(X, y, W, labels, **parameters, **options)

    @property
    def _n_features_out(self) -> int:
        return len(self.omega_)

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Map rows [N, d] by the metric, [N, m]: Omega times the scaled features."""
        return self._scaled(X) @ self.omega_.T


@dataclass(eq=False, repr=False, kw_only=True)
class LGMLVQ(PrototypeClassifier):
    """Local GMLVQ: every prototype has a metric of its own, so that borders between classes may be curved.

    Parameters
    ----------
    prototypes_per_class, initialization, rank, activation, steepness, max_iter, tol, scale_features
    class_weight, classes, random_state
        See ``GMLVQ``.
    regularization : float
        As for ``GMLVQ``; the penalty on lost directions is the mean of the metrics'. Default 8.

    Attributes
    ----------
    classes_, prototypes_, prototype_labels_, wins_, temperature_, objective_, n_iter_, n_features_in_
        See ``GMLVQ``.
    omega_ : ndarray, shape [P, m, d]
        The matrix of every prototype, for scaled features; squares of the entries of one sum to one on average.
    relevance_ : ndarray, shape [P, d]
        Contribution of every feature to the distances of every prototype.

    Notes
    -----
    Schneider, Biehl, Hammer: *Adaptive Relevance Matrices in Learning Vector Quantization*, 2009. It has P times the
    parameters of ``GMLVQ``, which fewer rows determine. Probabilities: see ``LVQ1``; but far from all
    prototypes the class is that of the metric that is shortest in that direction, and not undecided.

    Examples
    --------
    Two classes that cross each other at right angles, which one metric for both cannot tell apart:

    >>> y = np.arange(400) % 2
    >>> X = np.random.default_rng(0).normal(size=(400, 2)) * np.where(y[:, None] == [0, 1], 4.0, 0.5)
    >>> bool(LGMLVQ().fit(X, y).score(X, y) > GMLVQ().fit(X, y).score(X, y) + 0.2)
    True
    """

    rank: int | None = None
    regularization: float = 8.0
    activation: Literal["sigmoid", "linear"] = "sigmoid"
    steepness: float = 2.0
    max_iter: int = 200
    tol: float = 1e-6

    def _fit_prototypes(self, X: Any, y: Any, W: Any, labels: Any, rng: Any, **options: Any) -> PrototypeFit:
        parameters = self._parameters("rank", "regularization", "activation", "steepness", "max_iter", "tol")
        return fit_gmlvq(X, y, W, labels, local=True, **parameters, **options)
