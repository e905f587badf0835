"""Measure the time and memory of a function."""

import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import keras


def seconds(work: Callable[..., Any], *arguments: Any) -> float:
    """Return the seconds that a function takes."""
    begun = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - begun


def in_fresh_process(work: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of a module in a fresh process, whose memory no other work has raised."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


class EpochSeconds(keras.callbacks.Callback):
    """Callback that measures the seconds of every epoch of a fit."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._begun = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seconds.append(time.perf_counter() - self._begun)


def resident_gibibytes(anonymous: bool = False) -> float:
    """Resident memory of this process, from /proc; ``anonymous`` leaves out pages of files, as of memory maps."""
    _, resident, file_backed, *_ = map(int, Path("/proc/self/statm").read_text().split())
    return (resident - anonymous * file_backed) * os.sysconf("SC_PAGE_SIZE") / 2**30


class PeakMemory:
    """Largest resident memory inside a with block, sampled every 10 ms, above what it was at the beginning.

    Parameters
    ----------
    anonymous : bool
        Whether pages of files, which the system can take back, are left out. Default False.
    """

    def __init__(self, anonymous: bool = False) -> None:
        self._anonymous = anonymous

    def __enter__(self) -> "PeakMemory":
        self._begun, self.gibibytes, self._stop = resident_gibibytes(self._anonymous), 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.01):
            self.gibibytes = max(self.gibibytes, resident_gibibytes(self._anonymous) - self._begun)

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()
