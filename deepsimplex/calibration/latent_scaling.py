"""Latent scaling: multiply scale and mean of latent Gaussians by the likeliest factors."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.array_operations import tf
from deepsimplex._utils.messages import guided
from deepsimplex._utils.registry import registered
from deepsimplex._utils.validation import check_labels_beside, check_sample_weight
from deepsimplex.calibration.calibrator import Calibration, smoothed_labels
from deepsimplex.latent import LatentGaussian

# Logarithms of factors lie within +-_MOST; the search starts at the best of these candidates.
_MOST = float(np.log(100.0))
_SCALES = np.log([0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0])
_PAIRS = [(mean, scale) for mean in np.log([0.5, 1.0, 2.0, 4.0]) for scale in np.log([0.1, 0.5, 1.0, 2.0])]
_TOLERANCE = 1e-3


@registered
class LatentScaling(Calibration):
    """Multiply the scale of latent Gaussians, and under softmax their mean too, by the likeliest factors.

    The result is a latent Gaussian again, from which calibrated probabilities, intervals and figures follow as usual.

    Attributes
    ----------
    scale_factor_ : float
        Above 1 if latents were overconfident.
    mean_factor_ : float
        1 for the argmax readout, which depends only on the mean in units of the scale.

    Notes
    -----
    The NLL of the class probabilities is minimized over the logarithms of the factors, from 1/100 to 100. It is not
    convex, so that the search starts at the best of a few values. Under softmax the scale alone cannot make
    probabilities larger than those of softmax(S mu), which latents of smoothed labels (ILR) bound. Every evaluation is
    a readout of all samples: about twenty for argmax and sixty for softmax.

    Examples
    --------
    >>> loc = np.array([[1.0], [1.0], [1.0], [-1.0], [-1.0], [-1.0]])  # two classes
    >>> latent, y = LatentGaussian(loc, np.full((6, 1), 0.2)), [0, 0, 1, 1, 1, 0]
    >>> scaling = LatentScaling().fit(latent, y)
    >>> round(scaling.scale_factor_, 2)  # Phi(1 / 0.2 / 11.6) = 2 / 3, the share that is right
    11.61
    >>> scaling.transform(latent).scale[0].round(2)
    array([2.32])
    """

    fitted_attributes = ("scale_factor_", "mean_factor_")
    scale_factor_: float
    mean_factor_: float

    def fit(
        self,
        latent: LatentGaussian | dict[str, Any],
        y: ArrayLike,
        scores: ArrayLike | None = None,
        readout: Any = "argmax",
        sample_weight: ArrayLike | None = None,
        *,
        classes: Sequence[Any] | None = None,
    ) -> Self:
        """Fit to the latents of held-out samples and their labels.

        Parameters
        ----------
        latent : LatentGaussian or dict
            Uncalibrated latents, N of them.
        y : array_like, shape [N] or [N, 1]
            True classes: numbers 0..n-1, or names that ``classes`` holds.
        scores : array_like, shape [n, L], optional
            Scores S by which latents are read out; None stands for the vertices.
        readout : {"argmax", "softmax"} or keras.layers.Layer
            Readout of the latents. Default "argmax".
        sample_weight : array_like, shape [N], optional
            Not negative; samples of weight 0 are left out.
        classes : sequence of length n, optional
            The name of each class, in the order of the scores.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            For invalid labels or weights, and if the classes of the held-out samples are no likelier than by chance: no
            factor, or one out of bounds, is the likeliest.

        Warns
        -----
        UserWarning
            If no class is likelier than the true one in any held-out sample. The likeliest scale would be 0; labels
            are then smoothed, as if every class had one more sample, shared equally by all labels.
        """
        from deepsimplex.readout.layers import readout_layer  # imported here: it imports Keras

        latents = LatentGaussian.of(latent).numpy()
        # float32 is faster, and precise enough for factors to within a thousandth.
        latents = LatentGaussian(latents.loc.astype(np.float32), latents.scale.astype(np.float32))
        layer = readout_layer(readout, scores)
        weights = check_sample_weight(sample_weight, len(latents))
        positive = weights > 0
        latents, weights = latents[positive], weights[positive]
        logarithms = layer.log_probabilities(_tensors(latents, 1.0, 1.0)).numpy()
        labels = check_labels_beside(y, "latent", (len(positive), logarithms.shape[1]), classes)
        labels = labels[positive]
        n = logarithms.shape[1]
        largest = logarithms.max(axis=1)
        all_right = bool(np.all(logarithms[np.arange(len(labels)), labels] >= largest))
        informative = bool(np.any(logarithms.min(axis=1) < largest))
        shares = smoothed_labels(labels, weights, n) if all_right and informative else np.eye(n)[labels]
        nll = _negative_log_likelihood(latents, shares, weights, layer)
        scale_only = layer.scale_invariant
        mean, scale = (0.0, _likeliest_scale(nll)) if scale_only else _likeliest_pair(nll)
        outside = abs(scale if scale_only else mean) > _MOST - 2 * _TOLERANCE
        if not informative or (outside and not all_right):
            raise guided(
                "calibration.md#which-one",
                f"the likeliest factor must lie between 0.01 and 100; found one outside for the {len(labels)} held-out "
                "samples, whose classes are no likelier than by chance. Check that labels and latents belong together, "
                "or hold out more samples",
            )
        self.mean_factor_, self.scale_factor_ = float(np.exp(mean)), float(np.exp(scale))
        return self

    def fit_outputs(
        self, y: Any, *, probabilities: Any, latent: Any = None, readout: Any = None, sample_weight: Any = None
    ) -> Self:
        """Fit to latents and their readout.

        Raises
        ------
        ValueError
            Without latents, and as ``fit``.
        """
        if latent is None:
            raise ValueError(
                "method 'latent' scales latent Gaussians, which these probabilities are not read out of; "
                "'temperature', 'platt' and 'isotonic' do"
            )
        return self.fit(latent, y, readout=readout, sample_weight=sample_weight)

    def apply_latent(self, latent: Any) -> Any:
        """Calibrate latents, a LatentGaussian or a dict, and return the same type."""
        scaled = self.transform(latent)
        return scaled if isinstance(latent, LatentGaussian) else scaled.as_dict()

    def transform(self, latent: LatentGaussian | dict[str, Any]) -> LatentGaussian:
        """Calibrate latents, given as arrays or as tensors, which may be symbolic.

        Parameters
        ----------
        latent : LatentGaussian or dict

        Returns
        -------
        LatentGaussian
        """
        self._check_fitted()
        latents = LatentGaussian.of(latent)
        return LatentGaussian(latents.loc * self.mean_factor_, latents.scale * self.scale_factor_)


def _tensors(latent: LatentGaussian, mean: Any, scale: Any) -> dict[str, Any]:
    return {"loc": tf.constant(latent.loc) * mean, "scale": tf.constant(latent.scale) * scale}


def _negative_log_likelihood(
    latent: LatentGaussian, shares: NDArray[np.float64], weights: NDArray[np.float64], layer: Any
) -> Callable[[float, float], float]:
    """Return the mean NLL of labels, as shares [N, n], as a function of the logarithms of the factors."""

    @tf.function(autograph=False)
    def log_likelihoods(mean: Any, scale: Any) -> Any:
        logarithms = tf.cast(layer.log_probabilities(_tensors(latent, mean, scale)), tf.float64)
        return tf.reduce_sum(tf.math.multiply_no_nan(logarithms, shares), axis=1)

    def nll(mean: float, scale: float) -> float:
        factors = (tf.constant(np.exp(factor), tf.float32) for factor in (mean, scale))
        return -float(np.average(log_likelihoods(*factors).numpy(), weights=weights))

    return nll


def _likeliest_scale(nll: Callable[[float, float], float]) -> float:
    from scipy.optimize import minimize_scalar

    ends = np.concatenate([[-_MOST], _SCALES, [_MOST]])
    best = 1 + int(np.argmin([nll(0.0, scale) for scale in _SCALES]))
    around = (ends[best - 1], ends[best + 1])
    return float(minimize_scalar(lambda s: nll(0.0, s), bounds=around, options={"xatol": _TOLERANCE}).x)


def _likeliest_pair(nll: Callable[[float, float], float]) -> tuple[float, float]:
    from scipy.optimize import minimize

    mean, scale = min(_PAIRS, key=lambda pair: nll(*pair))
    simplex = [(mean, scale), (mean + 0.3, scale), (mean, scale + 0.5)]
    mean, scale = minimize(
        lambda pair: nll(*pair),
        (mean, scale),
        method="Nelder-Mead",
        bounds=[(-_MOST, _MOST)] * 2,
        options={"initial_simplex": simplex, "xatol": 10 * _TOLERANCE, "fatol": 1e-6},
    ).x
    return float(mean), float(scale)
