"""The structural dissimilarity against scikit-image, and neighbors under it."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepsimplex.distances import SSIM, class_neighbors, get_distance
from tests.reference import distances as reference


def natural(rng, shape):
    """Smooth random images in [0, 1] with flat parts, bright and dark ones."""
    noise = rng.normal(size=shape)
    for axis in (1, 2):
        noise = noise + np.roll(noise, 1, axis) + np.roll(noise, 2, axis)
    return np.clip(0.5 + 0.15 * noise + rng.uniform(-0.5, 0.5, size=(shape[0],) + (1,) * (len(shape) - 1)), 0, 1)


@pytest.mark.parametrize("window", [3, 5, 7, 13])
@pytest.mark.parametrize("shape", [(13, 13), (16, 21), (40, 14, 3), (15, 18, 1), (13, 17, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ssim_equals_scikit_image_on_smooth_images(window, shape, dtype):
    images = natural(np.random.default_rng(1), (15, *shape)).astype(dtype)
    X, Y = images[:3], images[3:]
    expected = reference.pairwise(reference.ssim(window), X, Y)
    np.testing.assert_allclose(SSIM(window).pairwise(X, Y), expected, atol=2e-5)


@pytest.mark.parametrize("window", [3, 5, 7])
def test_ssim_equals_scikit_image_on_digits(digits, window):
    images = digits[0][:80]
    expected = reference.pairwise(reference.ssim(window), images[:5], images)
    np.testing.assert_allclose(SSIM(window).pairwise(images[:5], images), expected, atol=2e-5)


@pytest.mark.parametrize("window", [5, 13])
def test_ssim_equals_scikit_image_on_images(enlarged, window):
    images = enlarged[0][:66]
    expected = reference.pairwise(reference.ssim(window), images[:5], images)
    D = SSIM(window).pairwise(images, images)
    np.testing.assert_allclose(D[:5], expected, atol=2e-5)
    assert (np.diag(D) == 0).all()
    assert (D + np.eye(len(D)) > 0).all()
    np.testing.assert_allclose(D, D.T, atol=2e-5)


def test_ssim_of_large_images_does_not_drift():
    images = natural(np.random.default_rng(2), (4, 150, 90)) * 0.05 + 0.9  # small contrast on a bright ground
    expected = reference.pairwise(reference.ssim(7), images, images)
    np.testing.assert_allclose(SSIM(7).pairwise(images, images), expected, atol=1e-4)


@pytest.mark.parametrize("data_range", [2.0, 255.0])
def test_ssim_follows_data_range(data_range):
    images = natural(np.random.default_rng(3), (6, 12, 12)) * data_range - data_range / 2
    expected = reference.pairwise(reference.ssim(5, data_range), images, images)
    np.testing.assert_allclose(SSIM(5, data_range).pairwise(images, images), expected, atol=2e-5)


def test_ssim_of_integers_needs_data_range():
    images = np.random.default_rng(4).integers(0, 256, size=(5, 9, 9), dtype=np.uint8)
    np.testing.assert_allclose(
        SSIM(3, 255).pairwise(images, images), SSIM(3).pairwise(images / 255, images / 255), atol=2e-5
    )


def test_ssim_of_nearly_equal_images_is_relatively_accurate():
    image = natural(np.random.default_rng(5), (1, 20, 20))
    near = np.clip(image + np.random.default_rng(6).normal(size=image.shape) * 1e-4, 0, 1)
    expected = reference.ssim(5)(image[0], near[0])
    assert 0 < expected < 1e-4
    np.testing.assert_allclose(SSIM(5).pairwise(image, near), [[expected]], rtol=1e-6)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([3, 5]))
def test_ssim_of_any_binary_images(seed, window):
    images = np.random.default_rng(seed).integers(0, 2, size=(6, 5, 6)).astype(np.float64)
    images[3] = images[0]
    D = SSIM(window).pairwise(images, images)
    np.testing.assert_allclose(D, reference.pairwise(reference.ssim(window), images, images), atol=2e-5)
    assert D[0, 3] == D[3, 0] == 0


@pytest.mark.parametrize("window", [4, 1, 0, -3, 5.0, True, "5"])
def test_invalid_ssim_window_raises(window):
    with pytest.raises(ValueError, match=rf"window must.*found {re.escape(repr(window))}"):
        SSIM(window)


@pytest.mark.parametrize("data_range", [0, -1.0, np.nan, np.inf, "wide"])
def test_invalid_ssim_data_range_raises(data_range):
    with pytest.raises(ValueError, match=rf"data_range must.*found {re.escape(repr(data_range))}"):
        SSIM(5, data_range)


KINDS = ["enlarged", "digits", "color", "negative", "bright", "noise", "flat", "bytes"]


@pytest.fixture
def images(request):
    """Images [N, H, W] or [N, H, W, C] of a kind, their labels, and their data range."""
    enlarged, labels = request.getfixturevalue("enlarged")
    x, y, data_range = enlarged[:150], labels[:150], 1.0
    rng = np.random.default_rng(0)
    kind = request.param
    if kind == "digits":
        x, y = (part[:150] for part in request.getfixturevalue("digits"))
    elif kind == "color":
        x = np.stack([x, x[::-1], np.roll(x, 3, axis=2)], axis=-1)[:, 4:21, 2:23]
    elif kind == "negative":
        x, data_range = 2 * x - 1, 2.0
    elif kind == "bright":
        x = 0.97 + 0.02 * x
    elif kind == "noise":
        x = rng.uniform(size=(150, 9, 16))
    elif kind == "flat":
        x = np.where(rng.uniform(size=(150, 1, 1)) < 0.5, x, rng.uniform(size=(150, 1, 1)).astype(np.float32))
    elif kind == "bytes":
        x, data_range = np.round(x * 255).astype(np.uint8), 255.0
    x = x.copy()
    x[7], x[19] = x[5], x[100]  # duplicates, within a class or not
    return x, y, data_range


@pytest.mark.parametrize("images", KINDS, indirect=True)
@pytest.mark.parametrize(("window", "k"), [(3, 4), (7, 1)])
def test_search_returns_nearest_neighbors(images, window, k):
    x, y, data_range = images
    metric = SSIM(window, data_range)
    D = metric.pairwise(x, x)
    np.testing.assert_array_equal(D, D.T)
    same = np.arange(10) == y[:, None]
    for classes, positive, wanted in (("all", False, same | ~same), ("other", False, ~same), ("same", True, same)):
        neighbors = class_neighbors(
            x, y, metric, k, num_classes=10, block_bytes=2**14, classes=classes, exclude_duplicates=positive
        )
        distances, indices = reference.class_neighbors(D, y, 10, k, np.arange(len(x)), y if positive else None)
        np.testing.assert_array_equal(neighbors.distances, np.where(wanted[:, :, None], distances, np.inf))
        np.testing.assert_array_equal(neighbors.indices, np.where(wanted[:, :, None], indices, -1))


@pytest.mark.slow
@pytest.mark.parametrize("images", KINDS, indirect=True)
def test_ssim_of_two_images_equals_scikit_image(images):
    x, _, data_range = images
    metric = SSIM(7, data_range)
    expected = reference.pairwise(reference.ssim(7, data_range), x[:3], x[3:6])
    measured = np.array([[metric(a, b) for b in x[3:6]] for a in x[:3]])
    np.testing.assert_allclose(measured, expected, atol=1e-15)
    np.testing.assert_allclose(SSIM(7, data_range, dtype="float64").pairwise(x[:3], x[3:6]), measured, atol=1e-12)
    assert metric(x[7], x[5]) == 0


@pytest.mark.parametrize("images", ["enlarged", "color"], indirect=True)
@pytest.mark.parametrize("classes", ["all", "same", "other"])
def test_search_for_queries_equals_sorting_the_matrix(images, classes):
    x, y, data_range = images
    arguments = {"queries": x[100:], "query_labels": y[100:], "num_classes": 10, "classes": classes}
    for metric in (SSIM(5, data_range), "euclidean", "cityblock"):
        exact = class_neighbors(x[:110], y[:110], metric, 2, exclude_duplicates=True, **arguments)
        D = get_distance(metric).pairwise(x[100:], x[:110])
        distances, indices = reference.class_neighbors(D, y[:110], 10, 2, None, y[100:])
        wanted = (y[100:][:, None] == np.arange(10)) if classes == "same" else (y[100:][:, None] != np.arange(10))
        wanted = np.broadcast_to((wanted | (classes == "all"))[..., None], indices.shape)
        np.testing.assert_array_equal(exact.distances, np.where(wanted, distances, np.inf))
        np.testing.assert_array_equal(exact.indices, np.where(wanted, indices, -1))
        has_same = np.isfinite(exact.distances[np.arange(50), y[100:]]).any()
        has_others = np.isfinite(exact.distances[y[100:][:, None] != np.arange(10)]).any()
        assert (has_same, has_others) == (classes != "other", classes != "same")


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([3, 5]), st.sampled_from(["noise", "binary", "signed", "duplicates"]))
def test_structural_similarity_is_a_positive_definite_kernel(seed, window, kind):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(12, 6, 7))
    if kind == "binary":
        x = np.round((x + 1) / 2)
    elif kind == "noise":
        x = 0.5 + 0.01 * x
    elif kind == "duplicates":
        x[6:] = x[:6]
    gram = 1 - SSIM(window, 2.0, dtype="float64").pairwise(x, x)
    assert np.linalg.eigvalsh(gram).min() > -1e-12 * len(x)


@pytest.mark.parametrize("window", [3, 5, 7, 13])
@pytest.mark.parametrize("channels", [1, 3])
def test_double_precision_equals_scikit_image(enlarged, window, channels):
    x = enlarged[0][:40].astype(np.float64)
    if channels > 1:
        x = np.stack([x, x[::-1], np.roll(x, 2, axis=1)], axis=-1)
    expected = reference.pairwise(reference.ssim(window), x[:5], x)
    np.testing.assert_allclose(SSIM(window, dtype="float64").pairwise(x[:5], x), expected, atol=1e-12)
    np.testing.assert_allclose(SSIM(window).pairwise(x[:5], x), expected, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("window", [5, 25])
def test_ssim_of_difficult_images_is_accurate(window):
    """Half dark, half bright and nearly flat: there float32 is at its worst."""
    rng = np.random.default_rng(0)
    x = np.where(np.arange(64) < 32, 0.0, 1.0) + rng.normal(0, 1e-3, size=(12, 64, 64))
    x = np.clip(np.where(rng.uniform(size=(12, 1, 1)) < 0.5, x, x.transpose(0, 2, 1)), 0, 1)
    y = np.arange(12) % 3
    true = SSIM(window, dtype="float64").pairwise(x, x)
    np.testing.assert_allclose(SSIM(window).pairwise(x, x), true, atol=5e-4)
    exact = class_neighbors(x, y, SSIM(window), 2)
    distances, indices = reference.class_neighbors(SSIM(window).pairwise(x, x), y, 3, 2, np.arange(12))
    np.testing.assert_array_equal(exact.distances, distances)
    np.testing.assert_array_equal(exact.indices, indices)


def test_bright_images_far_from_zero():
    x = np.random.default_rng(0).uniform(size=(12, 9, 9))
    for offset in (1e3, 1e6):
        D = SSIM(3, dtype="float64").pairwise(x + offset, x + offset)
        np.testing.assert_allclose(SSIM(3).pairwise(x + offset, x + offset), D, atol=1e-4)
    with pytest.raises(ValueError, match=r"^X must.*found 1e\+09"):
        SSIM(3).pairwise(x + 1e9, x)
