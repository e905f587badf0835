"""Generalized Learning Vector Quantization as scikit-learn classifiers: GLVQ, and GMLVQ with a learned metric."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from deepsimplex._utils.validation import check_number, check_whole
from deepsimplex.estimators.prototype_classifier import Algorithm, PrototypeClassifier
from deepsimplex.prototypes import fit_glvq, fit_gmlvq
from deepsimplex.prototypes.relative_distance import activate


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

    def _algorithm(self, num_features: int, rng: np.random.Generator) -> Algorithm:
        return partial(fit_glvq, **_settings(self))


@dataclass(eq=False, repr=False, kw_only=True)
class GMLVQ(PrototypeClassifier):
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

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = GMLVQ().fit(X[::2], y[::2])
    >>> bool(classifier.score(X[1::2], y[1::2]) > 0.95), classifier.relevance_.argsort()[-2:].tolist()
    (True, [3, 2])
    """

    rank: int | None = None
    regularization: float = 8.0
    activation: Literal["sigmoid", "linear"] = "sigmoid"
    steepness: float = 2.0
    max_iter: int = 200
    tol: float = 1e-6

    def _algorithm(self, num_features: int, rng: np.random.Generator) -> Algorithm:
        check_number(self.regularization, "regularization", least=0.0)
        if self.rank is not None:
            check_whole(self.rank, "rank, unless it is None,", 1)
            if self.rank > num_features:
                raise ValueError(f"rank must be at most the number of features, {num_features}; found {self.rank}")
        return partial(fit_gmlvq, rank=self.rank, regularization=self.regularization, **_settings(self))


def _settings(classifier: GLVQ | GMLVQ) -> dict[str, Any]:
    """Check and return the arguments that both algorithms take."""
    activate(np.zeros(1), classifier.activation, classifier.steepness)
    check_whole(classifier.max_iter, "max_iter", 0)
    check_number(classifier.tol, "tol", least=0.0, most=1.0)
    return {name: getattr(classifier, name) for name in ("activation", "steepness", "max_iter", "tol")}
