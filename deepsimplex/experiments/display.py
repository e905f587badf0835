"""What a training run shows while it lasts."""

import time
from typing import Any

import keras
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class EpochDisplay(keras.callbacks.Callback):
    """A bar over the epochs with the latest losses and metrics; a line now and then where there is no terminal.

    Parameters
    ----------
    console : rich.console.Console
    lines : int
        Number of lines printed in all where the output is no terminal.
    """

    def __init__(self, console: Console, lines: int = 10) -> None:
        super().__init__()
        self.console = console
        self.lines = lines
        self._bar: Progress | None = None
        self._task: Any = None
        self._steps = 0
        self._begun = 0.0

    def on_train_begin(self, logs: Any = None) -> None:
        self._begun = time.monotonic()
        self._steps = self.params.get("steps") or 0
        if self.console.is_terminal:
            self._bar = Progress(
                TextColumn("training"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("epochs"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[figures]}"),
                console=self.console,
            )
            self._task = self._bar.add_task("training", total=self.params["epochs"], figures="")
            self._bar.start()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=epoch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._bar is not None and self._steps:
            done = int(self._bar.tasks[0].completed) + min((batch + 1) / self._steps, 0.999)
            self._bar.update(self._task, completed=done)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        figures = "  ".join(f"{name} {value:.4f}" for name, value in (logs or {}).items() if name != "learning_rate")
        epochs = self.params["epochs"]
        if self._bar is not None:
            self._bar.update(self._task, completed=epoch + 1, figures=figures)
        elif (epoch + 1) % max(1, epochs // self.lines) == 0 or epoch + 1 == epochs:
            seconds = time.monotonic() - self._begun
            self.console.print(
                f"epoch {epoch + 1}/{epochs}  {seconds:.0f} s  {figures}", highlight=False, soft_wrap=True
            )

    def on_train_end(self, logs: Any = None) -> None:
        self.close()

    def close(self) -> None:
        """Stop the bar; also after an error."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
