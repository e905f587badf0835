"""Latency and throughput of served classifiers, compared with the same backbone with a softmax layer, in turns.

    python -m training.benchmarks.serving [--rounds 40] [--output FILE.json]

exports the small convolutional network three times as a SavedModel (with a softmax layer, with the default of
deepsimplex, and with a density of its features too), and calls what TensorFlow alone loads, from 1 to 16 threads.
"""

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tensorflow as tf
import typer

import deepsimplex as ds
from training.benchmarks.deep.methods import backbone, softmax_network
from training.results import Output, ResultTable

PLAIN, OURS, DENSITY = "softmax layer", "deepsimplex", "deepsimplex, density"
# More images than the density keeps.
BATCHES, THREADS, IMAGES = (1, 32, 256, 512), (1, 2, 4, 16), 6000
Call = Callable[[tf.Tensor], Any]


def served(folder: Path) -> dict[str, Call]:
    """Export the classifiers after an epoch, and return functions that call the served ones."""
    loaded: Any = ds.datasets.load("fashion_mnist")
    (x, y), _ = loaded
    x, y = x[:IMAGES], y[:IMAGES]
    plain = softmax_network([backbone("cnn")], x.shape[1:], 10)
    plain.compile("adam", "sparse_categorical_crossentropy")
    plain.fit(x, y, verbose=0)
    plain.export(folder / PLAIN, verbose=False)
    model = ds.SimplexClassifier(backbone("cnn"), num_classes=10)
    model.compile("adam")
    model.fit(x, y, verbose=0)
    model.export(folder / OURS)
    model.fit_density(x, y).export(folder / DENSITY)
    # A signature works only as long as the loaded object is referenced.
    models = {name: tf.saved_model.load(str(folder / name)) for name in (PLAIN, OURS, DENSITY)}
    return {name: served_call(model) for name, model in models.items()}


def served_call(model: Any) -> Call:
    """Return a function that calls the default signature of a loaded SavedModel."""
    signature = model.signatures["serving_default"]
    (name,) = signature.structured_input_signature[1]

    def call(images: tf.Tensor, model: Any = model) -> Any:
        return [part.numpy() for part in signature(**{name: images}).values()]

    return call


def latencies(call: Call, images: tf.Tensor, threads: int, calls: int) -> tuple[list[float], float]:
    """Seconds of each call, ``calls`` from every thread, and of all of them together."""

    def one_thread(_: int) -> list[float]:
        seconds = []
        for _ in range(calls):
            begun = time.perf_counter()
            call(images)
            seconds.append(time.perf_counter() - begun)
        return seconds

    begun = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        seconds = [each for part in pool.map(one_thread, range(threads)) for each in part]
    return seconds, time.perf_counter() - begun


def main(
    rounds: Annotated[int, typer.Option(help="turns of each classifier")] = 40,
    output: Output = None,
) -> None:
    """Print latencies and throughputs, and their ratios to the softmax layer's."""
    table = ResultTable("training.benchmarks.serving")
    with tempfile.TemporaryDirectory() as folder:
        calls = served(Path(folder))
        for batch in BATCHES:
            images = tf.random.stateless_uniform((batch, 28, 28), (0, 0))
            for threads in THREADS:
                seconds: dict[str, list[float]] = {name: [] for name in calls}
                totals: dict[str, list[float]] = {name: [] for name in calls}
                for _ in range(rounds):
                    for name, call in calls.items():
                        each, total = latencies(call, images, threads, 3)
                        seconds[name] += each
                        totals[name].append(total)
                for name in calls:
                    p50, p99 = 1000 * np.quantile(seconds[name], [0.5, 0.99])
                    table.add(
                        batch=batch,
                        threads=threads,
                        classifier=name,
                        **{
                            "p50 [ms]": float(p50),
                            "p99 [ms]": float(p99),
                            "images per second": round(3 * threads * batch / float(np.median(totals[name]))),
                            "p50 / softmax": float(np.median(seconds[name]) / np.median(seconds[PLAIN])),
                        },
                    )
                    table.write(output)


if __name__ == "__main__":
    typer.run(main)
