"""Largest memory of a process while something runs."""

import os
import threading
from pathlib import Path


def resident_gibibytes() -> float:
    """Resident memory of this process, from /proc."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**30


class PeakMemory:
    """Largest resident memory inside a with block, sampled every 10 ms, above what it was at the beginning."""

    def __enter__(self) -> "PeakMemory":
        self._begun, self.gibibytes, self._stop = resident_gibibytes(), 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.01):
            self.gibibytes = max(self.gibibytes, resident_gibibytes() - self._begun)

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()
