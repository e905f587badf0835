"""Cost of monitoring: ``CalibrationBoard`` beside an epoch of the convolutional network on Fashion-MNIST.

    python -m training.benchmarks.board [--epochs 3] [--calls 5] [--output FILE.json]

The network and batch size of configs/fashion_mnist_cnn.yaml, all 60 000 images, the 10 000 test images as validation
data of the board, with its defaults. Everything is measured in one run, medians: epochs without the board, its calls
between them, and the parts of a call. Vertices as the target spare the search for neighbors, which is no part of an
epoch.
"""

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import keras
import numpy as np
import typer

import deepsimplex as ds
from deepsimplex.experiments import load_config
from deepsimplex.monitoring import CalibrationBoard
from training.benchmarks.resources import EpochSeconds, seconds
from training.results import Output, ResultTable

CONFIG = Path(__file__).parents[2] / "configs" / "fashion_mnist_cnn.yaml"


class Watch(EpochSeconds):
    """Callback that measures the seconds of epochs, and of a board's calls after each and their parts."""

    def __init__(self, board: CalibrationBoard, calls: int) -> None:
        super().__init__()
        self.board, self.calls = board, calls
        self.written: list[float] = []
        self.predicted: list[float] = []
        self.busy: list[float] = []  # seconds of this thread alone, which draws and writes

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch)
        for _ in range(self.calls):
            self.predicted.append(seconds(self.board._model_outputs))
            self.written.append(seconds(self.board.on_epoch_end, epoch))
            outputs = self.board._model_outputs()
            begun = time.thread_time()
            self.board._write(outputs, details=True)
            self.busy.append(time.thread_time() - begun)


def main(
    epochs: Annotated[int, typer.Option(help="epochs to take medians of, beside a first one that is left out")] = 3,
    calls: Annotated[int, typer.Option(help="calls of the board after each")] = 5,
    images: Annotated[int, typer.Option(help="training images to use")] = 60_000,
    output: Output = None,
) -> None:
    """Measure and print."""
    config = load_config(CONFIG)
    (x, y), test = ds.datasets.load("fashion_mnist")
    model = ds.SimplexClassifier(
        ds.backbones.backbone(**config.model.backbone), "vertices", 10, config.model.covariance, readout="argmax"
    )
    model.compile(config.training.optimizer, config.training.loss, metrics=["accuracy"])
    with tempfile.TemporaryDirectory() as folder:
        board = CalibrationBoard(folder, test)
        watch = Watch(board, calls)
        model.fit(
            x[:images],
            np.asarray(y[:images]),
            batch_size=config.training.batch_size,
            epochs=epochs + 1,
            verbose=0,
            callbacks=[_Model(board), watch],
        )
        board.on_train_end()
    epoch = statistics.median(watch.seconds[1:])
    measured = (watch.written, watch.predicted, watch.busy)
    written, predicted, busy = (statistics.median(times[calls:]) for times in measured)
    used = f"{board.samples} of {len(test[0])} images"
    table = ResultTable("training.benchmarks.board")
    table.measure(
        {
            "processes that wanted a core in the last minutes": f"{os.getloadavg()[1]:.1f}",
            f"epoch of {min(images, len(x))} images": f"{epoch:.1f} s (median of {epochs})",
            f"call of the board, {used}": f"{written:.2f} s (median of {epochs * calls})",
            "of which prediction": f"{predicted:.2f} s",
            "beyond prediction": f"{written - predicted:.2f} s",
            "beyond prediction, processor time of the thread": f"{busy:.2f} s",
            "call over epoch": f"{written / epoch:.1%}",
        }.items()
    )
    table.write(output)


class _Model(keras.callbacks.Callback):
    """Set a board's model and begin its training, so that its calls are timed separately."""

    def __init__(self, board: CalibrationBoard) -> None:
        super().__init__()
        self.board = board

    def on_train_begin(self, logs: Any = None) -> None:
        self.board.set_model(self.model)
        self.board.set_params(self.params)
        self.board.on_train_begin()


if __name__ == "__main__":
    typer.run(main)
