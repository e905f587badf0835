"""On several devices the Keras metrics equal the scores of all samples, and runs have their default learning rate."""

import pytest

from tests.fresh_process import run

ON_TWO_DEVICES = """
import sys
from types import SimpleNamespace
import numpy as np
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import keras
from deepsimplex import evaluation, metrics
from deepsimplex.experiments import training_run
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
assert strategy.num_replicas_in_sync == 2
rng = np.random.default_rng(0)
x, y = rng.normal(size=(91, 4)).astype("float32"), rng.integers(0, 3, 91)  # the last batch has one sample
names = ["BrierScore", "ClasswiseCalibrationError", "ExpectedCalibrationError", "NegativeLogLikelihood"]
with strategy.scope():
    config = SimpleNamespace(optimizer="adam", learning_rate=None, schedule="cosine", epochs=2)
    assert np.isclose(training_run._optimizer(SimpleNamespace(training=config), 3).learning_rate, 1e-3)
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, activation="softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=[getattr(metrics, name)() for name in names])
results = model.evaluate(x, y, batch_size=30, verbose=0, return_dict=True)
p = model(x).numpy()
for name in ("brier_score", "classwise_calibration_error", "expected_calibration_error", "negative_log_likelihood"):
    np.testing.assert_allclose(results[name], getattr(evaluation, name)(y, p), rtol=1e-4, err_msg=name)
print("agreed")
"""


@pytest.mark.slow
def test_sums_over_devices():
    """Two logical devices, in a fresh process: devices are configured before TensorFlow starts."""
    assert run(ON_TWO_DEVICES).splitlines()[-1] == "agreed"
