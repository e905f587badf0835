"""Growth of seconds, core seconds and memory of every stage with the number of images; costs for millions of them.

    python -m training.benchmarks.scaling [--sizes 15000,60000,240000,500000] [--exact-up-to 500000] [--price 0.04]
        [--folder FOLDER] [--output FILE.json] [--costs FILE.json]

Beyond 60 000, images of Fashion-MNIST are shifted by up to two pixels, and mirrored; all are written as bytes to a file
that every stage reads as a memory map, or as TFRecords. Each stage runs in a fresh process, after one of few images
that compiles and traces its functions. "core seconds" are what its threads computed, however busy the cores were with
other work; "peak" is the largest memory that it allocated beyond what it had before, without the pages of the file,
which the system takes back when it needs them; "times the data" divides that by the bytes of the images.

Up to 60 000 images also pass all steps from a folder of PNG files to a SavedModel, by ``experiments.train``. Growth
is fitted to the core seconds of all sizes, and to those of the two largest, which are extrapolated to 10^6, 10^7 and
10^8 images, for CASIMAC's default target with ten classes and one epoch of the small convolutional network.
"""

import itertools
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import keras
import numpy as np
import tensorflow as tf
import typer
from numpy.typing import NDArray
from PIL import Image

import deepsimplex as ds
from training.benchmarks.resources import PeakMemory, in_fresh_process
from training.results import Output, ResultTable

BATCH, FEW, ASKED, BLOCK = 256, 3000, 1000, 10_000
ORIGINALS = 60_000
SHIFTS = sorted(itertools.product(range(-2, 3), repeat=2), key=lambda shift: abs(shift[0]) + abs(shift[1]))
VARIANTS = [(mirrored, shift) for shift in SHIFTS for mirrored in (False, True)]
EXTRAPOLATED = (10**6, 10**7, 10**8)
Arrays = tuple[NDArray[Any], NDArray[np.int64]]


# Data


def variant(images: NDArray[np.uint8], number: int) -> NDArray[np.uint8]:
    """Shift images, with wrap-around at their dark borders, and mirror them."""
    mirrored, shift = VARIANTS[number]
    return np.roll(images[:, :, ::-1] if mirrored else images, shift, axis=(1, 2))


def write(folder: Path, rows: int, x: NDArray[np.uint8], y: NDArray[np.int64]) -> None:
    """Write a number of variants of these images and their labels, as arrays and as TFRecords."""
    images = np.lib.format.open_memmap(folder / "x.npy", mode="w+", dtype=np.uint8, shape=(rows, 28, 28))
    labels = np.resize(y, rows)
    with tf.io.TFRecordWriter(str(folder / "rows.tfrecord")) as records:
        for begin in range(0, rows, BLOCK):
            chosen = np.arange(begin, min(begin + BLOCK, rows))
            for number in np.unique(chosen // len(x)):
                part = chosen[chosen // len(x) == number]
                images[part] = variant(x[part % len(x)], int(number))
            for image, label in zip(images[chosen], labels[chosen], strict=True):
                records.write(image.tobytes() + bytes([label]))
    images.flush()
    np.save(folder / "y.npy", labels.astype(np.int64))


def read(folder: Path) -> Arrays:
    """Images as a memory map, and labels."""
    return np.load(folder / "x.npy", mmap_mode="r"), np.load(folder / "y.npy")


def records(folder: Path) -> tf.data.Dataset:
    """Batches of images and labels from the TFRecords."""

    def decode(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        values = tf.ensure_shape(tf.io.decode_raw(record, tf.uint8), (None, 785))
        return tf.reshape(values[:, :-1], (-1, 28, 28)), tf.cast(values[:, -1], tf.int64)

    return tf.data.TFRecordDataset(str(folder / "rows.tfrecord")).batch(BATCH).map(decode).prefetch(2)


# Stages: each prepares itself on few images, and returns the work to be measured


def target(folder: Path | None, method: Any) -> ds.targets.CASIMAC:
    """The default target, with a cache in the folder."""
    return ds.targets.CASIMAC(method=method, cache_dir=None if folder is None else folder / "cache" / method)


def classifier(target: Any) -> ds.SimplexClassifier:
    """The small convolutional network of the configurations, for bytes."""
    backbone = ds.backbones.cnn([32, 64], units=128, dropout=0.3)
    inputs = [keras.Input((28, 28)), keras.layers.Rescaling(1 / 255)]
    model = ds.SimplexClassifier(keras.Sequential([*inputs, backbone]), target, num_classes=10)
    model.compile("adam", metrics=["accuracy"])
    return model


def search(folder: Path, method: str) -> Callable[[], str]:
    """Search neighbors and compute latents, which are cached for the other stages."""
    x, y = read(folder)
    shutil.rmtree(folder / "cache" / method, ignore_errors=True)
    target(None, method).fit_transform(x[:FEW], y[:FEW])

    def work() -> str:
        casimac = target(folder, method)
        casimac.fit_transform(x, y)
        return "" if method == "exact" else f"recall {casimac.recall_:.3f}"

    return work


def train(folder: Path, method: str) -> Callable[[], str]:
    """Train an epoch on latents of cached neighbors, and save the model."""
    x, y = read(folder)
    classifier(target(None, method)).fit(x[:FEW], y[:FEW], batch_size=BATCH, verbose=0)
    model = classifier(target(folder, method))

    def work() -> str:
        history = model.fit(x, y, batch_size=BATCH, verbose=0).history
        model.save(folder / "model.keras")
        return f"accuracy {history['accuracy'][0]:.3f}"

    return work


def train_from_records(folder: Path, _: str) -> Callable[[], str]:
    """Train an epoch of a stream, with a target that is made of labels alone."""
    classifier("vertices").fit(records(folder).take(FEW // BATCH), verbose=0)
    model = classifier("vertices")

    def work() -> str:
        return f"accuracy {model.fit(records(folder), verbose=0).history['accuracy'][0]:.3f}"

    return work


def finish(folder: Path, _: str) -> Callable[[], str]:
    """Fit the density of the features, predict all images, save and export."""
    x, y = read(folder)
    prepared = ds.load(folder / "model.keras")
    prepared.fit_density(x[:FEW], y[:FEW]).predict_proba(x[:FEW])
    prepared.export(folder / "prepared")
    model = ds.load(folder / "model.keras")

    def work() -> str:
        model.fit_density(x, y, batch_size=BATCH)
        accuracy = ds.evaluation.accuracy(y, model.predict_proba(x, batch_size=BATCH))
        model.save(folder / "finished.keras")
        model.export(folder / "served")
        return f"accuracy {accuracy:.3f}"

    return work


def whole_way(folder: Path, _: str) -> Callable[[], str]:
    """Run ``deepsimplex train`` from a folder of PNG files to a SavedModel."""
    x, y = read(folder)
    settings: dict[str, Any] = {"name": "way", "output": str(folder / "runs"), "cache_dir": None, "target": "casimac"}
    backbone = {"name": "cnn", "filters": [32, 64], "units": 128, "dropout": 0.3}
    settings |= {
        "model": {"backbone": backbone},
        "training": {"epochs": 1},
        "calibration": {"density": "nearest_neighbors"},
    }
    for name, part in (("few", slice(0, FEW)), ("all", slice(None))):
        for number, (image, label) in enumerate(zip(x[part], y[part], strict=True)):
            place = folder / name / str(label)
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(place / f"{number}.png")

    def run(name: str) -> str:
        data = {"name": str(folder / name), "options": {"color": "grayscale", "test_fraction": 0.1}}
        ran = ds.experiments.train(ds.experiments.RunConfig(**settings, data=data), verbose=0)
        return f"accuracy {ran.read_metrics()['accuracy']:.3f}"

    run("few")
    return lambda: run("all")


def copies(folder: Path, _: str) -> Callable[[], str]:
    """Count copies of the same original among the nearest neighbors of some images."""
    x, y = read(folder)

    def work() -> str:
        rows = np.sort(np.random.default_rng(0).choice(len(x), ASKED, replace=False))
        neighbors = ds.distances.class_neighbors(x, y, k=2, queries=x[rows], query_labels=y[rows])
        itself = neighbors.indices == rows[:, None, None]
        originals = np.where(itself, -1, neighbors.indices % ORIGINALS)
        same_class = originals[np.arange(ASKED), y[rows]]
        nearest = np.where(same_class[:, 0] < 0, same_class[:, 1], same_class[:, 0])
        others = originals[np.arange(10) != y[rows][:, None]]
        copied, twice = np.mean(nearest == rows % ORIGINALS), np.mean(others[:, 0] == others[:, 1])
        return (
            f"{copied:.0%} of the nearest neighbors in the own class are copies of the same original; the two nearest "
            f"in another class are copies of one in {twice:.0%}"
        )

    return work


Stage = Callable[[Path, str], Callable[[], str]]
STAGES: dict[str, tuple[Stage, str]] = {
    "targets, exact": (search, "exact"),
    "targets, approximate": (search, "approximate"),
    "an epoch, memory map": (train, "approximate"),
    "an epoch, TFRecords": (train_from_records, ""),
    "density, predictions, files": (finish, ""),
    "PNG files to SavedModel": (whole_way, ""),
}


def measure(stage: Stage, folder: Path, method: str) -> tuple[float, float, float, str]:
    """Seconds, core seconds and GiB of a stage in this process, and its result."""
    work = stage(folder, method)
    with PeakMemory(anonymous=True) as memory:
        begun, begun_cores = time.perf_counter(), time.process_time()
        result = work()
        seconds, core_seconds = time.perf_counter() - begun, time.process_time() - begun_cores
    return seconds, core_seconds, memory.gibibytes, result


def alone(*arguments: Any) -> Any:
    """Measure in a fresh process."""
    return in_fresh_process(measure, *arguments)


# Growth


def exponent(rows: list[dict[str, Any]], column: str) -> tuple[float, float]:
    """Exponent b and factor a of the power law a N^b, fitted to a column's logarithms."""
    images, values = (np.log([row[key] for row in rows]) for key in ("images", column))
    b, log_a = np.polyfit(images, values, 1)
    return float(b), float(np.exp(log_a))


def slope(rows: list[dict[str, Any]]) -> tuple[float, float]:
    """Bytes of an image, and bytes that do not grow, of the two largest sizes."""
    (fewer, less), (more, peak) = ((row["images"], 2**20 * row["peak MiB"]) for row in rows[-2:])
    each = max(0.0, (peak - less) / (more - fewer))
    return each, max(0.0, peak - each * more)


def growth(table: ResultTable) -> Iterator[str]:
    """Yield a sentence on the growth of every stage."""
    for name in STAGES:
        rows = [row for row in table.rows if row["stage"] == name]
        if len(rows) > 1:
            (power, _), (last, _) = (exponent(some, "core seconds") for some in (rows, rows[-2:]))
            each, fixed = slope(rows)
            yield (
                f"{name}: core seconds grow as N^{power:.2f}, from the largest size but one N^{last:.2f}; memory from "
                f"there by {each:.0f} bytes an image ({each / 784:.2f} times the data), and {fixed / 2**20:.0f} MiB."
            )


def costs(table: ResultTable, price: float) -> ResultTable:
    """Extrapolate the costs of the stages."""
    extrapolated = ResultTable("training.benchmarks.scaling")
    for images, name in itertools.product(EXTRAPOLATED, STAGES):
        rows = [row for row in table.rows if row["stage"] == name]
        if len(rows) > 1:
            (b, a), (each, fixed) = exponent(rows[-2:], "core seconds"), slope(rows)
            hours = a * images**b / 3600
            extrapolated.add(
                images=f"{images:.0e}".replace("e+0", "e"),
                stage=name,
                **{
                    "core hours": f"{hours:.3g}",
                    "memory [GiB]": f"{(each * images + fixed) / 2**30:.3g}",
                    "dollars": f"{hours * price:.2g}" if hours * price < 1 else f"{hours * price:,.0f}",
                },
            )
    return extrapolated


def stage_rows(images: int, folder: Path, exact_up_to: int, known: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Measure the stages for a number of images, except those that are known."""
    for name, (stage, method) in STAGES.items():
        if (method == "exact" and images > exact_up_to) or (stage is whole_way and images > ORIGINALS):
            continue
        before = [row for row in known if (row["stage"], row["images"]) == (name, images)]
        if before:
            yield before[0]
            continue
        seconds, core_seconds, gibibytes, result = alone(stage, folder, method)
        yield {
            "stage": name,
            "images": images,
            "seconds": round(seconds),
            "core seconds": round(core_seconds, 3),
            "peak MiB": round(2**10 * gibibytes),
            "times the data": gibibytes * 2**30 / (784 * images),
            "found": result,
        }


def main(
    sizes: Annotated[str, typer.Option(help="numbers of images")] = "15000,60000,240000,500000",
    exact_up_to: Annotated[int, typer.Option(help="images of the largest exact search")] = 500_000,
    price: Annotated[float, typer.Option(help="dollars of a core hour")] = 0.04,
    folder: Annotated[Path | None, typer.Option(help="keeps images and targets; default a temporary one")] = None,
    output: Output = None,
    costs_output: Annotated[Path | None, typer.Option("--costs", help="a JSON file for the extrapolation")] = None,
) -> None:
    """Measure and print the tables; with a folder, rows that the file has already are not measured again."""
    os.environ["OMP_WAIT_POLICY"] = "passive"  # core seconds are of work, not of waiting for it
    table = ResultTable("training.benchmarks.scaling")
    resumes = output is not None and folder is not None and output.exists()
    known = json.loads(output.read_text())["rows"] if resumes and output is not None else []
    loaded: Any = ds.datasets.load("fashion_mnist", dtype="uint8")
    originals, _ = loaded
    notes: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        for images in sorted(int(size) for size in sizes.split(",")):
            place = (folder or Path(temporary)) / str(images)
            if not (place / "y.npy").exists():
                place.mkdir(parents=True)
                write(place, images, *originals)
            for row in stage_rows(images, place, exact_up_to, known):
                table.add(**row)
                table.write(output, notes=notes)
            notes.append(f"{images} images: {alone(copies, place, '')[3]}.")
    notes += growth(table)
    print("\n".join(notes))
    table.write(output, notes=notes)
    costs(table, price).write(costs_output, notes=[f"A core hour is taken at {price} dollars."])


if __name__ == "__main__":
    typer.run(main)
