"""Training under MirroredStrategy on two logical CPUs equals training on one device: losses, metrics and weights."""

import json
import re

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

# Four classes; batches of 16, of which the last has 5: the replicas' parts are of unequal size.
(x, y), (x_test, y_test) = ds.datasets.load("digits")
few, few_test = np.flatnonzero(y < 4)[:85], np.flatnonzero(y_test < 4)[:21]
x, y, x_test, y_test = x[few], y[few], x_test[few_test], y_test[few_test]
two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

def trained(strategy, target, head, loss, optimizer, compile_inside, validated):
    keras.utils.set_random_seed(0)
    metrics = [getattr(ds.metrics, name)() for name in ds.metrics.__all__] if validated else []
    # A few steps on one device take less time than to trace them.
    options = {"loss": loss, "metrics": ["accuracy", *metrics], "run_eagerly": strategy is None}
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = ds.SimplexClassifier(ds.backbones.mlp([8]), target, 4, head=head)
        if compile_inside:
            model.compile(keras.optimizers.get({"class_name": optimizer, "config": {"learning_rate": 1e-2}}), **options)
    if not compile_inside:
        model.compile(keras.optimizers.get({"class_name": optimizer, "config": {"learning_rate": 1e-2}}), **options)
    validation = (x_test, y_test) if validated else None
    history = model.fit(x, y, epochs=2, batch_size=16, verbose=0, validation_data=validation).history
    return history, [weight.tolist() for weight in model.get_weights()], model(x_test).numpy().tolist()

def trained_by_glvq(strategy):
    keras.utils.set_random_seed(0)
    with strategy.scope() if strategy else contextlib.nullcontext():
        backbone = ds.backbones.mlp([8])
        scores = ds.heads.PrototypeScores(4, metric="matrix").adapt(x, y, backbone)
        model = keras.Sequential([keras.Input((8, 8)), backbone, scores])
        model.compile(keras.optimizers.SGD(1e-2), ds.losses.GLVQ(), metrics=["accuracy"], run_eagerly=strategy is None)
    # Keras' own steps average the replicas' means: parts of equal size.
    history = model.fit(x[:80], y[:80], epochs=2, batch_size=16, verbose=0).history
    return history, [weight.tolist() for weight in model.get_weights()], model(x_test).numpy().tolist()

outside = ds.SimplexClassifier(ds.backbones.mlp([8]), "vertices", 4, head="gaussian")
outside.compile("sgd")
built = ds.SimplexClassifier(ds.backbones.mlp([8]), "vertices", 4, head="gaussian")
built.build((None, 8, 8))
with two.scope():
    built.compile("sgd")
    for name, model in (("optimizer outside", outside), ("weights outside", built)):
        try:
            model.fit(x, y, verbose=0)
        except ValueError as error:
            print(json.dumps([name, str(error)]), flush=True)

for name, *case in json.loads(sys.argv[1]):
    for strategy in (None, two):
        print(json.dumps([name, *(trained(strategy, *case) if case else trained_by_glvq(strategy))]), flush=True)
"""
DIAGONAL = {"name": "gaussian", "covariance": "diagonal"}
VARIATIONAL = {"name": "variational", "inducing": 10}
PROTOTYPES = {"name": "prototypes", "prototypes_per_class": 1}
FOCAL = {"name": "categorical_focal_crossentropy", "label_smoothing": 0.1}
# Target, head, loss, optimizer (Adam takes three times as long to trace), compiled in the scope, validated (with all
# metrics).
CASES = [
    ["latent", "casimac", {"name": "gaussian", "covariance": "full"}, "latent_nll", "Adam", True, True],
    ["compiled outside", "ilr", DIAGONAL, {"name": "latent_nll", "reduction": "sum"}, "SGD", False, True],
    ["hybrid", "casimac", "gaussian", "hybrid", "SGD", True, False],
    ["prototypes", "vertices", PROTOTYPES, "sparse_categorical_crossentropy", "Adam", True, False],
    ["variational", "casimac", VARIATIONAL, "composition", "SGD", True, False],
    ["focal", "one_hot", "gaussian", FOCAL, "SGD", True, False],
    ["glvq"],
]


def runs():
    """(history, weights, probabilities) of every case, on one device and on two."""
    outcomes = {}
    for line in run(SCRIPT, json.dumps(CASES)).splitlines():
        if line.startswith('["'):
            name, *outcome = json.loads(line)
            outcomes.setdefault(name, []).append(outcome)
    return outcomes


@pytest.mark.slow
def test_two_devices_train_as_one():
    """One test for all cases: two processes of tests would each train all of them."""
    outcomes = runs()
    for name, piece in (("optimizer outside", "the optimizer"), ("weights outside", "weights, .*among them,")):
        ((message,),) = outcomes.pop(name)
        assert re.match(
            rf"the model must be made inside the scope of the MirroredStrategy .* found {piece} made", message
        )
    assert list(outcomes) == [case[0] for case in CASES]
    for name, *case in CASES:
        one, two = outcomes[name]
        assert _distance(one[1], two[1]) < 1e-5, name
        assert _distance(one[2], two[2]) < 1e-5, name
        metrics = _METRICS if case and case[-1] else ["accuracy", "loss"]
        validated = [f"val_{metric}" for metric in metrics if metrics is _METRICS]
        assert sorted(one[0]) == sorted(two[0]) == sorted([*metrics, *validated]), name
        for metric, values in one[0].items():
            assert two[0][metric] == pytest.approx(values, rel=1e-5, abs=1e-6), (name, metric)


_METRICS = ["accuracy", "brier_score", "classwise_calibration_error", "expected_calibration_error", "loss"]
_METRICS += ["negative_log_likelihood"]


def _distance(one, other):
    if isinstance(one, list):
        assert len(one) == len(other)
        return max((_distance(left, right) for left, right in zip(one, other, strict=True)), default=0.0)
    return abs(one - other)
