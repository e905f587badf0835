"""Gaussian processes that learn from labels by their likelihood, as a scikit-learn classifier."""

from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex.estimators.posterior import PosteriorClassifier
from deepsimplex.estimators.seeds import RandomState, seed_of

if TYPE_CHECKING:
    from deepsimplex.estimators.step import Callback


class CategoricalGaussianProcess(PosteriorClassifier):
    """Sparse variational Gaussian processes with a categorical likelihood, by minibatches.

    No target stands between labels and latents: the variational bound holds the likelihood of the labels themselves,
    softmax(S f)_y. That costs a distribution of the inducing variables for every latent dimension.

    Parameters
    ----------
    link : {"ilr", "softmax"}
        "ilr" (default): n - 1 latent processes in ILR coordinates; "softmax": n, the usual sparse variational
        classifier.
    kernel, ard, scale_features
        See ``deepsimplex.gp.GaussianProcess``.
    mixing : bool
        Whether a square matrix that mixes the latent processes is learned. Default False.
    inducing : int or array_like, shape [M, d]
        See ``deepsimplex.gp.CollapsedGaussianProcess``. Default 200.
    learn_inducing, separate_inducing : bool
        Whether the inducing points are moved (default True), and whether every latent process has its own (False).
    epochs, batch_size, learning_rate
        See ``deepsimplex.gp.StochasticGaussianProcess``.
    classes : array_like, shape [n], optional
        All classes there are, where y may lack some; None (default) takes those of y.
    random_state : int, numpy.random.RandomState or None
        Seed of every random choice; a generator (None: NumPy's global one) draws it at every fit. Default 0: the same
        data give the same classifier.

    Attributes
    ----------
    classes_ : ndarray, shape [n]
    regressor_ : CategoricalProcess
    n_features_in_ : int

    Notes
    -----
    [ILR-GP sec. 3.2, Uncollapsed-ILR]; link="softmax" is the paper's SVGPC. Latents, as ``predict_latent`` gives them,
    are not observed and have no observation noise. Every process has its own variance: with link="ilr" and more than
    two classes probabilities are quasi-Monte Carlo, with link="softmax" quadrature.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = CategoricalGaussianProcess(inducing=20, batch_size=25).fit(X[::2], y[::2])
    >>> bool(classifier.score(X[1::2], y[1::2]) > 0.9)
    True
    """

    def __init__(
        self,
        link: Literal["ilr", "softmax"] = "ilr",
        kernel: Any = "rbf",
        *,
        ard: bool = False,
        mixing: bool = False,
        inducing: int | ArrayLike = 200,
        learn_inducing: bool = True,
        separate_inducing: bool = False,
        epochs: int = 30,
        batch_size: int | None = None,
        learning_rate: float = 0.03,
        scale_features: bool = True,
        classes: ArrayLike | None = None,
        random_state: RandomState = 0,
    ) -> None:
        self.link = link
        self.kernel = kernel
        self.ard = ard
        self.mixing = mixing
        self.inducing = inducing
        self.learn_inducing = learn_inducing
        self.separate_inducing = separate_inducing
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.scale_features = scale_features
        self.classes = classes
        self.random_state = random_state

    def _regressor(self, seed: int) -> Any:
        from deepsimplex import gp  # GPflow takes seconds to import

        return gp.CategoricalProcess(
            self.link,
            self.kernel,
            ard=self.ard,
            mixing=self.mixing,
            inducing=self.inducing,
            learn_inducing=self.learn_inducing,
            separate_inducing=self.separate_inducing,
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            scale_features=self.scale_features,
            random_state=seed,
        )

    @property
    def _scores(self) -> NDArray[np.float64]:
        return np.asarray(self._posterior.scores)

    @property
    def _readout_name(self) -> str:
        return "softmax"

    def fit(self, X: ArrayLike, y: ArrayLike, callback: "Callback | None" = None) -> Self:
        """Learn from features X [N, d] and labels y.

        Parameters
        ----------
        X : array_like, shape [N, d]
        y : array_like, shape [N] or [N, n]
            Labels of any kind, or soft labels: rows that sum to one.
        callback : callable, optional
            Called with a ``deepsimplex.estimators.ClassifierStep`` after every epoch, as
            ``deepsimplex.monitoring.GaussianProcessBoard`` is. If it has a method ``fit_ended``, that is called with
            the fitted classifier.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For NaN, labels that ``classes`` does not name, and a single class.
        """
        with self._fitting():
            features, labels = self._checked(X, y)
            regressor = self._regressor(seed_of(self.random_state))
            told = self._step_callback(callback, len(features))
            self.regressor_ = regressor.fit(features, labels.shares, told)
        self._tell_end(callback)
        return self
