"""Euclidean CASIMAC targets of full Fashion-MNIST against the matrix products they need.

    python -m training.benchmarks.targets [--samples 60000] [--repeats 3]

Prints medians of one run: seconds of the targets, seconds of the bare float32 matrix products X X^T in blocks (NumPy's
BLAS, on as many cores), their ratio, and the largest memory above imports and data.
"""

import os
import statistics
import threading
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import deepsimplex as ds


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


def matrix_products(x: np.ndarray, block: int = 4096) -> float:
    """Seconds of X X^T in blocks of rows, thrown away."""
    begun = time.perf_counter()
    flat = x.reshape(len(x), -1).astype(np.float32)
    product = np.empty((block, len(flat)), np.float32)
    for start in range(0, len(flat), block):
        rows = flat[start : start + block]
        np.matmul(rows, flat.T, out=product[: len(rows)])
    return time.perf_counter() - begun


def main(
    samples: Annotated[int, typer.Option(help="training images to use")] = 60_000,
    repeats: Annotated[int, typer.Option(help="measurements to take the median of")] = 3,
) -> None:
    """Measure, alternating, and print."""
    (x, y), _ = ds.datasets.load("fashion_mnist")
    x, y = x[:samples], y[:samples]
    seconds, products, memory = [], [], []
    ds.targets.CASIMAC("euclidean").fit_transform(x[:2000], y[:2000])  # loads and compiles what is loaded late
    for _ in range(repeats):
        products.append(matrix_products(x))
        with PeakMemory() as peak:
            begun = time.perf_counter()
            ds.targets.CASIMAC("euclidean", show_progress=False).fit_transform(x, y)
            seconds.append(time.perf_counter() - begun)
        memory.append(peak.gibibytes)
    ratio = statistics.median(s / p for s, p in zip(seconds, products, strict=True))
    print(f"cores                     {os.cpu_count()}")
    print(f"images                    {len(x)}")
    print(f"euclidean targets         {statistics.median(seconds):.1f} s")
    print(f"matrix products alone     {statistics.median(products):.1f} s")
    print(f"ratio                     {ratio:.2f}")
    print(f"memory above imports, data {max(memory):.2f} GiB")


if __name__ == "__main__":
    typer.run(main)
