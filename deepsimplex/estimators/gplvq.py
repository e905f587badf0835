"""GPLVQ as a scikit-learn classifier: prototypes fitted by likelihood, and Gaussian processes on them."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import check_number, check_whole
from deepsimplex.estimators.prototype_classifier import PrototypeClassifier
from deepsimplex.heads.prototype_initialization import Initialization
from deepsimplex.heads.prototype_layer import Explanation
from deepsimplex.kernels import median_distance
from deepsimplex.latent import LatentGaussian
from deepsimplex.prototypes import PrototypeFit, fit_gplvq
from deepsimplex.prototypes.class_scores import finite_squared_distances
from deepsimplex.prototypes.prototype_process import PrototypeProcess, log_odds
from deepsimplex.readout.normal import log_ndtr

# Number of samples of which the median distance is computed.
_COMPARED = 1000


@dataclass(eq=False, repr=False)
class GPLVQ(PrototypeClassifier):
    """LVQ by the likelihood of a Gaussian process; a Gaussian process on the prototypes then classifies.

    Parameters
    ----------
    prototypes_per_class : int
        A class with fewer distinct samples gets as many as those. Default 4. With more than two
        classes, each run of one class against the rest has this number for every class.
    lengthscale : float or "median"
        alpha of the squared exponential kernel, for scaled features. Default "median": the median distance of the
        training samples, of 1000 of them if there are more. In many dimensions all samples are about equally far from
        one another, and much shorter lengthscales, such as the thesis's 2 for images, carry no information.
    noise_variance : float
        Variance s^2 of the prototypes' labels +-1, at least 0, for fit and prediction. Default 0.03.
    learning_rate : float
        For features in units of the lengthscale: the thesis's eta divided by alpha^2. Default 0.01.
    decay : bool
        Whether the learning rate decreases linearly to zero. Default True; the thesis keeps it constant.
    max_iter : int
        Number of epochs, passes over the training samples. Default 50; with 0, prototypes stay at their initial values.
    initialization : {"samples", "means", "k-means++"}
        See ``deepsimplex.prototypes.initial_prototypes``. Default "samples", as in the thesis.
    scale_features : bool
        Whether to scale features to unit standard deviation. Default True.
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
        In the units of the features; with more than two classes, of all runs, run by run.
    prototype_labels_ : ndarray, shape [P]
        Their classes. In a run against the rest, prototypes of the rest have the class that they started in.
    prototype_runs_ : ndarray, shape [P]
        The class that each one's run separates from the rest; for two classes, the second. A prototype has the label +1
        if that is its class, else -1.
    wins_ : ndarray, shape [P]
        Number of training samples to which each prototype is the nearest of its run.
    lengthscale_ : float
        For scaled features.
    objective_ : float
        Negative log likelihood of the training labels given the winners, a sum over samples and runs.
    n_iter_ : int
        Epochs.
    n_features_in_ : int

    Notes
    -----
    [GPLVQ ch. 4]. A sample x with label y moves its winner w, of label c, by the gradient of log N(y | c k / (1 + s^2),
    1 - k^2 / (1 + s^2)), k = k(x, w): towards it if the labels agree, away otherwise. The derivative that the thesis
    prints is not that of the likelihood (``deepsimplex.prototypes.prototype_process.winner_gradient``), but has the
    same sign.

    A Gaussian process then regresses the labels of the prototypes, and a sample is of the second class with the
    probability Phi(mean / standard deviation) that the function is positive there: exact, and 1/2 far from all
    prototypes, where its sign still separates the classes.

    Beyond two classes, each is fitted against the rest, all from the same initial prototypes. Class c then has a
    probability proportional to p_c prod_{k != c} (1 - p_k): that it alone is separated from the rest.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = GPLVQ(prototypes_per_class=2).fit(X[::2], y[::2])
    >>> bool(classifier.score(X[1::2], y[1::2]) > 0.9)
    True
    """

    prototypes_per_class: int = 4
    _: KW_ONLY
    lengthscale: float | Literal["median"] = "median"
    noise_variance: float = 0.03
    learning_rate: float = 0.01
    decay: bool = True
    max_iter: int = 50
    initialization: Initialization = "samples"

    def _fit_prototypes(self, X: Any, y: Any, W: Any, labels: Any, rng: Any, **options: Any) -> PrototypeFit:
        if self.lengthscale == "median":
            rows = X if len(X) <= _COMPARED else np.random.default_rng(0).choice(X, _COMPARED, replace=False)
            self.lengthscale_ = median_distance(rows)
        else:
            self.lengthscale_ = check_number(self.lengthscale, 'lengthscale, unless it is "median",', 0.0)
        runs = _runs(labels)[:, None]
        signs, prototype_signs = (np.where(classes == runs, 1.0, -1.0) for classes in (y, labels))
        parameters = self._parameters("noise_variance", "learning_rate", "decay", "max_iter")
        return fit_gplvq(X, signs, W, prototype_signs, lengthscale=self.lengthscale_, **parameters, rng=rng, **options)

    def _keep_decision(self, state: PrototypeFit, labels: Any, X: Any, y: Any, weights: Any) -> None:
        runs = _runs(labels)
        self.prototype_labels_ = self.classes_[np.tile(labels, len(runs))]
        self.prototype_runs_ = self.classes_[np.repeat(runs, len(labels))]
        nearest = [np.argmin(finite_squared_distances(X, W), axis=1) for W in np.split(state.prototypes, len(runs))]
        self.wins_ = np.concatenate([np.bincount(winners, minlength=len(labels)) for winners in nearest])

    @property
    def _processes(self) -> list[PrototypeProcess]:
        """The Gaussian process of every class that is fitted against the rest, in order."""
        c = np.where(self._labels == self._numbers(self.prototype_runs_), 1.0, -1.0)
        number = len(_runs(self._labels))
        parts = zip(np.split(self._scale(self.prototypes_), number), np.split(c, number), strict=True)
        return [PrototypeProcess(W, labels, self.lengthscale_, self.noise_variance) for W, labels in parts]

    def predict_latent(self, X: ArrayLike) -> LatentGaussian:
        """Predict the functions that decide on the classes, by the Gaussian processes on the prototypes.

        Parameters
        ----------
        X : array_like, shape [N, d]

        Returns
        -------
        LatentGaussian
            For two classes loc and scale [N, 1], of a function with the values -1 for the first class and +1 for the
            second. Beyond, [N, n]: one for every class with training samples, against the rest.
        """
        return self._latents(self._scaled(X))

    def _latents(self, X: NDArray[np.float64]) -> LatentGaussian:
        latents = [process(X) for process in self._processes]
        return LatentGaussian(np.hstack([f.loc for f in latents]), np.hstack([f.scale for f in latents]))

    def _scores(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        latent, present = self._latents(X), np.unique(self._labels)
        scores = np.full((len(X), len(self.classes_)), -np.inf)
        scores[:, present] = 0.0
        if len(present) > 1:
            scores[:, _runs(self._labels)] = log_odds(latent.loc / latent.scale)
        return scores

    def _served(self) -> tuple[Any, Any, Any]:
        def latent(X: Any) -> dict[str, Any]:
            return self._served_latent(self._served_features(X))

        return tf.Module(), latent, lambda latent: self._probabilities(self._served_log_odds(latent))

    def _served_latent(self, X: Any) -> dict[str, Any]:
        moments = [process.served(X) for process in self._processes]
        loc, scale = (tf.concat(parts, axis=1) for parts in zip(*moments, strict=True))
        return {"loc": loc, "scale": scale}

    def _served_log_odds(self, latent: dict[str, Any]) -> Any:
        several, z = len(np.unique(self._labels)) > 1, latent["loc"] / latent["scale"]
        return tf.matmul(log_ndtr(z) - log_ndtr(-z), several * np.eye(len(self.classes_))[_runs(self._labels)])

    def _served_scores(self, X: Any) -> Any:
        return self._served_log_odds(self._served_latent(X))

    def explain(self, X: ArrayLike, k: int = 3) -> Explanation:
        """Find the k nearest prototypes of every row, and their terms in the mean of the predicted class's process.

        Parameters
        ----------
        X : array_like, shape [N, d]
        k : int
            Default 3; all prototypes of a run if there are fewer.

        Returns
        -------
        Explanation
            Weights are k(x, w_j) b_j, b = (K + s^2 I)^-1 c: positive ones support the class that ``predict`` returns,
            negative ones oppose it. With more than two classes, prototypes are those of that class's run.
        """
        check_whole(k, "k", 1)
        features = self._scaled(X)
        predicted = np.argmax(self._calibrated_scores(self._scores(features)), axis=1)[:, None]
        runs = self._numbers(self.prototype_runs_)
        contributions = np.hstack([process.contributions(features) for process in self._processes])
        distances, number = finite_squared_distances(features, self._scale(self.prototypes_)), len(np.unique(runs))
        if number == 1:  # the process of the other class is the negative
            contributions = np.where(predicted == runs, contributions, -contributions)
        else:
            distances = np.where(predicted == runs, distances, np.inf)
        return Explanation.of(distances, contributions, self.prototype_labels_, min(k, len(runs) // number))


def _runs(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the classes that are fitted against the rest: all, or the second of two."""
    present = np.unique(labels)
    return present if len(present) > 2 else present[-1:]
