"""Training under MirroredStrategy on two logical CPUs equals training on one device: losses, metrics and weights."""

import json

import pytest

from tests.fresh_process import run

# Logical devices are made before TensorFlow starts, hence a process of its own, one for all cases.
SCRIPT = """
import contextlib, json, sys
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
import keras, numpy as np
import deepsimplex as ds

# Batches of 16, of which the last has 5: the replicas' parts are of unequal size.
(x, y), (x_test, y_test) = ds.datasets.load("digits")
x, y, x_test, y_test = x[:85], y[:85], x_test[:21], y_test[:21]
two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

def trained(strategy, target, head, loss, compile_inside):
    keras.utils.set_random_seed(0)
    options = {"loss": loss, "metrics": ["accuracy", ds.metrics.ExpectedCalibrationError()]}
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = ds.SimplexClassifier(ds.backbones.mlp([8]), target, 10, head=head)
        if compile_inside:
            model.compile(keras.optimizers.Adam(1e-2), **options)
    if not compile_inside:
        model.compile(keras.optimizers.Adam(1e-2), **options)
    history = model.fit(x, y, epochs=2, batch_size=16, verbose=0, validation_data=(x_test, y_test)).history
    return history, [weight.tolist() for weight in model.get_weights()], model(x_test).numpy().tolist()

for name, target, head, loss, inside in json.loads(sys.argv[1]):
    for strategy in (None, two):
        print(json.dumps([name, *trained(strategy, target, head, loss, inside)]), flush=True)
"""
VARIATIONAL = {"name": "variational", "inducing": 10}
PROTOTYPES = {"name": "prototypes", "prototypes_per_class": 1}
CASES = [
    ["latent", "casimac", None, None, True],
    ["compiled outside", "ilr", None, {"name": "latent_nll", "beta": 0.5}, False],
    ["variational", "casimac", VARIATIONAL, "hybrid", True],
    ["prototypes", "vertices", PROTOTYPES, "sparse_categorical_crossentropy", True],
    ["composition", "casimac", None, "composition", True],
    ["focal", "one_hot", None, {"name": "categorical_focal_crossentropy", "label_smoothing": 0.1}, True],
    ["summed", "ilr", None, {"name": "latent_nll", "reduction": "sum"}, True],
]


def runs():
    """(history, weights, probabilities) of every case, on one device and on two."""
    found = {}
    for line in run(SCRIPT, json.dumps(CASES)).splitlines():
        if line.startswith('["'):
            name, *outcome = json.loads(line)
            found.setdefault(name, []).append(outcome)
    return found


@pytest.mark.slow
def test_two_devices_train_as_one():
    """One test for all cases: two processes of tests would each train all of them."""
    found = runs()
    assert list(found) == [case[0] for case in CASES]
    for name, (one, two) in found.items():
        assert _distance(one[1], two[1]) < 1e-5, name
        assert _distance(one[2], two[2]) < 1e-5, name
        assert sorted(one[0]) == sorted(two[0]) == sorted([*_METRICS, *(f"val_{metric}" for metric in _METRICS)])
        for metric, values in one[0].items():
            assert two[0][metric] == pytest.approx(values, rel=1e-5, abs=1e-6), (name, metric)


_METRICS = ["accuracy", "expected_calibration_error", "loss"]


def _distance(one, other):
    if isinstance(one, list):
        assert len(one) == len(other)
        return max((_distance(left, right) for left, right in zip(one, other, strict=True)), default=0.0)
    return abs(one - other)
