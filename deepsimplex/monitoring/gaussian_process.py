"""The optimization behind a Gaussian-process classifier, in TensorBoard."""

import os
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import check_whole
from deepsimplex.monitoring.event_file import EventFile
from deepsimplex.monitoring.pictures import band_picture, pictures
from deepsimplex.monitoring.predictions import WatchedPredictions, on_one_line
from deepsimplex.monitoring.scores import histograms, latent_histograms, scalars

# Components of a hyperparameter that get a curve each; more become a histogram.
_CURVES = 16


class WatchedStep(Protocol):
    """What the board reads of a step: see ``deepsimplex.estimators.ClassifierStep``."""

    @property
    def iteration(self) -> int: ...
    @property
    def objective(self) -> float: ...
    @property
    def hyperparameters(self) -> dict[str, NDArray[np.float64]]: ...
    @property
    def num_samples(self) -> int: ...
    def classifier(self) -> Any:
        """The classifier there."""


class GaussianProcessBoard:
    """Writes the fit of a Gaussian-process classifier to TensorBoard: the callback of its ``fit``.

    Parameters
    ----------
    log_dir : path-like
        Folder of event files, made where there is none. Every fit adds a file of its own and leaves earlier ones.
    validation_data : (X, y), optional
        Features [M, d] and labels [M], named as those of the training samples. The classifier is evaluated on them at
        every step that is written, which takes some steps' time.
    every : int
        Of so many iterations the first is written, and the last of all in any case. Default 1: all of them.
    bins : int
        Bins of the calibration errors, 15 by default.

    Raises
    ------
    OSError
        When the folder cannot be written: said before the fit.
    ValueError, TypeError
        For ``validation_data`` that are no pair or not as long as one another, labels that the classifier does not know
        (at the first step), and ``every`` below 1.

    Notes
    -----
    By iteration: "objective" (what is minimized, the negative log marginal likelihood or its bound, per training
    sample), "kernel/variance", "kernel/lengthscales" and "noise" where it is learned. Vectors have a curve for every
    component, as "kernel/lengthscales/0", up to 16; larger ones are histograms. Hyperparameters are in units of scaled
    features and latents. Of ``validation_data``, under the tags of ``CalibrationBoard``: every score of
    ``evaluation.report`` ("score/accuracy", "calibration/expected_calibration_error", ...), the calibration error of
    each class, and the distribution of the confidence.

    At the end of the fit the fitted classifier is drawn: "pictures/reliability" and, where it has latents,
    "pictures/simplex" of three or four classes or "pictures/latent_space", their distributions, and of a softmax
    readout the diagram with its 95% band ("pictures/reliability_band"). Where ``every`` leaves the last iteration out,
    it is written then, with scores of the fitted classifier.

    Every step is flushed, so that a fit that is cut short can be read. ``close`` ends the file; so does leaving a
    ``with`` block, and the next fit.

    Examples
    --------
    >>> from deepsimplex import SimplexGaussianProcess
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> with GaussianProcessBoard(folder / "events", validation_data=(X[1::2], y[1::2])) as board:
    ...     classifier = SimplexGaussianProcess("ilr").fit(X[::2], y[::2], callback=board)
    >>> len(list((folder / "events").glob("events.out.tfevents.*")))
    1
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        validation_data: tuple[ArrayLike, ArrayLike] | None = None,
        every: int = 1,
        bins: int = 15,
    ) -> None:
        self.every = check_whole(every, "every", 1)
        self.bins = check_whole(bins, "bins", 1)
        self.validation_data = None if validation_data is None else _pair(validation_data)
        self._file = EventFile(log_dir)
        self._last: WatchedStep | None = None
        self._written = False  # whether the last step so far was written

    def __call__(self, step: WatchedStep) -> None:
        """Write a step, where its turn has come."""
        if step.iteration == 1:
            self.close()  # the last fit's file
        self._last, self._written = step, not (step.iteration - 1) % self.every
        if self._written:
            found = None if self.validation_data is None else self._predictions(step.classifier())
            self._write(step, found)

    def fit_ended(self, classifier: Any) -> None:
        """Draw the fitted classifier, and write the last step if its turn had not come: called by its ``fit``."""
        step, self._last = self._last, None
        if step is None:
            return
        found = None if self.validation_data is None else self._predictions(classifier, latents=True)
        if not self._written:
            self._write(step, found)
        if found is not None:
            self._file.write(
                step.iteration, histograms=latent_histograms(found), images=pictures(found) | band_picture(found)
            )

    def _write(self, step: WatchedStep, found: WatchedPredictions | None) -> None:
        numbers: dict[str, float] = {"objective": step.objective / step.num_samples}
        spread: dict[str, NDArray[Any]] = {}
        if found is not None:
            numbers |= scalars(found, self.bins)
            spread |= histograms(found)
        for name, values in step.hyperparameters.items():
            tag = name if name == "noise" else f"kernel/{name}"
            if values.ndim == 0:
                numbers[tag] = float(values)
            elif values.size > _CURVES:
                spread[tag] = values
            else:
                numbers |= {f"{tag}/{index}": float(value) for index, value in enumerate(values.ravel())}
        self._file.write(step.iteration, numbers, spread)

    def _predictions(self, classifier: Any, latents: bool = False) -> WatchedPredictions:
        assert self.validation_data is not None
        X, labels = self.validation_data
        read_out: dict[str, Any] = {}
        if latents and hasattr(classifier, "scores_"):  # GPLVQ has latents that no readout takes
            latent = classifier.predict_latent(X).numpy().as_dict()
            read_out = {"latent": latent, "scores": classifier.scores_, "readout": classifier.readout_}
        return WatchedPredictions(
            labels=_numbers(labels, classifier.classes_),
            probabilities=classifier.predict_proba(X),
            class_names=on_one_line([str(name) for name in classifier.classes_]),
            **read_out,
        )

    def close(self) -> None:
        """End the event file, if one is open."""
        self._last = None
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _pair(validation_data: Any) -> tuple[Any, NDArray[Any]]:
    if not isinstance(validation_data, tuple | list) or len(validation_data) != 2:
        raise TypeError(f"validation_data must be a pair (X, y); found {type(validation_data).__name__}")
    X, y = validation_data
    labels = np.asarray(y)
    if labels.ndim != 1 or len(labels) != len(X) or not len(labels):
        raise ValueError(
            f"validation_data must hold features X [M, d] and one label in y [M] for each; found {len(X)} rows and "
            f"labels of shape {labels.shape}"
        )
    return X, labels


def _numbers(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """Positions of the labels among the classes."""
    unknown = np.setdiff1d(labels, classes)
    if len(unknown):
        raise ValueError(
            f"validation_data holds labels that the classifier does not know, {unknown.tolist()}: its classes are "
            f"{classes.tolist()}"
        )
    order = np.argsort(classes)
    return order[np.searchsorted(classes, labels, sorter=order)]
