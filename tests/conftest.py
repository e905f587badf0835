"""Resource settings of the test session, and shared fixtures."""

import gc
import os
import sys
from functools import partial

import pytest

# The threads of a compiled kernel wait for one another wherever their work meets, hundreds of times in a search. Beside
# another process each wait is for a core to become free: a search took up to ten times as long, a Cholesky
# factorization of sixty rows a thousand times (measured). Processes of tests therefore share the cores out, and those
# that wait sleep.
share = str(max(1, (os.cpu_count() or 1) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))))
for threads in ("NUMBA_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
    os.environ.setdefault(threads, share)
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Tests run what XLA compiles once or twice: LLVM's optimizations took a third of the time of compiling it.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

# TensorFlow's traces make and keep millions of objects: looking for unreachable ones among them after every 700 took
# a tenth of the time.
gc.set_threshold(50_000, 20, 100)


def pytest_collection_modifyitems(items):
    """Begin with what waits for other processes: at the end nothing would be left to do beside it."""
    items.sort(key=lambda item: item.path.name not in ("test_strategies.py", "test_several_workers.py"))


@pytest.fixture(scope="session", autouse=True)
def _graphs_as_traced():
    """Run graphs as they were traced: optimizing them pays in longer runs, and takes a third of the time of short ones.

    Fresh processes optimize them. Nor do operations keep the lines of the programs that make them, for TensorFlow's
    messages: a tenth of the time, and half of the memory.
    """
    _optimize_graphs(False)
    if ops := sys.modules.get("tensorflow.python.framework.ops"):
        ops._create_c_op = partial(ops._create_c_op, extract_traceback=False)


@pytest.fixture
def optimized_graphs():
    """Optimize graphs as users' processes do, for results that equal theirs bit by bit."""
    _optimize_graphs(True)
    yield
    _optimize_graphs(False)


def _optimize_graphs(optimize: bool) -> None:
    if tensorflow := sys.modules.get("tensorflow"):
        tensorflow.config.optimizer.set_experimental_options({"disable_meta_optimizer": not optimize})


@pytest.fixture
def onnx_without_copies(monkeypatch):
    """Have no copy made of a graph before each of its optimizations for ONNX: they are a third of a conversion's time.

    The converter goes back to the copy where an optimization fails; here that is an error.
    """
    from tf2onnx import optimizer

    optimize = optimizer.optimize_graph

    def without_copies(graph, catch_errors=True, optimizers=None):
        return optimize(graph, False, optimizers)

    monkeypatch.setattr(optimizer, "optimize_graph", without_copies)


@pytest.fixture
def only_new_objects():
    """Collect the test's own objects alone: those of the tests before are millions, a look at which takes seconds."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session")
def digits():
    """(x, y), (x_test, y_test)."""
    from deepsimplex import datasets

    return datasets.load("digits")


@pytest.fixture(scope="session")
def few(digits):
    """A few hundred digits: (x, y), (x_test, y_test)."""
    return _first(digits, 10)


@pytest.fixture(scope="session")
def four(digits):
    """Digits 0 to 3: (x, y), (x_test, y_test).

    A readout that samples does the same for four classes as for ten, and is traced in less than half of the time.
    """
    return _first(digits, 4)


def _first(digits, num_classes):
    """The first 300 and 100 digits below ``num_classes``."""

    def first(x, y, count):
        chosen = (y < num_classes).nonzero()[0][:count]
        return x[chosen], y[chosen]

    train, test = digits
    return first(*train, 300), first(*test, 100)
