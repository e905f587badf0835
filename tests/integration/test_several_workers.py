"""Several worker processes train as one process does: weights, losses and metrics, whatever head and loss."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf

from deepsimplex.classifier.several_workers import Workers
from deepsimplex.experiments.worker_processes import free_addresses
from tests.fresh_process import start

# The chief trains each case alone, too. Four classes; batches of 16, of which the last has a single sample. A folder
# holds the samples as a memory map, and with their labels in two files of TFRecords.
SCRIPT = """
import json, os, sys
number, addresses, folder = int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[4]
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": number}})
import tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(1)
all_workers = tf.distribute.MultiWorkerMirroredStrategy()
import contextlib
import keras, numpy as np
import deepsimplex as ds
from deepsimplex.targets import casimac

(x, y), (x_test, y_test) = ds.datasets.load("digits")
few, few_test = np.flatnonzero(y < 4)[:83], np.flatnonzero(y_test < 4)[:21]
x, y, x_test, y_test = x[few], y[few], x_test[few_test], y_test[few_test]

searched = []
search = casimac.nearest_neighbors
casimac.nearest_neighbors = lambda *arguments, **options: searched.append(1) or search(*arguments, **options)

def network(normalized):
    layers = [keras.layers.BatchNormalization(synchronized=True)] if normalized else []
    return keras.Sequential([keras.Input((8, 8)), keras.layers.Flatten(), keras.layers.Dense(8, "relu"), *layers])

def trained(strategy, rows, mapped, normalized, target, head, loss, optimizer):
    keras.utils.set_random_seed(number)  # the weights of the chief count
    samples = np.load(folder + "/x.npy", mmap_mode="r") if mapped else x
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = ds.SimplexClassifier(network(normalized), target, 4, head=head)
        optimizer = keras.optimizers.get({"class_name": optimizer, "config": {"learning_rate": 1e-2}})
        # A few steps of one process take less time than to trace them.
        metrics = ["accuracy", ds.metrics.ExpectedCalibrationError()]
        model.compile(optimizer, loss, metrics, run_eagerly=strategy is None)
    model.fit(samples[:rows], y[:rows], batch_size=16, verbose=0)
    last = model.fit(samples[:rows], y[:rows], batch_size=16, verbose=0, validation_data=(x_test, y_test))
    return last.history, [weight.tolist() for weight in model.get_weights()], model.predict(x_test, verbose=0).tolist()

for name, *case in json.loads(sys.argv[3]):
    for strategy in (all_workers, *([None] if number == 0 else [])):
        searched.clear()
        print(json.dumps([name, *trained(strategy, *case), len(searched)]), flush=True)

with all_workers.scope():
    other = ds.SimplexClassifier(network(False), "vertices", 4, head="gaussian")
    other.compile("sgd", ds.losses.Composition(0.95))  # a mass that is given needs no samples to be read ahead

read = set()
def example(record):
    values = tf.ensure_shape(tf.numpy_function(lambda row: read.add(float(row[-1])) or row, [record], tf.float32), [66])
    return tf.reshape(values[:64], (8, 8)), tf.cast(values[64], tf.int64)

files = tf.data.TFRecordDataset([f"{folder}/{part}.tfrecord" for part in range(2)])
records = files.map(lambda record: example(tf.io.decode_raw(record, tf.float32))).batch(16)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.FILE
other.fit(records.with_options(options), verbose=0)
print(json.dumps(["files", [weight.tolist() for weight in other.get_weights()], sorted(read)]), flush=True)

unseeded = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(81, seed=number).batch(16)
for name, *data in (("other samples", x + 0.1 * number, y), ("another order", unseeded)):
    try:
        other.fit(*data, verbose=0)
    except ValueError as error:
        print(json.dumps([name, str(error)]), flush=True)
chief_callbacks = [keras.callbacks.BackupAndRestore(folder + "/backup", delete_checkpoint=False)] if number == 0 else []
other.fit(x, y, callbacks=chief_callbacks, verbose=0)
for name, epochs in (("another epoch", 2), ("no epoch", 1)):
    try:
        other.fit(x, y, epochs=epochs, callbacks=chief_callbacks, verbose=0)
    except ValueError as error:
        print(json.dumps([name, str(error)]), flush=True)
print(json.dumps(["evaluated", *other.evaluate(x, y, verbose=0, return_dict=True).values()]), flush=True)
try:
    with all_workers.scope():
        other.predict(x)
except ValueError as error:
    print(json.dumps(["in the scope", str(error)]), flush=True)
"""
# Samples, as a memory map, batch normalization, target, head, loss, optimizer.
CASES = [
    [
        *["plain head", 81, True, False, "casimac"],
        *[{"name": "variational", "inducing": 10, "normalize_features": False}, None, "Adam"],
    ],
    # The last batch has samples for each worker: batch statistics differ where one has none.
    ["default", 83, True, False, "casimac", {"name": "variational", "inducing": 10}, None, "SGD"],
    ["probabilities", 80, False, True, "vertices", "prototypes", "sparse_categorical_crossentropy", "SGD"],
]


@pytest.mark.slow
def test_two_workers_train_as_one_process(tmp_path, digits):
    train, _ = digits
    write_samples(*train, tmp_path)
    addresses = free_addresses(2)
    folders = [tmp_path / str(number) for number in range(2)]
    for folder in folders:
        folder.mkdir()
    workers = [
        start(SCRIPT, number, json.dumps(addresses), json.dumps(CASES), tmp_path, outputs=folder)
        for number, folder in enumerate(folders)
    ]
    for worker in workers:
        worker.join()
    errors = [(folder / "stderr").read_text()[-3000:] for folder in folders]
    assert [worker.exitcode for worker in workers] == [0, 0], errors
    printed = [
        [json.loads(line) for line in (folder / "stdout").read_text().splitlines() if line.startswith('["')]
        for folder in folders
    ]
    chief, other = ([line[1:] for line in lines if line[0] in {case[0] for case in CASES}] for lines in printed)
    for (name, *_), (together, alone), theirs in zip(
        CASES, zip(chief[::2], chief[1::2], strict=True), other, strict=True
    ):
        for one, two in zip(together[1], alone[1], strict=True):
            np.testing.assert_allclose(one, two, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(together[2], alone[2], atol=1e-6, err_msg=name)
        assert together[1:3] == theirs[1:3], name
        for metric, values in alone[0].items():
            assert together[0][metric] == pytest.approx(values, rel=1e-5, abs=1e-6), (name, metric)
            assert theirs[0][metric] == together[0][metric]
        assert (together[3] > 0, theirs[3]) == (alone[3] > 0, 0), "neighbors are searched by the chief alone"
    files = [line for lines in printed for line in lines if line[0] == "files"]
    assert files[0][1] == files[1][1]
    assert [line[2] for line in files] == [[0], [1]], "each worker reads its own file"
    evaluated = [line for lines in printed for line in lines if line[0] == "evaluated"]
    assert evaluated[0] == evaluated[1]
    assert np.isfinite(evaluated[0][1])
    for lines in printed:
        refused = dict(line for line in lines if len(line) == 2)
        for case in ("other samples", "another order"):
            assert re.match("the workers must train with the same samples; worker 1 has others", refused[case])
        for case in ("another epoch", "no epoch"):
            assert re.match("the workers must train with the same first epoch; worker 1", refused[case])
        assert re.match("predictions must be asked for outside the scope", refused["in the scope"])


def write_samples(x, y, folder):
    """The first digits below 4, as a memory map, and in two files of records, which end with the label and the file."""
    few = np.flatnonzero(y < 4)[:83]
    np.save(folder / "x.npy", x[few])
    for part, rows in enumerate((few[:48], few[48:])):
        with tf.io.TFRecordWriter(str(folder / f"{part}.tfrecord")) as writer:
            for row in rows:
                writer.write(np.array([*x[row].ravel(), y[row], part], np.float32).tobytes())


def test_local_parts_add_up_to_global_batches():
    workers, parts = Workers(), []
    workers.count = 3
    for workers.number in range(3):
        parts.append([*workers.local_part(tf.data.Dataset.range(13).batch(4)).as_numpy_iterator()])
    assert [[len(part) for part in batch] for batch in zip(*parts, strict=True)] == [[2, 2, 0]] * 3 + [[1, 0, 0]]
    together = np.concatenate([part for batch in zip(*parts, strict=True) for part in batch])
    np.testing.assert_array_equal(together, range(13))


def test_check_same_error_survives_workers_that_have_ended():
    """They leave once it is certain that it has what they sent: a sum after the last one that it needs."""
    workers, sums = Workers(), []
    workers.count = 2

    def total(values):
        sums.append(values)
        if len(sums) == 2:
            raise tf.errors.UnavailableError(None, None, "Socket closed")
        return values  # all of the other's digest is zero

    workers._total = total
    with pytest.raises(ValueError, match="the workers must train with the same epoch; worker 1 has others"):
        workers.check_same({"epoch": 0})
    assert len(sums) == 2
