"""Gaussian processes onto the latents of any target, as a scikit-learn classifier."""

from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from numpy.typing import ArrayLike

from deepsimplex.estimators.base import TargetClassifier
from deepsimplex.estimators.posterior import PosteriorClassifier
from deepsimplex.estimators.seeds import RandomState, seed_of
from deepsimplex.estimators.selection import Smoothing, select_target

if TYPE_CHECKING:
    from deepsimplex.estimators.step import Callback

Inference = Literal["exact", "collapsed", "stochastic"]
INFERENCES: tuple[str, ...] = get_args(Inference)


class SimplexGaussianProcess(PosteriorClassifier, TargetClassifier):
    """Gaussian-process regression onto the latents of a target, read out as class probabilities.

    Parameters
    ----------
    target : Target, str or dict
        Any target of ``deepsimplex.targets``, or its name. Default "ilr".
    inference : {"exact", "collapsed", "stochastic"}
        "exact" factorizes the kernel matrix of all samples: up to some thousands. "collapsed" takes Titsias' bound over
        inducing points, by L-BFGS over all samples; "stochastic" the same bound by minibatches, natural gradients and
        Adam.
    smoothing : {None, "validate", "train"}
        How far apart the classes are put, where their target leaves a choice: the smoothing of ILR targets, the
        concentration of Dirichlet ones. None (default) takes the target as it is. "validate" tries the values of the
        target's paper on a tenth of every class that is held out, and takes the one of the least NLL there; all
        samples then learn with it [ILR-GP sec. 5]. "train" takes the one of the least NLL on the training samples
        themselves [GPD sec. 4.2]. Other values: scikit-learn's ``GridSearchCV`` over targets.
    kernel, ard, noise, scale_features
        See ``deepsimplex.gp.GaussianProcess``.
    max_iter, n_restarts
        For "exact" and "collapsed"; see the same.
    inducing : int or array_like, shape [M, d]
        For "collapsed" and "stochastic"; see ``deepsimplex.gp.CollapsedGaussianProcess``. Default 200.
    learn_inducing : bool, optional
        Whether the inducing points are moved. None (default) moves those of "stochastic" and leaves those of
        "collapsed" where they are.
    separate_inducing : bool
        Whether every latent dimension has inducing points of its own, which tells more from as many points, at as many
        times the cost as there are dimensions; probabilities are quasi-Monte Carlo then. Default False.
    epochs, batch_size, learning_rate
        For "stochastic"; see ``deepsimplex.gp.StochasticGaussianProcess``.
    readout : {"argmax", "softmax"}, optional
        None (default) takes the target's own.
    classes : array_like, shape [n], optional
        All classes there are, where y may lack some; None (default) takes those of y.
    random_state : int, numpy.random.RandomState or None
        Seed of every random choice; a generator (None: NumPy's global one) draws it at every fit. Default 0: the same
        data give the same classifier.

    Attributes
    ----------
    classes_ : ndarray, shape [n]
    target_ : Target
    regressor_ : GaussianProcess
    smoothing_ : float or None
        The value chosen; None where there was no choice.
    smoothing_scores_ : dict of float to float
        NLL of every value tried.
    n_features_in_ : int

    Notes
    -----
    [ILR-GP sec. 3.2], [GPD sec. 4], and CASIMAC's targets with a Gaussian process as its authors' package has it.

    ``predict_latent`` gives the latent functions themselves: without observation noise, whether the target states it or
    it is learned. That is what is read out.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = SimplexGaussianProcess("ilr").fit(X[::2], y[::2])
    >>> bool(classifier.score(X[1::2], y[1::2]) > 0.9)
    True
    """

    def __init__(
        self,
        target: Any = "ilr",
        inference: Inference = "exact",
        kernel: Any = "rbf",
        *,
        smoothing: Smoothing | None = None,
        ard: bool = False,
        noise: str = "auto",
        inducing: int | ArrayLike = 200,
        learn_inducing: bool | None = None,
        separate_inducing: bool = False,
        epochs: int = 30,
        batch_size: int | None = None,
        learning_rate: float = 0.03,
        scale_features: bool = True,
        readout: str | None = None,
        classes: ArrayLike | None = None,
        max_iter: int = 200,
        n_restarts: int = 0,
        random_state: RandomState = 0,
    ) -> None:
        self.target = target
        self.inference = inference
        self.kernel = kernel
        self.smoothing = smoothing
        self.ard = ard
        self.noise = noise
        self.inducing = inducing
        self.learn_inducing = learn_inducing
        self.separate_inducing = separate_inducing
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.scale_features = scale_features
        self.readout = readout
        self.classes = classes
        self.max_iter = max_iter
        self.n_restarts = n_restarts
        self.random_state = random_state

    def _regressor(self, seed: int) -> Any:
        from deepsimplex import gp  # GPflow takes seconds to import

        settings: dict[str, Any] = {
            "ard": self.ard,
            "noise": self.noise,
            "scale_features": self.scale_features,
            "max_iter": self.max_iter,
            "n_restarts": self.n_restarts,
            "random_state": seed,
        }
        if self.inference == "exact":
            return gp.ExactGaussianProcess(self.kernel, **settings)
        settings |= {"inducing": self.inducing, "separate_inducing": self.separate_inducing}
        if self.learn_inducing is not None:
            settings["learn_inducing"] = self.learn_inducing
        if self.inference == "collapsed":
            return gp.CollapsedGaussianProcess(self.kernel, **settings)
        if self.inference == "stochastic":
            settings |= {"epochs": self.epochs, "batch_size": self.batch_size, "learning_rate": self.learning_rate}
            return gp.StochasticGaussianProcess(self.kernel, **settings)
        raise ValueError(f"inference must be one of {', '.join(INFERENCES)}; found {self.inference!r}")

    def fit(self, X: ArrayLike, y: ArrayLike, callback: "Callback | None" = None) -> Self:
        """Learn from features X [N, d] and labels y.

        Parameters
        ----------
        X : array_like, shape [N, d]
        y : array_like, shape [N] or [N, n]
            Labels of any kind, or soft labels, for targets made from labels alone: rows that sum to one.
        callback : callable, optional
            Called with a ``deepsimplex.estimators.ClassifierStep`` after every iteration, as
            ``deepsimplex.monitoring.GaussianProcessBoard`` is, but not while ``smoothing`` tries values. If it has a
            method ``fit_ended``, that is called with the fitted classifier.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For NaN, labels that ``classes`` does not name, a single class, and what the target refuses.
        """
        with self._fitting():
            features, labels = self._checked(X, y)
            seed = seed_of(self.random_state)
            regressor = self._regressor(seed)
            target, self.smoothing_, self.smoothing_scores_ = select_target(self, features, labels, seed)
            observation = self._observations(features, labels, target)
            told = self._step_callback(callback, len(features))
            self.regressor_ = regressor.fit(features, observation, labels.hard, told)
        self._tell_end(callback)
        return self
