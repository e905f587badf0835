"""Exact neighbor search on a Ray cluster: groups of tiles are its tasks, and their lists are merged.

The samples go into the object store once. A task takes all cores of a node, starts from the neighbors that are known
when it is submitted, and is tried again if its node dies. Tiles, pairs and ties are those of the search on one machine,
so that the answer is equal to the bit, and a checkpoint of either is resumed by the other.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from typing import Any

import numba
import numpy as np
from threadpoolctl import threadpool_limits

from deepsimplex.distances.distance import Distance
from deepsimplex.distances.exact_search import Neighbors, Search, TileList, Visit

# Enough that nodes of unequal speed end together, and that little is lost with one of them.
TASKS_PER_NODE = 16
TRIES = 5
SAME_VERSIONS = ("deepsimplex", "numpy", "numba")


Visitor = Callable[[Distance, Search], Visit]


def search_on_cluster(visitor: Visitor, search: Search, metric: Distance) -> Neighbors:
    """Find exact neighbors on the nodes of a Ray cluster.

    Parameters
    ----------
    visitor : callable
        ``Distance.visitor``, or that of the metric's class, which makes the visit of a tile on every node.
    search : Search
    metric : Distance

    Returns
    -------
    Neighbors
        Those of the search on this machine, bit for bit.

    Raises
    ------
    ImportError
        Without Ray.
    ConnectionError
        If the cluster of the environment variable RAY_ADDRESS is not reached.
    RuntimeError
        If nodes have other versions of this package, NumPy or numba, or a task has failed on several nodes.
    MemoryError
        If the samples do not fit into the object store.
    """
    ray = _imported()
    with _connected(ray) as nodes:
        left = TileList(search, metric)
        cores = int(min(node["Resources"]["CPU"] for node in nodes))
        # No more than can run: a task that waits starts from fewer known neighbors, and evaluates more pairs.
        at_once = sum(int(node["Resources"]["CPU"]) // cores for node in nodes)
        task = ray.remote(num_cpus=cores, max_retries=TRIES)(_visit)
        try:
            shared = ray.put((visitor, metric, replace(search, checkpoint=None), cores))
            submit = partial(task.remote, uuid.uuid4().hex, shared)
            with left.progress(f"{metric!r} neighbors on a cluster") as advance:
                _run(ray, submit, left, at_once, advance)
        except (ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError) as error:
            raise MemoryError(
                f"executor='ray' found the object store full: {error}. Start the nodes with a larger "
                "--object-store-memory, or search on this machine with executor=None"
            ) from error
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError) as error:
            raise RuntimeError(f"executor='ray': a task failed {TRIES + 1} times: {error}") from error
        except ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from None
    return left.finish()


def _run(ray: Any, submit: Callable[..., Any], left: TileList, at_once: int, advance: Callable[[int], None]) -> None:
    """Submit groups of tiles, few at a time, and merge what they find."""
    from deepsimplex.distances.k_nearest import merge_lists

    waiting = _groups(left, TASKS_PER_NODE * at_once)[::-1]
    running: dict[Any, slice] = {}
    # Tasks that run when the search is cut short end by themselves: cancelling them can end this process (Ray 2.60).
    while waiting or running:
        while waiting and len(running) < at_once:
            tiles = left.tiles[waiting[-1]]
            running[submit(tiles, ray.put(left.found))] = waiting.pop()
        (ready,), _ = ray.wait(list(running))
        found = ray.get(ready)
        merge_lists(found.distances, found.indices, left.found.distances, left.found.indices)
        advance(sum(left.areas[running.pop(ready)]))
        left.keep(min([group.start for group in (*waiting, *running.values())], default=len(left.tiles)))


_visits: dict[str, Visit] = {}  # the visit that this worker has prepared, by the search


def _visit(
    key: str, shared: tuple[Visitor, Distance, Search, int], tiles: list[tuple[slice, slice]], known: Neighbors
) -> Neighbors:
    """Visit tiles on a node, and return what is known with the neighbors that they add."""
    visitor, metric, search, cores = shared
    found = Neighbors(known.distances.copy(), known.indices.copy())
    numba.set_num_threads(min(cores, numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
    with threadpool_limits(limits=cores):
        if key not in _visits:
            _visits.clear()
            _visits[key] = visitor(metric, search)
        for rows, columns in tiles:
            if search.has_wanted(rows, columns):
                _visits[key](rows, columns, found)
    return found


def _groups(left: TileList, count: int) -> list[slice]:
    """Divide the tiles that are left into about so many neighboring groups of like areas."""
    reached = np.cumsum([0, *left.areas])
    wanted = np.linspace(reached[left.done], reached[-1], count + 1)
    bounds = np.unique([left.done, *np.searchsorted(reached, wanted), len(left.tiles)])
    return [slice(int(begin), int(end)) for begin, end in pairwise(bounds)]


def _imported() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ImportError("executor='ray' needs Ray: pip install 'deepsimplex[cluster]'") from error
    return ray


@contextmanager
def _connected(ray: Any) -> Iterator[list[dict[str, Any]]]:
    """Connect to the cluster that is there, or start one of this machine's cores; yields its nodes that have cores."""
    ours = not ray.is_initialized()
    if ours:
        try:
            ray.init(include_dashboard=False, logging_level="error")
        except ConnectionError as error:
            raise ConnectionError(
                f"executor='ray' does not reach the cluster: {error}. Check RAY_ADDRESS, or unset it for a cluster of "
                "this machine alone"
            ) from error
    try:
        nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
        _check_versions(ray, nodes)
        yield nodes
    finally:
        if ours:
            ray.shutdown()


def _versions() -> tuple[str, ...]:
    return tuple(version(name) for name in SAME_VERSIONS)


def _check_versions(ray: Any, nodes: list[dict[str, Any]]) -> None:
    """Raise an error, before any work, if a node would compute something else."""
    if not nodes:
        raise RuntimeError("executor='ray' needs a node with at least one core; found none alive")
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    task = ray.remote(num_cpus=0)(_versions)
    asked = [task.options(scheduling_strategy=strategy(node["NodeID"], soft=False)).remote() for node in nodes]
    for node, answer in zip(nodes, asked, strict=True):
        try:
            found = ray.get(answer)
        except ray.exceptions.RayError:  # the node has died since, and gets no tasks
            continue
        if found != _versions():
            pairs = zip(SAME_VERSIONS, found, _versions(), strict=True)
            other = ", ".join(f"{name} {theirs} (here {ours})" for name, theirs, ours in pairs if theirs != ours)
            raise RuntimeError(f"executor='ray' needs the same versions on all nodes; {node['NodeName']} has {other}")
