"""The structural dissimilarity through TensorFlow, on the CPU, against scikit-image."""

import ast
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepsimplex.distances import accelerator
from deepsimplex.distances.accelerator import has_accelerator, ssim_blocks
from tests.reference import distances as reference

CPU = "/CPU:0"


@pytest.fixture
def fresh_programmes():
    """Functions traced for one test alone."""
    accelerator._programme.cache_clear()
    yield
    accelerator._programme.cache_clear()


@pytest.fixture
def splitting(monkeypatch):
    """The CPU is taken for a device that rounds factors."""
    monkeypatch.setattr(accelerator, "_rounds_factors", lambda device: True)


def natural(rng, shape):
    """Smooth random images in [0, 1] with flat parts, bright and dark ones."""
    noise = rng.normal(size=shape)
    for axis in (1, 2):
        noise = noise + np.roll(noise, 1, axis) + np.roll(noise, 2, axis)
    return np.clip(0.5 + 0.15 * noise + rng.uniform(-0.5, 0.5, size=(shape[0],) + (1,) * (len(shape) - 1)), 0, 1)


def flat(images):
    """Images with their channels beside one another, and the number of channels."""
    return images.reshape(*images.shape[:2], -1), images.shape[3] if images.ndim == 4 else 1


def pairwise(X, Y, window, data_range=1.0):
    """All distances, through blocks."""
    columns, channels = flat(Y)
    block = ssim_blocks(columns, flat(X)[0], np.arange(len(Y)), window, channels, data_range, CPU)
    return block(slice(0, len(X)), slice(0, len(Y)))


@pytest.mark.parametrize("window", [3, 5, 7, 13])
@pytest.mark.parametrize("shape", [(13, 13), (16, 21), (27, 14, 3), (15, 18, 1), (13, 17, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_scikit_image_on_smooth_images(window, shape, dtype):
    images = natural(np.random.default_rng(1), (11, *shape)).astype(dtype)
    X, Y = images[:3], images[3:]
    D = pairwise(X, Y, window)
    assert D.dtype == np.float64
    np.testing.assert_allclose(D, reference.pairwise(reference.ssim(window), X, Y), atol=2e-6)


@pytest.mark.parametrize("window", [3, 5, 7])
def test_equals_scikit_image_on_digits(digits, window):
    images = digits[0][:80]
    expected = reference.pairwise(reference.ssim(window), images[:10], images)
    np.testing.assert_allclose(pairwise(images[:10], images, window), expected, atol=2e-6)


@pytest.mark.parametrize("window", [5, 13])
def test_equals_scikit_image_on_fashion_mnist(fashion, window):
    images = fashion[0][:66]
    expected = reference.pairwise(reference.ssim(window), images[:5], images)
    D = pairwise(images, images, window)
    np.testing.assert_allclose(D[:5], expected, atol=2e-6)
    np.testing.assert_allclose(D, D.T, atol=2e-6)
    np.testing.assert_allclose(np.diag(D), 0, atol=2e-6)


@pytest.mark.parametrize(("contrast", "ground"), [(0.05, 0.9), (1e-3, 0.99), (0.05, 100.0)])
def test_small_contrast_on_a_bright_ground(contrast, ground):
    images = natural(np.random.default_rng(2), (4, 90, 40)) * contrast + ground
    expected = reference.pairwise(reference.ssim(7), images, images)
    np.testing.assert_allclose(pairwise(images, images, 7), expected, atol=2e-6)


@pytest.mark.parametrize("data_range", [1e-12, 2.0, 255.0, 1e12])
def test_follows_data_range_and_takes_negative_pixels(data_range):
    images = natural(np.random.default_rng(3), (6, 12, 12)) * data_range - data_range / 2
    expected = reference.pairwise(reference.ssim(5, data_range), images, images)
    np.testing.assert_allclose(pairwise(images, images, 5, data_range), expected, atol=2e-6)


def test_takes_integers():
    images = np.random.default_rng(4).integers(0, 256, size=(5, 9, 9), dtype=np.uint8)
    np.testing.assert_array_equal(pairwise(images, images, 3, 255), pairwise(images / 1.0, images / 1.0, 3, 255))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([3, 5]))
def test_any_binary_images(seed, window):
    images = np.random.default_rng(seed).integers(0, 2, size=(6, 5, 6)).astype(np.float64)
    expected = reference.pairwise(reference.ssim(window), images, images)
    np.testing.assert_allclose(pairwise(images, images, window), expected, atol=2e-6)


@pytest.mark.parametrize("with_queries", [False, True])
@pytest.mark.parametrize("split", [False, True])
def test_any_slices_of_any_order_from_small_tiles(with_queries, split, monkeypatch):
    """Several tiles of rows, tiles and groups of columns, and strips of windows, each with a shorter last one."""
    monkeypatch.setattr(accelerator, "_rounds_factors", lambda device: split)
    monkeypatch.setattr(accelerator, "CPU_TILE", (7, 5))
    monkeypatch.setattr(accelerator, "TILES_BESIDE", 2)
    monkeypatch.setattr(accelerator, "CPU_BYTES", 16 * 1024)
    monkeypatch.setattr(accelerator, "_AT_ONCE", 4)
    rng = np.random.default_rng(5)
    images, queries = natural(rng, (29, 9, 10, 2)), natural(rng, (17, 9, 10, 2)) if with_queries else None
    order = rng.permutation(29)[:23]
    (columns, channels), rows = flat(images), images if queries is None else queries
    block = ssim_blocks(columns, flat(queries)[0] if with_queries else None, order, 5, channels, 1.0, CPU)
    expected = reference.pairwise(reference.ssim(5), rows, images[order])
    for down, across in [
        ((0, 17), (0, 23)),
        ((3, 16), (1, 22)),
        ((5, 6), (11, 12)),
        ((2, 9), (4, 4)),
        ((8, 8), (0, 3)),
    ]:
        D = block(slice(*down), slice(*across))
        np.testing.assert_allclose(D, expected[slice(*down), slice(*across)], atol=2e-6)
        assert D.shape == (down[1] - down[0], across[1] - across[0])


@pytest.mark.parametrize("device", [CPU, "/device:GPU:0"])
@pytest.mark.parametrize("window", [3, 13, 51])
@pytest.mark.parametrize("shape", [(51, 51), (224, 224 * 3), (2000, 3000)])
@pytest.mark.parametrize("split", [False, True])
def test_no_tensor_exceeds_its_share_of_memory(device, window, shape, split):
    many = accelerator._Images(np.empty((10**5, 0)), np.empty(10**5))
    blocks = accelerator._Blocks(many, many, np.arange(10**5), shape, window, 1, device, split)
    tiles = blocks._tiles
    limit = accelerator.CPU_BYTES if device == CPU else accelerator.ACCELERATOR_BYTES
    pixels, factors = np.prod(shape), (window**2 + 1) * (3 if split else 1)
    longer = max(tiles.rows, tiles.columns)
    assert min(tiles) >= 1
    assert tiles.uploaded % tiles.columns == 0
    assert 4 * longer * factors * tiles.windows <= limit
    assert 4 * tiles.rows * tiles.columns * tiles.windows <= limit
    if 4 * pixels <= limit:  # else an image at a time
        assert 4 * longer * pixels <= limit
        assert 4 * tiles.uploaded * pixels <= limit


def test_functions_are_traced_once(fresh_programmes):
    images = np.random.default_rng(6).uniform(size=(40, 12, 12))
    for shape in [(12, 12), (11, 9)]:
        some = images[:, : shape[0], : shape[1]]
        block = ssim_blocks(some, some[:30], np.arange(40), 5, 1, 1.0, CPU)
        for size in range(1, 30, 4):
            block(slice(0, size), slice(size, 40))
    programme = accelerator._programme("/device:CPU:0", False, 25)
    assert accelerator._programme.cache_info().misses == 1
    assert [function.experimental_get_tracing_count() for function in programme] == [1, 1, 1]


def rounded(values):
    """Float32 with the 11 significant bits of TensorFloat-32, the rest cut off."""
    import tensorflow as tf

    return tf.bitcast(tf.bitwise.bitwise_and(tf.bitcast(values, tf.int32), ~0x1FFF), tf.float32)


def test_halves_add_up_and_the_high_one_is_short():
    import tensorflow as tf

    rng = np.random.default_rng(7)
    values = tf.constant(rng.normal(size=10000) * 10 ** rng.uniform(-9, 3, size=10000), tf.float32)
    high, low = tf.function(accelerator._halves)(values)
    np.testing.assert_array_equal(high + low, values)
    np.testing.assert_array_equal(rounded(high), high)
    assert (abs(low) <= 2.0**-11 * abs(values)).numpy().all()


def test_split_factors_bear_a_device_that_rounds_them(fashion, fresh_programmes, splitting, monkeypatch):
    import tensorflow as tf

    matmul = tf.matmul
    monkeypatch.setattr(tf, "matmul", lambda a, b, **options: matmul(rounded(a), rounded(b), **options))
    images = fashion[0][:20]
    expected = reference.pairwise(reference.ssim(5), images, images)
    np.testing.assert_allclose(pairwise(images, images, 5), expected, atol=5e-6)
    monkeypatch.setattr(accelerator, "_rounds_factors", lambda device: False)
    assert abs(pairwise(images, images, 5) - expected).max() > 1e-4  # why they are split


def test_devices():
    import tensorflow as tf

    assert has_accelerator() == bool(tf.config.get_visible_devices("GPU"))
    images = np.random.default_rng(8).uniform(size=(3, 5, 5))
    D = ssim_blocks(images, None, np.arange(3), 3, 1, 1.0)(slice(0, 3), slice(0, 3))
    np.testing.assert_allclose(D, pairwise(images, images, 3), atol=2e-6)
    for unknown in ("/GPU:99", "nonsense", ""):
        with pytest.raises(ValueError, match=r"device must be one of /device:CPU:0.*; found"):
            ssim_blocks(images, None, np.arange(3), 3, 1, 1.0, unknown)


def test_importing_the_module_leaves_tensorflow_out():
    statements = ast.parse(Path(accelerator.__file__).read_text(encoding="utf-8")).body
    assert not [ast.unparse(it) for it in statements if isinstance(it, ast.Import) and "tensorflow" in ast.unparse(it)]
    assert "tf" not in vars(accelerator)
