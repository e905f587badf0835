"""The structural dissimilarity through TensorFlow, on the CPU, against scikit-image."""

import numpy as np
import pytest

from deepsimplex.distances import ssim
from deepsimplex.distances.ssim import has_accelerator, ssim_block
from tests.distances.test_ssim import natural
from tests.reference import distances as reference


@pytest.mark.parametrize("window", [3, 7, 13])
@pytest.mark.parametrize("shape", [(13, 13), (16, 21), (27, 14, 3), (13, 17, 1)])
def test_equals_scikit_image_on_smooth_images(window, shape):
    images = natural(np.random.default_rng(1), (9, *shape))
    D = ssim_block(images[:3], images[3:], window)
    assert D.dtype == np.float64
    np.testing.assert_allclose(D, reference.pairwise(reference.ssim(window), images[:3], images[3:]), atol=1e-5)


@pytest.mark.parametrize("window", [5, 13])
def test_equals_scikit_image_on_images(enlarged, window):
    images = enlarged[0][:66]
    D = ssim_block(images, images, window)
    expected = reference.pairwise(reference.ssim(window), images[:5], images)
    np.testing.assert_allclose(D[:5], expected, atol=1e-5)
    np.testing.assert_allclose(D, D.T, atol=1e-5)
    np.testing.assert_allclose(np.diag(D), 0, atol=1e-5)


@pytest.mark.parametrize(("contrast", "ground"), [(0.05, 0.9), (1e-3, 0.99), (0.05, 100.0)])
def test_small_contrast_on_a_bright_ground(contrast, ground):
    images = natural(np.random.default_rng(2), (4, 50, 40)) * contrast + ground
    expected = reference.pairwise(reference.ssim(7), images, images)
    np.testing.assert_allclose(ssim_block(images, images, 7), expected, atol=1e-5)


@pytest.mark.parametrize("data_range", [1e-12, 2.0, 255.0, 1e12])
def test_follows_data_range_and_takes_negative_pixels(data_range):
    images = natural(np.random.default_rng(3), (6, 12, 12)) * data_range - data_range / 2
    expected = reference.pairwise(reference.ssim(5, data_range), images, images)
    np.testing.assert_allclose(ssim_block(images, images, 5, data_range), expected, atol=1e-5)


def test_any_binary_images():
    images = np.random.default_rng(4).integers(0, 2, size=(30, 5, 6)).astype(np.float64)
    expected = reference.pairwise(reference.ssim(3), images, images)
    np.testing.assert_allclose(ssim_block(images, images, 3), expected, atol=1e-5)


def test_small_tensors_give_the_same(monkeypatch):
    """Several tiles of rows and columns, each with a smaller last one."""
    images = natural(np.random.default_rng(5), (29, 9, 10, 2))
    whole = ssim_block(images[:17], images, 5)
    monkeypatch.setattr(ssim, "TENSOR_BYTES", 5**2 * 4 * 180)
    np.testing.assert_allclose(ssim_block(images[:17], images, 5), whole, atol=1e-6)
    assert ssim_block(images[:0], images, 5).shape == (0, 29)


def test_function_is_traced_once():
    ssim._comparison.cache_clear()
    images = np.random.default_rng(6).uniform(size=(40, 12, 12))
    for some in (images, images[:, :11, :9]):
        for size in range(1, 30, 9):
            ssim_block(some[:size], some[size:], 5)
    assert ssim._comparison.cache_info().misses == 1
    assert ssim._comparison(5).experimental_get_tracing_count() == 1


def test_has_accelerator_reports_gpu():
    import tensorflow as tf

    assert has_accelerator() == bool(tf.config.get_visible_devices("GPU"))
