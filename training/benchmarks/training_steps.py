"""Training steps beside those of the same network with a softmax layer, by turns on the same device.

    python -m training.benchmarks.training_steps [--backbone cnn] [--images 6400] [--rounds 7] [--output FILE.json]

Fashion-MNIST in batches of 128, the backbones of the comparison of deep classifiers; and 128 features of 10, 100 and
1000 classes (--backbone features), with targets of labels alone. On a processor in single precision; on a GPU also in
mixed precision and compiled by XLA, on several GPUs by ``MirroredStrategy`` beside one, and all pairs of images by
structural similarity beside the processor's cores.
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
from training.benchmarks.deep.methods import BATCH, backbone, normalized_features, softmax_network
from training.benchmarks.resources import EpochSeconds, in_fresh_process, seconds
from training.results import Output, ResultTable

PAIRED = 3000  # images
SOFTMAX, NORMALIZED = "softmax layer", "softmax layer, normalized features"
# Options of the classifier, and its loss.
METHODS: dict[str, tuple[dict[str, Any], Any]] = {
    "deepsimplex": ({}, None),
    "Gaussian head, latents": ({"target": "casimac", "head": "gaussian"}, "latent_nll"),
    "Gaussian head, cross-entropy": ({"target": "vertices", "head": "gaussian"}, "sparse_categorical_crossentropy"),
    "prototypes, cross-entropy": ({"target": "vertices", "head": "prototypes"}, "sparse_categorical_crossentropy"),
}
# Many classes, on a perceptron of 256 units.
FEATURES, CLASSES = 128, (10, 100, 1000)
LABELS_ALONE: dict[str, tuple[dict[str, Any], Any]] = {
    "labels alone, composition": ({"target": "vertices"}, "composition"),
    "labels alone, Gaussian head, composition": ({"target": "vertices", "head": "gaussian"}, "composition"),
}
# Precision, and whether XLA compiles; the first alone without a GPU.
SETTINGS = [*itertools.product(("float32", "mixed_float16"), (False, True))]


def compiled(
    method: str, network: str, shape: tuple[int, ...], jit: bool = False, strategy: Any = None, num_classes: int = 10
) -> Any:
    """A classifier, ready to train."""
    keras.utils.set_random_seed(0)
    with strategy.scope() if strategy else contextlib.nullcontext():
        body = ds.backbones.mlp([256]) if network == "features" else backbone(network)
        loss: Any = "sparse_categorical_crossentropy"
        if method in (SOFTMAX, NORMALIZED):
            body = normalized_features(body) if method == NORMALIZED else body
            model: Any = softmax_network([body], shape, num_classes)
        else:
            options, loss = (LABELS_ALONE if network == "features" else METHODS)[method]
            model = ds.SimplexClassifier(body, num_classes=num_classes, **options)
        model.compile("adam", loss, jit_compile=jit)
    return model


def steps(models: dict[str, Any], x: Any, y: Any, rounds: int) -> dict[str, float]:
    """Median seconds of a training step of each classifier: an epoch of each by turns, after one that traces."""
    watches = {name: EpochSeconds() for name in models}
    for _ in range(1 + rounds):
        for name, model in models.items():
            model.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[watches[name]])
    return {name: float(np.median(watch.seconds[1:])) / -(-len(x) // BATCH) for name, watch in watches.items()}


def gaussian_classes(num_classes: int, rows: int) -> tuple[Any, Any]:
    """Features of Gaussian classes around random centers, and their labels: each class at least once."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(num_classes, FEATURES))
    y = np.concatenate([np.arange(num_classes), rng.integers(0, num_classes, max(0, rows - num_classes))])
    return (centers[y] + rng.normal(size=(len(y), FEATURES))).astype("float32"), y


def compare(table: ResultTable, network: str, setting: tuple[str, bool], x: Any, y: Any, rounds: int) -> None:
    """Add a row for every method."""
    precision, jit = setting
    num_classes = int(y.max()) + 1
    methods = (SOFTMAX, *LABELS_ALONE) if network == "features" else (SOFTMAX, NORMALIZED, *METHODS)
    keras.mixed_precision.set_dtype_policy(precision)
    try:
        models = {name: compiled(name, network, x.shape[1:], jit, None, num_classes) for name in methods}
        taken = steps(models, x, y, rounds)
    finally:
        keras.mixed_precision.set_dtype_policy("float32")
    for name, step in taken.items():
        table.add(
            backbone=f"{network}, {num_classes} classes" if network == "features" else network,
            precision=f"{precision}{', compiled' if jit else ''}",
            method=name,
            **{"step [ms]": 1e3 * step, "beside softmax": step / taken[SOFTMAX]},
        )


def on_several_gpus(network: str, x: Any, y: Any, rounds: int) -> str:
    """Ratio of the seconds of one GPU to those of all GPUs."""
    strategy = tf.distribute.MirroredStrategy()
    one, several = (compiled("deepsimplex", network, x.shape[1:], strategy=made) for made in (None, strategy))
    taken = steps({"one": one, "several": several}, x, y, rounds)
    return f"{strategy.num_replicas_in_sync} GPUs: {taken['one'] / taken['several']:.2f} times as fast as one."


def pairs(images: Any) -> float:
    """Seconds of all pairs by structural similarity, on a GPU if this process sees one."""
    distance = ds.distances.SSIM(7)
    distance.pairwise(images[:10], images[:10])
    return seconds(distance.pairwise, images, images)


def pairs_on_cores(images: Any) -> float:
    """Seconds of all pairs by structural similarity in a process without a GPU."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    return in_fresh_process(pairs, images)


def main(
    backbones: Annotated[
        list[str] | None, typer.Option("--backbone", help="default mlp, cnn, resnet and features")
    ] = None,
    images: Annotated[int, typer.Option(help="images of an epoch")] = 6400,
    rounds: Annotated[int, typer.Option(help="epochs of each method")] = 7,
    output: Output = None,
) -> None:
    """Measure what the devices allow, and print the table."""
    table = ResultTable("training.benchmarks.training_steps")
    gpus = [tf.config.experimental.get_device_details(gpu) for gpu in tf.config.list_physical_devices("GPU")]
    loaded: Any = ds.datasets.load("fashion_mnist")
    (x, y), _ = loaded
    networks = backbones or ["mlp", "cnn", "resnet", "features"]
    for network in networks:
        for setting in SETTINGS if gpus else SETTINGS[:1]:
            if network == "features":
                for num_classes in CLASSES:
                    compare(table, network, setting, *gaussian_classes(num_classes, images), rounds)
            else:
                compare(table, network, setting, x[:images], y[:images], rounds)
    notes = [f"GPU: {', '.join(str(gpu.get('device_name', 'GPU')) for gpu in gpus) or 'none'}."]
    if len(gpus) > 1 and networks[0] != "features":
        notes.append(on_several_gpus(networks[0], x[:images], y[:images], rounds))
    if gpus:
        accelerated = pairs(x[:PAIRED])
        ratio = pairs_on_cores(x[:PAIRED]) / accelerated
        notes.append(f"All pairs of {PAIRED} images, SSIM(7): {ratio:.1f} times as fast as {os.cpu_count()} cores.")
    table.write(output, notes=notes)


if __name__ == "__main__":
    typer.run(main)
