"""Training steps and distances on a GPU, in mixed precision and compiled by XLA.

    python -m training.benchmarks.gpu [--images 12800] [--output FILE.json]

Steps of the small convolutional network on Fashion-MNIST with the heads and losses of this package, as ratios to those
with a softmax layer and cross-entropy in the same precision, compiled or not, on the same GPU; all pairs of images by
structural similarity beside the processor's cores; and steps on all GPUs by ``MirroredStrategy`` beside one. Without a
GPU, or a second one, the table says "not measured".
"""

import contextlib
import itertools
import os
from typing import Annotated, Any

import keras
import numpy as np
import tensorflow as tf
import typer

import deepsimplex as ds
from training.benchmarks.resources import EpochSeconds, in_fresh_process, seconds
from training.results import Output, ResultTable

BATCH, EPOCHS, PAIRED = 256, 4, 3000
SOFTMAX = "softmax layer, cross-entropy"
# Options of the classifier, and its loss.
METHODS: dict[str, tuple[dict[str, Any], Any]] = {
    "default": ({}, None),
    "Gaussian head, latents": ({"target": "casimac", "head": "gaussian"}, "latent_nll"),
    "Gaussian head, cross-entropy": ({"target": "vertices", "head": "gaussian"}, "sparse_categorical_crossentropy"),
    "prototypes, cross-entropy": ({"target": "vertices", "head": "prototypes"}, "sparse_categorical_crossentropy"),
}
# Precision, and whether XLA compiles.
SETTINGS = [*itertools.product(("float32", "mixed_float16"), (False, True))]
NOT_MEASURED = "not measured"


def step(name: str, x: Any, y: Any, precision: str, jit: bool, strategy: Any = None) -> float:
    """Median seconds of a training step, after an epoch that compiles and traces."""
    keras.mixed_precision.set_dtype_policy(precision)
    try:
        keras.utils.set_random_seed(0)
        with strategy.scope() if strategy else contextlib.nullcontext():
            backbone = ds.backbones.cnn([32, 64], units=128, dropout=0.3)
            loss: Any = "sparse_categorical_crossentropy"
            if name == SOFTMAX:
                softmax = keras.layers.Dense(10, "softmax", dtype="float32")
                model: Any = keras.Sequential([keras.Input(x.shape[1:]), backbone, softmax])
            else:
                options, loss = METHODS[name]
                model = ds.SimplexClassifier(backbone, num_classes=10, **options)
            model.compile("adam", loss, jit_compile=jit)
        watch = EpochSeconds()
        model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, verbose=0, callbacks=[watch])
    finally:
        keras.mixed_precision.set_dtype_policy("float32")
    return float(np.median(watch.seconds[1:])) / -(-len(x) // BATCH)


def steps(table: ResultTable, x: Any, y: Any, measured: bool) -> None:
    """Steps of every method on one device."""
    for precision, jit in SETTINGS:
        softmax = step(SOFTMAX, x, y, precision, jit) if measured else 0.0
        for name in METHODS:
            taken = step(name, x, y, precision, jit) if measured else 0.0
            result = f"{taken / softmax:.2f} times, of {1e3 * softmax:.1f} ms" if measured else NOT_MEASURED
            what = f"a step: {name}; {precision}{', compiled' if jit else ''}"
            table.add(measured=what, result=result)


def pairs(images: Any) -> float:
    """Seconds of all pairs by structural similarity, on a GPU if this process sees one."""
    distance = ds.distances.SSIM(7)
    distance.pairwise(images[:10], images[:10])
    return seconds(distance.pairwise, images, images)


def pairs_on_cores(images: Any) -> float:
    """The same in a process that sees no GPU."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    return in_fresh_process(pairs, images)


def main(
    images: Annotated[int, typer.Option(help="images of an epoch")] = 12_800,
    output: Output = None,
) -> None:
    """Measure what there is a GPU for, and print the table."""
    table = ResultTable("training.benchmarks.gpu")
    gpus = [tf.config.experimental.get_device_details(gpu) for gpu in tf.config.list_physical_devices("GPU")]
    (x, y), _ = ds.datasets.load("fashion_mnist")
    x, y = x[:images], y[:images]
    steps(table, x, y, bool(gpus))
    several = NOT_MEASURED
    if len(gpus) > 1:
        one, all_of_them = (
            step("default", x, y, "float32", False, made) for made in (None, tf.distribute.MirroredStrategy())
        )
        several = f"{one / all_of_them:.2f} times as fast as one"
    table.add(measured=f"a step: default, {max(len(gpus), 2)} GPUs", result=several)
    ratio = NOT_MEASURED
    if gpus:
        accelerated = pairs(x[:PAIRED])
        ratio = f"{pairs_on_cores(x[:PAIRED]) / accelerated:.1f} times as fast as {os.cpu_count()} cores"
    table.add(measured=f"all pairs of {PAIRED} images, SSIM(7)", result=ratio)
    names = ", ".join(str(gpu.get("device_name", "GPU")) for gpu in gpus) or "none"
    table.write(output, notes=[f"GPU: {names}."])


if __name__ == "__main__":
    typer.run(main)
