"""Base classes of the calibrations: fitted on held-out outputs of a classifier, applied to latents or probabilities."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.array_operations import is_tensor, operations
from deepsimplex._utils.messages import guided, warn_caller
from deepsimplex._utils.parameters import Fitted
from deepsimplex._utils.portable_operations import precise_dtype, smallest_normal
from deepsimplex._utils.validation import (
    check_groups,
    check_labels_and_probabilities,
    check_probabilities,
    check_sample_weight,
)
from deepsimplex.latent import LatentGaussian


class Calibration(Fitted, ABC):
    """Base class of the calibrations, which ``calibrate`` of a classifier fits.

    A subclass defines ``fit_outputs`` and one of ``apply_latent`` and ``apply_probabilities``, which both are the
    identity here, and lists the attributes that fitting sets in ``fitted_attributes``; arguments of the constructor are
    kept as attributes of the same names. Register the class with ``keras.saving.register_keras_serializable``, so that
    classifiers that hold it can be saved.

    Examples
    --------
    Shrink probabilities towards the class frequencies, by the error rate:

    >>> class Shrinkage(Calibration):
    ...     fitted_attributes = ("share_", "frequencies_")
    ...
    ...     def fit_outputs(self, y, *, probabilities, latent=None, readout=None, sample_weight=None):
    ...         self.frequencies_ = np.bincount(y, minlength=probabilities.shape[1]) / len(y)
    ...         self.share_ = float(np.mean(probabilities.argmax(axis=1) != y))
    ...         return self
    ...
    ...     def apply_probabilities(self, p):
    ...         return (1.0 - self.share_) * p + self.share_ * self.frequencies_
    >>> p = np.array([[0.9, 0.1], [0.1, 0.9], [0.8, 0.2], [0.3, 0.7]])
    >>> Shrinkage().fit_outputs(np.array([0, 1, 1, 1]), probabilities=p).apply_probabilities(p[0])
    array([0.7375, 0.2625])
    """

    # Of held-out samples, set by ``calibrate`` of a classifier: mean calibrated probabilities [n], and their number.
    further_attributes = ("mean_probabilities_", "held_out_")
    divides_samples: ClassVar[bool] = False  # whether ``fit_outputs`` takes groups, which it keeps together
    mean_probabilities_: NDArray[np.float64]
    held_out_: int

    @abstractmethod
    def fit_outputs(
        self,
        y: NDArray[np.int64],
        *,
        probabilities: NDArray[Any],
        latent: LatentGaussian | None = None,
        readout: Any = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit to uncalibrated outputs of a classifier on held-out samples.

        Parameters
        ----------
        y : ndarray of int, shape [N]
            Class numbers 0..n-1.
        probabilities : ndarray, shape [N, n]
            Class probabilities.
        latent : LatentGaussian, optional
            The latents that they were read out of, in arrays, for classifiers with latents.
        readout : keras.layers.Layer, optional
            The layer that reads latents out.
        sample_weight : array_like, shape [N], optional
            Not negative; samples of weight 0 are left out.

        Returns
        -------
        self
        """

    def apply_latent(self, latent: Any) -> Any:
        """Calibrate latents, a LatentGaussian or a dict {"loc", "scale"} of arrays or tensors; unchanged by default."""
        return latent

    def apply_probabilities(self, p: Any) -> Any:
        """Calibrate class probabilities [N, n], an array or a tensor, which may be symbolic; unchanged by default."""
        return p

    def apply_outputs(self, *, probabilities: Any, latent: LatentGaussian | None = None, readout: Any = None) -> Any:
        """Return calibrated class probabilities [N, n] of the outputs that ``fit_outputs`` takes."""
        if self.maps_probabilities or latent is None:
            return self.apply_probabilities(probabilities)
        return np.asarray(readout(self.apply_latent(latent).as_dict()))

    @property
    def maps_probabilities(self) -> bool:
        """Whether probabilities change after the readout, so that they are no longer those of the latents."""
        return type(self).apply_probabilities is not Calibration.apply_probabilities


class ProbabilityCalibration(Calibration):
    """Base class of calibrations that map class probabilities to class probabilities.

    Examples
    --------
    >>> from deepsimplex.calibration import TemperatureScaling
    >>> scaling, p, y = TemperatureScaling(), [[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9]], [0, 1, 1, 1]
    >>> isinstance(scaling, ProbabilityCalibration), scaling.fit_transform(p, y)[0].round(2)
    (True, array([0.75, 0.25]))
    """

    @abstractmethod
    def _fit(self, p: NDArray[np.float64], y: NDArray[np.int64], weights: NDArray[np.float64], floor: float) -> None:
        """Fit to samples of positive weight; ``floor`` stands for a probability of zero in logarithms."""

    @abstractmethod
    def _transform(self, p: Any, floor: float) -> Any:
        """Calibrate probabilities, an array or a tensor [N, n], float64 except for export formats without it."""

    def fit(
        self,
        p: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        classes: Sequence[Any] | None = None,
    ) -> Self:
        """Fit to the class probabilities of held-out samples and their labels.

        Parameters
        ----------
        p : array_like, shape [N, n]
            Uncalibrated class probabilities of samples that the classifier was not trained on: its calibration on
            the training samples differs from that on new ones.
        y : array_like, shape [N] or [N, 1]
            True classes: numbers 0..n-1, or names that ``classes`` holds.
        sample_weight : array_like, shape [N], optional
            Not negative; samples of weight 0 are left out. A weight of 2 is the sample twice: what depends on the
            number of samples, as penalties and Venn-Abers intervals do, takes their sum for it.
        groups : array_like, shape [N], optional
            Group of each sample, such as its patient, which "auto" keeps in one fold. Other methods divide no samples.
        classes : sequence of length n, optional
            The name of each column of ``p``: ``model.classes_``.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            For invalid labels, probabilities or weights, and where the samples do not determine the fit.
        """
        labels, probabilities = check_labels_and_probabilities(y, p, classes)
        weights = check_sample_weight(sample_weight, len(labels))
        positive = weights > 0
        floor = float(np.finfo(probabilities.dtype).tiny)
        further: dict[str, Any] = {}
        together = None if groups is None else check_groups(groups, len(labels), "row of p")
        if together is not None and self.divides_samples:
            further = {"groups": together[positive]}
        self._fit(probabilities[positive].astype(np.float64), labels[positive], weights[positive], floor, **further)
        return self

    def transform(self, p: Any) -> Any:
        """Calibrate class probabilities.

        Parameters
        ----------
        p : array_like or tensor, shape [N, n]
            Arrays are checked; tensors are not, and may be symbolic.

        Returns
        -------
        ndarray or tensor, shape [N, n]
            Of the dtype of ``p`` (float32 where that has less precision), computed in float64.
        """
        self._check_fitted()
        return self.apply_probabilities(p if is_tensor(p) else check_probabilities(p))

    def fit_transform(self, p: ArrayLike, y: ArrayLike, *args: Any, **options: Any) -> NDArray[Any]:
        """Fit as ``fit`` and calibrate the same samples, which are then better calibrated than new ones."""
        return self.fit(p, y, *args, **options).transform(p)

    def fit_outputs(
        self,
        y: Any,
        *,
        probabilities: Any,
        latent: Any = None,
        readout: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
    ) -> Self:
        """Fit to class probabilities; latents and readout are ignored."""
        return self.fit(probabilities, y, sample_weight, groups=groups)

    def apply_probabilities(self, p: Any) -> Any:
        """Calibrate class probabilities, which are not checked."""
        self._check_fitted()
        ops = operations(p)
        p = p if is_tensor(p) else np.asarray(p)
        dtype = p.dtype if p.dtype in (ops.float32, ops.float64) else ops.float32
        return ops.cast(self._transform(ops.cast(p, precise_dtype()), smallest_normal(dtype)), dtype)


def check_all_classes(y: NDArray[np.int64], n: int, calibration: str) -> None:
    """Raise ValueError unless every class of 0..n-1 has held-out samples."""
    absent = np.setdiff1d(np.arange(n), y)
    if len(absent):
        raise guided(
            "calibration.md#which-one",
            f"{calibration} needs held-out samples of every class; found none of {absent.tolist()} among {len(y)} "
            f"labels y. Hold out more, a share of every class, or take TemperatureScaling (method='temperature')",
        )


def padded_table(rows: Sequence[ArrayLike]) -> NDArray[np.float64]:
    """Return rows of numbers as a table of at least two columns, shorter ones continued by their last number.

    Examples
    --------
    >>> padded_table([[1.0, 2.0], [3.0]]).tolist()
    [[1.0, 2.0], [3.0, 3.0]]
    """
    arrays = [np.asarray(row, np.float64) for row in rows]
    columns = max([2, *map(len, arrays)])
    return np.stack([np.pad(row, (0, columns - len(row)), mode="edge") for row in arrays])


def uninformative(samples: int, chance: str) -> Exception:
    """Return the error for held-out samples whose classes are no likelier under p than by ``chance``."""
    return guided(
        "calibration.md#which-one",
        f"the likeliest temperature is infinite: the classes y of the {samples} held-out samples are no likelier under "
        f"their probabilities than by {chance}. Check that y and p belong together, or hold out more samples",
    )


def smoothed_labels(y: NDArray[np.int64], weights: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Return shares of the classes [N, n] for samples of which none has a class likelier than its own, and warn of it.

    As in Platt's scaling, every class counts one more sample, shared equally by all labels: the parameters that are
    likeliest for these shares are finite.
    """
    warn_caller(
        f"none of the {len(y)} held-out samples has a class that is likelier than its true one, so that no finite "
        "calibration is the likeliest: it is fitted to smoothed labels, as if every class had one more sample of any "
        "label. Hold out more samples"
    )
    counts = np.bincount(y, weights, n)[y][:, np.newaxis]
    return (counts * np.eye(n)[y] + 1.0 / n) / (counts + 1.0)


def check_columns(p: Any, fitted: int) -> None:
    """Raise ValueError unless p has as many columns as in fit: two for one fitted curve, else one for each."""
    n = 2 if fitted == 1 else fitted
    if p.shape[1] != n:
        raise ValueError(f"p must have shape [N, {n}], as in fit; found {tuple(p.shape)}")
