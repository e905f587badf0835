"""Composition loss: cross-entropy with soft labels that are computed from latents, and those soft labels."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import softmax

from deepsimplex._utils.validation import check_array, check_labels, check_number
from deepsimplex.geometry.vertices import check_num_classes
from deepsimplex.latent import LatentGaussian
from deepsimplex.losses.latent_losses import ClassifierLoss

# Of the default mass: factor of the nearest neighbor's error (chosen on Fashion-MNIST), largest mass, and largest share
# of what the latents allow.
SHARE_OF_ERROR, LARGEST_MASS, CLOSE_TO_LARGEST = 0.1, 0.999, 0.9995
# Power of the error among the features of an untrained backbone, which separate the classes worse than distances do
# (chosen on Fashion-MNIST and CIFAR-10).
FEATURE_ERROR_POWER = 1.5


@keras.saving.register_keras_serializable(package="deepsimplex")
class Composition(ClassifierLoss):
    """Cross-entropy between the composition of a sample, softmax(tau S f), and its class probabilities.

    A latent f of CASIMAC is, up to a scale tau, the ILR coordinate of the soft label softmax(tau S f), with S the
    scores of the target: distances become soft labels that differ from sample to sample. With a target made from labels
    alone this is label smoothing, of a strength that the difficulty of the data determines; the composition of a soft
    label is the mean of those of the classes, weighted by its shares. The least loss is the entropy of the
    compositions, not zero.

    Parameters
    ----------
    mass : float, optional
        Mean share of the true class in the compositions of the training samples, strictly between 1/n and 1. ``fit``
        finds the tau that gives it. Default None: 1 - e/10, with e the leave-one-out error of the nearest neighbor
        under the target's distance, but at most 0.999 and what the latents allow; for targets made from labels alone
        1 - e^1.5/10, with e that among the features of 2000 training samples at most, before training. The worse these
        separate the classes, the softer the labels. With augmentation, by random layers in front of the backbone's
        first weights or in a stream whose samples differ when it is read again, e is 0: samples that are new in every
        epoch are not learned by heart, and softer labels would make probabilities too careful.
    tau : float, optional
        Scale of the compositions, positive. Default None: ``fit`` finds it, for targets made from labels alone the
        first ``fit``, since features that were trained separate the training samples. ``model.training_loss.tau`` holds
        it.
    reduction, name, dtype
        As in keras.losses.Loss.

    Raises
    ------
    ValueError
        If the mass is not strictly between 0 and 1; by ``compile``, if it is not above 1/n; by ``fit``, if no tau
        reaches it.

    Notes
    -----
    The map is S_tau of [CASIMAC] B.5.

    Examples
    --------
    >>> Composition(mass=0.9).mass
    0.9
    """

    needs_probabilities = True
    needs_adapt = True
    mixes_classes = True

    def __init__(
        self,
        mass: float | None = None,
        tau: float | None = None,
        reduction: str | None = "sum_over_batch_size",
        name: str = "composition",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.mass = None if mass is None else check_number(mass, "mass", above=0, below=1)
        self.tau = None if tau is None else check_number(tau, "tau", above=0)
        self._fixed_tau = self.tau

    @property
    def is_ready(self) -> bool:
        """Whether tau is set."""
        return self.tau is not None

    def adapt(
        self, loc: ArrayLike, labels: ArrayLike, scores: ArrayLike, neighbor_error: Callable[[], float] = lambda: 0.0
    ) -> None:
        """Find tau from the latents [N, L] of the training samples, their labels, and the scores [n, L].

        A tau given to the constructor is kept, and ``neighbor_error`` called only if no mass was given.
        """
        if self._fixed_tau is None:
            mass = self.mass or default_mass(loc, labels, scores, neighbor_error())
            self.tau = composition_tau(loc, labels, scores, mass)

    def state(self) -> dict[str, Any]:
        """Return tau, if it is set."""
        return {} if self.tau is None else {"tau": np.float64(self.tau)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore tau."""
        self.tau = float(state["tau"])

    @property
    def how_to_adapt(self) -> str:
        return "call fit first, or compile with losses.Composition(tau=...)"

    def latent_labels(self, latents: LatentGaussian, scores: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Return the "composition" [N, n] of latents; an empty dict before tau is set."""
        return {} if self.tau is None else {"composition": composition(latents.loc, scores, self.tau)}

    def check(self, num_classes: int, covariance: str | None) -> None:
        """Raise ValueError if the mass is not above 1/n."""
        if self.mass is not None and self.mass * num_classes <= 1:
            raise ValueError(f"mass must be above 1/n = {1 / num_classes:g}; found {self.mass!r}")

    def compute(self, labels: dict[str, Any], outputs: dict[str, Any], sample_weight: Any = None) -> Any:
        """Return the loss of a batch from "composition" [N, n] and "log_probabilities"."""
        return self(labels["composition"], outputs["log_probabilities"], sample_weight=sample_weight)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        # y_true: compositions [N, n], y_pred: log-probabilities [N, n]
        return -tf.reduce_sum(tf.math.multiply_no_nan(y_pred, tf.cast(y_true, y_pred.dtype)), axis=-1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "mass": self.mass, "tau": self._fixed_tau}


def composition(loc: ArrayLike, scores: ArrayLike, tau: float) -> NDArray[np.float64]:
    """Compositions of latents, softmax(tau S f): points of the probability simplex, shares of every class.

    With the vertices as scores it is the map S_tau [CASIMAC Eq. 41], and the latent is, up to the scale tau, the ILR
    coordinate of its composition. Latents made of distances give soft labels that differ from sample to sample: the
    nearer a sample lies to another class, the larger that class's share.

    Parameters
    ----------
    loc : array_like, shape [N, L]
        Latents f.
    scores : array_like, shape [n, L]
        Scores S of the target, ``target.scores(n)``.
    tau : float
        Scale, positive; ``composition_tau`` finds one from training latents.

    Returns
    -------
    ndarray, shape [N, n], float64
        Rows that sum to one.

    Raises
    ------
    ValueError
        When shapes do not fit, latents are not finite or tau is not positive.

    Examples
    --------
    >>> import deepsimplex as ds
    >>> composition([[1.0, 0.0], [0.2, 0.1]], ds.geometry.vertices(3), tau=2.0).round(3)
    array([[0.909, 0.045, 0.045],
           [0.473, 0.309, 0.218]])
    """
    g = _class_scores(loc, scores)
    with np.errstate(over="ignore"):  # classes far below the best have no share
        return softmax(check_number(tau, "tau", above=0) * (g - g.max(axis=-1, keepdims=True)), axis=-1)


def composition_tau(loc: ArrayLike, labels: ArrayLike, scores: ArrayLike, mass: float = 0.98) -> float:
    """The tau at which compositions have a given mean mass on the true class.

    Latents of label targets (ILR, Dirichlet, one-hot) lie equally far from the origin: every sample then has this mass,
    and its composition is a smoothed label. With latents made of distances the mass differs from sample to sample.

    Parameters
    ----------
    loc : array_like, shape [N, L]
        Latents of the training samples.
    labels : array_like, shape [N] or [N, n]
        Their labels, hard or soft. For soft labels q the mass of a composition s is sum_k q_k s_k.
    scores : array_like, shape [n, L]
        Scores S of the target, ``target.scores(n)``.
    mass : float
        Mean mass, strictly between 1/n and 1. The default is 0.98.

    Returns
    -------
    float
        tau, for ``composition``.

    Raises
    ------
    ValueError
        When shapes or labels do not fit, or the mass cannot be reached: where scores tie (samples of several classes
        at distance zero) or labels are soft, it stays below a limit, which the message gives.

    Examples
    --------
    >>> import numpy as np, deepsimplex as ds
    >>> S = ds.geometry.vertices(3)
    >>> tau = composition_tau([[1.0, 0.0], [-0.3, 0.6]], [0, 1], S, mass=0.9)
    >>> s = composition([[1.0, 0.0], [-0.3, 0.6]], S, tau)
    >>> round(float(np.mean([s[0, 0], s[1, 1]])), 6)
    0.9
    """
    mean_mass, n, gap = _mean_mass(loc, labels, scores)
    wanted = check_number(mass, "mass", above=1 / n, below=1)
    # Gaps narrower than the precision of the latents are ties.
    largest = _largest_tau(loc)
    high = 1.0
    while (reached := mean_mass(high)) < wanted:
        if high >= largest or gap == 0:
            raise ValueError(
                f"mass {wanted:g} cannot be reached: over these latents the mean mass on the true class lies above "
                f"1/n = {1 / n:.4g} and below {reached:.4g}, whatever tau, since scores tie, labels are soft or "
                "latents lie nearer another class than their label's. Choose a mass between the two"
            )
        high *= 2.0
    # At tau = 0 the mass is 1/n; it grows with tau wherever the label's class scores highest.
    return float(brentq(lambda tau: mean_mass(tau) - wanted, 0.0, high, xtol=1e-14, rtol=1e-12)) / gap


def default_mass(loc: ArrayLike, labels: ArrayLike, scores: ArrayLike, neighbor_error: float) -> float:
    """The mass of ``Composition(mass=None)``: 1 - e/10.

    Parameters
    ----------
    loc : array_like, shape [N, L]
        Latents of the training samples.
    labels : array_like, shape [N] or [N, n]
        Their labels, hard or soft.
    scores : array_like, shape [n, L]
        Scores S of the target.
    neighbor_error : float
        Leave-one-out error e of the nearest neighbor.

    Returns
    -------
    float
        At most 0.999, and below the largest mass that the latents allow at any tau.

    Examples
    --------
    >>> import deepsimplex as ds
    >>> round(default_mass([[1.0], [-2.0]], [0, 1], ds.geometry.vertices(2), neighbor_error=0.2), 6)
    0.98
    """
    wanted = 1.0 - neighbor_error * SHARE_OF_ERROR
    mean_mass, n, _ = _mean_mass(loc, labels, scores)
    allowed = 1 / n + CLOSE_TO_LARGEST * (mean_mass(_largest_tau(loc)) - 1 / n)
    return float(min(wanted, LARGEST_MASS, allowed))


def _mean_mass(loc: ArrayLike, labels: ArrayLike, scores: ArrayLike) -> tuple[Callable[[float], float], int, float]:
    """The mean mass on the true class as a function of tau times the widest gap of scores; n; and that gap."""
    g = _class_scores(loc, scores)
    n = check_num_classes(g.shape[1])
    truth, _ = check_labels(labels, n, name="labels", rows=len(g), of="loc", soft=True)
    # Relative to the best and in units of the widest gap, so that the search does not depend on the latents' units.
    g -= g.max(axis=-1, keepdims=True)
    gap = -float(g.min())
    if gap > 0:
        g /= gap

    def mean_mass(tau: float) -> float:
        shares = softmax(tau * g, axis=-1)
        if truth.ndim == 1:
            return float(np.take_along_axis(shares, truth[:, None], axis=-1).mean())
        return float(np.mean(np.sum(truth * shares, axis=-1)))

    return mean_mass, n, gap


def _largest_tau(loc: ArrayLike) -> float:
    """Return the upper bound on tau, from the floating-point precision of the latents."""
    return 1.0 / float(np.finfo(np.float32 if np.asarray(loc).dtype == np.float32 else np.float64).eps)


def _class_scores(loc: ArrayLike, scores: ArrayLike) -> NDArray[np.float64]:
    """Scores of latents, loc S^T, shape [N, n]."""
    S, latents = check_array(scores, "scores", "[n, L]", least=2), check_array(loc, "loc", "[N, L]", least=1)
    if not S.shape[1] or latents.shape[1] != S.shape[1]:
        raise ValueError(f"loc must have {S.shape[1]} columns, as scores has; found shape {latents.shape}")
    with np.errstate(over="ignore", invalid="ignore"):
        g = latents @ S.T
    if not np.abs(g).max() < 1e300:
        raise ValueError("loc and scores must have products below 1e300; found larger ones, whose gaps overflow")
    return g
