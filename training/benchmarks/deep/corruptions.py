"""Common corruptions of images (noise, blur, motion, brightness, resolution) at three severities."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from skimage.transform import AffineTransform, resize, warp

Image = NDArray[np.float64]


def _gaussian_noise(image: Image, std: float, rng: np.random.Generator) -> Image:
    return image + rng.normal(scale=std, size=image.shape)


def _shot_noise(image: Image, photons: float, rng: np.random.Generator) -> Image:
    return rng.poisson(image * photons) / photons


def _impulse_noise(image: Image, share: float, rng: np.random.Generator) -> Image:
    salt = rng.integers(0, 2, image.shape).astype(float)
    return np.where(rng.random(image.shape) < share, salt, image)


def _gaussian_blur(image: Image, std: float, rng: np.random.Generator) -> Image:
    return ndimage.gaussian_filter(image, std * min(image.shape[:2]), axes=(0, 1), mode="nearest")


def _motion_blur(image: Image, length: float, rng: np.random.Generator) -> Image:
    """The mean of the image along a line of random direction."""
    angle, steps = rng.uniform(0, math.pi), np.linspace(-0.5, 0.5, 9) * length * min(image.shape[:2])
    shifts = [(math.sin(angle) * step, math.cos(angle) * step, 0) for step in steps]
    return np.mean([ndimage.shift(image, shift, order=1, mode="nearest") for shift in shifts], axis=0)


def _rotation(image: Image, degrees: float, rng: np.random.Generator) -> Image:
    return ndimage.rotate(image, rng.choice([-1, 1]) * degrees, reshape=False, order=1, mode="nearest")


def _shear(image: Image, degrees: float, rng: np.random.Generator) -> Image:
    middle = (np.array(image.shape[1::-1]) - 1) / 2
    center, back = AffineTransform(translation=-middle), AffineTransform(translation=middle)
    sheared = AffineTransform(shear=math.radians(rng.choice([-1, 1]) * degrees))
    return warp(image, (center + sheared + back).inverse, order=1, mode="edge")


def _contrast(image: Image, factor: float, rng: np.random.Generator) -> Image:
    mean = image.mean(axis=(0, 1))
    return mean + factor * (image - mean)


def _brightness(image: Image, shift: float, rng: np.random.Generator) -> Image:
    return image + shift


def _pixelation(image: Image, factor: float, rng: np.random.Generator) -> Image:
    small = [max(1, round(factor * side)) for side in image.shape[:2]]
    return resize(resize(image, small, order=1, anti_aliasing=True), image.shape[:2], order=0)


# The function of each corruption, and its amount at severities 1, 2 and 3.
_CORRUPTIONS: dict[str, tuple[Callable[[Image, float, np.random.Generator], Image], tuple[float, float, float]]] = {
    "gaussian_noise": (_gaussian_noise, (0.08, 0.16, 0.28)),  # standard deviation, of pixels in [0, 1]
    "shot_noise": (_shot_noise, (60, 20, 6)),  # photons at pixels of 1
    "impulse_noise": (_impulse_noise, (0.03, 0.08, 0.16)),  # share of pixels that are 0 or 1
    "gaussian_blur": (_gaussian_blur, (0.02, 0.04, 0.06)),  # standard deviation, relative to the shorter side
    "motion_blur": (_motion_blur, (0.1, 0.2, 0.3)),  # length, relative to the shorter side
    "rotation": (_rotation, (10, 20, 35)),  # degrees, to either side
    "shear": (_shear, (10, 20, 30)),  # degrees, to either side
    "contrast": (_contrast, (0.6, 0.4, 0.2)),  # factor of the distance to the mean
    "brightness": (_brightness, (0.1, 0.2, 0.35)),  # added to pixels in [0, 1]
    "pixelation": (_pixelation, (0.6, 0.4, 0.28)),  # factor of the sides
}

CORRUPTIONS = tuple(_CORRUPTIONS)
"""Names of the corruptions that ``corrupt`` takes."""


def corrupt(images: NDArray[Any], name: str, severity: int, seed: int = 0) -> NDArray[Any]:
    """Corrupt images [N, H, W] or [N, H, W, C], floats in [0, 1], to which the result is clipped.

    Severities are 1 (visible) to 3 (disturbing for people too). The corruption of an image depends on the seed and on
    its position. Modeled on Hendrycks and Dietterich, *Benchmarking Neural Network Robustness to Common Corruptions and
    Perturbations*, 2019, for images of any size: lengths are relative to the sides.
    """
    change, amounts = _CORRUPTIONS[name]
    generators = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(len(images)))
    with_channels = images.astype(np.float64).reshape(*images.shape[:3], -1)
    changed = [change(image, amounts[severity - 1], rng) for image, rng in zip(with_channels, generators, strict=True)]
    return np.stack(changed).clip(0, 1).reshape(images.shape).astype(images.dtype)
