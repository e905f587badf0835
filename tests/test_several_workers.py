"""Several worker processes train as one process does: weights, losses and metrics, whatever head and loss."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf

from deepsimplex.classifier.several_workers import Workers
from deepsimplex.experiments.worker_processes import free_addresses
from tests.fresh_process import start

# The chief trains each case alone, too. Four classes; batches of 16, of which the last has a single sample.
SCRIPT = """
import json, os, sys
number, addresses = int(sys.argv[1]), json.loads(sys.argv[2])
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": number}})
import tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(1)
all_workers = tf.distribute.MultiWorkerMirroredStrategy()
import contextlib
import keras, numpy as np
import deepsimplex as ds
from deepsimplex.targets import CASIMAC

(x, y), (x_test, y_test) = ds.datasets.load("digits")
few, few_test = np.flatnonzero(y < 4)[:81], np.flatnonzero(y_test < 4)[:21]
x, y, x_test, y_test = x[few], y[few], x_test[few_test], y_test[few_test]

searched = []
search = CASIMAC._search
CASIMAC._search = lambda *arguments: searched.append(1) or search(*arguments)

def network(normalized):
    layers = [keras.layers.BatchNormalization(synchronized=True)] if normalized else []
    return keras.Sequential([keras.Input((8, 8)), keras.layers.Flatten(), keras.layers.Dense(8, "relu"), *layers])

def trained(strategy, rows, normalized, target, head, loss, optimizer):
    keras.utils.set_random_seed(number)  # the weights of the chief count
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = ds.SimplexClassifier(network(normalized), target, 4, head=head)
        optimizer = keras.optimizers.get({"class_name": optimizer, "config": {"learning_rate": 1e-2}})
        model.compile(optimizer, loss, ["accuracy", ds.metrics.ExpectedCalibrationError()])
    model.fit(x[:rows], y[:rows], batch_size=16, verbose=0)
    found = model.fit(x[:rows], y[:rows], batch_size=16, verbose=0, validation_data=(x_test, y_test))
    return found.history, [weight.tolist() for weight in model.get_weights()], model.predict(x_test, verbose=0).tolist()

for name, *case in json.loads(sys.argv[3]):
    for strategy in (all_workers, *([None] if number == 0 else [])):
        searched.clear()
        print(json.dumps([name, *trained(strategy, *case), len(searched)]), flush=True)

with all_workers.scope():
    other = ds.SimplexClassifier(network(False), "vertices", 4, head="gaussian")
    other.compile("sgd")
unseeded = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(81, seed=number).batch(16)
for name, *data in (("other samples", x + 0.1 * number, y), ("another order", unseeded)):
    try:
        other.fit(*data, verbose=0)
    except ValueError as error:
        print(json.dumps([name, str(error)]), flush=True)
try:
    with all_workers.scope():
        other.predict(x)
except ValueError as error:
    print(json.dumps(["in the scope", str(error)]), flush=True)
"""
# Samples, batch normalization, target, head, loss, optimizer.
CASES = [
    ["default", 81, False, "casimac", {"name": "variational", "inducing": 10}, None, "Adam"],
    ["probabilities", 80, True, "vertices", "prototypes", "sparse_categorical_crossentropy", "SGD"],
]


@pytest.mark.slow
def test_two_workers_train_as_one_process(tmp_path):
    addresses = free_addresses(2)
    folders = [tmp_path / str(number) for number in range(2)]
    for folder in folders:
        folder.mkdir()
    workers = [
        start(SCRIPT, number, json.dumps(addresses), json.dumps(CASES), outputs=folder)
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
    for lines in printed:
        refused = dict(line for line in lines if len(line) == 2)
        for what in ("other samples", "another order"):
            assert re.match("the workers must train with the same samples; worker 1 has others", refused[what])
        assert re.match("predictions must be asked for outside the scope", refused["in the scope"])


def test_workers_read_their_parts_of_every_batch():
    workers, found = Workers(), []
    workers.count = 3
    for workers.number in range(3):
        found.append([*workers.own_part(tf.data.Dataset.range(13).batch(4)).as_numpy_iterator()])
    assert [[len(part) for part in parts] for parts in zip(*found, strict=True)] == [[2, 2, 0]] * 3 + [[1, 0, 0]]
    together = np.concatenate([part for parts in zip(*found, strict=True) for part in parts])
    np.testing.assert_array_equal(together, range(13))
