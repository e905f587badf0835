"""Scikit-learn classifiers by Gaussian processes: on the latents of a target, and with a categorical likelihood."""

import copy
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import check_choice
from deepsimplex.estimators.calibrated_classifier import Callback, ClassifierStep, RandomState, seed_of
from deepsimplex.estimators.checked_data import training_samples
from deepsimplex.estimators.latent_classifier import LatentClassifier
from deepsimplex.estimators.saving import Saved
from deepsimplex.estimators.selection import Smoothing, select_target
from deepsimplex.latent import LatentGaussian
from deepsimplex.samples import ArraySamples, Labels, Samples, is_stream
from deepsimplex.targets import TARGETS, Target

if TYPE_CHECKING:
    from deepsimplex import gp

Inference = Literal["exact", "collapsed", "stochastic"]


@dataclass(eq=False, repr=False)
class PosteriorMixin(Saved):
    """Prediction, files and callbacks of classifiers by a Gaussian process.

    Attributes
    ----------
    regressor_ : GaussianProcess or CategoricalProcess
    n_iter_ : int
        Iterations of its optimization, or epochs.
    """

    # Arguments of both constructors.
    _: KW_ONLY
    ard: bool = False
    inducing: int | ArrayLike = 200
    separate_inducing: bool = False
    epochs: int = 30
    batch_size: int | None = None
    learning_rate: float = 0.03
    scale_features: bool = True
    classes: ArrayLike | None = None
    random_state: RandomState = 0
    regressor_: Any = field(init=False)

    @abstractmethod
    def _regressor(self, seed: int) -> Any:
        """Return an unfitted process with this classifier's parameters."""

    @abstractmethod
    def _training_observations(self, samples: Samples, labels: Labels, seed: int) -> Samples:
        """Return the samples that the process is fitted to: with latents or memberships in place of labels."""

    def _check_settings(self, streamed: bool) -> None:
        """Raise ValueError for settings that do not suit each other, or a stream of batches."""

    def fit(
        self: Any,
        X: Any,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        callback: Callback | None = None,
    ) -> Any:
        """Fit to features X [N, d] and labels y.

        Parameters
        ----------
        X : array_like, shape [N, d], tf.data.Dataset or keras.utils.PyDataset
            Numbers that can be sliced by rows (NumPy's arrays and memory maps, h5py's data sets) are never copied
            whole by ``CategoricalGaussianProcess``, and by inference="stochastic" with a target made from labels alone.
            These also take a data set of batches (features, label) or (features, label, sample_weight), which is finite
            and the same whenever it is read: its batches are the minibatches, in its order; shuffle it yourself.
        y : array_like, shape [N] or [N, n]
            Labels of any kind, or soft labels, for targets made from labels alone: rows that sum to one. None beside a
            data set.
        sample_weight : array_like, shape [N], optional
            Exponents of the samples' likelihoods: one of weight 2 counts as two, one of weight 0 is left out. None
            beside a data set.
        callback : callable, optional
            Called with a ``deepsimplex.estimators.ClassifierStep`` after every iteration or epoch, as
            ``deepsimplex.monitoring.CalibrationBoard`` is, but not while ``smoothing`` tries values. Its method
            ``fit_ended``, if it has one, is called with the fitted classifier.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For NaN, labels that are not in ``classes``, a single class, data that the target rejects, and a data set
            with settings that need all rows at once: an inference other than "stochastic", distances, ``smoothing``.

        Warns
        -----
        ConvergenceWarning
            If ``max_iter`` ended the search.
        """
        with self._fitting():
            seed = seed_of(self.random_state)
            self._regressor(seed)  # settings out of range are errors before the data is read
            self._check_settings(is_stream(X))
            samples, labels = training_samples(self, X, y, sample_weight)
            self._fit_process(self._training_observations(samples, labels, seed), seed, callback)
        self._report_end(callback)
        return self

    def _fit_process(self, samples: Any, seed: int, callback: Callback | None = None) -> None:
        self.regressor_ = self._regressor(seed).fit_samples(samples, self._step_callback(callback, samples.num_rows))
        self.n_iter_ = self.regressor_.n_iter_

    def _latents(self, X: NDArray[np.float64]) -> LatentGaussian:
        return self.regressor_.posterior_.predict(X)

    def _set_posterior(self, posterior: "gp.posterior.Posterior") -> Self:
        """Set the posterior of another fit for predictions."""
        self.regressor_ = self._regressor(seed=0)
        self.regressor_.posterior_ = posterior
        return self

    def _step_callback(self, callback: Callback | None, num_samples: int) -> "Callable[[gp.Step], None] | None":
        """Return a callback for the process that calls the classifier's callback."""
        if callback is None:
            return None

        def call(step: "gp.Step") -> None:
            numbers = step.iteration, step.objective, step.hyperparameters
            callback(ClassifierStep(*numbers, num_samples, lambda: copy.copy(self)._set_posterior(step.posterior())))

        return call

    def _served_latents(self) -> tuple[Any, Any]:
        return self.regressor_.posterior_, self.regressor_.posterior_


@dataclass(eq=False, repr=False)
class SimplexGaussianProcess(PosteriorMixin, LatentClassifier):
    """Gaussian-process regression onto the latents of a target, read out as class probabilities.

    Parameters
    ----------
    target : Target, str or dict
        Any target of ``deepsimplex.targets``, or its name. Default "ilr".
    inference : {"exact", "collapsed", "stochastic"}
        "exact" factorizes the kernel matrix of all samples: at most thousands. "collapsed" maximizes Titsias' bound
        over inducing points, by L-BFGS over all samples; "stochastic" the same bound by minibatches, natural gradients
        and Adam.
    smoothing : {None, "validate", "train"}
        How to choose the smoothing of ILR targets or the concentration of Dirichlet ones. None (default) takes the
        target as it is. "validate" tries the values of the target's paper on a held-out tenth of every class, takes
        the one of the least negative log-likelihood there, and fits all samples with it [ILR-GP sec. 5]. "train" takes
        the one of the least negative log-likelihood on the training samples themselves [GPD sec. 4.2]. Other values:
        scikit-learn's ``GridSearchCV`` over targets.
    kernel, ard, noise, scale_features
        See ``deepsimplex.gp.GaussianProcess``.
    max_iter, n_restarts
        For "exact" and "collapsed"; see ``deepsimplex.gp.GaussianProcess``.
    inducing : int or array_like, shape [M, d]
        For "collapsed" and "stochastic"; see ``deepsimplex.gp.CollapsedGaussianProcess``. Default 200.
    learn_inducing : bool, optional
        Whether the inducing points are optimized. Default None: True for "stochastic", False for "collapsed", whose
        points remain among the samples.
    separate_inducing : bool
        Whether every latent dimension has its own inducing points, which fits better with as many points, at L times
        the cost; probabilities are quasi-Monte Carlo then. Default False.
    epochs, batch_size, learning_rate
        For "stochastic"; see ``deepsimplex.gp.StochasticGaussianProcess``.
    readout : {"argmax", "softmax"}, optional
        Default None: the target's own.
    classes : array_like, shape [n], optional
        All classes, if y may lack some, in any order, which is that of the columns of soft labels. Default None:
        those of y.
    random_state : int, numpy.random.RandomState or None
        Seed of every random choice; a generator (None: NumPy's global one) draws it at every fit. Default 0: the same
        data give the same classifier.

    Attributes
    ----------
    classes_ : ndarray, shape [n]
    target_ : Target
    regressor_ : GaussianProcess
    smoothing_ : float or None
        The value chosen; None if there was no choice.
    smoothing_scores_ : dict of float to float
        Negative log-likelihood of every value tried.
    n_iter_ : int
        Iterations of L-BFGS over all starts, or epochs.
    n_features_in_ : int

    Notes
    -----
    [ILR-GP sec. 3.2], [GPD sec. 4], and CASIMAC's targets with a Gaussian process as in its authors' package.

    ``predict_latent`` returns the latent functions without observation noise, whether the target states it or it is
    learned. That is what is read out.

    Rows that do not fit into memory: "stochastic" reads them in blocks, once to check them, once for their moments (all
    rows) and a sample, and in every epoch. The sample is 20,000 rows drawn at random and one of every class: among them
    are the inducing points that are chosen, the median distance that lengthscales start at, and the mean noise that a
    learned one starts at. Beside blocks, memory holds 24 bytes for every row of an array, and of a data set nothing.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = SimplexGaussianProcess("ilr").fit(X[::2], y[::2])
    >>> bool(classifier.score(X[1::2], y[1::2]) > 0.9)
    True
    """

    target: Any = "ilr"
    inference: Inference = "exact"
    kernel: Any = "rbf"
    _: KW_ONLY
    smoothing: Smoothing | None = None
    noise: str = "auto"
    learn_inducing: bool | None = None
    readout: str | None = None
    max_iter: int = 200
    n_restarts: int = 0

    def _regressor(self, seed: int) -> Any:
        from deepsimplex import gp  # GPflow takes seconds to import

        processes: dict[str, tuple[type, tuple[str, ...]]] = {
            "exact": (gp.ExactGaussianProcess, ()),
            "collapsed": (gp.CollapsedGaussianProcess, ("inducing", "separate_inducing")),
            "stochastic": (
                gp.StochasticGaussianProcess,
                ("inducing", "separate_inducing", "epochs", "batch_size", "learning_rate"),
            ),
        }
        check_choice(self.inference, "inference", processes)
        process, sparse = processes[self.inference]
        names = ("ard", "noise", "scale_features", "max_iter", "n_restarts", *sparse)
        settings = {name: getattr(self, name) for name in names}
        if sparse and self.learn_inducing is not None:
            settings["learn_inducing"] = self.learn_inducing
        return process(self.kernel, **settings, random_state=seed)

    def _training_observations(self, samples: Samples, labels: Labels, seed: int) -> Samples:
        self._regressor(seed).check_rows(samples.num_rows)  # before the target measures distances
        target, self.smoothing_, self.smoothing_scores_ = select_target(self, samples, labels, seed)
        return self._observed(samples, labels, target)

    def _observed(self, samples: Samples, labels: Labels, target: Target) -> Samples:
        """Return samples with latents in place of labels; a copy of the target becomes ``target_``."""
        if target.needs_samples:
            X, _, weights = samples.whole()
            latents = self._observations(np.asarray(X, dtype=np.float64), labels, target, weights)
            return ArraySamples(X, latents.loc, latents.scale, weights, labels.hard)
        n = len(labels.classes)
        fitted = self.target_ = copy.deepcopy(target).fit(None, np.arange(n), num_classes=n)
        table = fitted.table(n)

        def observed(X: Any, values: Any, weights: Any) -> Any:
            hard = values if values.ndim == 1 else values.argmax(axis=1)
            if table is None or values.ndim == 2:
                latents = fitted.transform(None, values)
                return X, latents.loc, latents.scale, weights, hard
            return X, table.loc[hard], table.scale[hard], weights, hard

        return samples.map(observed)

    def _check_settings(self, streamed: bool) -> None:
        self._check_readout()
        target = TARGETS.get(self.target)
        needs = {
            f"inference={self.inference!r}": self.inference != "stochastic",
            f"target={target!r}": target.needs_samples,
            f"smoothing={self.smoothing!r}": self.smoothing is not None,
        }
        if streamed and (settings := [setting for setting, needed in needs.items() if needed]):
            raise ValueError(
                f"{' and '.join(settings)} must have all rows at once; found a stream of batches X, which "
                "inference='stochastic' takes with smoothing=None and a target made from labels alone, as 'ilr'"
            )


@dataclass(eq=False, repr=False)
class CategoricalGaussianProcess(PosteriorMixin, LatentClassifier):
    """Sparse variational Gaussian processes with a categorical likelihood, by minibatches.

    There is no target: the variational bound contains the likelihood of the labels themselves, softmax(S f)_y. This
    needs a distribution of the inducing variables for every latent dimension.

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
        Whether the inducing points are optimized (default True), and whether every latent process has its own (False).
    epochs, batch_size, learning_rate
        See ``deepsimplex.gp.StochasticGaussianProcess``.
    classes : array_like, shape [n], optional
        All classes, if y may lack some, in any order, which is that of the columns of soft labels. Default None:
        those of y.
    random_state : int, numpy.random.RandomState or None
        Seed of every random choice; a generator (None: NumPy's global one) draws it at every fit. Default 0: the same
        data give the same classifier.

    Attributes
    ----------
    classes_ : ndarray, shape [n]
    regressor_ : CategoricalProcess
    n_iter_ : int
        Epochs.
    n_features_in_ : int

    Notes
    -----
    [ILR-GP sec. 3.2, Uncollapsed-ILR]; link="softmax" is the paper's SVGPC. The latents of ``predict_latent`` are not
    observed and have no observation noise. Every process has its own variance: with link="ilr" and more than two
    classes probabilities are quasi-Monte Carlo, with link="softmax" quadrature. Rows are read as
    ``SimplexGaussianProcess`` reads them with inference="stochastic", and up to four times at the end.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = CategoricalGaussianProcess(inducing=20, batch_size=25).fit(X[::2], y[::2])
    >>> bool(classifier.score(X[1::2], y[1::2]) > 0.9)
    True
    """

    link: Literal["ilr", "softmax"] = "ilr"
    kernel: Any = "rbf"
    _: KW_ONLY
    mixing: bool = False
    learn_inducing: bool = True

    def _regressor(self, seed: int) -> Any:
        from deepsimplex import gp  # GPflow takes seconds to import

        settings = {**self.get_params(deep=False), "random_state": seed}
        del settings["classes"]
        return gp.CategoricalProcess(**settings)

    @property
    def scores_(self) -> NDArray[np.float64]:
        """Scores S [n, L] by which latents are read out."""
        return np.asarray(self.regressor_.posterior_.scores)

    @property
    def readout_(self) -> str:
        """Name of the readout."""
        return "softmax"

    def _training_observations(self, samples: Samples, labels: Labels, seed: int) -> Samples:
        from deepsimplex.gp.categorical import weighted_memberships

        return weighted_memberships(samples, len(labels.classes))
