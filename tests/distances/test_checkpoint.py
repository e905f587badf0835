"""Interrupted searches resume from their checkpoint."""

import signal

import numpy as np
import pytest

from deepsimplex.distances import SSIM, CheckpointWarning, Distance, Euclidean, class_neighbors
from deepsimplex.distances import checkpoint as checkpoints
from deepsimplex.distances.exact_search import TileList
from tests.fresh_process import run


class Cut(Exception):
    """Stands for a kill."""


@pytest.fixture
def cut_short(monkeypatch):
    """Ends the search after some tiles; the state is written after every tile."""
    monkeypatch.setattr(checkpoints, "SECONDS_BETWEEN", 0.0)
    keep, visits = TileList.keep, []

    def visiting(tiles, done):
        visits.append(1)
        if len(visits) == visiting.last:
            raise Cut
        keep(tiles, done)

    visiting.last, visiting.visits = np.inf, visits
    monkeypatch.setattr(TileList, "keep", visiting)
    return visiting


@pytest.mark.parametrize("distance", ["euclidean", "cityblock", SSIM(5)], ids=str)
def test_interrupted_search_resumes(enlarged, tmp_path, cut_short, distance):
    x, y = enlarged[0][:300], enlarged[1][:300]
    arguments = {"x": x, "y": y, "distance": distance, "k": 2, "block_bytes": 2**15}
    whole = class_neighbors(**arguments)
    tiles = len(cut_short.visits)
    cut_short.visits.clear()
    cut_short.last = tiles // 2
    with pytest.raises(Cut):
        class_neighbors(**arguments, checkpoint=tmp_path / "state")
    assert list((tmp_path / "state").glob("*.npz"))
    cut_short.visits.clear()
    cut_short.last = np.inf
    resumed = class_neighbors(**arguments, checkpoint=tmp_path / "state")
    assert len(cut_short.visits) == tiles - (tiles // 2 - 1)
    np.testing.assert_array_equal(resumed.distances, whole.distances)
    np.testing.assert_array_equal(resumed.indices, whole.indices)
    assert not (tmp_path / "state").exists()


class EveryPair(Euclidean):
    """The Euclidean distance, every pair of which is evaluated."""

    visitor = Distance.visitor


@pytest.mark.slow
def test_blocks_of_any_distance_are_resumed(enlarged, tmp_path, cut_short):
    x, y = enlarged[0][:60], enlarged[1][:60]
    arguments = {"x": x, "y": y, "distance": EveryPair(), "block_bytes": 2**11}
    whole = class_neighbors(**arguments)
    cut_short.visits.clear()
    cut_short.last = 6
    with pytest.raises(Cut):
        class_neighbors(**arguments, checkpoint=tmp_path)
    resumed = class_neighbors(**arguments, checkpoint=tmp_path)
    assert len(cut_short.visits) == 6 + (10 - 5)
    np.testing.assert_array_equal(resumed.distances, whole.distances)


@pytest.mark.slow
def test_search_survives_a_kill(enlarged, tmp_path, cut_short):
    x, y = enlarged[0][:300], enlarged[1][:300]
    np.savez(tmp_path / "data.npz", x=x, y=y)
    program = f"""
import os, signal, numpy as np
from deepsimplex.distances import SSIM, checkpoint, class_neighbors
checkpoint.SECONDS_BETWEEN = 0.0
data = np.load({str(tmp_path / "data.npz")!r})
keep, visits = checkpoint.Checkpoint.keep, []
def killed(*arguments):
    visits.append(1)
    if len(visits) > 5:
        os.kill(os.getpid(), signal.SIGKILL)
    keep(*arguments)
checkpoint.Checkpoint.keep = killed
class_neighbors(data["x"], data["y"], SSIM(5), 2, block_bytes=2**15, checkpoint={str(tmp_path / "state")!r})
"""
    run(program, exitcode=-signal.SIGKILL)
    resumed = class_neighbors(x, y, SSIM(5), 2, block_bytes=2**15, checkpoint=tmp_path / "state")
    visits = len(cut_short.visits)
    cut_short.visits.clear()
    whole = class_neighbors(x, y, SSIM(5), 2, block_bytes=2**15)
    np.testing.assert_array_equal(resumed.distances, whole.distances)
    assert visits == len(cut_short.visits) - 5
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_damaged_checkpoint_warns(enlarged, tmp_path, cut_short, damage):
    x, y = enlarged[0][:300], enlarged[1][:300]
    cut_short.last = 4
    with pytest.raises(Cut):
        class_neighbors(x, y, "euclidean", block_bytes=2**14, checkpoint=tmp_path)
    (path,) = tmp_path.glob("search-*.npz")
    content = bytearray(path.read_bytes())
    if damage == "cut":
        path.write_bytes(content[:-200])
    else:
        content[len(content) // 2] ^= 255
        path.write_bytes(content)
    cut_short.last = np.inf
    with pytest.warns(CheckpointWarning, match="cannot be resumed from"):
        neighbors = class_neighbors(x, y, "euclidean", block_bytes=2**14, checkpoint=tmp_path)
    np.testing.assert_array_equal(neighbors.distances, class_neighbors(x, y, "euclidean").distances)


def test_searches_share_a_checkpoint_folder_and_clean_up(enlarged, tmp_path, cut_short):
    x, y = enlarged[0][:300], enlarged[1][:300]
    np.savez(tmp_path / "mine.npz", x=x)
    for k in (1, 2):
        cut_short.visits.clear()
        cut_short.last = 4
        with pytest.raises(Cut):
            class_neighbors(x, y, "euclidean", k, block_bytes=2**14, checkpoint=tmp_path)
    assert len(list(tmp_path.glob("search-*.npz"))) == 2
    cut_short.last = np.inf
    for k in (1, 2):
        neighbors = class_neighbors(x, y, "euclidean", k, block_bytes=2**14, checkpoint=tmp_path)
        np.testing.assert_array_equal(neighbors.distances, class_neighbors(x, y, "euclidean", k).distances)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.npz"]


def test_full_disk_warns_and_result_is_correct(enlarged, tmp_path, cut_short, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    x, y = enlarged[0][:300], enlarged[1][:300]
    monkeypatch.setattr(checkpoints, "save_arrays", full)
    with pytest.warns(CheckpointWarning, match="cannot be kept") as warned:
        neighbors = class_neighbors(x, y, "euclidean", block_bytes=2**14, checkpoint=tmp_path)
    assert len(warned) == 1
    np.testing.assert_array_equal(neighbors.distances, class_neighbors(x, y, "euclidean").distances)


def test_invalid_checkpoint_raises(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="checkpoint is not a folder"):
        class_neighbors([[0.0], [1.0]], [0, 1], checkpoint=tmp_path / "file")
    with pytest.raises(ValueError, match="needs a distance that a key can name"):
        class_neighbors([[0.0], [1.0]], [0, 1], lambda a, b: 0.0, checkpoint=tmp_path)
