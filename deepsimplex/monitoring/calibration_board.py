"""TensorBoard callback for scores, calibration and latents of a classifier during training."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import keras
import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.messages import warn_caller
from deepsimplex._utils.validation import check_class_names, check_flag, check_labels, check_probabilities, check_whole
from deepsimplex.classifier import SimplexClassifier
from deepsimplex.estimators.latent_classifier import LatentClassifier
from deepsimplex.evaluation.reliability_curve import check_bins
from deepsimplex.monitoring.classifier_outputs import ClassifierOutputs, KerasOutputs
from deepsimplex.monitoring.event_file import EventFile
from deepsimplex.monitoring.summaries import band_picture, latents, pictures, summary_values
from deepsimplex.monitoring.validation_samples import as_images, draw_samples
from deepsimplex.samples.reservoir import take

FOLDER = "calibration"
CURVES = 16  # components of a hyperparameter with a curve each; more become a histogram


class CalibrationBoard(keras.callbacks.Callback):
    """Write scores, pictures and latents of validation samples to TensorBoard during training.

    A callback of any Keras classifier, ``model.fit(..., callbacks=[board])``, and of the classifiers that optimize
    step by step, ``SimplexGaussianProcess("ilr").fit(X, y, callback=board)``.

    Parameters
    ----------
    log_dir : path-like
        As in ``keras.callbacks.TensorBoard``. Files are written to its subfolder "calibration".
    validation_data : (x, y) or tf.data.Dataset, optional
        Samples and labels (class numbers 0..n-1, or the labels of an estimator), as arrays or a finite data set of
        batches (x, y), read once, at construction. Required by Keras models; without it only the objective and the
        kernel of an estimator are written.
    every : int
        Number of epochs (or iterations) between two writes, from the first on; the last is always written. Default 1.
    samples : int, optional
        Maximum number of validation samples, drawn once at random. Default 2000; None uses all.
    seed : int
        Seed of that draw. Default 0.
    class_names : sequence of str, optional
        Default: those of the model or estimator, or numbers.
    outside : array or structure of arrays, optional
        Samples from outside the training distribution, at most ``samples`` of which are used, for
        "score/out_of_distribution_auroc".
    bins : int
        Bins of the calibration errors, 15 by default.
    pictures : bool
        Draw pictures, which take most of the time besides the prediction. Default True.
    batch_size : int
        Samples per batch of a Keras model's prediction, 256 by default.

    Raises
    ------
    OSError
        If the folder cannot be written, at once. A disk that is full later is a warning, and training goes on.
    TypeError, ValueError
        For samples and options that do not fit, at once; as training begins for a model whose outputs are no class
        probabilities, and for labels and class names that do not fit its classes.

    Notes
    -----
    For every epoch, numbered as Keras numbers them, or iteration, from 1: every score of ``evaluation.report``
    ("score/accuracy", "score/roc_auc", "calibration/expected_calibration_error", ...), the sensitivity for each of up
    to twenty classes ("sensitivity_of_class/...") and, of more than two, its calibration error
    ("calibration_of_class/..."), and the histogram "confidence". For a Keras model every epoch, for an estimator
    only the fitted one: the histograms "latent/scale" and "latent/norm"; "pictures/reliability"; "pictures/simplex" for
    three or four classes, "pictures/latent_space" for others; for images "pictures/highest_loss", the four whose true
    class has the least probability. At the end, for a readout with credible intervals, such as softmax, the reliability
    diagram with its 95% band ("pictures/reliability_band", which takes seconds). Also "validation_samples", the number
    of samples used. Latents are written for classifiers of this package that have them.

    For every iteration of an estimator also "objective" (the minimized function per training sample, such as the
    negative log marginal likelihood), "kernel/variance", "kernel/lengthscales", "noise" if it is learned, or
    "kernel/relevance": vectors as a curve for each component ("kernel/lengthscales/0") up to 16, else as histograms.
    They are in units of scaled features and latents.

    A Keras model returns class probabilities [N, n], or [N, 1] for the probability of class 1 of two; logits are
    rejected. Probabilities in half precision are divided by their sum, in double precision. If training diverges and
    outputs are NaN, the scores are NaN, with one warning, and training continues.

    The board does not change training: the weights are the same without it, bit by bit. Resumed runs
    (``initial_epoch``, ``BackupAndRestore``) continue in another file of the same folder. Everything is flushed at
    once. Keras does not inform callbacks of an exception: ``close`` ends the file then, as does leaving a ``with``
    block, and the next fit.

    Examples
    --------
    >>> import deepsimplex as ds
    >>> (x, y), (x_test, y_test) = ds.datasets.load("digits")
    >>> model = ds.SimplexClassifier(ds.backbones.mlp([16]), "ilr", num_classes=10)
    >>> model.compile("adam")
    >>> board = CalibrationBoard(folder / "events", (x_test, y_test), samples=50, pictures=False)
    >>> history = model.fit(x[:200], y[:200], epochs=1, verbose=0, callbacks=[board])
    >>> len(list((folder / "events" / "calibration").glob("events.out.tfevents.*")))
    1
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        validation_data: Any = None,
        *,
        every: int = 1,
        samples: int | None = 2000,
        seed: int = 0,
        class_names: Sequence[str] | None = None,
        outside: Any = None,
        bins: int = 15,
        pictures: bool = True,
        batch_size: int = 256,
    ) -> None:
        super().__init__()
        self.every = check_whole(every, "every", 1)
        self.samples = None if samples is None else check_whole(samples, "samples", 1)
        self.seed = check_whole(seed, "seed", 0)
        self.bins = check_bins(bins)
        self.pictures = check_flag(pictures, "pictures")
        self.batch_size = check_whole(batch_size, "batch_size", 1)
        self.class_names = class_names
        self.validation = None if validation_data is None else draw_samples(validation_data, self.samples, self.seed)
        self.outside = None
        if outside is not None:
            leaves = keras.tree.flatten(outside)
            rows = len(leaves[0]) if leaves and np.ndim(leaves[0]) else 0
            self.outside = draw_samples((outside, np.zeros(rows, int)), self.samples, self.seed, "outside").columns[0]
        self._file = EventFile(Path(log_dir).expanduser() / FOLDER)
        self._begin()

    def _begin(self) -> None:
        """Start a new event file for a fit."""
        self.close()
        self._step = 0  # the last epoch or iteration
        self._warned = False

    def close(self) -> None:
        """Close the event file, if one is open."""
        self._pending: dict[str, Any] | None = None  # values of the last step that are not written yet
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # Keras models

    def on_train_begin(self, logs: Any = None) -> None:
        """Check the model, and write how many samples are used."""
        self._begin()
        if self.validation is None:
            raise ValueError("validation_data must be given for a Keras model; found None")
        x = keras.tree.map_structure(np.asarray, self.validation.columns[0])
        self._outputs = KerasOutputs(self.model, x, self.batch_size)
        p = self._outputs(take(x, slice(8)))["probabilities"]
        if np.isfinite(p).all():
            check_probabilities(p, "what the model gives", "End it in a softmax: logits are no class probabilities")
        self._check_labels(p.shape[1])
        self._write_sample_count()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Write every ``every``-th epoch."""
        self._step, self._pending = epoch, {}
        if epoch % self.every == 0:
            self._write(self._model_outputs(), details=True)

    def on_train_end(self, logs: Any = None) -> None:
        """Write the last epoch if ``every`` skipped it, then the figures that are written once."""
        outputs = self._model_outputs()
        if self._pending is not None:
            self._write(outputs, details=True)
        self._end(outputs)

    def _model_outputs(self) -> ClassifierOutputs:
        assert self.validation is not None
        x, model = keras.tree.map_structure(np.asarray, self.validation.columns[0]), self.model
        arrays, outside = self._outputs(x), {} if self.outside is None else self._outputs(self.outside)
        p = arrays["probabilities"]
        names: Sequence[Any] = range(p.shape[1])
        further: dict[str, Any] = {}
        if isinstance(model, SimplexClassifier):
            names, gaussian = model.class_names, {name: arrays[name] for name in ("loc", "scale")}
            further = {"latent": gaussian, "scores": model.readout.scores, "readout": model.unweighted_readout}
        labels, images = self._check_labels(p.shape[1]), as_images(x)
        return ClassifierOutputs(labels, p, self._names(names), outside.get("probabilities"), images, **further)

    # Estimators

    def __call__(self, step: Any) -> None:
        """Write a step of an estimator's fit (``deepsimplex.estimators.ClassifierStep``), if it is due."""
        if step.iteration == 1:
            self._begin()
        self._step, self._pending = step.iteration, {"objective": step.objective / step.num_samples}
        for name, values in step.hyperparameters.items():
            tag = name if name == "noise" else f"kernel/{name}"
            if values.ndim == 0 or values.size > CURVES:
                self._pending[tag] = values
            else:
                self._pending |= {f"{tag}/{index}": value for index, value in enumerate(values.ravel())}
        if (step.iteration - 1) % self.every == 0:
            self._write(self._estimator_outputs(step.classifier()))

    def fit_ended(self, classifier: Any) -> None:
        """Write the fitted estimator, as its ``fit`` ends."""
        if self._step == 0:
            return
        self._write_sample_count()
        outputs = self._estimator_outputs(classifier, with_latents=True)
        self._write(outputs, details=True)
        self._end(outputs)

    def _estimator_outputs(self, classifier: Any, with_latents: bool = False) -> ClassifierOutputs | None:
        if self.validation is None:
            return None
        x, classes = self.validation.columns[0], classifier.classes_.tolist()
        labels, p, names = self._check_labels(len(classes), classes), classifier.predict_proba(x), self._names(classes)
        outside = None if self.outside is None else classifier.predict_proba(self.outside)
        outputs = ClassifierOutputs(labels, p, names, outside, as_images(x))
        if not with_latents or not isinstance(classifier, LatentClassifier):
            return outputs
        scores, latent = classifier.scores_, classifier.predict_latent(x).numpy().as_dict()
        return replace(outputs, latent=latent, scores=scores, readout=classifier._readout)

    # Both

    def _check_labels(self, n: int, classes: Sequence[Any] | None = None) -> NDArray[np.int64]:
        """Return the numbers of the validation samples' classes, once labels and class names fit the classifier."""
        assert self.validation is not None
        check_class_names(self.class_names, n, "class_names", "probabilities")
        return check_labels(self.validation.columns[1], n, name="the labels of validation_data", classes=classes)[0]

    def _names(self, default: Sequence[Any]) -> list[str]:
        return [str(name) for name in (default if self.class_names is None else self.class_names)]

    def _write(self, outputs: ClassifierOutputs | None, details: bool = False) -> None:
        """Write pending values, with the scores of the outputs; with ``details`` latents and pictures, too."""
        if self._pending is not None:
            values, self._pending = self._pending, None
            if outputs is not None:
                self._warn_of_divergence(outputs)
                values |= summary_values(outputs, self.bins)
            self._file.write(self._step, values)
        if details and outputs is not None:
            drawn = pictures(outputs, self.seed) if self.pictures else {}
            self._file.write(self._step, latents(outputs) | drawn)

    def _warn_of_divergence(self, outputs: ClassifierOutputs) -> None:
        """Warn once in a fit about predictions that are not finite."""
        if outputs.not_finite and not self._warned:
            self._warned = True
            warn_caller(
                f"after epoch {self._step} predictions of {outputs.not_finite} validation samples are NaN or "
                "infinite: training has diverged. While this lasts scores are written as NaN, and no pictures. A "
                "smaller learning rate may help"
            )

    def _write_sample_count(self) -> None:
        if self.validation is not None:
            used, given = len(self.validation.rows), self.validation.given
            few = f"{used} of {given} samples, drawn with seed {self.seed}"
            self._file.write(0, {"validation_samples": f"all {given} samples" if used == given else few})

    def _end(self, outputs: ClassifierOutputs | None) -> None:
        """Write the diagram with its band, and close the event file."""
        if outputs is not None and self.pictures:
            self._file.write(self._step, band_picture(outputs))
        self.close()
