"""How good and how calibrated a Keras classifier is, in TensorBoard, while it learns."""

import dataclasses
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import keras
import numpy as np
from tensorboard.plugins.hparams import api, api_pb2, summary

from deepsimplex._utils.validation import check_flag, check_labels, check_probabilities, check_whole
from deepsimplex.monitoring.embedding import write_embedding
from deepsimplex.monitoring.event_file import EventFile
from deepsimplex.monitoring.hyperparameters import check_hyperparameters, hyperparameters_of
from deepsimplex.monitoring.model_outputs import ModelOutputs
from deepsimplex.monitoring.pictures import band_picture, pictures
from deepsimplex.monitoring.predictions import WatchedPredictions, on_one_line
from deepsimplex.monitoring.samples import ValidationSamples, as_images, draw_samples, rows_of
from deepsimplex.monitoring.scores import histograms, latent_histograms, scalars
from deepsimplex.readout import READOUTS, Readout

SAMPLES = 2000
FOLDER = "calibration"


class CalibrationBoard(keras.callbacks.Callback):
    """Writes scores, pictures and latents of validation samples to TensorBoard: a callback of any Keras classifier.

    Parameters
    ----------
    log_dir : path-like
        As that of ``keras.callbacks.TensorBoard``, beside whose folders "train" and "validation" it writes to a folder
        "calibration" of its own.
    validation_data : (x, y) or tf.data.Dataset
        Samples and class numbers 0..n-1, as arrays, or a finite data set of batches (x, y), which is read once, now.
    every : int
        Of so many epochs the first is written, and the last of all in any case. Default 1: all of them.
    samples : int, optional
        At most so many of the validation samples are used, drawn once, at random. Default 2000, predicted in about a
        hundredth of the time that an epoch of 60 000 takes; None uses all.
    seed : int
        Of that draw. Default 0.
    class_names : sequence of str, optional
        Default: the model's own, or numbers.
    outside : array or structure of arrays, optional
        Samples from outside the training distribution, for "score/out_of_distribution_auroc"; at most ``samples`` of
        them too.
    bins : int
        Bins of the calibration errors, 15 by default.
    pictures : bool
        Draw pictures. Default True; they take most of the time beyond the prediction.
    hparams : mapping of str to str, bool, int or float, optional
        Hyperparameters of your own beside those that the model tells; they go first where names are the same.
    batch_size : int
        Samples predicted at once, 256 by default.

    Raises
    ------
    OSError
        When the folder cannot be written: said at once.
    TypeError, ValueError
        For samples, labels and options that are no such thing, at once; as training begins for a model whose outputs
        are no class probabilities, and for labels and class names that do not fit their number.

    Notes
    -----
    By epoch, numbered as Keras numbers them: every score of ``evaluation.report`` ("score/accuracy",
    "calibration/expected_calibration_error", ...) and the calibration error of each class ("calibration_of_class/..."),
    of up to twenty; distributions ("confidence", "latent/scale", "latent/norm"); pictures ("pictures/reliability";
    "pictures/simplex" of three or four classes, "pictures/latent_space" of others; of images "pictures/highest_loss",
    the four whose own class has the least probability). As training begins: hyperparameters, for the HParams page, and
    which samples are used ("validation_samples"). As it ends: the latent means with labels and small images for the
    Projector page, and of a softmax readout the reliability diagram with its 95% band ("pictures/reliability_band",
    which takes seconds), of the weights as they then are. Latents, and what is drawn and counted of them, are those of
    a ``SimplexClassifier``; of other models they are left out.

    A model gives class probabilities [N, n], or [N, 1] for the probability of class 1 of two; logits are refused. In
    half precision the probabilities of a sample sum to one only roughly: they are divided by their sum, in double
    precision. Where training diverged and a prediction is NaN, the scores are written as NaN, once with a warning, and
    training goes on.

    The board does not touch training: the weights are the same without it, bit by bit. All that it keeps from one epoch
    to the next is the last epoch's number, so that resumed runs (``initial_epoch``, ``BackupAndRestore``) go on in
    another file of the same folder. Every epoch is flushed. Keras tells callbacks nothing of an exception: ``close``
    ends the file then, as does leaving a ``with`` block, and the next fit.

    Examples
    --------
    >>> import deepsimplex as ds
    >>> (x, y), (x_test, y_test) = ds.datasets.load("digits")
    >>> model = ds.SimplexClassifier(ds.backbones.mlp([16]), "ilr", num_classes=10)
    >>> model.compile("adam")
    >>> board = CalibrationBoard(folder / "events", (x_test, y_test), samples=100)
    >>> history = model.fit(x, y, epochs=1, verbose=0, callbacks=[board])
    >>> sorted(path.name for path in (folder / "events" / "calibration").glob("[lp]*"))
    ['latent.tsv', 'latent_samples.tsv', 'latent_sprite.png', 'projector_config.pbtxt']
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        validation_data: Any,
        *,
        every: int = 1,
        samples: int | None = SAMPLES,
        seed: int = 0,
        class_names: Sequence[str] | None = None,
        outside: Any = None,
        bins: int = 15,
        pictures: bool = True,
        hparams: Mapping[str, Any] | None = None,
        batch_size: int = 256,
    ) -> None:
        super().__init__()
        self.every = check_whole(every, "every", 1)
        self.samples = None if samples is None else check_whole(samples, "samples", 1)
        self.seed = check_whole(seed, "seed", 0)
        self.bins = check_whole(bins, "bins", 1)
        self.pictures = check_flag(pictures, "pictures")
        self.batch_size = check_whole(batch_size, "batch_size", 1)
        self.hparams = check_hyperparameters(hparams)
        self.class_names = None if class_names is None else [str(name) for name in class_names]
        self.validation = draw_samples(validation_data, self.samples, self.seed)
        self.outside = None if outside is None else self._unlabeled(outside)
        self._images = as_images(self.validation.x)
        self._file = EventFile(Path(log_dir).expanduser() / FOLDER)
        self._epoch = 0  # the last one so far
        self._left_out: int | None = None  # the same, unless it was written
        self._warned = False
        self._outputs: ModelOutputs

    def _unlabeled(self, outside: Any) -> Any:
        leaves = keras.tree.flatten(outside)
        rows = len(leaves[0]) if leaves and np.ndim(leaves[0]) else 0
        return draw_samples((outside, np.zeros(rows, np.int64)), self.samples, self.seed, "outside").x

    # What Keras calls

    def on_train_begin(self, logs: Any = None) -> None:
        self.close()  # the last fit's file
        self._warned = False
        self._check_model()
        told = {**hyperparameters_of(self.model, self.params), **self.hparams}
        texts = {"validation_samples": _told(self.validation, self.seed)}
        self._file.write(0, texts=texts, messages=[api.hparams_pb(told)])

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch
        if epoch % self.every:
            self._left_out = epoch
        else:
            self._left_out = None
            self._write(epoch, self._predictions())

    def on_train_end(self, logs: Any = None) -> None:
        found = self._predictions()
        if self._left_out is not None:
            self._write(self._left_out, found)
        if found.latent is not None and not found.not_finite:
            write_embedding(self._file.folder, found)
        if self.pictures:
            self._file.write(self._epoch, images=band_picture(found))
        self._file.write(0, messages=[summary.session_end_pb(api_pb2.STATUS_SUCCESS)])
        self.close()

    # What is written

    def _write(self, epoch: int, found: WatchedPredictions) -> None:
        if found.not_finite and not self._warned:
            self._warned = True
            warnings.warn(
                f"after epoch {epoch} predictions of {found.not_finite} validation samples are NaN or infinite: "
                "training has diverged. While this lasts scores are written as NaN, and no pictures. A smaller "
                "learning rate may help",
                stacklevel=2,
            )
        distributions = histograms(found) | latent_histograms(found)
        drawn = pictures(found, self.seed) if self.pictures else {}
        self._file.write(epoch, scalars(found, self.bins), distributions, drawn)

    def close(self) -> None:
        """End the event file, if one is open."""
        self._left_out = None
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # What is predicted

    def _check_model(self) -> None:
        """Refuse a model that gives no class probabilities, before it is trained."""
        x = self.validation.x
        self._outputs = ModelOutputs(self.model, x, self.batch_size)
        p = self._outputs(rows_of(x, slice(8)))["probabilities"]
        n, labels = p.shape[1], self.validation.y
        if np.isfinite(p).all():
            check_probabilities(p, "what the model gives", "End it in a softmax: logits are no class probabilities")
        check_labels(labels, n, name="the labels of validation_data")
        if self.class_names is not None and len(self.class_names) != n:
            raise ValueError(f"class_names must have {n} entries, one per class; found {len(self.class_names)}")

    def _predictions(self) -> WatchedPredictions:
        outputs = self._outputs(self.validation.x)
        p = outputs.pop("probabilities")
        names = self.class_names or getattr(self.model, "class_names", None) or [str(k) for k in range(p.shape[1])]
        found = WatchedPredictions(
            labels=self.validation.y,
            probabilities=p,
            class_names=on_one_line(names),
            outside=None if self.outside is None else self._outputs(self.outside)["probabilities"],
            images=self._images,
        )
        if not outputs:
            return found
        # A layer that is no Readout neither tells its scores nor has intervals.
        known = isinstance(self.model.readout, Readout)
        scores = self.model.readout.scores if known else self.model.target.scores(self.model.num_classes)
        readout = READOUTS.name_of(self.model.readout) if known else None
        return dataclasses.replace(found, latent=outputs, scores=scores, readout=readout)


def _told(validation: ValidationSamples, seed: int) -> str:
    used, given = len(validation.rows), validation.given
    return f"all {given} samples" if used == given else f"{used} of {given} samples, drawn with seed {seed}"
