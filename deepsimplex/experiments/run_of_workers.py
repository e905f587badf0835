"""Coordinate the workers of one run: common folder, same configuration, errors of lost workers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import tensorflow as tf

from deepsimplex.classifier.several_workers import ChiefError, Workers, versions
from deepsimplex.experiments.configuration import ConfigurationError, RunConfig
from deepsimplex.experiments.run_folder import RunFolder


def folder_of_chief(workers: Workers, find: Callable[[], tuple[RunFolder | None, int]]) -> tuple[RunFolder | None, int]:
    """Return the run folder and the number that the chief finds."""

    def found() -> dict[str, np.ndarray]:
        folder, number = find()
        return {"path": np.array("" if folder is None else str(folder.path)), "number": np.array(number)}

    arrays = workers.from_chief(found)
    path = str(arrays["path"])
    return (RunFolder(Path(path)) if path else None), int(arrays["number"])


@contextmanager
def one_line_of_workers(workers: Workers) -> Iterator[None]:
    """Replace errors about lost workers by a ConfigurationError that explains how to resume training."""
    try:
        yield
    except (tf.errors.ResourceExhaustedError, tf.errors.InvalidArgumentError):  # of this worker's own
        raise
    except (tf.errors.OpError, ChiefError) as error:
        if workers.count == 1:
            raise
        if isinstance(error, ChiefError):
            raise ConfigurationError(str(error)) from error
        raise ConfigurationError(
            f"worker {workers.number} of {workers.count} lost another one ({type(error).__name__}). Start all of them "
            "again with --resume: the backup of the last epoch is kept"
        ) from error


def check_same_run(workers: Workers, config: RunConfig) -> None:
    """Raise ValueError if a worker has other versions or another configuration; output and cache folders may differ."""
    workers.check_same(
        {"versions": versions(), "configuration": config.model_dump_json(exclude={"output", "cache_dir"})}
    )
