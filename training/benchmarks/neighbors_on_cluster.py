"""Neighbor search through Ray beside the search without it, and on one to several nodes of one core each.

    python -m training.benchmarks.neighbors_on_cluster [--images 60000] [--ssim-images 8000] [--nodes 4] [--output FILE]

The nodes are processes of this machine, and share its cores where they are more. Seconds do not include their start.
With and without Ray the machine searches in turns, which goes first in turns too; medians of five.
"""

import logging
import os
import time
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import ray
import typer
from ray.cluster_utils import Cluster

import deepsimplex as ds
from training.results import Measurement, Output, ResultTable

TURNS = 5


def search(x: Any, y: Any, **options: Any) -> tuple[float, ds.distances.Neighbors]:
    """Seconds of a search and its neighbors, after one of few samples that compiles loops and starts workers."""
    ds.distances.class_neighbors(x[:500], y[:500], **options)
    begun = time.perf_counter()
    neighbors = ds.distances.class_neighbors(x, y, **options)
    return time.perf_counter() - begun, neighbors


def rows(distance: Any, method: Any, images: int, nodes: int) -> Iterator[Measurement]:
    """Measurements of a distance and a method."""
    (x, y), _ = ds.datasets.load("fashion_mnist")
    x, y, what = x[:images], y[:images], f"{distance!r}, {method}, {images} images"
    options = {"distance": distance, "method": method}
    ray.init("local", include_dashboard=False, logging_level=logging.ERROR)
    turns: list[dict[str | None, tuple[float, ds.distances.Neighbors]]] = []
    for turn in range(TURNS):
        order = (None, "ray") if turn % 2 == 0 else ("ray", None)
        turns.append({executor: search(x, y, **options, executor=executor) for executor in order})
    ray.shutdown()
    expected, neighbors = turns[0][None][1], turns[0]["ray"][1]
    alone, seconds = (float(np.median([turn[executor][0] for turn in turns])) for executor in (None, "ray"))
    ratio = np.median([turn["ray"][0] / turn[None][0] for turn in turns])
    yield f"{what}: without Ray", f"{alone:.1f} s"
    yield f"{what}: Ray on this machine", f"{seconds:.1f} s, {ratio:.3f} times; {equality(neighbors, expected)}"
    first = 0.0
    for count in (count for count in (1, 2, 4, 8) if count <= nodes):
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        for _ in range(count - 1):
            cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, logging_level=logging.ERROR)
        seconds, neighbors = search(x, y, **options, executor="ray")
        ray.shutdown()
        cluster.shutdown()
        first = first or seconds
        shared = "" if count <= (cores := os.cpu_count() or 1) else f" on {cores} cores"
        yield (
            f"{what}: {count} nodes of one core{shared}",
            f"{seconds:.1f} s, {first / seconds:.2f} times as fast as one; {equality(neighbors, expected)}",
        )


def equality(neighbors: ds.distances.Neighbors, expected: ds.distances.Neighbors) -> str:
    """Return whether two searches agree bit by bit."""
    same = np.array_equal(neighbors.distances, expected.distances) and np.array_equal(
        neighbors.indices, expected.indices
    )
    same = same and neighbors.recall == expected.recall
    return "equal" if same else "NOT EQUAL"


def main(
    images: Annotated[int, typer.Option(help="for the Euclidean distance")] = 60_000,
    ssim_images: Annotated[int, typer.Option(help="for structural similarity")] = 8000,
    nodes: Annotated[int, typer.Option(help="the most")] = 4,
    output: Output = None,
) -> None:
    """Measure and print the table."""
    table = ResultTable("training.benchmarks.neighbors_on_cluster")
    for method in ("exact", "approximate"):
        table.measure(rows(ds.distances.get_distance("euclidean"), method, images, nodes))
    table.measure(rows(ds.distances.SSIM(5), "exact", ssim_images, nodes))
    table.write(output)


if __name__ == "__main__":
    typer.run(main)
