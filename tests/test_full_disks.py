"""Full disks: one error that names the path for everything that is written, and a warning in monitoring."""

import errno
import os
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import deepsimplex as ds
from deepsimplex._utils.atomic_files import DiskFullError, disk_full_at, replacing
from deepsimplex.experiments import RunFolder, save_predictions
from deepsimplex.export.export_model import export_model
from deepsimplex.monitoring import CalibrationBoard
from deepsimplex.monitoring.event_file import EventFile
from tests.event_files import events
from tests.full_disk import files_no_larger_than

X = np.random.default_rng(0).random((40, 64), dtype=np.float32)
Y = np.arange(40) % 2
P = np.eye(2)[Y] * 0.8 + 0.1


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    model = ds.SimplexClassifier(ds.backbones.mlp([16]), "one_hot", 2, head="gaussian")
    model.compile("adam", run_eagerly=True)
    model.fit(X, Y, verbose=0)
    return model


@pytest.fixture(scope="module")
def estimator():
    return ds.SimplexGaussianProcess("ilr", max_iter=1).fit(X, Y)


def export(model, path, format):
    latent = lambda x: {"loc": model.head._loc(model.backbone(x)), "scale": tf.ones_like(x[:, :1])}  # noqa: E731
    export_model(
        model,
        path,
        format,
        latent=latent,
        readout=lambda latent: tf.nn.softmax(latent["loc"]),
        sample_shape=(64,),
        class_names=["a", "b"],
    )


WRITERS = {
    "model.keras": lambda path, model, _: model.save(path),
    "model.weights.h5": lambda path, model, _: model.save_weights(path),
    "served": lambda path, model, _: export(model, path, "tf_saved_model"),
    "model.onnx": lambda path, model, _: export(model, path, "onnx"),
    "model.tflite": lambda path, model, _: export(model, path, "litert"),
    "estimator.npz": lambda path, _, estimator: estimator.save(path),
    "predictions.npz": lambda path, *_: save_predictions(path, Y, P),
    "metrics.json": lambda path, *_: RunFolder(path.parent).write_json(path, {"text": "x" * 3000}),
}


NEEDS_ONNX = pytest.mark.needs("the extra onnx (pip install '.[onnx]')")


@pytest.mark.parametrize("limit", [0, 700])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=NEEDS_ONNX if name == "model.onnx" else ()) for name in WRITERS]
)
@pytest.mark.filterwarnings("ignore:optimality was not reached")
def test_full_disk_raises_one_error_with_the_path(name, limit, model, estimator, tmp_path):
    path = tmp_path / name
    if name == "served":
        path.mkdir()
        (path / "saved_model.pb").write_bytes(b"earlier")
    else:
        path.write_bytes(b"earlier")
    message = f"(?s){os.strerror(errno.EFBIG)}.*{tmp_path}"
    with pytest.raises(OSError, match=message) as raised, files_no_larger_than(limit):
        WRITERS[name](path, model, estimator)
    assert raised.value.errno == errno.EFBIG
    # The folder where it is noticed before the work.
    assert raised.value.filename in ([str(path)] if limit else [str(path), str(tmp_path)])
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    assert (path / "saved_model.pb" if name == "served" else path).read_bytes() == b"earlier"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded", "/tmp/.abc/model.keras"),
        RuntimeError("Unable to write (file write failed: errno = 28, error message = 'No space left on device')"),
        tf.errors.ResourceExhaustedError(None, None, "/tmp/part-0; No space left on device"),
        tf.errors.OutOfRangeError(None, None, "/tmp/part-0; File too large"),
    ],
)
def test_errors_of_other_libraries_become_disk_full_errors(error, tmp_path):
    def write():
        with disk_full_at("run"), replacing(tmp_path / "model"):
            raise error

    with pytest.raises(DiskFullError) as raised:
        write()
    assert raised.value.filename == str(tmp_path / "model")
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("error", [tf.errors.ResourceExhaustedError(None, None, "OOM"), ValueError("x"), KeyError("y")])
def test_other_errors_are_unchanged(error):
    def work():
        with disk_full_at("run"):
            raise error

    with pytest.raises(type(error)) as raised:
        work()
    assert raised.value is error


def test_weights_files_equal_those_of_keras(model, tmp_path):
    model.save_weights(tmp_path / "ours.weights.h5")
    keras.saving.save_weights(model, tmp_path / "kerass.weights.h5")
    for name in ("ours", "kerass"):
        expected = [value.copy() for value in model.get_weights()]
        model.set_weights([np.zeros_like(value) for value in expected])
        model.load_weights(tmp_path / f"{name}.weights.h5")
        for weights, value in zip(model.get_weights(), expected, strict=True):
            np.testing.assert_array_equal(weights, value)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        model.save_weights(tmp_path / "ours.weights.h5", overwrite=False)
    with pytest.raises(ValueError, match=r"must end in `.weights.h5`"):
        model.save_weights(tmp_path / "model.h5")


class Limit(keras.callbacks.Callback):
    """Let the disk be full from the end of an epoch to that of training."""

    def __init__(self, epoch, size):
        super().__init__()
        self.epoch, self.size, self.limit = epoch, size, None

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == self.epoch:
            self.limit = files_no_larger_than(self.size)
            self.limit.__enter__()

    def lift(self):
        self.limit.__exit__(None, None, None)


@pytest.fixture(scope="module")
def trained():
    """A function that trains with callbacks and returns the weights, and those without any."""

    def train(*callbacks):
        keras.utils.set_random_seed(0)
        model = ds.SimplexClassifier(ds.backbones.mlp([4]), "one_hot", 2, head="gaussian")
        model.compile("adam", run_eagerly=True)
        model.fit(X, Y, epochs=2, batch_size=40, verbose=0, callbacks=list(callbacks))
        return model.get_weights()

    return train, train()


# Where it is full: at the first event, or later in the event file.
@pytest.mark.parametrize(("epoch", "size"), [(0, 0), (0, 1000), (1, 0)])
def test_board_warns_once_of_a_full_disk(epoch, size, trained, tmp_path):
    train, expected = trained
    full = Limit(epoch, size)
    board = CalibrationBoard(tmp_path, (np.tile(X, (20, 1)), np.tile(Y, 20)), pictures=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            weights = train(full, board)
        finally:
            full.lift()
    assert not tf.summary.should_record_summaries()  # the board's writer is not left the default one
    texts = [str(warning.message) for warning in caught]
    (message,) = [text for text in texts if "nothing more is written for TensorBoard" in text]
    assert str(tmp_path / "calibration") in message
    for ours, whole in zip(weights, expected, strict=True):
        np.testing.assert_array_equal(ours, whole)
    board.close()


def test_closed_event_file_writes_again_after_a_full_disk(tmp_path):
    file = EventFile(tmp_path)
    with files_no_larger_than(0), pytest.warns(UserWarning, match="nothing more is written"):
        file.write(0, {"a": 1.0})
    with files_no_larger_than(0):
        file.write(1, {"a": 2.0})  # nothing, without another warning
    file.close()
    file.write(2, {"a": 3.0})
    file.close()
    assert [written for written in events(tmp_path) if written] == [{("a", 2): 3.0}]
