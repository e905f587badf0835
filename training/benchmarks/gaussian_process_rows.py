"""Gaussian-process classifiers of a million rows, read from files: time, memory and what is learned in one epoch.

    python -m training.benchmarks.gaussian_process_rows [--data FOLDER] [--sizes 62500,250000,1000000]
        [--repeat-to 1000000] [--output FILE.json]

Files of 50 columns are written with rows from a mixture of Gaussians: 4 classes of 3 components, apart in 5 of 50
dimensions. ``FOLDER`` holds htru2.npz, magic.npz and letter.npz of UCI with arrays X and y: four fifths of the rows are
repeated, with noise of a twentieth of every column's standard deviation, and the others are held out. Settings are the
defaults but for the epochs. Every fit runs in a fresh process, after one of few rows that traces its functions:
"core seconds" are those that its threads computed, however busy the cores were with other work; "peak" is the largest
resident memory (getrusage), "growth" what the fit added to it, "allocated" the growth without the pages of files that a
memory map shows.
"""

import itertools
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tensorflow as tf
import typer
from numpy.typing import NDArray

import deepsimplex as ds
from training.benchmarks.resources import PeakMemory, in_fresh_process
from training.results import Output, ResultTable

COLUMNS, CLASSES, COMPONENTS, DIMENSIONS, APART = 50, 4, 12, 5, 2.2
BLOCK, BATCH, HELD_OUT, FEW = 50_000, 512, 10_000, 6_000
REAL, NOISE = ("htru2", "magic", "letter"), 0.05
CLASSIFIERS: dict[str, Any] = {
    "SimplexGaussianProcess": lambda epochs: ds.SimplexGaussianProcess("ilr", inference="stochastic", epochs=epochs),
    "CategoricalGaussianProcess": lambda epochs: ds.CategoricalGaussianProcess(epochs=epochs),
}
READERS = ("memory map", "tf.data")

# Features and, in the last column, numbers of classes.
Table = NDArray[np.float32]


def mixture(rows: int, rng: np.random.Generator) -> Table:
    """Draw rows of the synthetic table."""
    fixed = np.random.default_rng(0)
    basis, _ = np.linalg.qr(fixed.normal(size=(COLUMNS, DIMENSIONS)))
    centers = APART * fixed.normal(size=(COMPONENTS, DIMENSIONS)) @ basis.T
    component = rng.integers(COMPONENTS, size=rows)
    X = centers[component] + rng.normal(size=(rows, COLUMNS))
    return np.column_stack([X, component % CLASSES]).astype(np.float32)


def split(path: Path) -> tuple[Table, Table]:
    """A real table: four fifths of its rows in a random order, and the others."""
    with np.load(path, allow_pickle=False) as archive:
        table = np.column_stack([archive["X"], np.unique(archive["y"], return_inverse=True)[1]]).astype(np.float32)
    table = table[np.random.default_rng(0).permutation(len(table))]
    return table[len(table) // 5 :], table[: len(table) // 5]


def repeated(table: Table, rows: int, rng: np.random.Generator) -> Table:
    """Draw rows with replacement and add noise to the features."""
    some = table[rng.integers(len(table), size=rows)]
    some[:, :-1] += NOISE * table[:, :-1].std(axis=0) * rng.normal(size=(rows, table.shape[1] - 1))
    return some


def write(path: Path, rows: int, draw: Callable[[int, np.random.Generator], Table]) -> None:
    """Write a file of so many rows, block by block."""
    rng, columns = np.random.default_rng(1), draw(1, np.random.default_rng(0)).shape[1]
    table = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, columns))
    for begin in range(0, rows, BLOCK):
        table[begin : begin + BLOCK] = draw(min(BLOCK, rows - begin), rng)
    table.flush()


def from_file(path: Path, rows: int, reader: str) -> tuple[Any, Any]:
    """The first rows of a file, as ``fit`` takes them: a memory map and its labels, or a data set and None."""
    table = np.load(path, mmap_mode="r")[:rows]
    if reader == "memory map":
        return table[:, :-1], table[:, -1].astype(np.int64)
    columns = table.shape[1]

    def decode(records: Any) -> Any:
        values = tf.ensure_shape(tf.io.decode_raw(records, tf.float32), (None, columns))
        return values[:, :-1], tf.cast(values[:, -1], tf.int64)

    with path.open("rb") as file:
        np.lib.format.read_magic(file)
        np.lib.format.read_array_header_1_0(file)
        header = file.tell()
    records = tf.data.FixedLengthRecordDataset(str(path), 4 * columns, header_bytes=header).take(rows)
    return records.batch(BATCH).map(decode).prefetch(2), None


def peak_mebibytes() -> float:
    """Largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def measure(path: Path, rows: int, reader: str, name: str, epochs: int, held_out: Table) -> dict[str, Any]:
    """Fit and predict in this process: seconds, memory, accuracy and likelihood."""
    prepared = CLASSIFIERS[name](epochs).fit(*from_file(path, min(FEW, rows), reader))
    prepared.predict_proba(held_out[:100, :-1])
    data, before = from_file(path, rows, reader), peak_mebibytes()
    with PeakMemory(anonymous=True) as allocated:
        begun, begun_cores = time.perf_counter(), time.process_time()
        classifier = CLASSIFIERS[name](epochs).fit(*data)
        seconds, core_seconds = time.perf_counter() - begun, time.process_time() - begun_cores
    peak = peak_mebibytes()
    p, y = classifier.predict_proba(held_out[:, :-1]), held_out[:, -1].astype(np.int64)
    return {
        "classifier": name,
        "reader": reader,
        "rows": rows,
        "epochs": epochs,
        "seconds": round(seconds),
        "core seconds": round(core_seconds),
        "peak MiB": round(peak),
        "growth MiB": round(peak - before),
        "allocated MiB": round(2**10 * allocated.gibibytes),
        "accuracy": ds.evaluation.accuracy(y, p),
        "NLL": ds.evaluation.negative_log_likelihood(y, p),
    }


def alone(*arguments: Any) -> dict[str, Any]:
    """Measure in a fresh process, whose largest memory no other work has raised."""
    return in_fresh_process(measure, *arguments)


def synthetic(folder: Path, sizes: list[int]) -> Iterator[dict[str, Any]]:
    """Measure every classifier on synthetic tables of these sizes, by every reader."""
    held_out, file = mixture(HELD_OUT, np.random.default_rng(3)), folder / "mixture.npy"
    write(file, max(sizes), mixture)
    for name, reader, rows in itertools.product(CLASSIFIERS, READERS, sizes):
        yield {"table": "mixture", **alone(file, rows, reader, name, 1, held_out)}


def real(folder: Path, data: Path, name: str, repeat_to: int) -> Iterator[dict[str, Any]]:
    """Measure a real table with default settings, and its repetition with noise in one epoch."""
    train, test = split(data / f"{name}.npz")
    plain, noisy = folder / f"{name}.npy", folder / f"{name}_repeated.npy"
    np.save(plain, train)
    write(noisy, repeat_to, lambda rows, rng: repeated(train, rows, rng))
    process = "SimplexGaussianProcess"
    yield {"table": name, **alone(plain, len(train), "memory map", process, 30, test)}
    yield {"table": f"{name}, repeated", **alone(noisy, repeat_to, "memory map", process, 1, test)}
    noisy.unlink()


def exponents(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Growth of the core seconds with the rows of the synthetic table."""
    for name, reader in itertools.product(CLASSIFIERS, READERS):
        same = [row for row in rows if (row["table"], row["classifier"], row["reader"]) == ("mixture", name, reader)]
        if len(same) > 1:
            sizes, seconds = (np.log([row[key] for row in same]) for key in ("rows", "core seconds"))
            yield f"{name}, {reader}: core seconds grow as rows to the power of {np.polyfit(sizes, seconds, 1)[0]:.2f}"


def main(
    data: Annotated[Path | None, typer.Option(help="folder of htru2.npz, magic.npz and letter.npz")] = None,
    sizes: Annotated[str, typer.Option(help="rows of the synthetic table")] = "62500,250000,1000000",
    repeat_to: Annotated[int, typer.Option(help="rows of the repeated real tables")] = 1_000_000,
    output: Output = None,
) -> None:
    """Measure and print the table."""
    table = ResultTable("training.benchmarks.gaussian_process_rows")
    with tempfile.TemporaryDirectory() as folder:
        for row in synthetic(Path(folder), [int(size) for size in sizes.split(",")]):
            table.add(**row)
            table.write(output)
        if data is not None:
            for row in itertools.chain(*(real(Path(folder), data, name, repeat_to) for name in REAL)):
                table.add(**row)
                table.write(output)
    notes = [*exponents(table.rows)]
    print("\n".join(notes))
    table.write(output, notes=notes)


if __name__ == "__main__":
    typer.run(main)
