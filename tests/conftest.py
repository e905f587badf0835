"""How the tests use the machine, and digits for those that train through a readout which samples."""

import gc
import os

import pytest

# The threads of a compiled kernel wait for one another wherever their work meets, hundreds of times in a search. Beside
# another process each wait is for a core to become free: a search took up to ten times as long (measured). Processes
# of tests therefore share the cores out, and those that wait sleep.
if workers := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
    share = str(max(1, (os.cpu_count() or 1) // int(workers)))
    for threads in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(threads, share)
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# TensorFlow's traces make and keep millions of objects: looking for unreachable ones among them after every 700 took
# a tenth of the time.
gc.set_threshold(50_000, 20, 100)


@pytest.fixture(scope="session")
def four():
    """Digits 0 to 3: (x, y), (x_test, y_test).

    A readout that samples does the same for four classes as for ten, and is traced in less than half of the time.
    """
    from deepsimplex import datasets

    def first(x, y, count):
        chosen = (y < 4).nonzero()[0][:count]
        return x[chosen], y[chosen]

    train, test = datasets.load("digits")
    return first(*train, 300), first(*test, 100)
