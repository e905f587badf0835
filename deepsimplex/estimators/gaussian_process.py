"""Scikit-learn classifiers by Gaussian processes: on the latents of a target, and with a categorical likelihood."""

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from deepsimplex._utils.batching import num_rows
from deepsimplex._utils.messages import warn_caller
from deepsimplex._utils.parameters import constructor_parameters
from deepsimplex._utils.validation import check_choice, check_flag, check_groups, check_sample_weight, check_whole
from deepsimplex.calibration.after_training import RECOGNIZED_ROWS
from deepsimplex.estimators.calibrated_classifier import Callback, ClassifierStep, RandomState, seed_of
from deepsimplex.estimators.checked_data import checked_labels, readable_rows, training_samples
from deepsimplex.estimators.label_process import LabelPosterior, LabelProcess
from deepsimplex.estimators.latent_classifier import LatentClassifier
from deepsimplex.estimators.saving import Saved
from deepsimplex.estimators.selection import Smoothing, select_target
from deepsimplex.heads.closed_form_head import left_out_outputs
from deepsimplex.latent import LatentGaussian
from deepsimplex.readout import Readout
from deepsimplex.samples import ArraySamples, Labels, Samples, is_stream
from deepsimplex.targets import TARGETS, Target

if TYPE_CHECKING:
    from deepsimplex import gp

Inference = Literal["auto", "exact", "collapsed", "stochastic"]
# Rows up to which a named target is fitted exactly, which takes seconds, and by the collapsed bound.
_EXACT_ROWS, _COLLAPSED_ROWS = 2000, 20_000
# Settings that a process on labels, solved in closed form, does not have.
_NAMED_TARGET_SETTINGS = (
    *("kernel", "ard", "noise", "smoothing", "learn_inducing", "separate_inducing"),
    *("epochs", "batch_size", "learning_rate", "readout", "max_iter", "n_restarts"),
)


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
    inducing: int | ArrayLike | None = 200
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

    def _posterior_from_state(self, state: Mapping[str, NDArray[Any]]) -> Any:
        """Restore a posterior from the arrays of its ``state``."""
        from deepsimplex.gp.posterior import Posterior  # GPflow takes seconds to import

        return Posterior.from_state(state)

    def _set_posterior(self, posterior: Any) -> Self:
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

    By default, ``target="auto"``, the latents are the vertices of the simplex, and everything is chosen and solved in
    closed form by exact leave-one-out, in about a second for a thousand rows: the kernel (squared exponential, Matern
    3/2 or 1/2, eleven lengthscales around the median distance, three weights of a linear part), its noise (24 values),
    and a softmax readout, whose penalty is chosen by folds. What is compared are class probabilities of training rows
    that were left out. A named target is fitted as in the papers, by the marginal likelihood of its latents.

    Parameters
    ----------
    target : Target, str or dict
        Any target of ``deepsimplex.targets``, or its name. Default "auto": the vertices, solved in closed form.
    inference : {"auto", "exact", "collapsed", "stochastic"}
        Default "auto": of a named target "exact" up to 2000 rows, "collapsed" up to 20,000, then "stochastic", as for a
        stream of batches. "exact" factorizes the kernel matrix of all samples: at most thousands. "collapsed"
        maximizes Titsias' bound over inducing points, by L-BFGS over all samples; "stochastic" the same bound by
        minibatches, natural gradients and Adam. ``target="auto"`` is exact up to ``inducing`` rows and takes as many
        at random as inducing rows beyond, with "collapsed" as well; with "exact" all rows are, at most 10,000.
    kernel : {"auto", "rbf", "matern32", "matern52"} or gpflow.kernels.Kernel
        Of a named target; see ``deepsimplex.gp.GaussianProcess``. Default "auto": "rbf".
    smoothing : {None, "validate", "train"}
        How to choose the smoothing of ILR targets or the concentration of Dirichlet ones. None (default) takes the
        target as it is. "validate" tries the values of the target's paper on a held-out tenth of every class, takes
        the one of the least negative log-likelihood there, and fits all samples with it [ILR-GP sec. 5]. "train" takes
        the one of the least negative log-likelihood on the training samples themselves [GPD sec. 4.2]. Other values:
        scikit-learn's ``GridSearchCV`` over targets.
    ard, noise
        Of a named target; see ``deepsimplex.gp.GaussianProcess``.
    scale_features : bool
        Whether features are standardized first, with ``target="auto"`` after outliers were drawn in smoothly, to within
        three robust standard deviations of the median, and get smooth steps at their quantiles. Default True.
    max_iter, n_restarts
        For "exact" and "collapsed" with a named target; see ``deepsimplex.gp.GaussianProcess``.
    inducing : int or array_like, shape [M, d], optional
        Default None: 2000 rows at most for ``target="auto"``, up to 3500 for more than 80 classes; 200 points for
        "collapsed" and "stochastic" with a named target; see ``deepsimplex.gp.CollapsedGaussianProcess``.
    learn_inducing : bool, optional
        Whether the inducing points are optimized. Default None: True for "stochastic", False for "collapsed", whose
        points remain among the samples.
    separate_inducing : bool
        Whether every latent dimension has its own inducing points, which fits better with as many points, at L times
        the cost; probabilities are quasi-Monte Carlo then. Default False.
    epochs, batch_size, learning_rate
        For "stochastic"; see ``deepsimplex.gp.StochasticGaussianProcess``.
    readout : {"argmax", "softmax"}, optional
        Of a named target. Default None: the target's own.
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
    inference_ : {"exact", "collapsed", "stochastic"}
        The inference that was used.
    regressor_ : GaussianProcess or LabelProcess
    kernel_ : dict
        With ``target="auto"``: "name" of the kernel that was chosen, "lengthscale", weight of the "linear" part and
        "noise", the variance of labels, in units of standardized features and of a kernel of variance one.
    loo_proba_ : ndarray, shape [N, n]
        With ``target="auto"``: class probabilities of the training rows, each left out of the regression, with its
        group if there are groups. NaN for rows that were not left out: those whose class has no other row, those of
        weight zero, and of more than 5000 rows those that were not drawn.
    loo_rows_ : ndarray of int64
        The rows that were left out, as positions, not index labels of a Series:
        ``report(np.asarray(y)[c.loo_rows_], c.loo_proba_[c.loo_rows_])``.
    loo_score_ : float
        Their mean log-likelihood, scikit-learn's "neg_log_loss".
    label_noise_ : float
        With ``target="auto"``: share of the training labels that tell nothing, as those mistaken at random; 0 unless
        left-out rows are clearly likelier with it. Every class probability is at least ``label_noise_ / n``.
    smoothing_ : float or None
        The value chosen; None if there was no choice.
    smoothing_scores_ : dict of float to float
        Negative log-likelihood of every value tried.
    n_iter_ : int
        Iterations of L-BFGS over all starts, or epochs; 1 in closed form.
    n_features_in_ : int

    Notes
    -----
    [ILR-GP sec. 3.2], [GPD sec. 4], and CASIMAC's targets with a Gaussian process as in its authors' package. The
    closed form: Rasmussen and Williams 2006, sec. 5.4.2; see ``deepsimplex.kernels.LabelRegression``.

    ``loo_proba_`` are latents of a fit without the row, for the kernel and the noise as they are, read out by a readout
    that was fitted without a fifth of the rows, the row among them; of more than 1000 rows some by the readout itself.
    Only the choice of kernel and noise has seen the row.

    ``predict_latent`` returns the latent functions without observation noise, whether the target states it or it is
    learned. That is what is read out; of ``target="auto"`` only their means are.

    Rows that do not fit into memory: the closed form reads them in blocks, twice, and thrice with groups. "stochastic"
    reads them in blocks, once to check them, once for their moments (all rows) and a sample, and in every epoch. The
    sample is 20,000 rows drawn at random and one of every class: among them are the inducing points that are chosen,
    the median distance that lengthscales start at, and the mean noise that a learned one starts at. Beside blocks,
    memory holds 24 bytes for every row of an array, and of a data set nothing; the closed form holds 40 more of both,
    by which ``forget`` recognizes rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = SimplexGaussianProcess().fit(X[::2], y[::2])
    >>> bool(classifier.score(X[1::2], y[1::2]) > 0.9), classifier.loo_proba_.shape
    (True, (75, 3))
    """

    target: Any = "auto"
    inference: Inference = "auto"
    kernel: Any = "auto"
    _: KW_ONLY
    smoothing: Smoothing | None = None
    noise: str = "auto"
    inducing: int | ArrayLike | None = None
    learn_inducing: bool | None = None
    readout: str | None = None
    max_iter: int = 200
    n_restarts: int = 0
    smoothing_: float | None = field(init=False)
    smoothing_scores_: dict[float, float] = field(init=False)

    @property
    def _solves_labels(self) -> bool:
        """Whether ``fit`` chooses and solves in closed form."""
        return isinstance(self.target, str) and self.target == "auto"

    @property
    def _is_closed_form(self) -> bool:
        """The same of what is fitted, whatever parameters were set since."""
        posterior = getattr(getattr(self, "regressor_", None), "posterior_", None)
        return self._solves_labels if posterior is None else isinstance(posterior, LabelPosterior)

    def _regressor(self, seed: int) -> Any:
        check_choice(self.inference, "inference", get_args(Inference))
        if self._solves_labels:
            return self._label_process(seed)
        from deepsimplex import gp  # GPflow takes seconds to import

        processes: dict[str, tuple[type, tuple[str, ...]]] = {
            "exact": (gp.ExactGaussianProcess, ()),
            "collapsed": (gp.CollapsedGaussianProcess, ("separate_inducing",)),
            "stochastic": (
                gp.StochasticGaussianProcess,
                ("separate_inducing", "epochs", "batch_size", "learning_rate"),
            ),
        }
        inference = getattr(self, "inference_", "exact") if self.inference == "auto" else self.inference
        process, sparse = processes[inference]
        names = ("ard", "noise", "scale_features", "max_iter", "n_restarts", *sparse)
        settings = {name: getattr(self, name) for name in names}
        for name in ("inducing", "learn_inducing"):
            if sparse and getattr(self, name) is not None:
                settings[name] = getattr(self, name)
        kernel = "rbf" if isinstance(self.kernel, str) and self.kernel == "auto" else self.kernel
        return process(kernel, **settings, random_state=seed)

    def _label_process(self, seed: int) -> LabelProcess:
        defaults = constructor_parameters(type(self))
        others = {name: getattr(self, name) for name in _NAMED_TARGET_SETTINGS}
        given = [f"{name}={value!r}" for name, value in others.items() if value != defaults[name].default]
        if self.inference == "stochastic":
            given.append("inference='stochastic'")
        if given:
            raise ValueError(
                f"{', '.join(given)} must be given with a named target, such as target='ilr'; found target='auto', "
                "which chooses kernel, noise and readout by leave-one-out"
            )
        inducing = None if self.inducing is None else check_whole(self.inducing, "inducing", 1)
        return LabelProcess(inducing, check_flag(self.scale_features, "scale_features"), seed)

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        callback: Callback | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit to features X [N, d] and labels y.

        Parameters
        ----------
        X : array_like, shape [N, d], tf.data.Dataset or keras.utils.PyDataset
            Numbers that can be sliced by rows (NumPy's arrays and memory maps, h5py's data sets) are never copied
            whole in closed form, nor by inference="stochastic" with a target made from labels alone. These also take a
            data set of batches (features, label) or (features, label, sample_weight), which is finite and the same
            whenever it is read: its batches are the minibatches, in its order; shuffle it yourself.
        y : array_like, shape [N] or [N, n]
            Labels of any kind, or soft labels, for targets made from labels alone: rows that sum to one. None beside a
            data set.
        sample_weight : array_like, shape [N], optional
            Exponents of the samples' likelihoods: one of weight 0 is left out. In closed form they are relative: one of
            twice the weight counts as two, which are left out together. None beside a data set.
        callback : callable, optional
            Called with a ``deepsimplex.estimators.ClassifierStep`` after every iteration or epoch, in closed form once,
            as ``deepsimplex.monitoring.CalibrationBoard`` is, but not while ``smoothing`` tries values. Its method
            ``fit_ended``, if it has one, is called with the fitted classifier.
        groups : array_like, shape [N], optional
            With ``target="auto"``: rows of equal values, such as those of one patient, are left out together, wherever
            rows are left out to choose and to calibrate. None beside a data set.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For NaN, labels that are not in ``classes``, a single class, data that the target rejects, groups of another
            length or beside a named target, settings of a named target without one, and a data set with settings that
            need all rows at once: another inference than "stochastic", distances, ``smoothing``.

        Warns
        -----
        ConvergenceWarning
            If ``max_iter`` ended the search.
        UserWarning
            If a class has a single row, or group; if inference="collapsed" has no effect, as ``inducing`` are all rows.
        """
        self._forget_left_out()
        if not self._solves_labels:
            if groups is not None:
                raise ValueError(f"groups must be given with target='auto' only; found target={self.target!r}")
            return super().fit(X, y, sample_weight, callback)
        with self._fitting():
            self._solve(X, y, sample_weight, groups)
        if callback is not None:
            numbers = {name: np.asarray(value) for name, value in self.kernel_.items() if name != "name"}
            N = len(self.loo_rows_)
            callback(ClassifierStep(1, -N * self.loo_score_, numbers, N, lambda: copy.copy(self)))
        self._report_end(callback)
        return self

    def _solve(self, X: Any, y: Any, sample_weight: Any, groups: Any) -> None:
        process = self._regressor(seed_of(self.random_state))
        samples, labels = training_samples(self, X, y, sample_weight)
        N, n = samples.num_rows, len(labels.classes)
        # Positions of the rows that count, of a stream among those of weight above zero.
        rows = np.arange(N) if sample_weight is None else np.flatnonzero(np.ravel(np.asarray(sample_weight)) > 0)
        if groups is not None:
            groups = check_groups(groups, None if is_stream(X) else num_rows(X), "row of arrays X")[rows]
        if self.inference == "exact":
            process.make_exact(N)
        self.target_ = TARGETS.get("vertices").fit(None, np.arange(n), num_classes=n)
        self.smoothing_, self.smoothing_scores_ = None, {}
        left_out, p = process.fit_samples(samples, n, groups)
        self.inference_ = "exact" if process.posterior_.head.inducing == N else "collapsed"
        if self.inference != "auto" and self.inference_ != self.inference:
            warn_caller(
                f"inference='collapsed' changes nothing: all {N} rows X are inducing; lower inducing={self.inducing}",
            )
        self.regressor_, self.n_iter_ = process, process.n_iter_
        self.loo_rows_, self.loo_rows_proba_ = rows[left_out.rows], p
        self.loo_score_ = float(
            np.sum(left_out.labels * np.log(np.maximum(p, np.finfo(float).tiny))) / np.sum(left_out.labels)
        )
        self.num_rows_ = N if sample_weight is None else len(np.ravel(np.asarray(sample_weight)))

    def _forget_left_out(self) -> None:
        for name in ("num_rows_", "loo_rows_", "loo_rows_proba_", "loo_score_"):
            self.__dict__.pop(name, None)

    @property
    def loo_proba_(self) -> NDArray[np.float64]:
        """Class probabilities [N, n] of the training rows, left out; NaN for those that were not."""
        if not hasattr(self, "loo_rows_"):
            raise AttributeError("left-out predictions are those of fit, which partial_fit and forget remove: call fit")
        p = np.full((self.num_rows_, len(self.classes_)), np.nan)
        p[self.loo_rows_] = self.loo_rows_proba_
        return p

    @property
    def kernel_(self) -> dict[str, Any]:
        """The kernel that was chosen, in closed form."""
        return self._label_posterior.kernel

    @property
    def label_noise_(self) -> float:
        """Share of the training labels that tell nothing, in closed form."""
        return self._label_posterior.readout.label_noise

    @property
    def _label_posterior(self) -> LabelPosterior:
        posterior = getattr(getattr(self, "regressor_", None), "posterior_", None)
        if not isinstance(posterior, LabelPosterior):
            raise AttributeError("only a classifier that was fitted with target='auto' has this attribute")
        return posterior

    @available_if(lambda self: self._is_closed_form)
    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Add rows, as if ``fit`` had seen them, but for its choices: kernel, noise, readout, columns' units and steps.

        The first call makes the choices: ten rows of it make poor ones for hundreds that follow, so begin with a
        hundred, or fit anew. While all rows are inducing ones and there is room, new ones are too. ``loo_proba_`` and
        ``loo_score_`` are removed, and so, with a warning, are density, calibration and sets.

        Parameters
        ----------
        X, y, sample_weight
            As for ``fit``, in arrays; labels are among ``classes_``, and weights in the unit of those of ``fit``.
        classes : array_like, shape [n], optional
            All classes, in a first call, which fits; by default ``classes`` of the constructor, or those of y.

        Returns
        -------
        self
        """
        if not hasattr(self, self._fitted_attribute):
            first = clone(self)
            first.classes = self.classes if classes is None else classes
            first.fit(X, y, sample_weight)
            self.__dict__.update({name: value for name, value in vars(first).items() if name.endswith("_")})
            return self
        samples = self._labeled_samples(X, y, sample_weight)
        return self._changed("partial_fit", self._label_posterior.extended(samples, self._regressor(0).inducing))

    @available_if(lambda self: self._is_closed_form)
    def forget(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Remove rows, exactly as if ``fit`` had not seen them, but for its choices.

        These are kernel, noise, readout, and the units, steps (quantiles) and range of the columns: numbers about all
        rows, which ``fit`` without the removed ones makes anew. The rows themselves, ``loo_proba_`` and ``loo_score_``
        are removed, and so, with a warning, are density, calibration and sets.

        Parameters
        ----------
        X, y, sample_weight
            Rows that ``fit`` or ``partial_fit`` has seen, with their labels and weights.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For a row that was not fitted, and for all rows.
        """
        check_is_fitted(self)
        return self._changed("forget", self._label_posterior.reduced(self._labeled_samples(X, y, sample_weight)))

    def _labeled_samples(self, X: Any, y: Any, sample_weight: Any) -> ArraySamples:
        features = readable_rows(self, X, reset=False)
        labels = checked_labels(y, self.classes_)
        if len(labels) != len(features):
            raise ValueError(f"X and y must have as many rows; found {len(features)} and {len(labels)}")
        return ArraySamples(features, labels.values, check_sample_weight(sample_weight, len(features)))

    def _left_out_outputs(
        self, X: Any, y: Any, most: int | None = None, seed: int = 0
    ) -> tuple[dict[str, Any], NDArray[np.int64], Any]:
        if not self._is_closed_form:
            return super()._left_out_outputs(X, y)
        X, labels, _ = self._labeled_arrays(X, y, None)
        head = self._label_posterior.head
        return left_out_outputs(head, self._readout, self._head_features(X), labels, None, most, seed)

    def _head_features(self, X: Any) -> Any:
        return self._label_posterior.features(np.asarray(readable_rows(self, X, reset=False), np.float64))

    def _training_samples(self, X: Any) -> NDArray[np.bool_]:
        if not self._is_closed_form:
            return super()._training_samples(X)
        return self._label_posterior.head.recognizes_features(self._head_features(X[:RECOGNIZED_ROWS]))

    def _latents_without(self, features: Any, influence: Any, residuals: Any) -> tuple[Any, Any]:
        return self._label_posterior.without(features, influence, residuals), self._readout

    def _changed(self, cause: str, posterior: LabelPosterior) -> Self:
        """Replace the posterior, and remove what was fitted to the one before."""
        after_training = self._after_training
        after_training.remove(cause)
        self._forget_left_out()
        return self._store(after_training)._set_posterior(posterior)

    def _posterior_from_state(self, state: Mapping[str, NDArray[Any]]) -> Any:
        return LabelPosterior.from_state(state) if self._solves_labels else super()._posterior_from_state(state)

    @property
    def readout_(self) -> str:
        """Name of the readout."""
        return "left_out" if self._is_closed_form else super().readout_

    @property
    def _readout(self) -> Readout:
        return self._label_posterior.readout if self._is_closed_form else super()._readout

    def _read(self, X: ArrayLike, log: bool = False) -> Iterator[NDArray[np.float64]]:
        """Yield class probabilities; in closed form without the latents' variances, which are not read out."""
        if not self._is_closed_form:
            yield from super()._read(X, log)
            return
        check_is_fitted(self)
        for block in self._blocks(X):
            loc = self._label_posterior.predict_means(block)
            yield self._readout.predict(self._adjusted(LatentGaussian(loc, np.ones((len(loc), 1))), block), log)

    @property
    def _formats(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*super()._formats, "litert") if self._is_closed_form else super()._formats

    def _training_observations(self, samples: Samples, labels: Labels, seed: int) -> Samples:
        self.inference_ = self.inference
        if self.inference == "auto":
            N = np.inf if samples.is_stream else samples.num_rows
            self.inference_ = "exact" if N <= _EXACT_ROWS else "collapsed" if N <= _COLLAPSED_ROWS else "stochastic"
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
            f"inference={self.inference!r}": self.inference not in ("auto", "stochastic"),
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
        See ``deepsimplex.gp.CategoricalProcess``. Default None, by the number of rows.
    scale_variances : bool
        Whether the latents' variances are scaled by the likelihood of left-out rows. Default True; False is the papers'
        posterior, whose probabilities are too cautious.
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
    ``SimplexGaussianProcess`` reads them with inference="stochastic", and up to five times at the end.

    Probabilities are expectations over the latents, and too cautious at the variances of the bound. The standard
    deviations are multiplied by ``regressor_.std_factor_``, 0.1 to 1, which is chosen from the training rows, each left
    out of the posterior approximately: see ``deepsimplex.gp.CategoricalProcess``. ``predict_latent`` includes it. There
    is no ``loo_proba_``: hyperparameters and inducing points have seen the rows.

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
    epochs: int | None = None  # type: ignore[assignment]
    learning_rate: float | None = None  # type: ignore[assignment]
    scale_variances: bool = True

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
