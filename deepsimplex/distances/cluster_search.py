"""Neighbor search on a Ray cluster.

The samples go into the object store once. A task takes all cores of a node, and is tried again if its node dies.

Exact: groups of tiles are the tasks, which start from the neighbors that are known when they are submitted, and whose
lists are merged. Tiles, pairs and ties are those of the search on one machine, so that the answer is the same bit for
bit.

Approximate: a task makes the index of a class, and others search blocks of queries in it, as on one machine.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import Any

import numba
import numpy as np
from threadpoolctl import threadpool_limits

from deepsimplex._utils.batching import parts
from deepsimplex.distances.approximate_search import QUERIES_AT_ONCE, CandidateSearch, ClassNeighbors
from deepsimplex.distances.distance import Distance
from deepsimplex.distances.exact_search import Neighbors, Search, Tile, Visit, num_pairs

# Enough that nodes of unequal speed finish together, and that little work is lost if one dies.
TASKS_PER_NODE = 16
TRIES = 5
SAME_VERSIONS = ("deepsimplex", "numpy", "numba", "faiss")
# Seconds without an answer after which to check whether any node is left that can run the tasks.
PATIENCE = 30.0


class ClusterError(OSError):
    """Raised for a cluster that cannot do the work: nodes of other versions, or tasks that keep failing."""


def search_on_cluster(search: Search, metric: Distance) -> Neighbors:
    """Find exact neighbors on the nodes of a Ray cluster.

    Parameters
    ----------
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
    ClusterError
        If nodes have other versions of this package, Ray, Python, NumPy, numba or faiss, if a task has failed on
        several nodes, or no node is left.
    MemoryError
        If the samples do not fit into the object store.
    """
    from deepsimplex.distances.compiled_search import merge_lists

    ray = ray_module()
    with _connected(ray) as (cores, at_once), _errors(ray):
        tiles, neighbors = search.tiles(metric), search.empty()
        task = ray.remote(num_cpus=cores, max_retries=TRIES)(_visit)
        submit = partial(task.remote, uuid.uuid4().hex, ray.put((metric, search, cores)))
        waiting = _groups(tiles, TASKS_PER_NODE * at_once)[::-1]
        running: dict[Any, list[Tile]] = {}
        with search.progress(metric, tiles, "neighbors on a cluster") as advance:
            # Tasks that run when the search is interrupted end by themselves: cancelling them can end this process
            # (Ray 2.60).
            while waiting or running:
                # No more than can run: a task that waits starts from fewer known neighbors, and evaluates more pairs.
                while waiting and len(running) < at_once:
                    group = waiting.pop()
                    running[submit(group, neighbors)] = group
                ready, nearest = _first_ready(ray, cores, list(running))
                merge_lists(nearest.distances, nearest.indices, neighbors.distances, neighbors.indices)
                advance(sum(map(num_pairs, running.pop(ready))))
    return search.in_order(neighbors)


def candidates_on_cluster(candidates: CandidateSearch) -> Iterator[ClassNeighbors]:
    """Search every class among candidates on the nodes of a Ray cluster; errors are those of ``search_on_cluster``."""
    ray, n = ray_module(), candidates.search.num_classes
    with _connected(ray) as (cores, at_once), _errors(ray):
        index, search = (ray.remote(num_cpus=cores, max_retries=TRIES)(one) for one in (_index, _search_class))
        shared, tasks = ray.put((candidates, cores)), -(-TASKS_PER_NODE * at_once // n)
        blocks = -(-len(candidates.queries) // QUERIES_AT_ONCE)
        groups = parts(slice(0, len(candidates.queries)), -(-blocks // tasks) * QUERIES_AT_ONCE)
        indices = [index.remote(shared, label) for label in range(n)]
        running = [
            (label, rows, search.remote(shared, indices[label], label, rows)) for label in range(n) for rows in groups
        ]
        del indices  # a class that is searched needs no index any more
        while running:
            label, rows, task = running.pop(0)
            yield label, rows, *_first_ready(ray, cores, [task])[1]


def _first_ready(ray: Any, cores: int, running: list[Any]) -> tuple[Any, Any]:
    """Wait for the first of the tasks, and return it with its answer; raise ClusterError if no node can run it."""
    while not (ready := ray.wait(running, timeout=PATIENCE)[0]):
        if not any(node["Alive"] and node["Resources"].get("CPU", 0) >= cores for node in ray.nodes()):
            raise ClusterError(f"executor='ray' has no node of {cores} cores left. Start some, and search again")
    return ready[0], ray.get(ready[0])


_visits: dict[str, Visit] = {}  # the visit that this worker has prepared, by the search


def _visit(key: str, shared: tuple[Distance, Search, int], tiles: list[Tile], known: Neighbors) -> Neighbors:
    """Visit tiles on a node, and return the known neighbors merged with those that it finds."""
    metric, search, cores = shared
    neighbors = Neighbors(known.distances.copy(), known.indices.copy())
    with _threads(cores):
        if key not in _visits:
            _visits.clear()
            _visits[key] = metric.visitor(search)
        for rows, columns in tiles:
            if search.has_wanted(rows, columns):
                _visits[key](rows, columns, neighbors)
    return neighbors


def _index(shared: tuple[CandidateSearch, int], label: int) -> Any:
    """Make the index of a class on a node."""
    candidates, cores = shared
    with _threads(cores):
        return candidates.index(label)


def _search_class(shared: tuple[CandidateSearch, int], index: Any, label: int, rows: slice) -> tuple[Any, Any]:
    """Find the nearest candidates of a class for some queries on a node, in blocks as on one machine."""
    candidates, cores = shared
    with _threads(cores):
        blocks = [candidates.nearest(index, label, part) for part in parts(rows, QUERIES_AT_ONCE)]
    distances, indices = (np.concatenate(lists) for lists in zip(*blocks, strict=True))
    return distances, indices


@contextmanager
def _threads(cores: int) -> Iterator[None]:
    """Set the number of threads of compiled loops, BLAS and faiss."""
    import faiss

    numba.set_num_threads(min(cores, numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
    faiss.omp_set_num_threads(cores)
    with threadpool_limits(limits=cores):
        yield


def _groups(tiles: list[Tile], count: int) -> list[list[Tile]]:
    """Divide tiles into about ``count`` groups of consecutive tiles with similar numbers of pairs."""
    reached = np.cumsum([0, *map(num_pairs, tiles)])
    bounds = np.unique([*np.searchsorted(reached, np.linspace(0, reached[-1], count + 1)), len(tiles)])
    return [tiles[begin:end] for begin, end in pairwise(bounds)]


def ray_module() -> Any:
    """Import Ray, or raise an ImportError that says how to install it."""
    try:
        import ray
    except ImportError as error:
        raise ImportError("executor='ray' needs Ray; in a checkout: pip install '.[cluster]'") from error
    return ray


@contextmanager
def _errors(ray: Any) -> Iterator[None]:
    """Turn Ray's errors into those that ``search_on_cluster`` documents."""
    try:
        yield
    except (ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError) as error:
        raise MemoryError(
            f"executor='ray' found the object store full: {error}. Start the nodes with a larger "
            "--object-store-memory, or search on this machine with executor=None"
        ) from error
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError) as error:
        raise ClusterError(f"executor='ray': a task failed {TRIES + 1} times: {error}") from error
    except ray.exceptions.RayTaskError as error:
        raise error.as_instanceof_cause() from None
    except ray.exceptions.RayError as error:
        raise ClusterError(f"executor='ray': the cluster failed: {type(error).__name__}: {error}") from error


@contextmanager
def _connected(ray: Any) -> Iterator[tuple[int, int]]:
    """Connect to the running Ray cluster, or start one on this machine.

    Yields the number of cores of a task, the smallest of any node, and how many tasks run at once.
    """
    ours = not ray.is_initialized()
    if ours:
        try:
            ray.init(include_dashboard=False, logging_level="error")
        except ConnectionError as error:
            raise ConnectionError(
                f"executor='ray' does not reach the cluster: {error}. Check RAY_ADDRESS, or unset it for a cluster of "
                "this machine alone; 'ray stop' ends what one that crashed has left"
            ) from error
        except RuntimeError as error:  # Ray or Python of another version
            raise ClusterError(f"executor='ray' cannot use the cluster: {error}") from error
    try:
        nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
        _check_versions(ray, nodes)
        cores = int(min(node["Resources"]["CPU"] for node in nodes))
        yield cores, sum(int(node["Resources"]["CPU"]) // cores for node in nodes)
    finally:
        if ours:
            ray.shutdown()


def _versions() -> tuple[str, ...]:
    return tuple(import_module(name).__version__ for name in SAME_VERSIONS)


def _check_versions(ray: Any, nodes: list[dict[str, Any]]) -> None:
    """Raise an error, before any work, if a node has other versions of the packages."""
    if not nodes:
        raise ClusterError("executor='ray' needs a node with at least one core; found none alive")
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    task = ray.remote(num_cpus=0)(_versions)
    asked = [task.options(scheduling_strategy=strategy(node["NodeID"], soft=False)).remote() for node in nodes]
    for node, answer in zip(nodes, asked, strict=True):
        try:
            versions = ray.get(answer)
        except (ray.exceptions.NodeDiedError, ray.exceptions.WorkerCrashedError, ray.exceptions.TaskUnschedulableError):
            continue  # it has died since, and gets no tasks
        except ray.exceptions.RayError as error:
            raise ClusterError(f"executor='ray' needs deepsimplex on {node['NodeName']}: {error}") from error
        if versions != _versions():
            pairs = zip(SAME_VERSIONS, versions, _versions(), strict=True)
            other = ", ".join(f"{name} {theirs} (here {ours})" for name, theirs, ours in pairs if theirs != ours)
            raise ClusterError(f"executor='ray' needs the same versions on all nodes; {node['NodeName']} has {other}")
