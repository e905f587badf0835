"""One file of TensorBoard events, for every board that writes."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import tensorflow as tf
from numpy.typing import NDArray

from deepsimplex._utils.atomic_files import check_writable


class EventFile:
    """Numbers, distributions, pictures and texts by step; the file is begun by the first of them.

    Parameters
    ----------
    folder : path-like
        Made where there is none. Every file that is begun lies beside the earlier ones, which TensorBoard reads before.

    Raises
    ------
    OSError
        When the folder cannot be written.

    Examples
    --------
    >>> with EventFile(folder / "events") as file:
    ...     file.write(step=0, scalars={"score/accuracy": 0.5})
    >>> len(list((folder / "events").glob("events.out.tfevents.*")))
    1
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder: Path = check_writable(folder, "log_dir")
        self._writer: Any = None

    def write(
        self,
        step: int,
        scalars: Mapping[str, float] | None = None,
        histograms: Mapping[str, NDArray[Any]] | None = None,
        images: Mapping[str, NDArray[Any]] | None = None,
        texts: Mapping[str, str] | None = None,
        messages: Sequence[Any] = (),
    ) -> None:
        """Write by tag, and flush: what was written can be read however the process ends.

        ``images`` are [H, W, 3] uint8, ``texts`` Markdown, and ``messages`` TensorBoard's own summaries, whole.
        """
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(str(self.folder))
        # Whoever else writes may have asked TensorFlow to record some steps only, as keras.callbacks.TensorBoard does.
        with self._writer.as_default(step=step), tf.summary.record_if(True):
            for tag, number in (scalars or {}).items():
                tf.summary.scalar(tag, number)
            for tag, values in (histograms or {}).items():
                tf.summary.histogram(tag, values)
            for tag, pixels in (images or {}).items():
                tf.summary.image(tag, pixels[None])
            for tag, text in (texts or {}).items():
                tf.summary.text(tag, text)
            for message in messages:
                tf.summary.experimental.write_raw_pb(message.SerializeToString())
        self._writer.flush()

    def close(self) -> None:
        """End the file, if one is open; what is written later goes to another."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
