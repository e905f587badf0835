"""Seconds and memory on a frozen backbone, beside a softmax layer on it in plain Keras.

    python -m training.benchmarks.transfer.costs --data FILE.npz --backbone FILE.keras [--size 128] [--rows 2000] \
        [--large] --runs FOLDER --output FILE.json

measures ``fit`` on images, ``partial_fit`` of 100 rows with a class that is new beside fitting everything again, and
served latencies with the backbone. --large adds a stream of 100 000 rows of 1280 features and 1000 classes. The data
are those of ``training.benchmarks.transfer``, whose features in the folder are used. What the folder has is not
measured again.
"""

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import keras
import numpy as np
import tensorflow as tf
import typer

import deepsimplex as ds
from deepsimplex import kernels
from training.benchmarks.deep.methods import BATCH, optimizer, softmax_network
from training.benchmarks.resources import PeakMemory, in_fresh_process
from training.benchmarks.serving import latencies, served_call
from training.benchmarks.transfer.features import Backbone, Data, load, with_features
from training.benchmarks.transfer.methods import EPOCHS, Seconds, clocks, features_classifier
from training.results import Measurement, Output, ResultTable, write_json

NEW, NEW_OF_CLASS = 100, 50
BATCHES, ROUNDS, CALLS = (1, 256), 20, 2


def image_classifier(data: Data, backbone: Backbone) -> ds.SimplexClassifier:
    """The default classifier of this package on images."""
    model = ds.SimplexClassifier(backbone.load(data.x.shape[1:]), num_classes=data.num_classes)
    model.compile()
    return model


def plain_classifier(data: Data, backbone: Backbone) -> keras.Model:
    """A softmax layer on the frozen backbone."""
    network = softmax_network([backbone.load(data.x.shape[1:])], data.x.shape[1:], data.num_classes)
    network.compile(optimizer(len(data.x), EPOCHS), "sparse_categorical_crossentropy")
    return network


def fits(data: Data, backbone: Backbone) -> Iterator[Measurement]:
    """Seconds of fits on images; of the softmax layer's epochs the first two are measured."""
    model, plain = image_classifier(data, backbone), plain_classifier(data, backbone)
    begun = clocks()
    model.fit(data.x, data.y, verbose=0)
    ours = Seconds.since(begun)
    epochs = []
    for _ in range(2):
        begun = clocks()
        plain.fit(data.x, data.y, batch_size=BATCH, verbose=0)
        epochs.append(Seconds.since(begun))
    theirs = Seconds(*(first + (EPOCHS - 1) * second for first, second in zip(*epochs, strict=True)))
    rows = f"{len(data.x)} images"
    yield f"fit, {rows}", f"{ours.wall:.1f} s, {ours.cpu:.1f} CPU s"
    second = f"the second epoch, {epochs[1].wall:.1f} s, counted {EPOCHS - 1} times"
    yield f"softmax layer, {rows}, {EPOCHS} epochs", f"{theirs.wall:.1f} s, {theirs.cpu:.1f} CPU s ({second})"
    yield "fit beside the softmax layer", f"{ours.wall / theirs.wall:.3f}, CPU {ours.cpu / theirs.cpu:.3f}"


def additions(data: Data) -> Iterator[Measurement]:
    """``partial_fit`` of features whose class had none so far, ``forget`` of them, and the same regression refitted."""
    last = data.num_classes - 1
    of_class, others = np.flatnonzero(data.y == last)[:NEW_OF_CLASS], np.flatnonzero(data.y != last)
    old, new = others[: NEW_OF_CLASS - NEW], np.concatenate([of_class, others[NEW_OF_CLASS - NEW :]])
    every = np.concatenate([old, new])
    model = features_classifier(data.x.shape[1], data.num_classes)
    model.fit(data.x[old], data.y[old], verbose=0)
    before = model.predict_latent(data.x_test).loc
    begun = clocks()
    model.partial_fit(data.x[new], data.y[new])
    added = Seconds.since(begun)
    after = model.predict_latent(data.x_test).loc
    begun = clocks()
    features_classifier(data.x.shape[1], data.num_classes).fit(data.x[every], data.y[every], verbose=0)
    fitted = Seconds.since(begun)
    x, labels = data.x.astype(np.float64), np.eye(data.num_classes)[data.y]
    choice = kernels.ClosedForm.solve(
        kernels.array_blocks(x[old], data.y[old]), data.num_classes, model.head.inducing
    ).regression
    points = choice.points
    if len(points) == len(old) and len(every) <= model.head.inducing:
        points = choice.kernel.transform(x[every])  # all rows stay inducing rows
    again = kernels.LabelRegression(choice.kernel, points, data.num_classes).add(x[every], labels[every])
    loc = again.solve(choice.noise).predict(data.x_test.astype(np.float64)).mean @ ds.geometry.vertices(len(labels[0]))
    begun = clocks()
    model.forget(data.x[new], data.y[new])
    forgotten = Seconds.since(begun)
    what = f"{len(new)} rows, {len(of_class)} of a new class, beside {len(old)}"
    for name, spent in (("partial_fit", added), ("forget", forgotten)):
        yield f"{name}, {what}", f"{spent.wall:.2f} s, {spent.cpu:.2f} CPU s"
        yield f"{name} beside fit of all", f"{spent.wall / fitted.wall:.3f}, CPU {spent.cpu / fitted.cpu:.3f}"
    yield "fit of all", f"{fitted.wall:.2f} s, {fitted.cpu:.2f} CPU s"
    yield "latents after partial_fit, largest difference from solving anew", f"{np.abs(after - loc).max():.1e}"
    difference = np.abs(model.predict_latent(data.x_test).loc - before).max()
    yield "latents after forget, largest difference from before partial_fit", f"{difference:.1e}"


def serving(data: Data, backbone: Backbone) -> Iterator[Measurement]:
    """Latencies of the exported classifiers, called in turns."""
    model, plain = image_classifier(data, backbone), plain_classifier(data, backbone)
    model.fit(data.x, data.y, verbose=0)
    with tempfile.TemporaryDirectory() as folder:
        model.export(f"{folder}/ours")
        plain.export(f"{folder}/plain", verbose=False)
        loaded = [tf.saved_model.load(f"{folder}/{name}") for name in ("ours", "plain")]
        calls = [served_call(each) for each in loaded]
        for batch in BATCHES:
            images = tf.constant(np.resize(data.x_test, (batch, *data.x_test.shape[1:])), tf.float32)
            milliseconds: list[list[float]] = [[], []]
            for call in calls:
                call(images)
            for _ in range(ROUNDS):
                for each, call in zip(milliseconds, calls, strict=True):
                    each += [1000 * seconds for seconds in latencies(call, images, 1, CALLS)[0]]
            ours, theirs = map(np.median, milliseconds)
            yield f"served latency, batch {batch}", f"{ours:.2f} ms, softmax {theirs:.2f} ms, ratio {ours / theirs:.3f}"


class Stream(keras.utils.PyDataset):
    """Batches of random rows around the features of their classes, made as they are read."""

    def __init__(self, rows: int, num_features: int, num_classes: int, batch: int = 1000) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        self.centers = rng.normal(size=(num_classes, num_features)).astype(np.float32) / 2
        self.y, self.batch = rng.integers(num_classes, size=rows), batch

    def __len__(self) -> int:
        return -(-len(self.y) // self.batch)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        y = self.y[index * self.batch : (index + 1) * self.batch]
        noise = np.random.default_rng([1, index]).normal(size=(len(y), self.centers.shape[1]))
        return np.maximum(self.centers[y] + noise.astype(np.float32), 0.0), y


def large(rows: int = 100_000, num_features: int = 1280, num_classes: int = 1000) -> list[Measurement]:
    """Fit a stream: seconds, and the peak of memory above that of the imported packages."""
    model, stream = features_classifier(num_features, num_classes), Stream(rows, num_features, num_classes)
    begun = clocks()
    with PeakMemory() as memory, PeakMemory(anonymous=True) as anonymous:
        history = model.fit(stream, verbose=0).history
    spent = Seconds.since(begun)
    what = f"stream of {rows} rows, {num_features} features, {num_classes} classes"
    return [
        (f"{what}: fit", f"{spent.wall:.0f} s, {spent.cpu:.0f} CPU s; loss {history['loss'][0]:.3f}"),
        (f"{what}: memory", f"{anonymous.gibibytes:.2f} GiB, {memory.gibibytes:.2f} with pages of files"),
    ]


def main(
    data: Annotated[str, typer.Option(help="a .npz file of images, or the name of a data set")],
    backbone: Annotated[Path, typer.Option(help="a .keras file")],
    size: Annotated[int | None, typer.Option(help="images are resized to this height and width")] = None,
    scale: Annotated[float, typer.Option(help="factor of pixels before the backbone")] = 1.0,
    rows: Annotated[int, typer.Option(help="training images of fits and of the served classifier")] = 2000,
    with_large: Annotated[bool, typer.Option("--large", help="add the stream of 100 000 rows")] = False,
    runs: Annotated[Path, typer.Option(help="where features and measurements are kept")] = Path("runs/transfer"),
    output: Output = None,
) -> None:
    """Measure what is missing, and print the table."""
    network, images = Backbone(backbone, size, scale), load(data, ())
    few = images._replace(x=images.x[:rows], y=images.y[:rows])
    parts: dict[str, Callable[[], Any]] = {
        "fits": lambda: fits(few, network),
        "additions": lambda: additions(with_features(images._replace(unknown={}), network, runs / "features")),
        "serving": lambda: serving(few, network),
    }
    if with_large:
        parts["large"] = lambda: in_fresh_process(large)
    table = ResultTable("training.benchmarks.transfer.costs")
    runs.mkdir(parents=True, exist_ok=True)
    for name, measure in parts.items():
        path = runs / f"costs-{Path(data).stem}-{backbone.stem}-{rows}-{name}.json"
        if not path.exists():
            write_json(path, [*measure()])
        table.measure(tuple(each) for each in json.loads(path.read_text()))
    table.write(output)


if __name__ == "__main__":
    typer.run(main)
