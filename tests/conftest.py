"""Resource settings of the test session, what its tests need, its summary, and shared fixtures."""

import gc
import importlib.util
import os
import re
import shutil
import signal
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import settings

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


# Downloads of other processes fail, for want of a proxy; those of this one fail the test that asks for them.
os.environ |= dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
os.environ |= dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1")

# Every run draws the same examples; `make robustness` draws others with --hypothesis-profile random.
settings.register_profile("same", derandomize=True, database=None, deadline=None)
settings.register_profile("random", derandomize=False, database=None, deadline=None, print_blob=True)
settings.load_profile("same")

NEEDS: dict[str, Callable[[], bool]] = {
    "Debian's package dataset-fashion-mnist": Path("/usr/share/datasets/fashion-mnist").is_dir,
    "Debian's packages chromium and chromium-driver": lambda: all(map(shutil.which, ("chromium", "chromedriver"))),
    "the extra onnx (pip install '.[onnx]')": lambda: importlib.util.find_spec("tf2onnx") is not None,
    "the extra docs (pip install '.[docs]')": lambda: importlib.util.find_spec("mkdocs") is not None,
}
"""What the marker `needs` may name, and whether it is installed."""


def pytest_collection_modifyitems(items):
    """Begin with what waits for other processes: at the end nothing would be left to do beside it."""
    items.sort(key=lambda item: item.path.name not in ("test_strategies.py", "test_several_workers.py"))


def pytest_runtest_setup(item):
    """Skip tests whose marker `needs` names something that is not installed."""
    for mark in item.iter_markers("needs"):
        if not NEEDS[mark.args[0]]():
            pytest.skip(f"needs {mark.args[0]}")


def pytest_terminal_summary(terminalreporter):
    """Print how many tests were skipped, failed as expected or passed unexpectedly, by reason."""
    counts: Counter[tuple[str, str]] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        counts["skipped", re.sub(r"^Skipped: ", "", report.longrepr[2])] += 1
    for outcome in ("xfailed", "xpassed"):
        for report in terminalreporter.stats.get(outcome, []):
            counts[outcome, report.wasxfail.removeprefix("reason: ")] += 1
    if counts:
        terminalreporter.section("skipped and expected failures")
    for (outcome, reason), count in sorted(counts.items(), key=lambda item: (item[0][0], -item[1])):
        terminalreporter.line(f"{count:4d} {outcome}: {reason}")


@pytest.fixture(scope="session", autouse=True)
def _no_downloads():
    """Fail tests that open an address of another machine: what is not installed here cannot be had everywhere."""

    def refuse(opener, request, *arguments, **options):
        address = getattr(request, "full_url", request)
        if re.match(r"(file:|data:|https?://(localhost|127\.0\.0\.1|\[::1\])[:/])", address):
            return opened(opener, request, *arguments, **options)
        pytest.fail(f"a test asked for {address}; tests run without a network")

    opened = urllib.request.OpenerDirector.open
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(urllib.request.OpenerDirector, "open", refuse)
        yield


@pytest.fixture(scope="module", autouse=True)
def _objects_of_the_module():
    """Look for unreachable objects among those of this module alone.

    TensorFlow keeps millions of the modules before, a look at which takes seconds; every LiteRT conversion, pool of
    processes and ``clear_session`` begins one.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _default_termination():
    """Let forked processes end when they are asked to: Ray leaves a handler that a pool of workers would wait for."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


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


@pytest.fixture(scope="session")
def command():
    """Call the command line with some arguments, in the test process: its result has ``stdout`` and ``stderr``."""
    from typer.testing import CliRunner

    from deepsimplex import cli

    def call(*arguments, code=0):
        result = CliRunner().invoke(cli.application, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    return call


@pytest.fixture(scope="session")
def digits():
    """(x, y), (x_test, y_test)."""
    from deepsimplex import datasets

    return datasets.load("digits")


@pytest.fixture(scope="session")
def enlarged_digits():
    """Digits enlarged to the 28 x 28 pixels of Fashion-MNIST, multiples of 1/255."""
    from scipy.ndimage import zoom

    from deepsimplex import datasets

    def enlarge(images):
        enlarged = zoom(images, (1, 3.5, 3.5), order=1).clip(0, 1)
        return (255 * enlarged).round().astype("float32") / 255

    data = datasets.load("digits")
    return replace(data, x=enlarge(data.x), x_test=enlarge(data.x_test))


@pytest.fixture(scope="session")
def enlarged(enlarged_digits):
    """600 images of Fashion-MNIST's size, float32 in [0, 1], and their labels."""
    return enlarged_digits.x[:600], enlarged_digits.y[:600].astype("int64")


@pytest.fixture
def digits_as_fashion_mnist(enlarged_digits, monkeypatch):
    """Have ``datasets.load`` return the enlarged digits, whatever it is asked for."""
    from deepsimplex import datasets

    def load(name, dtype="float32"):
        if dtype == "float32":
            return enlarged_digits
        x, x_test = ((255 * part).round().astype(dtype) for part in (enlarged_digits.x, enlarged_digits.x_test))
        return replace(enlarged_digits, x=x, x_test=x_test)

    monkeypatch.setattr(datasets, "load", load)


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
