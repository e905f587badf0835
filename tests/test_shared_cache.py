"""One folder of cached distances, used by threads and processes at once."""

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest

from deepsimplex.distances import SSIM
from deepsimplex.targets import CASIMAC
from tests.fresh_process import start

X = np.random.default_rng(0).random((24, 8, 8))
Y = np.arange(24) % 3
DISTANCES = {"euclidean": "euclidean", "SSIM": SSIM(5, data_range=1.0)}

PROCESS = """
import pathlib, sys, time, warnings
import numpy as np
from deepsimplex.targets import CASIMAC
warnings.simplefilter("error", UserWarning)
folder, ready, begin = map(pathlib.Path, sys.argv[1:])
ready.touch()
while not begin.exists():
    time.sleep(0.001)
x, y = np.random.default_rng(0).random((24, 8, 8)), np.arange(24) % 3
for _ in range(5):
    loc = CASIMAC(cache_dir=folder).fit_transform(x, y).loc
print(loc.tobytes().hex(), flush=True)
"""


@pytest.mark.parametrize("distance", DISTANCES)
def test_threads_share_cached_target(distance, tmp_path):
    expected = CASIMAC(DISTANCES[distance]).fit_transform(X, Y).loc
    for _ in range(3):
        together = Barrier(8)

        def work(_, together=together):
            together.wait()
            return CASIMAC(DISTANCES[distance], cache_dir=tmp_path).fit_transform(X, Y).loc

        with ThreadPoolExecutor(8) as pool:
            for loc in pool.map(work, range(8)):
                np.testing.assert_array_equal(loc, expected)
        (left,) = tmp_path.iterdir()
        assert left.name.startswith("neighbors-")
        left.unlink()


@pytest.mark.slow
def test_processes_share_cached_target(tmp_path):
    cache, ready, begin = (tmp_path / name for name in ("cache", "ready", "begin"))
    other = start(PROCESS, cache, ready, begin, outputs=tmp_path)
    while not ready.exists():
        assert other.is_alive()
        time.sleep(0.01)
    begin.touch()
    for _ in range(5):
        expected = CASIMAC(cache_dir=cache).fit_transform(X, Y).loc
        for path in cache.glob("neighbors-*"):
            path.unlink(missing_ok=True)
    other.join()
    assert other.exitcode == 0, (tmp_path / "stderr").read_text()
    assert (tmp_path / "stdout").read_text().strip() == expected.tobytes().hex()
    assert {path.name.partition("-")[0] for path in cache.iterdir()} <= {"neighbors"}
