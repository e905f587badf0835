"""A sparse variational Gaussian process as a Keras layer: features in, a Gaussian over latent space out."""

import math
from collections.abc import Callable
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from numpy.typing import NDArray

from deepsimplex._utils.messages import warn_caller
from deepsimplex._utils.portable_operations import batch_normalization, precise_dtype, solve_lower
from deepsimplex._utils.validation import check_choice, check_flag, check_number, check_whole
from deepsimplex.heads.features import ROWS, draw_features
from deepsimplex.heads.head import Head
from deepsimplex.kernels import KERNELS, Kernel, median_distance, squared_distances

COVARIANCES = ("isotropic", "diagonal")
MeanFunction = Literal["linear", "zero"]
MEAN_FUNCTIONS = ("linear", "zero")


@keras.saving.register_keras_serializable(package="deepsimplex")
class VariationalGaussianProcess(Head):
    """Map features [N, d] to the posterior of Gaussian processes over latent space: on a backbone, a deep kernel.

    L latent processes f_l share one kernel k and M inducing points U. With K = k(U, U) = C C^T their values there are
    C v_l, and the posterior is sought among q(v_l) = N(m_l, S), S = R R^T, so that with a(x) = C^-1 k(U, x)

        mu_l(x) = w_l^T x + b_l + a(x)^T m_l,    var(x) = k(x, x) - a(x)^T a(x) + a(x)^T S a(x).

    The prior's mean w_l^T x + b_l starts at zero, as the last layer of a softmax network would be; the processes model
    the residual. Far from the inducing points the variance is the kernel's: unlike those of ``GaussianHead``,
    predictions are uncertain for samples unlike the training samples, if the backbone maps them to distant features.
    x stands for the features after batch normalization, unless ``normalize_features`` is False.

    Parameters
    ----------
    num_classes : int
        Number of classes n, at least 2.
    inducing : int
        Number of inducing points M. A step takes O(M^3 + N M^2) time. Default 100; a backbone gathers each class in a
        cluster, so that some points per class are enough.
    num_samples : int, optional
        Number of training samples, less those held out for validation. The layer adds the divergence of q from the
        prior, divided by it, to the losses of the model it is in; see Notes. Default: counted by ``adapt``; without
        ``adapt`` it is taken to be ``effective_samples``, with a warning.
    effective_samples : int, optional
        Largest number that the divergence is divided by. Default 600: the features are learned from the same samples,
        which therefore count for less than as many independent ones; without the bound the processes are too
        confident after many epochs. None: no bound, for features that are given, where the evidence lower bound holds.
    covariance : {"isotropic", "diagonal"}
        "isotropic" (default) shares S among the latent dimensions: one variance per sample, which every readout
        integrates exactly. "diagonal" has S_l for each, and L times as many weights for them.
    kernel : {"rbf", "matern12", "matern32", "matern52"}
        Squared exponential (default) or Matern, whose rougher functions suit features that jump.
    variance : float
        Initial variance of the kernel, in squared units of the latents; it is learned. Default 1, which suits latents
        of that order (CASIMAC on images in [0, 1], ILR). For others pass the mean square of the latents: from an
        initial value far too small, training makes little progress.
    mean_function : {"linear", "zero"}
        The prior's mean. "linear" (default) is w^T x + b with learned weights. With "zero", the prior of [ILR-GP], the
        gradient vanishes for features far from all inducing points, so that the backbone learns more slowly.
    ard : bool
        Whether every feature has its own lengthscale. Default False: a backbone can scale its features itself.
    normalize_features : bool
        Whether features pass batch normalization first, with Keras' learned scale and shift. Default True: the features
        of a backbone grow and move in training, away from inducing points that start among the first ones, until the
        kernel vanishes at every sample and the variance is the same for all. False for features that do not change: a
        frozen backbone, a table that is scaled.
    latent_dim : int, optional
        Number of latent dimensions L. Default n - 1, what CASIMAC and ILR targets have; Dirichlet and one-hot targets
        have n.
    jitter : float
        Added to the diagonal of K, in units of the kernel's variance. The default 1e-6 keeps K positive definite where
        inducing points coincide, and is the least share of the variance left at an inducing point.
    scale_floor : float
        Added to the standard deviation in quadrature, in units of the latents: the least scale. Default 1e-3, as in
        ``GaussianHead``.
    **kwargs
        Passed to keras.layers.Layer.

    Returns
    -------
    dict
        {"loc": [N, L], "scale": [N, 1] or [N, L]}, of dtype float32 under mixed precision, else of the layer's dtype.
        ``deepsimplex.LatentGaussian.of`` reads it. The scale is that of f, without any noise of observations.

    Raises
    ------
    ValueError
        For numbers out of range, an unknown covariance or kernel, features not of rank 2.

    Notes
    -----
    ``adapt`` puts inducing points among the features of real samples, and the lengthscale at their typical distance,
    even if the backbone is still untrained. Without it inducing points are drawn from N(0, I), with the
    matching lengthscale sqrt(2 d). That suits normalized features; without ``normalize_features``, and with features of
    other means or scales, training takes longer, or the kernel and its gradient vanish at all samples.

    Inducing points and lengthscales are in units of the normalized features. The moving averages have a momentum of
    0.9. They lag behind features that move: ``SimplexClassifier.fit`` replaces them as every epoch ends by the moments
    of training samples (``set_feature_moments``). Replicas of a ``tf.distribute`` strategy share their batch
    statistics. The learned scale and shift, which the lengthscale and the linear mean could express as well, train
    faster than these do.

    The layer's ``losses`` hold the divergence sum_l KL(N(m_l, S) || N(0, I)) / min(num_samples, effective_samples), as
    they hold regularizers of weights. A model adds it once to what it minimizes, however often it calls the layer.
    Where the data term is the mean over samples of E_q[-log p(z | f(x))] and ``effective_samples`` is None, the sum is
    the negative evidence lower bound of Hensman et al. per sample. ``losses.LatentNLL`` and the readouts have
    -log E_q[p(z | f(x))] there, the predictive density itself: the objective of Jankowiak et al., whose variances they
    find better calibrated. As with any Keras regularizer a frozen layer adds nothing, and sample weights do not apply
    to it: scale them to mean one.

    Kernel matrices and the one Cholesky factorization are float64 whatever the layer's dtype: in float32 it fails for a
    few hundred points with a jitter below 1e-5, and GPUs may round float32 products to ten bits (TensorFloat-32).

    Sources: [ILR-GP] sec. 3.2 (Gaussian processes over latents); Hensman, Fusi and Lawrence, *Gaussian Processes for
    Big Data*, 2013 (the bound); Jankowiak, Pleiss and Gardner, *Parametric Gaussian Process Regressors*, 2020.

    Examples
    --------
    >>> import deepsimplex as ds
    >>> (x, y), (x_test, y_test) = ds.datasets.load("digits")
    >>> backbone = ds.backbones.mlp([32])
    >>> model = ds.SimplexClassifier(backbone, "ilr", num_classes=10, head={"name": "variational", "inducing": 50})
    >>> model.compile(optimizer=keras.optimizers.Adam(0.01))
    >>> history = model.fit(x, y, epochs=1, verbose=0)
    >>> model.predict_latent(x_test).covariance
    'isotropic'
    """

    num_classes: int
    latent_dim: int

    def __init__(
        self,
        num_classes: int,
        inducing: int = 100,
        *,
        num_samples: int | None = None,
        effective_samples: int | None = 600,
        covariance: Literal["isotropic", "diagonal"] = "isotropic",
        kernel: Kernel = "rbf",
        variance: float = 1.0,
        mean_function: MeanFunction = "linear",
        ard: bool = False,
        normalize_features: bool = True,
        latent_dim: int | None = None,
        jitter: float = 1e-6,
        scale_floor: float = 1e-3,
        **kwargs: Any,
    ) -> None:
        # Features that are not normalized are cast to higher precision in the layer, never to lower.
        super().__init__(autocast=False, **kwargs)
        self.adapted = False
        self.num_classes = check_whole(num_classes, "num_classes", least=2)
        self.inducing = check_whole(inducing, "inducing", least=1)
        self.num_samples = None if num_samples is None else check_whole(num_samples, "num_samples", least=1)
        self.effective_samples = (
            None if effective_samples is None else check_whole(effective_samples, "effective_samples", least=1)
        )
        self.latent_dim = self.num_classes - 1 if latent_dim is None else check_whole(latent_dim, "latent_dim", least=1)
        self.covariance = check_choice(covariance, "covariance", COVARIANCES)
        self.kernel: Kernel = check_choice(kernel, "kernel", KERNELS)
        self.variance = check_number(variance, "variance", above=0)
        self.mean_function: MeanFunction = check_choice(mean_function, "mean_function", MEAN_FUNCTIONS)
        self.ard = check_flag(ard, "ard")
        self.normalize_features = check_flag(normalize_features, "normalize_features")
        self.normalization: keras.layers.BatchNormalization | None = None
        self.jitter = check_number(jitter, "jitter", above=0)
        self.scale_floor = check_number(scale_floor, "scale_floor", above=0)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        super().build(input_shape)
        if self.normalize_features:
            self.normalization = batch_normalization(
                dtype=self._output_dtype, trainable=self.trainable, name="normalization"
            )
            self.normalization.build(input_shape)
        M, d, L = self.inducing, self._num_features, self.latent_dim
        factors = 1 if self.covariance == "isotropic" else L
        points = keras.initializers.RandomNormal(stddev=1.0)
        lengthscale = keras.initializers.Constant(0.5 * math.log(2 * d))
        self.inducing_points = self._weight("inducing_points", (M, d), points)
        self.log_lengthscale = self._weight("log_lengthscale", (d,) if self.ard else (), lengthscale)
        variance = keras.initializers.Constant(math.log(self.variance))
        self.log_variance = self._weight("log_variance", (), variance)
        N = self.num_samples or self.effective_samples or 0
        count = keras.initializers.Constant(min(N, self.effective_samples or N))
        self.sample_count = self._weight("sample_count", (), count, trainable=False)
        # At zero, q is the prior.
        self.mean = self._weight("mean", (M, L))
        self.raw_factor = self._weight("raw_factor", (factors, M, M), regularizer=self._divergence_per_sample)
        if self.mean_function == "linear":
            self.slope = self._weight("slope", (d, L))
            self.offset = self._weight("offset", (L,))

    def adapt(
        self, x: Any, y: Any = None, backbone: Callable[..., Any] | None = None, *, seed: int = 0
    ) -> "VariationalGaussianProcess":
        """Initialize inducing points by features of samples, and the lengthscale by their median distance.

        With ``normalize_features`` the samples' moments are the first moving averages, and points and lengthscale are
        those of normalized features.

        ``SimplexClassifier.fit`` calls it once, before training.

        Parameters
        ----------
        x : array, tf.data.Dataset, keras.utils.PyDataset or iterator
            Samples [N, ...], or batches of them, with or without labels. One pass draws the features of 2000 samples
            (or of 10 for each inducing point, if that is more); k-means++ chooses among those, and the number of
            samples is counted, unless ``num_samples`` was given. If there are fewer distinct ones than inducing
            points, the rest is drawn from the normal distribution of their mean and standard deviation.
        y : array, optional
            Not used.
        backbone : keras.Model or keras.layers.Layer, optional
            The network before the layer, from samples to features [N, d]. It is called in training mode, and its state
            is restored. Default: samples are features.
        seed : int
            Seed of all draws. Default 0.

        Returns
        -------
        VariationalGaussianProcess
            The layer itself, built.

        Raises
        ------
        ValueError
            For features not of rank 2, not finite, or not as many as the layer was built for.

        Examples
        --------
        >>> layer = VariationalGaussianProcess(3, inducing=2, normalize_features=False).adapt(np.eye(5))
        >>> round(float(ops.exp(layer.log_lengthscale)), 4), float(layer.sample_count)
        (1.4142, 5.0)
        """
        from sklearn.cluster import kmeans_plusplus  # takes a second to import

        rng = np.random.default_rng(check_whole(seed, "seed", 0))
        (rows,), _, count = draw_features(x, None, backbone, max(ROWS, 10 * self.inducing), rng)
        self._build_for(rows)
        if self.normalization is not None:
            self.set_feature_moments(rows)
            rows = np.asarray(self.normalization(rows), np.float64)
        points = np.unique(rows, axis=0)
        if len(points) > self.inducing:
            points, _ = kmeans_plusplus(points, self.inducing, random_state=int(rng.integers(2**31)))
        others = rng.normal(rows.mean(axis=0), rows.std(axis=0), (self.inducing - len(points), rows.shape[1]))
        self.inducing_points.assign(np.concatenate([points, others]))
        self.log_lengthscale.assign(np.full(self.log_lengthscale.shape, math.log(median_distance(rows[:ROWS]))))
        self.set_num_samples(count)
        self.adapted = True
        return self

    def set_feature_moments(self, features: NDArray[Any]) -> None:
        """Normalize features, in predictions, by the moments of these features [N, d] of training samples.

        Examples
        --------
        >>> layer = VariationalGaussianProcess(3, inducing=2).adapt(np.eye(5))
        >>> layer.set_feature_moments(np.eye(5) + 1.0)
        >>> layer.normalization.moving_mean.numpy().round(1)
        array([1.2, 1.2, 1.2, 1.2, 1.2], dtype=float32)
        """
        if self.normalization is not None:
            self.normalization.moving_mean.assign(features.mean(axis=0))
            self.normalization.moving_variance.assign(features.var(axis=0))

    def set_num_samples(self, num_samples: int) -> None:
        """Divide the divergence by this number of training samples, at most ``effective_samples``.

        A number that the constructor was given is kept.

        Examples
        --------
        >>> layer = VariationalGaussianProcess(3, inducing=2).adapt(np.eye(5))
        >>> layer.set_num_samples(50)
        >>> float(layer.sample_count)
        50.0
        """
        if self.num_samples is None:
            self.sample_count.assign(min(num_samples, self.effective_samples or num_samples))

    def call(self, features: Any, training: bool | None = None) -> dict[str, Any]:
        # features: [N, d]
        if training and self.num_samples is None and not self.adapted:
            hint = "Call adapt(x) before training, as SimplexClassifier.fit does, or give num_samples"
            if self.effective_samples is None:
                raise ValueError(
                    "num_samples or effective_samples must be given in training, to scale the divergence from the "
                    f"prior; found None for both. {hint}"
                )
            warn_caller(
                "the number of training samples is unknown: the divergence from the prior is divided by "
                f"effective_samples={self.effective_samples}, which is right for as many samples or more. {hint}"
            )
        if self.normalization is not None:
            features = self.normalization(features, training=training)
        A = ops.cast(self._whitened(features), self._output_dtype)  # [N, M]
        prior = ops.exp(self.log_variance) - ops.sum(A * A, axis=1)  # [N]
        posterior = ops.sum(ops.square(ops.matmul(A, self._factors(self.raw_factor))), axis=-1)  # [1, N] or [L, N]
        variance = ops.maximum(ops.transpose(prior + posterior), 0.0)  # rounding may leave it below zero
        loc = ops.matmul(A, self.mean)
        if self.mean_function == "linear":
            loc += ops.matmul(ops.cast(features, self._output_dtype), self.slope) + self.offset
        return {"loc": loc, "scale": ops.sqrt(variance + self.scale_floor**2)}

    def _whitened(self, features: Any) -> Any:
        """The rows a(x)^T [N, M], float64."""
        dtype = precise_dtype()
        variance = ops.exp(ops.cast(self.log_variance, dtype))
        k = self._kernel(ops.cast(self.inducing_points, dtype), ops.cast(features, dtype))
        # In units of the variance: K = variance C C^T.
        return ops.sqrt(variance) * ops.transpose(solve_lower(self._factor, k))

    def _factor(self) -> Any:
        """Cholesky factor of the correlations of the inducing points [M, M], float64."""
        U = ops.cast(self.inducing_points, "float64")
        # A symmetric function: twice the gradient by the first argument, at the cost of one.
        fixed = ops.stop_gradient(U)
        K = self._kernel(2.0 * U - fixed, fixed)
        return tf.linalg.cholesky(K + self.jitter * ops.eye(self.inducing, dtype="float64"))

    def _kernel(self, X: Any, Y: Any) -> Any:
        """Correlations [N, M] of the processes at the rows of X [N, d] and Y [M, d]."""
        lengthscale = ops.exp(ops.cast(self.log_lengthscale, X.dtype))
        if self.ard:
            return KERNELS[self.kernel](squared_distances(X / lengthscale, Y / lengthscale))
        return KERNELS[self.kernel](squared_distances(X, Y) / ops.square(lengthscale))

    def _factors(self, raw: Any) -> Any:
        """Lower-triangular factors R, of positive diagonal, from the lower triangles of weights [1 or L, M, M]."""
        identity, index = ops.eye(self.inducing, dtype=raw.dtype), np.arange(self.inducing)
        below = ops.cast(ops.greater(index[:, None], index), raw.dtype)  # ops.tril takes forty operations
        diagonal = ops.exp(raw * identity) * identity  # masked twice: other weights must not overflow
        return diagonal + raw * below

    def kl_divergence(self) -> Any:
        """sum_l KL(N(m_l, S_l) || N(0, I)), in nats: ``sample_count`` times what the layer adds to the loss.

        Examples
        --------
        >>> layer = VariationalGaussianProcess(3, inducing=4, num_samples=10)
        >>> layer.build((None, 2))
        >>> float(layer.kl_divergence())
        0.0
        """
        # (m^T m + tr S - M - log |S|) / 2 for every latent dimension; the weights' diagonal is the logarithm of R's.
        raw = self.raw_factor
        shared_by = self.latent_dim // raw.shape[0]
        excess = ops.sum(ops.square(self._factors(raw))) - raw.shape[0] * self.inducing
        factors = shared_by * (0.5 * excess - ops.sum(raw * ops.eye(self.inducing, dtype=raw.dtype)))
        return 0.5 * ops.sum(ops.square(self.mean)) + factors

    def _divergence_per_sample(self, raw_factor: Any) -> Any:
        """Regularizer of all weights of q, which Keras adds to the losses once."""
        return ops.divide_no_nan(self.kl_divergence(), self.sample_count)

    def get_config(self) -> dict[str, Any]:
        sizes = ("num_classes", "inducing", "num_samples", "effective_samples", "latent_dim", "jitter", "scale_floor")
        kinds = ("covariance", "kernel", "variance", "mean_function", "ard", "normalize_features")
        return {**super().get_config(), **{name: getattr(self, name) for name in (*sizes, *kinds)}}
