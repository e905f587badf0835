"""TensorBoard event files."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from deepsimplex._utils.atomic_files import DiskFullError, check_writable, disk_full_at
from deepsimplex._utils.messages import warn_caller


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

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Write values by tag, and flush, so that the file can be read even if the process is killed.

        Text is Markdown, an array [H, W, 3] of uint8 an image, any other array a histogram, and a number a scalar.
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

    def close(self) -> None:
        """Close the file, if one is open; later values go to another."""
        writer, self._writer, self._full = self._writer, None, False
        if writer is not None:
            with self._until_full():
                writer.close()

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
