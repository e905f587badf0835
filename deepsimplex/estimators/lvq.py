"""Learning Vector Quantization as scikit-learn classifiers: LVQ1, LVQ2, GLVQ and GMLVQ."""

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import check_number, check_whole
from deepsimplex.estimators.nearest_prototype import NearestPrototypeClassifier
from deepsimplex.estimators.prototypes import Report
from deepsimplex.estimators.seeds import RandomState
from deepsimplex.heads.prototype_initialization import Initialization
from deepsimplex.prototypes import Learned, compete, learn_metric, learn_prototypes, squared_distances
from deepsimplex.prototypes.activations import Activation, make_activation


class LVQ1(NearestPrototypeClassifier):
    """Prototypes that are drawn by samples of their class and driven off by others, sample by sample.

    Parameters
    ----------
    prototypes_per_class : int
        A class with fewer samples that differ has as many as those. Default 1.
    initialization : {"means", "samples", "k-means++"}
        See ``deepsimplex.prototypes.initial_prototypes``. Default "means": no outlier is a beginning. The thesis draws
        samples.
    learning_rate : float
        Share of the way to a sample, at most 1. Default 0.05.
    decay : bool
        Whether it falls to zero over the epochs, so that prototypes come to rest. Default True; the thesis keeps 0.01
        for 250 epochs.
    epochs : int
        Default 100.
    scale_features : bool
        Whether features are brought to deviation one first. Default True: distances add them up.
    classes : array_like, shape [n], optional
        All classes there are, where y may lack some; None (default) takes those of y.
    random_state : int, numpy.random.RandomState or None
        Seed of the initialization and of the order of samples; a generator (None: NumPy's global one) draws it at every
        fit. Default 0: the same data give the same classifier.

    Attributes
    ----------
    classes_ : ndarray, shape [n]
    prototypes_ : ndarray, shape [P, d]
        In the units of the features.
    prototype_labels_ : ndarray, shape [P]
    wins_ : ndarray, shape [P]
        Training samples that each prototype is the nearest of.
    temperature_ : float
    n_features_in_ : int

    Notes
    -----
    [GPLVQ Eq. 3.1]. LVQ has no probabilities of its own; they are made here of the relative distances mu that GLVQ
    minimizes, softmax(-mu / T), with one temperature T, the likeliest for the smoothed labels of the training samples
    (``deepsimplex.prototypes.relative_scores`` and ``fitted_temperature``). The likeliest class is that of the nearest
    prototype, and far from all prototypes no class is likely.

    What a callback is told as the objective is the number of training samples that are misclassified.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = LVQ1(prototypes_per_class=2).fit(X[::2], y[::2])
    >>> bool(classifier.score(X[1::2], y[1::2]) > 0.85)
    True
    """

    _also_correct: ClassVar[bool] = False

    def __init__(
        self,
        prototypes_per_class: int = 1,
        *,
        initialization: Initialization = "means",
        learning_rate: float = 0.05,
        decay: bool = True,
        epochs: int = 100,
        scale_features: bool = True,
        classes: ArrayLike | None = None,
        random_state: RandomState = 0,
    ) -> None:
        self.prototypes_per_class = prototypes_per_class
        self.initialization = initialization
        self.learning_rate = learning_rate
        self.decay = decay
        self.epochs = epochs
        self.scale_features = scale_features
        self.classes = classes
        self.random_state = random_state

    @property
    def _window(self) -> float | None:
        return None

    def _check_settings(self, num_features: int) -> None:
        check_number(self.learning_rate, "learning_rate", 0.0, 1.0)
        check_whole(self.epochs, "epochs", 0)
        if self._window is not None:
            check_number(self._window, "window, unless it is None,", 0.0, 1.0)

    def _learn(
        self,
        X: NDArray[np.float64],
        y: NDArray[np.int64],
        W: NDArray[np.float64],
        labels: NDArray[np.int64],
        rng: np.random.Generator,
        report: Report | None,
    ) -> Learned:
        def learned(epoch: int, W: NDArray[np.float64]) -> Learned:
            winners = np.argmin(squared_distances(X, W), axis=1)
            return Learned(W, None, float(np.sum(labels[winners] != y)), epoch)

        moved = compete(
            X,
            y,
            W,
            labels,
            also_correct=self._also_correct,
            window=self._window,
            learning_rate=self.learning_rate,
            decay=self.decay,
            epochs=self.epochs,
            rng=rng,
            report=None if report is None else lambda epoch, W: report(learned(epoch, W)),
        )
        return Learned(moved, None, np.nan, self.epochs)


class LVQ2(LVQ1):
    """LVQ1, where a sample that is misclassified draws the nearest prototype of its class too.

    Parameters
    ----------
    prototypes_per_class, initialization, learning_rate, decay, epochs, scale_features, classes, random_state
        See ``LVQ1``.
    window : float, optional
        Above 0, at most 1: a misclassified sample moves prototypes only if its distances to them are to one another as
        (1 - window) to (1 + window) at least. None (default): wherever it lies, as in the thesis.

    Attributes
    ----------
    classes_ : ndarray, shape [n]
    prototypes_ : ndarray, shape [P, d]
        In the units of the features.
    prototype_labels_ : ndarray, shape [P]
    wins_ : ndarray, shape [P]
        Training samples that each prototype is the nearest of.
    temperature_ : float
    n_features_in_ : int

    Notes
    -----
    [GPLVQ ch. 3], whose LVQ2 is LVQ1 with that addition. Kohonen's moves nothing for samples that are well classified
    and has the window. Probabilities: see ``LVQ1``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = LVQ2(prototypes_per_class=2).fit(X[::2], y[::2])
    >>> bool(classifier.score(X[1::2], y[1::2]) > 0.85)
    True
    """

    _also_correct = True

    def __init__(
        self,
        prototypes_per_class: int = 1,
        *,
        initialization: Initialization = "means",
        window: float | None = None,
        learning_rate: float = 0.05,
        decay: bool = True,
        epochs: int = 100,
        scale_features: bool = True,
        classes: ArrayLike | None = None,
        random_state: RandomState = 0,
    ) -> None:
        super().__init__(
            prototypes_per_class,
            initialization=initialization,
            learning_rate=learning_rate,
            decay=decay,
            epochs=epochs,
            scale_features=scale_features,
            classes=classes,
            random_state=random_state,
        )
        self.window = window

    @property
    def _window(self) -> float | None:
        return self.window


class GLVQ(NearestPrototypeClassifier):
    """Prototypes where the relative distances of samples to their own class and to the others cost least.

    Parameters
    ----------
    prototypes_per_class, initialization, scale_features, classes
        See ``LVQ1``.
    activation : {"sigmoid", "linear"}
        Of the relative distance. Default "sigmoid": samples near the decision count most.
    steepness : float
        Of the sigmoid; with 1 it is all but linear. Many classes, whose samples are all near a decision, ask for more.
        Default 2.
    max_iterations : int
        Of L-BFGS. Default 200.
    tol : float
        Ends it when the cost falls by a smaller share of itself. Default 1e-6.
    random_state : int, numpy.random.RandomState or None
        Seed of the initialization, which alone is random; see ``LVQ1``. Default 0.

    Attributes
    ----------
    classes_ : ndarray, shape [n]
    prototypes_ : ndarray, shape [P, d]
        In the units of the features.
    prototype_labels_ : ndarray, shape [P]
    wins_ : ndarray, shape [P]
        Training samples that each prototype is the nearest of.
    temperature_ : float
    objective_ : float
        The cost, a sum over the training samples.
    n_iter_ : int
    n_features_in_ : int

    Notes
    -----
    [GPLVQ Eq. 3.2], minimized on all samples at once by the exact gradient, not sample by sample: repeatable, and with
    no learning rate. Probabilities: see ``LVQ1``.

    The cost is a plain sum over samples, which may be least where a class of few is given up: with one sample in a
    hundred its prototype can be driven out of the data. A warning says so; a larger steepness, which counts such
    samples in full, more prototypes, or ``GMLVQ``, whose penalty holds prototypes, keep the class.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = GLVQ(prototypes_per_class=2).fit(X[::2], y[::2])
    >>> bool(classifier.score(X[1::2], y[1::2]) > 0.85)
    True
    """

    def __init__(
        self,
        prototypes_per_class: int = 1,
        *,
        initialization: Initialization = "means",
        activation: Literal["sigmoid", "linear"] = "sigmoid",
        steepness: float = 2.0,
        max_iterations: int = 200,
        tol: float = 1e-6,
        scale_features: bool = True,
        classes: ArrayLike | None = None,
        random_state: RandomState = 0,
    ) -> None:
        self.prototypes_per_class = prototypes_per_class
        self.initialization = initialization
        self.activation = activation
        self.steepness = steepness
        self.max_iterations = max_iterations
        self.tol = tol
        self.scale_features = scale_features
        self.classes = classes
        self.random_state = random_state

    @property
    def _phi(self) -> Activation:
        return make_activation(self.activation, self.steepness)

    def _check_settings(self, num_features: int) -> None:
        check_number(self.steepness, "steepness", 0.0)
        check_whole(self.max_iterations, "max_iterations", 0)
        check_number(self.tol, "tol", least=0.0, most=1.0)
        make_activation(self.activation, self.steepness)

    def _learn(
        self,
        X: NDArray[np.float64],
        y: NDArray[np.int64],
        W: NDArray[np.float64],
        labels: NDArray[np.int64],
        rng: np.random.Generator,
        report: Report | None,
    ) -> Learned:
        return learn_prototypes(
            X, y, W, labels, self._phi, max_iterations=self.max_iterations, tol=self.tol, report=report
        )

    def _keep_metric(self, learned: Learned) -> None:
        self.objective_ = learned.objective


class GMLVQ(GLVQ):
    """GLVQ that learns the metric of its distances too, ||Omega (x - w)||^2.

    Parameters
    ----------
    prototypes_per_class, initialization, activation, steepness, max_iterations, tol, scale_features, classes
        See ``GLVQ``.
    rank : int, optional
        Rows of Omega, at most the features: distances are then those of so many linear combinations of features. None
        (default): as many as features.
    regularization : float
        Weight of penalties, in samples, on directions that Omega loses, which without it are all but few, and, with one
        prototype per class, on their distances from the means of the classes. Default 8, at which wine and iris are
        classified as well as by linear discriminant analysis.
    random_state : int, numpy.random.RandomState or None
        See ``GLVQ``.

    Attributes
    ----------
    classes_ : ndarray, shape [n]
    prototypes_ : ndarray, shape [P, d]
        In the units of the features.
    prototype_labels_ : ndarray, shape [P]
    omega_ : ndarray, shape [m, d]
        Of scaled features; its squares sum to one.
    relevance_ : ndarray, shape [d]
        What every feature contributes to distances: the diagonal of Omega^T Omega. Sums to one.
    wins_ : ndarray, shape [P]
        Training samples that each prototype is the nearest of.
    temperature_ : float
    objective_ : float
        The cost and the penalty, a sum over the training samples.
    n_iter_ : int
    n_features_in_ : int

    Notes
    -----
    [GPLVQ Eq. 3.2-3.5]. The metric starts as that of linear discriminant analysis and is drawn back to it by the
    penalties (``deepsimplex.prototypes.learn_metric``); a regularization of 0 leaves the thesis's cost. Relevances of
    features that say the same may be large and cancel out. Probabilities: see ``LVQ1``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = GMLVQ().fit(X[::2], y[::2])
    >>> bool(classifier.score(X[1::2], y[1::2]) > 0.95), classifier.relevance_.argsort()[-2:].tolist()
    (True, [3, 2])
    """

    def __init__(
        self,
        prototypes_per_class: int = 1,
        *,
        rank: int | None = None,
        regularization: float = 8.0,
        initialization: Initialization = "means",
        activation: Literal["sigmoid", "linear"] = "sigmoid",
        steepness: float = 2.0,
        max_iterations: int = 200,
        tol: float = 1e-6,
        scale_features: bool = True,
        classes: ArrayLike | None = None,
        random_state: RandomState = 0,
    ) -> None:
        super().__init__(
            prototypes_per_class,
            initialization=initialization,
            activation=activation,
            steepness=steepness,
            max_iterations=max_iterations,
            tol=tol,
            scale_features=scale_features,
            classes=classes,
            random_state=random_state,
        )
        self.rank = rank
        self.regularization = regularization

    def _check_settings(self, num_features: int) -> None:
        super()._check_settings(num_features)
        check_number(self.regularization, "regularization", least=0.0)
        if self.rank is not None:
            check_whole(self.rank, "rank, unless it is None,", 1)
            if self.rank > num_features:
                raise ValueError(f"rank must be at most the number of features, {num_features}; found {self.rank}")

    def _learn(
        self,
        X: NDArray[np.float64],
        y: NDArray[np.int64],
        W: NDArray[np.float64],
        labels: NDArray[np.int64],
        rng: np.random.Generator,
        report: Report | None,
    ) -> Learned:
        return learn_metric(
            X,
            y,
            W,
            labels,
            self._phi,
            rank=self.rank,
            regularization=self.regularization,
            max_iterations=self.max_iterations,
            tol=self.tol,
            report=report,
        )

    def _unmoved(self, W: NDArray[np.float64]) -> Learned:
        m, d = self.rank or W.shape[1], W.shape[1]
        return Learned(W, np.eye(m, d) / np.sqrt(m), 0.0, 0)

    def _keep_metric(self, learned: Learned) -> None:
        super()._keep_metric(learned)
        assert learned.omega is not None
        self.omega_ = learned.omega
        self.relevance_ = np.sum(np.square(learned.omega), axis=0)

    @property
    def _omega(self) -> NDArray[np.float64] | None:
        return self.omega_
