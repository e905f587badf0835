"""Deletion curves of saliency maps on Fashion-MNIST: how fast a class probability falls as salient pixels turn black.

    python -m training.benchmarks.saliency [--images 500] [--epochs 3] [--output saliency.json]

A convolutional network learns 10 000 training images by the default head. Of test images that it classifies correctly,
pixels are deleted in the order of each map, the most salient first: set to black, and to those of the mean image. The
area under the curve of the probability of the class, over the share of pixels deleted, is small if the pixels that
matter come first. Smoothed gradients are the mean of those at images with added noise (Smilkov et al. 2017).
"""

from typing import Annotated, Any

import keras
import numpy as np
import typer
from numpy.typing import NDArray

import deepsimplex as ds
from training.results import Output, ResultTable

TRAINED, POINTS = 10_000, 29
NOISE, DRAWS = 0.15, 16  # of smoothed gradients: standard deviation, in units of the range of pixels


def deletion_area(model: Any, x: NDArray[Any], classes: NDArray[np.int64], maps: NDArray[Any], fill: Any) -> float:
    """Mean area under the deletion curves of images [N, H, W, 1] by maps [N, H, W]; pixels deleted become ``fill``."""
    order = np.argsort(-maps.reshape(len(x), -1), axis=1, kind="stable")
    rank = np.argsort(order, axis=1).reshape(maps.shape)
    shares = np.linspace(0.0, 1.0, POINTS)
    curve = []
    for share in shares:
        left = np.where(rank[..., np.newaxis] < round(share * rank[0].size), fill, x).astype(x.dtype)
        curve.append(model.predict(left, verbose=0)[np.arange(len(x)), classes].mean())
    return float(np.trapezoid(curve, shares))


def main(
    images: Annotated[int, typer.Option(min=1)] = 500,
    epochs: Annotated[int, typer.Option(min=1)] = 3,
    output: Output = None,
) -> None:
    """Measure and print."""
    (x, y), (x_test, y_test) = ds.datasets.load("fashion_mnist")
    x, x_test = (part.reshape(*part.shape[:3], 1) for part in (x, x_test))
    keras.utils.set_random_seed(0)
    model = ds.SimplexClassifier(ds.backbones.cnn([32, 64]), num_classes=10)
    model.compile(keras.optimizers.Adam(2e-3))
    model.fit(x[:TRAINED], y[:TRAINED], epochs=epochs, verbose=0)
    p = model.predict(x_test, verbose=0)
    right = np.flatnonzero(p.argmax(axis=1) == y_test)[:images]
    x_test, classes = x_test[right], y_test[right]
    rng, mean = np.random.default_rng(0), x[:TRAINED].mean(axis=0)
    maps = {
        "integrated gradients": model.saliency(x_test),
        "integrated gradients from the mean image": model.saliency(x_test, baseline=mean),
        "gradients": model.saliency(x_test, method="gradients"),
        "smoothed gradients": np.sum(
            [
                model.saliency(x_test + rng.normal(0.0, NOISE, x_test.shape), labels=classes, method="gradients")
                for _ in range(DRAWS)
            ],
            axis=0,
        ),
        "Grad-CAM": model.saliency(x_test, method="grad_cam"),
        "random": rng.random(x_test.shape[:3]),
    }
    table = ResultTable("training.benchmarks.saliency")
    for name, values in maps.items():
        areas = {
            f"area, {kind}": deletion_area(model, x_test, classes, values, fill)
            for kind, fill in {"black": 0.0, "mean image": mean}.items()
        }
        table.add(map=name, **areas)
    table.write(output)


if __name__ == "__main__":
    typer.run(main)
