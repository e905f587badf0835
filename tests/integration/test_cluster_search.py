"""Searches on a Ray cluster of this machine's cores give what one machine gives."""

import os
import sys
import time

import numpy as np
import pytest

import deepsimplex as ds
from deepsimplex.distances import SSIM, approximate_search, class_neighbors, cluster_search

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.slow,
    # Ray leaves sockets and processes to its own shutdown.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def cluster():
    """Two nodes of one core."""
    from ray.cluster_utils import Cluster

    soon = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 300, "health_check_failure_threshold": 3}
    head = {"num_cpus": 1, "object_store_memory": 2**27, "_system_config": soon}
    try:
        nodes = Cluster(initialize_head=True, head_node_args=head)
    except Exception as error:  # no shared memory, no ports
        pytest.skip(f"Ray starts no cluster on this machine: {error}")
    nodes.add_node(num_cpus=1, object_store_memory=2**27)
    ray.init(address=nodes.address, logging_level="error", log_to_driver=False)
    yield nodes
    ray.shutdown()
    for node in nodes.list_all_nodes():  # nodes that may end gracefully take ten seconds
        nodes.remove_node(node, allow_graceful=False)
    nodes.shutdown()


def equal(neighbors, wanted):
    np.testing.assert_array_equal(neighbors.distances, wanted.distances)
    np.testing.assert_array_equal(neighbors.indices, wanted.indices)


@pytest.mark.parametrize("distance", ["euclidean", SSIM(5)], ids=str)
def test_two_nodes_equal_one_machine(enlarged, cluster, distance):
    x, y = enlarged[0][:200], enlarged[1][:200]
    x = np.concatenate([x, x[:20]])  # duplicates: ties are ordered by index
    y = np.concatenate([y, y[:20]])
    arguments = {"x": x, "y": y, "distance": distance, "k": 3, "exclude_duplicates": True, "block_bytes": 2**14}
    equal(class_neighbors(**arguments, executor="ray"), class_neighbors(**arguments))


def test_queries_are_searched_on_a_cluster(enlarged, cluster):
    x, y = enlarged[0][:150], enlarged[1][:150]
    arguments = {"x": x[50:], "y": y[50:], "queries": x[:50], "query_labels": y[:50], "classes": "other"}
    equal(class_neighbors(**arguments, block_bytes=2**13, executor="ray"), class_neighbors(**arguments))


def test_candidates_are_searched_on_a_cluster(enlarged, cluster):
    few = np.flatnonzero(enlarged[1] < 2)[:150]
    arguments = {"x": enlarged[0][few], "y": enlarged[1][few], "distance": SSIM(5), "k": 2}
    arguments |= {"method": "approximate", "candidates": 4}
    neighbors, wanted = class_neighbors(**arguments, executor="ray"), class_neighbors(**arguments)
    equal(neighbors, wanted)
    assert neighbors.recall == wanted.recall < 1


def test_cells_are_searched_on_a_cluster(cluster):
    x = np.random.default_rng(0).normal(size=(2 * approximate_search.FLAT + 10, 8)).astype(np.float32)
    arguments = {"x": x, "y": np.arange(len(x)) % 2, "method": "approximate", "candidates": 4}
    neighbors, wanted = class_neighbors(**arguments, executor="ray"), class_neighbors(**arguments)
    equal(neighbors, wanted)
    assert neighbors.recall == wanted.recall < 1


def test_function_distances_and_their_errors_on_a_cluster(enlarged, cluster):
    x, y = np.arange(12.0)[:, None], np.arange(12) % 2
    equal(
        class_neighbors(x, y, lambda a, b: float(abs(a - b)[0]), executor="ray"),
        class_neighbors(x, y, lambda a, b: float(abs(a - b)[0])),
    )
    with pytest.raises(ValueError, match="distances must be finite and not negative"):
        class_neighbors(x, y, lambda a, b: float("nan"), executor="ray")


def test_tasks_of_a_dead_node_are_repeated(enlarged, cluster, monkeypatch):
    dying = cluster.add_node(num_cpus=1, object_store_memory=2**27)
    first_ready, answered = cluster_search._first_ready, []

    def kill(*arguments):
        answer = first_ready(*arguments)
        if not answered:  # the other tasks are running
            cluster.remove_node(dying, allow_graceful=False)
        answered.append(answer)
        return answer

    def slow(a, b):
        time.sleep(0.001)
        return float(abs(a - b).sum())

    monkeypatch.setattr(cluster_search, "_first_ready", kill)
    x, y = enlarged[0][:64].reshape(64, -1), enlarged[1][:64]
    neighbors = class_neighbors(x, y, slow, executor="ray", block_bytes=2**11)
    assert len(answered) > 10
    monkeypatch.undo()
    equal(neighbors, class_neighbors(x, y, lambda a, b: float(abs(a - b).sum())))


def test_nodes_of_other_versions_raise(enlarged, cluster, monkeypatch):
    on_machine = os.getpid()
    monkeypatch.setattr(cluster_search, "SAME_VERSIONS", ("deepsimplex", "numpy"))
    monkeypatch.setattr(cluster_search, "_versions", lambda: ("1", str(os.getpid() == on_machine)))
    with pytest.raises(
        cluster_search.ClusterError, match=r"same versions on all nodes; .* has numpy False \(here True\)"
    ):
        class_neighbors(enlarged[0][:9], np.arange(9) % 2, executor="ray")


def test_node_without_the_package_raises(monkeypatch, enlarged, cluster):
    def missing():
        raise ImportError("No module named 'faiss'")

    monkeypatch.setattr(cluster_search, "_versions", missing)
    with pytest.raises(cluster_search.ClusterError, match=r"(?s)needs deepsimplex on .*faiss"):
        class_neighbors(enlarged[0][:9], np.arange(9) % 2, executor="ray")


def test_full_object_store_raises_memory_error(cluster, monkeypatch):
    def full(value):
        raise ray.exceptions.ObjectStoreFullError("no room")

    monkeypatch.setattr(ray, "put", full)
    with pytest.raises(MemoryError, match=r"(?s)object store full: .*--object-store-memory"):
        class_neighbors(np.eye(4), [0, 1, 0, 1], executor="ray")


def test_targets_and_configurations_search_on_a_cluster(enlarged, cluster):
    from deepsimplex.experiments import load_config, make_targets

    x, y = enlarged[0][:80], enlarged[1][:80]
    target = ds.targets.CASIMAC(executor="ray")
    wanted = ds.targets.CASIMAC().fit_transform(x, y)
    np.testing.assert_array_equal(target.fit_transform(x, y).loc, wanted.loc)
    assert "executor" not in target.get_config()
    settings = ["data.limit=60", "cache_dir=null"]
    on_machine = make_targets(load_config("configs/digits.yaml", settings), verbose=0)
    on_cluster = make_targets(load_config("configs/digits.yaml", [*settings, "distances.executor=ray"]), verbose=0)
    np.testing.assert_array_equal(on_machine.loc, on_cluster.loc)


def test_unavailable_executor_raises(monkeypatch):
    x, y = np.eye(4), [0, 1, 0, 1]
    with pytest.raises(ValueError, match="executor must be"):
        class_neighbors(x, y, executor="spark")
    with pytest.raises(ValueError, match="executor must be"):
        ds.targets.CASIMAC(executor="spark")
    monkeypatch.setitem(sys.modules, "ray", None)
    for method in ("exact", "approximate"):
        with pytest.raises(ImportError, match=r"pip install '\.\[cluster\]'"):
            class_neighbors(x, y, method=method, executor="ray")


def test_unreachable_cluster_raises(monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)

    def out_of_reach(**options):
        raise ConnectionError("no answer at 10.0.0.1:6379")

    monkeypatch.setattr(ray, "init", out_of_reach)
    with pytest.raises(ConnectionError, match=r"no answer at 10.0.0.1:6379. Check RAY_ADDRESS"):
        class_neighbors(np.eye(4), [0, 1, 0, 1], executor="ray")

    def raise_version_mismatch(**options):
        raise RuntimeError("Version mismatch: The cluster was started with Python 3.12")

    monkeypatch.setattr(ray, "init", raise_version_mismatch)
    with pytest.raises(cluster_search.ClusterError, match="cannot use the cluster: Version mismatch"):
        class_neighbors(np.eye(4), [0, 1, 0, 1], executor="ray")


@pytest.mark.parametrize("method", ["exact", "approximate"])
def test_cluster_without_nodes_raises(method, enlarged, cluster, monkeypatch):
    def nobody_answers(tasks, timeout):
        assert timeout > 0
        monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": False, "Resources": {"CPU": 64}}])
        return [], tasks

    monkeypatch.setattr(ray, "wait", nobody_answers)
    with pytest.raises(cluster_search.ClusterError, match=r"no node of \d+ cores left\. Start some, and search"):
        class_neighbors(enlarged[0][:50], enlarged[1][:50], method=method, executor="ray")


def test_other_cluster_failures_raise(cluster, monkeypatch):
    def lost(tasks, timeout):
        raise ray.exceptions.LocalRayletDiedError("the raylet is gone")

    monkeypatch.setattr(ray, "wait", lost)
    with pytest.raises(cluster_search.ClusterError, match=r"(?s)the cluster failed: LocalRayletDiedError: .*raylet"):
        class_neighbors(np.eye(4), [0, 1, 0, 1], executor="ray")
