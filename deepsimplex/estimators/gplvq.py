"""GPLVQ as a scikit-learn classifier: prototypes that the likelihood moves, and Gaussian processes on them."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.spread import median_distance
from deepsimplex._utils.validation import check_number, check_whole
from deepsimplex.estimators.prototypes import PrototypeClassifier, Report
from deepsimplex.estimators.seeds import RandomState
from deepsimplex.heads.prototype_initialization import Initialization
from deepsimplex.latent import LatentGaussian
from deepsimplex.prototypes import Explanation, Learned, LikelihoodAscent, PrototypeProcess, log_odds, squared_distances
from deepsimplex.prototypes.competition import presentations
from deepsimplex.prototypes.likelihood import Rule, check_rule

# Samples whose distances the median is taken of.
_COMPARED = 1000


class GPLVQ(PrototypeClassifier):
    """Prototypes learned as in LVQ, up the likelihood of a Gaussian process; one on the prototypes then classifies.

    Parameters
    ----------
    prototypes_per_class : int
        A class with fewer samples that differ has as many as those. Default 4. Beyond two classes every class's run has
        as many of all classes.
    lengthscale : float or "median"
        alpha, of the squared exponential kernel, for scaled features. Default "median": the median distance of the
        training samples, of 1000 of them where there are more. In many dimensions all samples are about as far from one
        another, and a length much below that leaves nothing to tell: the thesis's 2 is such for images.
    noise_variance : float
        Variance s^2 of the prototypes' labels +-1, at least 0, in learning and in classification. Default 0.03.
    learning_rate : float
        Of steps in lengthscales: the thesis's eta divided by alpha^2. Default 0.01.
    decay : bool
        Whether it falls to zero over the epochs. Default True; the thesis keeps it.
    epochs : int
        Default 50; with 0, prototypes stay where they begin.
    rule : {"autodiff", "thesis"}
        Whether a step follows the gradient of the likelihood or [GPLVQ Eq. 4.5], which is another. Default "autodiff":
        on iris, wine, breast cancer and 300 digits, 3 times 5-fold, a mean error of 3.9% and NLL of 0.143, the thesis's
        4.0% and 0.169. On wine and digits alone, and on spirals, the thesis's was the better.
    initialization : {"samples", "means", "k-means++"}
        See ``deepsimplex.prototypes.initial_prototypes``. Default "samples", as the thesis.
    scale_features : bool
        Whether features are brought to deviation one first. Default True.
    classes : array_like, shape [n], optional
        All classes there are, where y may lack some; None (default) takes those of y.
    random_state : int, numpy.random.RandomState or None
        Seed of the initialization and of the order of samples; a generator (None: NumPy's global one) draws it at every
        fit. Default 0: the same data give the same classifier.

    Attributes
    ----------
    classes_ : ndarray, shape [n]
    prototypes_ : ndarray, shape [P, d]
        In the units of the features; beyond two classes of all runs, run by run.
    prototype_labels_ : ndarray, shape [P]
        Their classes. In a run against the rest, prototypes of the rest have the class that they began in.
    prototype_runs_ : ndarray, shape [P]
        The class that each one's run tells from the rest; for two classes, the second. A prototype stands for +1 where
        that is its class, else for -1.
    wins_ : ndarray, shape [P]
        Training samples that each prototype is the nearest of, among those of its run.
    lengthscale_ : float
        Of scaled features.
    objective_ : float
        Negative log likelihood of the training labels given the winners, a sum over the samples and the runs.
    n_iter_ : int
        Epochs.
    n_features_in_ : int

    Notes
    -----
    [GPLVQ ch. 4]. A sample x with label y moves its winner w, of label c, by the gradient of log N(y | c k / (1 + s^2),
    1 - k^2 / (1 + s^2)), k = k(x, w): towards it where the labels agree, away where they do not. The likelihood holds
    both labels and needs no further sign. The derivative that the thesis prints is not that of the likelihood
    (``deepsimplex.prototypes.pull_of_likelihood``, ``pull_of_thesis``), but of the same sign.

    Then the labels of the prototypes are regressed on them, and a sample is of the second class with the probability
    Phi(mean / deviation) that the function is positive there: exact, and 1/2 far from all prototypes, where its sign
    still tells the classes apart.

    Beyond two classes there is one run for each, against the rest, as the thesis has it. All runs begin with the same
    prototypes, so many of every class. Class c then has the probability p_c prod_{k != c} (1 - p_k) that it alone is
    told from the rest, over the sum of those of all classes. The p_c over their own sum name the same class, at an NLL
    of 0.49 on 900 digits where this has 0.33.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = GPLVQ(prototypes_per_class=2).fit(X[::2], y[::2])
    >>> bool(classifier.score(X[1::2], y[1::2]) > 0.9)
    True
    """

    def __init__(
        self,
        prototypes_per_class: int = 4,
        *,
        lengthscale: float | Literal["median"] = "median",
        noise_variance: float = 0.03,
        learning_rate: float = 0.01,
        decay: bool = True,
        epochs: int = 50,
        rule: Rule = "autodiff",
        initialization: Initialization = "samples",
        scale_features: bool = True,
        classes: ArrayLike | None = None,
        random_state: RandomState = 0,
    ) -> None:
        self.prototypes_per_class = prototypes_per_class
        self.lengthscale = lengthscale
        self.noise_variance = noise_variance
        self.learning_rate = learning_rate
        self.decay = decay
        self.epochs = epochs
        self.rule = rule
        self.initialization = initialization
        self.scale_features = scale_features
        self.classes = classes
        self.random_state = random_state

    def _check_settings(self, num_features: int) -> None:
        if not isinstance(self.lengthscale, str) or self.lengthscale != "median":
            check_number(self.lengthscale, 'lengthscale, unless it is "median",', 0.0)
        check_number(self.noise_variance, "noise_variance", least=0.0)
        check_number(self.learning_rate, "learning_rate", 0.0)
        check_whole(self.epochs, "epochs", 0)
        check_rule(self.rule)

    def _look_at(self, X: NDArray[np.float64]) -> None:
        if self.lengthscale == "median":
            rows = X if len(X) <= _COMPARED else np.random.default_rng(0).choice(X, _COMPARED, replace=False)
            self.lengthscale_ = median_distance(rows)
        else:
            self.lengthscale_ = float(self.lengthscale)

    def _learn(
        self,
        X: NDArray[np.float64],
        y: NDArray[np.int64],
        W: NDArray[np.float64],
        labels: NDArray[np.int64],
        rng: np.random.Generator,
        report: Report | None,
    ) -> Learned:
        ascent = LikelihoodAscent(X, lengthscale=self.lengthscale_, noise=self.noise_variance, rule=self.rule)
        runs = [(_sides(y, run), np.array(W, order="C"), _sides(labels, run)) for run in _runs(labels)]

        def learned(epochs: int) -> Learned:
            objective = sum(ascent.objective(*run) for run in runs)
            return Learned(np.concatenate([moved for _, moved, _ in runs]), None, objective, epochs)

        rounds = presentations(len(X), self.epochs, self.learning_rate, self.decay, rng)
        for epoch, (order, rates) in enumerate(rounds, start=1):
            for run in runs:
                ascent.present(*run, order, rates)
            if report is not None:
                report(learned(epoch))
        return learned(self.epochs)

    def _keep_decision(
        self, learned: Learned, labels: NDArray[np.int64], X: NDArray[np.float64], y: NDArray[np.int64]
    ) -> None:
        runs = _runs(labels)
        self.prototype_labels_ = self.classes_[np.tile(labels, len(runs))]
        self.prototype_runs_ = self.classes_[np.repeat(runs, len(labels))]
        self.objective_ = learned.objective
        nearest = [np.argmin(squared_distances(X, moved), axis=1) for moved in np.split(learned.prototypes, len(runs))]
        self.wins_ = np.concatenate([np.bincount(winners, minlength=len(labels)) for winners in nearest])

    def _processes(self) -> list[PrototypeProcess]:
        """One for every run, in the order of their classes."""
        c = np.where(self.prototype_labels_ == self.prototype_runs_, 1.0, -1.0)
        number = len(self._run_classes)
        parts = zip(np.split(self._scaling(self.prototypes_), number), np.split(c, number), strict=True)
        return [PrototypeProcess(W, labels, self.lengthscale_, self.noise_variance) for W, labels in parts]

    @property
    def _run_classes(self) -> NDArray[np.int64]:
        return np.asarray(_runs(self._labels))

    def predict_latent(self, X: ArrayLike) -> LatentGaussian:
        """The functions on which classes are decided, as the Gaussian processes on the prototypes have them.

        Parameters
        ----------
        X : array_like, shape [N, d]

        Returns
        -------
        LatentGaussian
            For two classes loc and scale [N, 1]: of a function that is positive where the second class is, with labels
            of -1 and +1. Beyond, [N, n]: one for every class that had samples, against the rest.
        """
        return self._latents(self._scaled(X))

    def _latents(self, X: NDArray[np.float64]) -> LatentGaussian:
        latents = [process(X) for process in self._processes()]
        return LatentGaussian(*(np.hstack([getattr(latent, part) for latent in latents]) for part in ("loc", "scale")))

    def _scores(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        latent, there = self._latents(X), np.unique(self._labels)
        scores = np.full((len(X), len(self.classes_)), -np.inf)
        scores[:, there] = 0.0
        if len(there) > 1:
            scores[:, self._run_classes] = log_odds(latent.loc / latent.scale)
        return scores

    def explain(self, X: ArrayLike, k: int = 3) -> Explanation:
        """The k nearest prototypes of every row, and what they add to the mean of the likeliest class's process.

        Parameters
        ----------
        X : array_like, shape [N, d]
        k : int
            Default 3; all prototypes of a run where there are no more.

        Returns
        -------
        Explanation
            Weights are k(x, w_j) beta_j, beta = (K + s^2 I)^-1 c: above 0 they speak for the class that ``predict``
            gives, below against it. Beyond two classes, prototypes are those of that class's run.
        """
        check_whole(k, "k", 1)
        features = self._scaled(X)
        likeliest = np.argmax(self._calibrated_scores(features), axis=1)[:, None]
        runs = np.argmax(self.prototype_runs_[:, None] == self.classes_, axis=1)
        contributions = np.hstack([process.contributions(features) for process in self._processes()])
        distances = squared_distances(features, self._scaling(self.prototypes_))
        if len(self._run_classes) == 1:  # the other class's process is its negative
            contributions = np.where(likeliest == runs, contributions, -contributions)
        else:
            distances = np.where(likeliest == runs, distances, np.inf)
        most = len(runs) // len(self._run_classes)
        return Explanation.of(distances, contributions, self.prototype_labels_, min(k, most))


def _runs(labels: NDArray[np.int64]) -> list[int]:
    """The classes to be told from the rest: one is enough for two."""
    there = np.unique(labels).tolist()
    return there if len(there) > 2 else there[-1:]


def _sides(labels: NDArray[np.int64], run: int) -> NDArray[np.float64]:
    return np.where(labels == run, 1.0, -1.0)
