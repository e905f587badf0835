"""Exact neighbors of full Fashion-MNIST: speed, memory, growth and agreement.

    python -m training.benchmarks.neighbors [--samples 60000] [--fewer 15000] [--repeats 5] [--output FILE.json]

Everything is measured in one run. The distance matrix is compared with scikit-image's structural_similarity, pair by
pair, as a ratio. Targets are those of ``deepsimplex.targets.CASIMAC`` without a cache, and their pairs those of
different classes, each counted once.
"""

import math
import statistics
from collections.abc import Iterator
from typing import Annotated

import numpy as np
import typer
from skimage.metrics import structural_similarity

import deepsimplex as ds
from training.benchmarks.resources import PeakMemory, seconds
from training.results import Measurement, Output, ResultTable

WINDOWS = (5, 13)
COMPARED_WINDOWS = (3, 5, 7, 13)  # with scikit-image
BLOCK = 1024  # images on either side of a block of the distance matrix that is timed
PEER_PAIRS = 300
AGREEMENT_PAIRS = 200


def matrix_speed(x: np.ndarray, window: int, rng: np.random.Generator) -> float:
    """Pairs per second of all distances between two blocks of images."""
    metric = ds.distances.SSIM(window)
    rows, columns = rng.choice(x, (2, min(BLOCK, len(x) // 2)), replace=False)
    return len(rows) * len(columns) / seconds(metric.pairwise, rows, columns)


def peer_speed(x: np.ndarray, window: int, rng: np.random.Generator) -> float:
    """Pairs per second of scikit-image, one call per pair."""
    pairs = rng.integers(0, len(x), size=(PEER_PAIRS, 2))

    def work() -> None:
        for i, j in pairs:
            structural_similarity(x[i], x[j], win_size=window, data_range=1.0)

    return PEER_PAIRS / seconds(work)


def against_the_peer(x: np.ndarray, repeats: int) -> Iterator[Measurement]:
    """The distance matrix and scikit-image, alternating."""
    rng = np.random.default_rng(0)
    for window in WINDOWS:
        matrix_speed(x, window, rng)  # compiles its loops, or loads them
        speeds = [(matrix_speed(x, window, rng), peer_speed(x, window, rng)) for _ in range(repeats)]
        ratio = statistics.median(ours / peer for ours, peer in speeds)
        ours = statistics.median(ours for ours, _ in speeds)
        yield f"distance matrix, window {window}, over scikit-image", f"{ratio:.0f} times ({ours / 1e6:.2f} M pairs/s)"


def nearest_by_sorting(D: np.ndarray, y: np.ndarray, k: int) -> np.ndarray:
    """Indices [N, n, k] of the nearest other samples of every class, from the whole matrix of distances [N, N]."""
    np.fill_diagonal(D, np.inf)
    order = np.argsort(D, axis=1, kind="stable")
    classes = [order[y[order] == label].reshape(len(D), -1)[:, :k] for label in range(y.max() + 1)]
    return np.stack(classes, axis=1)


def agreement(x: np.ndarray, y: np.ndarray) -> Iterator[Measurement]:
    """Largest difference to scikit-image on random pairs, and neighbors against brute force."""
    rng = np.random.default_rng(1)
    pairs = rng.integers(0, len(x), size=(AGREEMENT_PAIRS, 2))
    for window in COMPARED_WINDOWS:
        images = x.astype(np.float64)  # in which scikit-image computes then
        expected = [1 - structural_similarity(images[i], images[j], win_size=window, data_range=1.0) for i, j in pairs]
        for dtype in ("float32", "float64"):
            metric = ds.distances.SSIM(window, dtype=dtype)
            values = [metric.pairwise(images[i : i + 1], images[j : j + 1])[0, 0] for i, j in pairs]
            error = np.abs(np.array(values) - expected).max()
            yield f"difference to scikit-image, {AGREEMENT_PAIRS} pairs, window {window}, {dtype}", f"{error:.1e}"
    for distance in ("euclidean", "cityblock", *(ds.distances.SSIM(window) for window in WINDOWS)):
        neighbors = ds.distances.class_neighbors(x, y, distance, 3)
        same = (
            neighbors.indices == nearest_by_sorting(ds.distances.get_distance(distance).pairwise(x, x), y, 3)
        ).mean()
        yield f"neighbors as by brute force, {len(x)} images, k = 3, {distance}", f"{same:.2%}"


def targets(x: np.ndarray, y: np.ndarray) -> tuple[dict[str, float], float]:
    """Seconds of each of the informed targets, and memory in GiB."""
    metrics = {"euclidean": "euclidean"} | {f"SSIM, window {window}": ds.distances.SSIM(window) for window in WINDOWS}
    with PeakMemory() as memory:
        taken = {
            name: seconds(ds.targets.CASIMAC(metric, show_progress=True).fit_transform, x, y)
            for name, metric in metrics.items()
        }
    return taken, memory.gibibytes


def searches(x: np.ndarray, y: np.ndarray, fewer: int) -> Iterator[Measurement]:
    """Time and memory of the informed targets, and growth with the number of images."""
    small, _ = targets(x[:fewer], y[:fewer])
    taken, memory = targets(x, y)
    counts = np.bincount(y)
    pairs = (len(y) ** 2 - int(counts @ counts)) // 2
    for name, duration in taken.items():
        yield f"targets of {len(x)} images, {name}", f"{duration:.1f} s ({pairs / duration / 1e6:.2f} M pairs/s)"
    whole, part = sum(taken.values()), sum(small.values())
    yield f"the three informed targets of {len(x)} images", f"{whole / 60:.1f} minutes"
    yield "memory of that above imports and data", f"{memory:.2f} GiB"
    growth = math.log(whole / part) / math.log(len(x) / min(fewer, len(x) - 1))
    yield f"growth from {fewer} images ({part:.1f} s) to {len(x)}", f"N^{growth:.2f}"


def main(
    samples: Annotated[int, typer.Option(help="training images to use")] = 60_000,
    fewer: Annotated[int, typer.Option(help="images of the smaller search, for the growth")] = 15_000,
    repeats: Annotated[int, typer.Option(help="measurements to take medians of")] = 5,
    output: Output = None,
) -> None:
    """Measure and print."""
    table = ResultTable("training.benchmarks.neighbors")
    (x, y), _ = ds.datasets.load("fashion_mnist")
    x, y = x[:samples].reshape(-1, 28, 28), np.asarray(y[:samples])
    table.measure(against_the_peer(x, repeats))
    table.measure(agreement(x[:3000], y[:3000]))
    table.measure(searches(x, y, fewer))
    table.write(output)


if __name__ == "__main__":
    typer.run(main)
