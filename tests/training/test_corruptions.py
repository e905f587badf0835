"""Corrupted images of the deep benchmark: real ones, against libraries, closed forms and limits."""

import numpy as np
import pytest
from scipy import ndimage
from skimage.transform import warp_polar

from deepsimplex.datasets import load
from training.benchmarks.deep.corruptions import CORRUPTIONS, corrupt

SEEDED = ("gaussian_noise", "shot_noise", "impulse_noise", "motion_blur", "rotation", "shear")


@pytest.fixture(scope="module")
def images():
    (x, _), _ = load("digits")
    return np.kron(x[:12], np.ones((1, 3, 3), np.float32))  # 24 x 24 pixels


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_severity_increases_distance_to_image(name, images):
    changes = [np.abs(corrupt(images, name, severity) - images).mean() for severity in (1, 2, 3)]
    assert 0.005 < changes[0] < changes[1] < changes[2] < 0.5


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_images_keep_shape_dtype_and_range(name, images):
    for given in (images, images[..., None].repeat(3, -1), images.astype("float64")):
        before = given.copy()
        corrupted = corrupt(given, name, 3)
        np.testing.assert_array_equal(given, before)
        assert (corrupted.shape, corrupted.dtype) == (given.shape, given.dtype)
        assert corrupted.min() >= 0
        assert corrupted.max() <= 1


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_corruption_depends_on_seed_and_position(name, images):
    twice = [corrupt(images, name, 2, seed=5) for _ in range(2)]
    np.testing.assert_array_equal(*twice)
    np.testing.assert_array_equal(corrupt(images[:3], name, 2, seed=5), twice[0][:3])
    assert np.any(corrupt(images, name, 2, seed=6) != twice[0]) == (name in SEEDED)
    same = corrupt(images[[0] * 8], name, 2)
    assert np.any(same != same[:1]) == (name in SEEDED)


def test_noises_have_expected_moments():
    gray = np.full((40, 32, 32), 0.5)
    noise = corrupt(gray, "gaussian_noise", 1) - 0.5
    assert noise.std() == pytest.approx(0.08, rel=0.02)
    shot = corrupt(gray, "shot_noise", 1)
    assert shot.mean() == pytest.approx(0.5, rel=0.01)
    assert shot.var() == pytest.approx(0.5 / 60, rel=0.03)
    impulses = corrupt(gray, "impulse_noise", 3)
    assert np.mean(impulses != 0.5) == pytest.approx(0.16, rel=0.05)
    assert set(np.unique(impulses)) == {0.0, 0.5, 1.0}


def test_contrast_and_brightness_equal_formulas(images):
    mid = 0.3 + 0.4 * images.astype("float64")
    means = mid.mean(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(corrupt(mid, "contrast", 1), means + 0.6 * (mid - means), atol=1e-12)
    np.testing.assert_allclose(corrupt(mid, "brightness", 2), mid + 0.2, atol=1e-12)


def test_blurs_keep_position_and_mass_of_a_point():
    point = np.zeros((5, 41, 41))
    point[:, 20, 20] = 1.0
    for name in ("gaussian_blur", "motion_blur"):
        corrupted = corrupt(point, name, 2)
        np.testing.assert_allclose(corrupted.sum(axis=(1, 2)), 1.0, atol=1e-6)
        for image in corrupted:
            np.testing.assert_allclose(ndimage.center_of_mass(image), (20, 20), atol=1e-6)
    spread = corrupt(point, "gaussian_blur", 2)[0].sum(axis=0)
    assert np.sqrt(np.sum(spread * (np.arange(41) - 20) ** 2)) == pytest.approx(0.04 * 41, rel=0.02)


def test_rotation_keeps_disk_and_turns_ray():
    rows, columns = np.mgrid[:61, :61] - 30
    radius = np.hypot(rows, columns)
    disk = np.exp(-((radius / 10) ** 2))[None]
    np.testing.assert_allclose(corrupt(disk, "rotation", 3), disk, atol=0.01)
    ray = np.where((np.abs(rows) <= 1) & (columns > 5), 1.0, 0.0)[None]
    turned = warp_polar(corrupt(ray, "rotation", 2)[0], radius=25)[:, 10:].sum(axis=1)
    assert abs((int(turned.argmax()) + 180) % 360 - 180) == pytest.approx(20, abs=2)


def test_shear_is_proportional_to_distance_from_center():
    line = np.zeros((1, 41, 41))
    line[:, :, 20] = 1.0
    corrupted = corrupt(line, "shear", 2)[0]
    slope = np.polyfit(np.arange(5, 36), corrupted[5:36].argmax(axis=1), 1)[0]
    assert abs(slope) == pytest.approx(np.tan(np.radians(20)), abs=0.03)
    assert corrupted[20].argmax() == 20


def test_pixelation_gives_constant_blocks(images):
    corrupted = corrupt(images, "pixelation", 3)
    assert max(len(np.unique(image)) for image in corrupted) <= round(0.28 * 24) ** 2
