"""TensorBoard event files, and the files of its embedding projector."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from skimage.util import montage
from tensorboard.plugins import projector

from deepsimplex._utils.atomic_files import DiskFullError, check_writable, disk_full_at, replacing
from deepsimplex._utils.messages import warn_caller
from deepsimplex.monitoring.classifier_outputs import ClassifierOutputs

EMBEDDING = "latent"
LARGEST_SPRITE = 8192  # pixels on either side, TensorBoard's limit
THUMBNAIL = 64


class EventFile:
    """TensorBoard event file of scalars, histograms, images and texts; the first write creates it.

    A full disk is a warning, and nothing more is written until the file is closed.

    Parameters
    ----------
    folder : path-like
        Created if it does not exist. Every file is a new one beside the earlier ones.

    Raises
    ------
    OSError
        If the folder cannot be written.

    Examples
    --------
    >>> file = EventFile(folder / "events")
    >>> file.write(0, {"score/accuracy": 0.5})
    >>> len(list((folder / "events").glob("events.out.tfevents.*")))
    1
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder: Path = check_writable(folder, "log_dir")
        self._writer: Any = None
        self._full = False

    def write(self, step: int, values: Mapping[str, Any], messages: Sequence[Any] = ()) -> None:
        """Write values by tag, and flush, so that the file can be read even if the process is killed.

        Text is Markdown, an array [H, W, 3] of uint8 an image, any other array a histogram, and a number a scalar.
        ``messages`` are summaries as TensorBoard's plugins make them.
        """
        if self._full:
            return
        with self._until_full():
            if self._writer is None:
                self._writer = tf.summary.create_file_writer(str(self.folder))
            # keras.callbacks.TensorBoard, among others, makes TensorFlow record some steps only.
            with self._writer.as_default(step=step), tf.summary.record_if(True), self._flushed():
                for tag, value in values.items():
                    _write_summary(tag, value)
                for message in messages:
                    tf.summary.experimental.write_raw_pb(message.SerializeToString())

    def close(self) -> None:
        """Close the file, if one is open; later values go to another."""
        writer, self._writer, self._full = self._writer, None, False
        if writer is not None:
            with self._until_full():
                writer.close()

    def write_embedding(self, outputs: ClassifierOutputs) -> None:
        """Write the files of the projector beside the event file: latent means, a table of predictions, and images.

        The projector finds them by ``projector_config.pbtxt``, written last, so that it refers to complete files only.
        """
        if self._full:
            return
        with self._until_full():
            config = projector.ProjectorConfig()
            embedding = config.embeddings.add()
            embedding.tensor_name, embedding.tensor_path = EMBEDDING, f"{EMBEDDING}.tsv"
            embedding.metadata_path = f"{EMBEDDING}_samples.tsv"
            assert outputs.latent is not None
            with replacing(self.folder / embedding.tensor_path) as fresh:
                np.savetxt(fresh, outputs.latent["loc"], fmt="%.6g", delimiter="\t")
            with replacing(self.folder / embedding.metadata_path) as fresh:
                fresh.write_text(_table(outputs), encoding="utf-8")
            if outputs.images is not None:
                pixels, size = sprite(outputs.images)
                embedding.sprite.image_path = f"{EMBEDDING}_sprite.png"
                embedding.sprite.single_image_dim.extend(size)
                with replacing(self.folder / embedding.sprite.image_path) as fresh:
                    fresh.write_bytes(tf.io.encode_png(pixels).numpy())
            projector.visualize_embeddings(str(self.folder), config)

    @contextmanager
    def _flushed(self) -> Iterator[None]:
        """Flush after the block. A writer that fails is closed, or TensorFlow would keep it as the default."""
        try:
            yield
            self._writer.flush()
        except tf.errors.OpError:
            self._abandon_writer()
            raise

    def _abandon_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(tf.errors.OpError):  # raised for events that it has not flushed
                writer.close()

    @contextmanager
    def _until_full(self) -> Iterator[None]:
        """Warn about a full disk inside the block, and write nothing more."""
        try:
            with disk_full_at(self.folder):
                yield
        except DiskFullError as error:
            self._full = True
            self._abandon_writer()
            warn_caller(f"{error}: nothing more is written for TensorBoard, and training goes on", UserWarning)


def _write_summary(tag: str, value: Any) -> None:
    if isinstance(value, str):
        tf.summary.text(tag, value)
    elif np.ndim(value) == 0:
        tf.summary.scalar(tag, value)
    elif value.dtype == np.uint8:
        tf.summary.image(tag, value[np.newaxis])
    else:
        tf.summary.histogram(tag, value)


def _table(outputs: ClassifierOutputs) -> str:
    """Return labels and predictions separated by tabs; the projector shows the last column first."""
    names, assigned = outputs.class_names, outputs.probabilities.argmax(axis=1)
    rows = zip(outputs.labels, assigned, outputs.probabilities.max(axis=1), strict=True)
    lines = [f"{p:.3f}\t{'yes' if y == k else 'no'}\t{names[k]}\t{names[y]}" for y, k, p in rows]
    return "\n".join(["confidence\tcorrect\tassigned\tlabel", *lines]) + "\n"


def sprite(images: NDArray[np.floating]) -> tuple[NDArray[np.uint8], tuple[int, int]]:
    """Join images [N, H, W] or [N, H, W, 3], scaled down, to a square; return it and the (width, height) of each."""
    side = math.ceil(math.sqrt(len(images)))
    colors = np.repeat(images[..., None], 3, axis=-1) if images.ndim == 3 else images
    shrink = min(1.0, min(THUMBNAIL, LARGEST_SPRITE // side) / max(colors.shape[1:3]))
    height, width = (max(1, round(shrink * edge)) for edge in colors.shape[1:3])
    if shrink < 1.0:
        colors = tf.image.resize(colors, (height, width), method="area").numpy()
    square = montage(colors, fill=(1.0, 1.0, 1.0), channel_axis=3)
    return np.round(255 * np.clip(square, 0, 1)).astype(np.uint8), (width, height)
