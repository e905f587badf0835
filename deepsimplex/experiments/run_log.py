"""What a run prints and keeps in its log."""

from collections.abc import Callable, Mapping

import keras

from deepsimplex.experiments.run_folder import RunFolder

Verbosity = str | int  # as ``verbose`` of Keras' fit


def printer(verbose: Verbosity) -> Callable[[str], None]:
    """Return a function that prints a line, or nothing for ``verbose=0``."""
    return (lambda text: print(text, flush=True)) if verbose else (lambda text: None)


class EpochLog(keras.callbacks.Callback):
    """A line for every epoch in the log of a run."""

    def __init__(self, folder: RunFolder, epochs: int) -> None:
        super().__init__()
        self.folder, self.epochs = folder, epochs

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        scores = ", ".join(f"{name} {value:.4g}" for name, value in (logs or {}).items())
        self.folder.append_to_log(f"epoch {epoch + 1} of {self.epochs}: {scores}")


def into(folder: RunFolder, log: Callable[[str], None]) -> Callable[[str], None]:
    """Return a printer that writes to the log of a run as well."""

    def both(text: str) -> None:
        log(text)
        folder.append_to_log(text)

    both(f"in {folder.path}")
    return both
