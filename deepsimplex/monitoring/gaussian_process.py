"""The optimisation behind a Gaussian-process classifier, in TensorBoard."""

import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from deepsimplex.evaluation import accuracy, negative_log_likelihood
from deepsimplex.files import check_writable

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

    Raises
    ------
    OSError
        When the folder cannot be written: said before the fit.
    ValueError, TypeError
        For ``validation_data`` that are no pair or not as long as one another, labels that the classifier does not know
        (at the first step), and ``every`` below 1.

    Notes
    -----
    Scalars, by iteration: "objective" (what is minimised, the negative log marginal likelihood or its bound, per
    training sample), "kernel/variance", "kernel/lengthscales", "noise" where it is learned, "validation/nll" and
    "validation/accuracy". Vectors have a curve for every component, as "kernel/lengthscales/0", up to 16; larger ones
    are histograms. Hyperparameters are in units of scaled features and latents. Where ``every`` leaves the last
    iteration out, it is written at the end of the fit, with NLL and accuracy of the fitted classifier.

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
    ) -> None:
        if isinstance(every, bool) or not isinstance(every, int | np.integer) or every < 1:
            raise ValueError(f"every must be a whole number, at least 1; found {every!r}")
        self.validation_data = None if validation_data is None else _pair(validation_data)
        self.log_dir = check_writable(log_dir, "log_dir")
        self.every = int(every)
        self._writer: Any = None
        self._left_out: WatchedStep | None = None  # the last step so far, unless it was written

    def __call__(self, step: WatchedStep) -> None:
        """Write a step, where its turn has come."""
        if step.iteration == 1:
            self.close()  # the last fit's file
        if (step.iteration - 1) % self.every:
            self._left_out = step
        else:
            self._left_out = None
            self._write(step, step.classifier)

    def fit_ended(self, classifier: Any) -> None:
        """Write the last step if its turn had not come: called by the classifier's ``fit``."""
        step, self._left_out = self._left_out, None
        if step is not None:
            self._write(step, lambda: classifier)

    def _write(self, step: WatchedStep, classifier: Callable[[], Any]) -> None:
        scalars = {"objective": step.objective / step.num_samples, **self._validation(classifier)}
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(str(self.log_dir))
        with self._writer.as_default(step=step.iteration):
            for tag, value in scalars.items():
                tf.summary.scalar(tag, value)
            for name, values in step.hyperparameters.items():
                _write_values(name if name == "noise" else f"kernel/{name}", values)
        self._writer.flush()

    def _validation(self, classifier: Callable[[], Any]) -> dict[str, float]:
        if self.validation_data is None:
            return {}
        X, labels = self.validation_data
        there = classifier()
        y, p = _numbers(labels, there.classes_), there.predict_proba(X)
        return {"validation/nll": negative_log_likelihood(y, p), "validation/accuracy": accuracy(y, p)}

    def close(self) -> None:
        """End the event file, if one is open."""
        self._left_out = None
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _write_values(tag: str, values: NDArray[np.float64]) -> None:
    if values.ndim == 0:
        tf.summary.scalar(tag, values)
    elif values.size > _CURVES:
        tf.summary.histogram(tag, values)
    else:
        for index, value in enumerate(values.ravel()):
            tf.summary.scalar(f"{tag}/{index}", value)


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
