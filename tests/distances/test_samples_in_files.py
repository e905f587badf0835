"""Samples as bytes and in memory maps: same results as arrays, with at most one copy of the samples in memory."""

import tracemalloc

import numpy as np
import pytest

from deepsimplex.distances import SSIM, class_neighbors, get_distance


@pytest.fixture
def pixels(enlarged, tmp_path):
    """Images as a memory map of bytes, and their labels."""
    images = np.round(255 * enlarged[0][:300]).astype(np.uint8)
    images[7] = images[5]
    np.save(tmp_path / "images.npy", images)
    return np.load(tmp_path / "images.npy", mmap_mode="r"), enlarged[1][:300]


@pytest.mark.slow
@pytest.mark.parametrize("distance", ["euclidean", "cityblock", SSIM(5, data_range=255)], ids=str)
def test_bytes_in_file_have_same_neighbors_as_floats(pixels, distance):
    x, y = pixels
    for more in ({}, {"queries": x[:40], "query_labels": y[:40]}, {"method": "approximate"}):
        neighbors = class_neighbors(x, y, distance, 2, exclude_duplicates=True, block_bytes=2**14, **more)
        if "queries" in more:
            more["queries"] = np.array(x[:40], np.float32)
        wanted = class_neighbors(
            np.array(x, np.float32), y, distance, 2, exclude_duplicates=True, block_bytes=2**15, **more
        )
        np.testing.assert_array_equal(neighbors.distances, wanted.distances)
        np.testing.assert_array_equal(neighbors.indices, wanted.indices)
        assert neighbors.recall == wanted.recall
    metric = get_distance(distance)
    np.testing.assert_array_equal(metric.pairwise(x[:40], x), metric.pairwise(x[:40].astype(np.float32), x))


def test_bytes_are_compared_with_floats_in_units_of_their_ranges(pixels):
    x, _ = pixels
    metric = SSIM(5)
    floats = (x[:20] / 255).astype(np.float32)
    wanted = metric.pairwise(floats, floats)
    np.testing.assert_allclose(metric.pairwise(x[:20], x[:20]), wanted, atol=2e-5)
    np.testing.assert_array_equal(metric.pairwise(x[:20], floats), wanted)
    np.testing.assert_array_equal(metric.paired(floats, x)(np.arange(20), np.arange(20)), np.zeros(20))


@pytest.mark.slow
def test_search_holds_one_copy_of_samples(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (3000, 90, 90), dtype=np.uint8), rng.integers(0, 2, 3000)
    np.save(tmp_path / "x.npy", x)
    file = np.load(tmp_path / "x.npy", mmap_mode="r")
    class_neighbors(file[:50], y[:50])
    tracemalloc.start()
    class_neighbors(file, y, classes="same", block_bytes=2**15)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 1.0 < peak / x.nbytes < 2.0  # with the blocks that are converted at a time
