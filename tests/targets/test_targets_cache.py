"""The cache of neighbor distances: reuse, damaged files and full disks."""

import os

import numpy as np
import pytest

from deepsimplex._utils import archives
from deepsimplex.distances import approximate_search
from deepsimplex.targets import CASIMAC, TargetCacheWarning, neighbor_cache
from deepsimplex.targets import casimac as module
from tests.full_disk import files_no_larger_than


@pytest.fixture
def calls(monkeypatch):
    calls, real = [], module.nearest_neighbors
    monkeypatch.setattr(module, "nearest_neighbors", lambda *a, **k: calls.append(k) or real(*a, **k))
    return calls


X = np.random.default_rng(0).standard_normal((12, 3))
Y = np.arange(12) % 3


def make(folder, **parameters):
    return CASIMAC(cache_dir=folder, **parameters)


def only_file(folder):
    (path,) = folder.iterdir()
    return path


def test_cached_distances_are_shared_by_targets(tmp_path, calls):
    first = make(tmp_path / "new" / "folder").fit_transform(X, Y)
    again = make(tmp_path / "new" / "folder").fit_transform(X, Y)
    np.testing.assert_array_equal(first.loc, again.loc)
    np.testing.assert_array_equal(first.loc, CASIMAC().fit_transform(X, Y).loc)
    assert len(calls) == 2  # one for the file, one without a cache


def test_targets_of_other_parameters_share_distances(tmp_path, calls):
    make(tmp_path, gamma=0.5).fit_transform(X, Y)
    make(tmp_path, gamma=0.1, construction="helmert", repulsion_function=lambda d: d[:, 0]).fit_transform(X, Y)
    assert len(calls) == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda folder: make(folder, repulsion_number=2).fit_transform(X, Y),
        lambda folder: make(folder, gamma=0.5).fit_transform(X, Y),
        lambda folder: make(folder, distance="cityblock").fit_transform(X, Y),
        lambda folder: make(folder).fit_transform(X.astype(np.float32), Y),
        lambda folder: make(folder).fit_transform(np.hstack([X, np.zeros((12, 1))]), Y),
        lambda folder: make(folder).fit_transform(X[::-1], Y),
        lambda folder: make(folder).fit_transform(X, Y[::-1]),
        lambda folder: make(folder).fit(X, Y).transform(X, Y),
    ],
    ids=["number", "attraction", "metric", "dtype", "shape", "samples", "labels", "other samples"],
)
def test_cache_key_covers_all_inputs(tmp_path, calls, other):
    make(tmp_path).fit_transform(X, Y)
    other(tmp_path)
    assert len(calls) == 2
    assert len(list(tmp_path.iterdir())) == 2


def test_latents_of_other_samples_are_cached(tmp_path, calls):
    first = make(tmp_path).fit(X, Y).transform(X[:5] + 1, Y[:5])
    again = make(tmp_path).fit(X, Y).transform(X[:5] + 1, Y[:5])
    np.testing.assert_array_equal(first.loc, again.loc)
    assert len(calls) == 2  # of these samples, and of the training samples for the unit


def test_recall_of_approximate_search_is_cached(tmp_path, calls, monkeypatch):
    monkeypatch.setattr(approximate_search, "FLAT", 20)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(400, 12)), np.arange(400) % 3
    settings = {"distance": "cityblock", "method": "approximate", "candidates_per_class": 2, "cache_dir": tmp_path}
    target = CASIMAC(**settings)
    latent = target.fit_transform(x, y)
    assert 0.3 < target.recall_ < 1
    other = CASIMAC(**settings)
    np.testing.assert_array_equal(other.fit_transform(x, y).loc, latent.loc)
    assert other.recall_ == target.recall_
    assert len(calls) == 1
    assert CASIMAC.from_config(target.get_config()).recall_ == target.recall_
    exact = CASIMAC("cityblock", cache_dir=tmp_path)
    assert np.abs(exact.fit_transform(x, y).loc - latent.loc).max() > 0
    assert exact.recall_ == 1
    with pytest.raises(ValueError, match=r"candidates_per_class must.*found 3"):
        CASIMAC(candidates_per_class=3)


def test_key_of_views_equals_key_of_copies():
    wide = np.random.default_rng(1).standard_normal((40, 6))
    assert archives.fingerprint(wide[::2, ::3]) == archives.fingerprint(wide[::2, ::3].copy())
    assert archives.fingerprint(np.asfortranarray(wide)) == archives.fingerprint(wide)


def test_long_arrays_are_hashed_in_blocks(monkeypatch):
    array = np.random.default_rng(1).standard_normal((40, 6))
    whole = archives.fingerprint(array)
    monkeypatch.setattr(archives, "HASH_BYTES", 100)
    assert archives.fingerprint(array) == whole


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path):
    path.write_bytes(b"")


def foreign(path):
    path.write_text("not an archive")


def pickled(path):
    np.savez(path, distances=np.array([{}], dtype=object), digest=np.array("0"))


def wrong_shape(path):
    np.savez(path, distances=np.zeros((1, 1, 1)), digest=np.array("0"))


def wrong_values(path):
    with np.load(path) as archive:
        content = dict(archive)
    np.savez(path, distances=content["distances"] + 1, digest=content["digest"])


def missing_part(path):
    np.savez(path, digest=np.array("0"))


def folder_in_its_place(path):
    path.unlink()
    path.mkdir()


DAMAGES = [truncate, empty, foreign, pickled, wrong_shape, wrong_values, missing_part]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_cache_files_warn_and_are_replaced(tmp_path, calls, damage):
    expected = make(tmp_path).fit_transform(X, Y)
    good = only_file(tmp_path).read_bytes()
    damage(only_file(tmp_path))
    with pytest.warns(TargetCacheWarning, match="damaged.*making them again"):
        rebuilt = make(tmp_path).fit_transform(X, Y)
    np.testing.assert_array_equal(rebuilt.loc, expected.loc)
    assert len(calls) == 2
    assert np.load(only_file(tmp_path))["digest"] == np.load(_file(tmp_path / "good.npz", good))["digest"]
    (tmp_path / "good.npz").unlink()
    make(tmp_path).fit_transform(X, Y)  # found again, without a warning
    assert len(calls) == 2


def _file(path, content):
    path.write_bytes(content)
    return path


def test_flipped_bytes_never_change_latents(tmp_path):
    """Wherever a byte is flipped, the file is refused, or the flip was in bytes that do not matter."""
    expected = make(tmp_path).fit_transform(X, Y)
    path = only_file(tmp_path)
    good = path.read_bytes()
    refused = 0
    for position in range(0, len(good), 7):
        path.write_bytes(good[:position] + bytes([good[position] ^ 0xFF]) + good[position + 1 :])
        try:
            cached = neighbor_cache._load(path, path.stem.removeprefix("neighbors-"), (12, 3, 1))
        except Exception:
            refused += 1
        else:
            path.write_bytes(good)
            wanted = neighbor_cache._load(path, path.stem.removeprefix("neighbors-"), (12, 3, 1))
            np.testing.assert_array_equal(cached.distances, wanted.distances)
            assert cached.recall == wanted.recall
    assert refused > len(good) / 7 / 3
    path.write_bytes(good)
    np.testing.assert_array_equal(make(tmp_path).fit_transform(X, Y).loc, expected.loc)


def test_folder_in_place_of_cache_file_warns(tmp_path, calls):
    expected = make(tmp_path).fit_transform(X, Y)
    folder_in_its_place(only_file(tmp_path))
    with pytest.warns(TargetCacheWarning) as caught:
        rebuilt = make(tmp_path).fit_transform(X, Y)
    assert [("damaged" in str(w.message), "could not be kept" in str(w.message)) for w in caught] == [
        (True, False),
        (False, True),
    ]
    np.testing.assert_array_equal(rebuilt.loc, expected.loc)


def test_unwritable_cache_dir_raises_before_the_search(tmp_path, calls):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="cache_dir is not a folder that can be written"):
        make(tmp_path / "file" / "below").fit_transform(X, Y)
    assert calls == []


def test_files_of_a_read_only_folder_are_used(tmp_path, calls, monkeypatch):
    expected = make(tmp_path).fit_transform(X, Y)

    def refuse(folder, argument):
        raise OSError("read-only")

    monkeypatch.setattr(neighbor_cache, "check_writable", refuse)
    np.testing.assert_array_equal(make(tmp_path).fit_transform(X, Y).loc, expected.loc)
    assert len(calls) == 1


@pytest.mark.parametrize("where", ["write", "replace"])
def test_full_disk_warns_and_latents_are_correct(tmp_path, calls, monkeypatch, where):
    make(tmp_path).fit_transform(X, Y)
    earlier = only_file(tmp_path)
    content = earlier.read_bytes()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*((np.lib.format, "write_array", full) if where == "write" else (os, "replace", full)))
    with pytest.warns(TargetCacheWarning, match="could not be kept.*No space left"):
        latent = make(tmp_path, repulsion_number=2).fit_transform(X, Y)
    monkeypatch.undo()
    np.testing.assert_array_equal(latent.loc, CASIMAC(repulsion_number=2).fit_transform(X, Y).loc)
    assert only_file(tmp_path) == earlier  # and nothing half-written beside it
    assert earlier.read_bytes() == content


def test_file_size_limit_warns(tmp_path):
    """The operating system itself refuses to write on in the middle of the file."""
    target = make(tmp_path)
    with files_no_larger_than(300), pytest.warns(TargetCacheWarning, match="could not be kept"):
        latent = target.fit_transform(X, Y)
    np.testing.assert_array_equal(latent.loc, CASIMAC().fit_transform(X, Y).loc)
    assert list(tmp_path.iterdir()) == []


def test_cache_with_unnamed_metric_raises(tmp_path, calls):
    with pytest.raises(ValueError, match="cache_dir needs a metric that a key can name"):
        make(tmp_path, distance=lambda a, b: float(np.abs(a - b).sum())).fit(X, Y)
    assert calls == []
