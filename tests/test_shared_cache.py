"""One folder of cached distances, used by threads and processes at once."""

import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest

from deepsimplex.distances import SSIM
from deepsimplex.targets import CASIMAC

X = np.random.default_rng(0).random((24, 8, 8))
Y = np.arange(24) % 3
DISTANCES = {"euclidean": "euclidean", "SSIM": SSIM(5, data_range=1.0)}

PROCESS = """
    import sys
    sys.path.insert(0, {root!r})
    import numpy as np
    from deepsimplex.targets import CASIMAC
    import warnings
    warnings.simplefilter("error", UserWarning)
    print("ready", flush=True)
    sys.stdin.readline()
    x, y = np.random.default_rng(0).random((24, 8, 8)), np.arange(24) % 3
    for _ in range(5):
        loc = CASIMAC(cache_dir={folder!r}).fit_transform(x, y).loc
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


def test_processes_share_cached_target(tmp_path):
    script = textwrap.dedent(PROCESS.format(root=str(Path(__file__).parents[1]), folder=str(tmp_path)))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    other = subprocess.Popen([sys.executable, "-c", script], **pipes)
    assert other.stdout.readline() == "ready\n"
    other.stdin.write("\n")
    other.stdin.flush()
    for _ in range(5):
        expected = CASIMAC(cache_dir=tmp_path).fit_transform(X, Y).loc
        for path in tmp_path.glob("neighbors-*"):
            path.unlink(missing_ok=True)
    output, _ = other.communicate(timeout=100)
    assert other.returncode == 0
    assert output.strip() == expected.tobytes().hex()
    assert {path.name.partition("-")[0] for path in tmp_path.iterdir()} <= {"neighbors"}
