"""Labels and class probabilities in the form that each loss and metric of Keras compares."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import metrics as km

import deepsimplex as ds
from deepsimplex.classifier import compiled_metrics
from deepsimplex.classifier.compiled_metrics import converted_metrics
from deepsimplex.losses import get_loss
from deepsimplex.losses.readout_losses import ProbabilityLoss

ARGUMENTS = {
    "IoU": {"num_classes": 3, "target_class_ids": [0, 1]},
    "MeanIoU": {"num_classes": 3},
    "OneHotIoU": {"num_classes": 3, "target_class_ids": [0, 1]},
    "OneHotMeanIoU": {"num_classes": 3},
    "PrecisionAtRecall": {"recall": 0.5},
    "RecallAtPrecision": {"precision": 0.5},
    "SensitivityAtSpecificity": {"specificity": 0.5},
    "SpecificityAtSensitivity": {"sensitivity": 0.5},
}
# Metrics of other values than labels and outputs, and losses of other outputs than class probabilities.
OTHERS = "Metric", "Mean", "Sum", "MeanMetricWrapper", "Loss", "CTC", "Circle"
NUMBERS = "SparseCategoricalAccuracy", "SparseTopKCategoricalAccuracy", "SparseCategoricalCrossentropy"
PREDICTED = "Accuracy", "IoU", "MeanIoU"


def classes_of(module, base):
    members = inspect.getmembers(module, lambda kind: inspect.isclass(kind) and issubclass(kind, base))
    return [name for name, _ in members if name not in OTHERS]


def samples(n):
    rng = np.random.default_rng(n)
    y = rng.integers(0, n, 50)
    p = rng.dirichlet(np.ones(n), 50) * 0.5 + 0.5 * np.eye(n)[np.where(rng.random(50) < 0.7, y, 0)]
    return y, p.astype("float32")


def value_of(metric, y, p):
    metric.reset_state()
    for rows in (slice(0, 30), slice(30, None)):
        metric.update_state(tf.constant(y[rows]), tf.constant(p[rows]))
    return np.asarray(metric.result())


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("name", classes_of(km, km.Metric))
def test_metrics_of_keras_take_labels_of_every_form(name, n):
    def make():
        return getattr(km, name)(**ARGUMENTS.get(name, {}) | ({"name": "shown"}))

    y, p = samples(n)
    rows = np.eye(n, dtype="float32")[y]
    two_classes = n == 2 and (hasattr(make(), "thresholds") or name.startswith("Binary"))
    if name in NUMBERS:
        expected = value_of(make(), y, p)
    elif name in PREDICTED:
        expected = value_of(make(), y, p.argmax(axis=1))
    elif two_classes:
        expected = value_of(make(), y[:, None], p[:, 1:])
    else:
        expected = value_of(make(), rows, p)
    (metric,) = converted_metrics([make()], n)
    assert metric.name == "shown"
    for labels in (y, rows):
        np.testing.assert_allclose(value_of(metric, labels, p), expected, rtol=1e-5)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
    np.testing.assert_allclose(value_of(again, y, p), expected, rtol=1e-5)


@pytest.mark.parametrize("name", classes_of(keras.losses, keras.losses.Loss))
def test_losses_of_keras_take_labels_of_every_form(name):
    kind, (y, p) = getattr(keras.losses, name), samples(3)
    rows = np.eye(3, dtype="float32")[y]
    numbers = name in NUMBERS or name == "CategoricalGeneralizedCrossEntropy"
    expected = float(kind()(y if numbers else rows, p))
    function = [f for f in vars(keras.losses).values() if getattr(f, "__name__", "").replace("_", "") == name.lower()]
    for loss in (kind(), name, *function):
        for labels in (y, rows):
            given = {"label": tf.constant(labels)}, {"log_probabilities": tf.math.log(p)}
            assert float(ProbabilityLoss(get_loss(loss), 3).compute(*given)) == pytest.approx(expected, rel=1e-4)


def squared_rows(y_true, y_pred):
    return tf.reduce_sum((y_pred - tf.cast(y_true, y_pred.dtype)) ** 2, axis=-1)


def gathered(y_true, y_pred):
    return -tf.math.log(tf.gather(y_pred, y_true, batch_dims=1))


class Score(km.AUC):
    """A metric of one's own class."""


@pytest.mark.parametrize("metric", [squared_rows, gathered, km.mean_squared_error, Score(name="score")])
def test_metrics_from_elsewhere_take_labels_of_every_form(metric):
    y, p = samples(3)
    (converted,) = converted_metrics([metric], 3)
    if not isinstance(converted, km.Metric):
        converted = km.MeanMetricWrapper(converted)
    values = [value_of(converted, labels, p) for labels in (y, np.eye(3, dtype="float32")[y])]
    np.testing.assert_allclose(values[0], values[1], rtol=1e-6)
    direct = Score() if isinstance(metric, km.Metric) else km.MeanMetricWrapper(metric)
    np.testing.assert_allclose(values[0], value_of(direct, y if metric is gathered else np.eye(3)[y], p), rtol=1e-6)


def test_metric_of_every_form_is_kept_as_given():
    metric = ds.metrics.ExpectedCalibrationError()
    assert converted_metrics([metric, None], 3) == [metric, None]
    with pytest.raises(ValueError, match="acuracy"):
        converted_metrics(["acuracy"], 3)


@pytest.mark.parametrize(
    "metric",
    [
        km.Precision(class_id=0),
        km.Recall(class_id=1),
        km.Precision(top_k=1),
        km.SensitivityAtSpecificity(0.5, class_id=0),
        km.AUC(multi_label=True, num_labels=2),
        km.F1Score(average="macro", threshold=0.5),
    ],
)
def test_metrics_that_choose_among_two_classes_see_both(metric):
    y, p = samples(2)
    expected = value_of(metric, np.eye(2, dtype="float32")[y], p)
    (converted,) = converted_metrics([metric], 2)
    np.testing.assert_allclose(value_of(converted, y, p), expected, rtol=1e-5)


def test_second_compilation_tries_no_metric(monkeypatch):
    def metrics(name):
        return [km.AUC(name=name), "mse", "Precision", ds.metrics.BrierScore()]

    trials = []
    converted_metrics(metrics("first"), 3)
    monkeypatch.setattr(compiled_metrics, "accepted_forms", lambda *arguments, **options: trials.append(arguments))
    converted_metrics(metrics("second"), 3)
    assert not trials
    converted_metrics([km.AUC(num_thresholds=7)], 3)
    assert len(trials) == 1
    compiled_metrics._TRIED.clear()


def test_binary_focal_loss_balances_two_classes():
    y, p = samples(2)
    loss = keras.losses.BinaryFocalCrossentropy(apply_class_balancing=True, alpha=0.9)
    given = {"label": tf.constant(y)}, {"log_probabilities": tf.math.log(p)}
    assert float(ProbabilityLoss(loss, 2).compute(*given)) == pytest.approx(float(loss(y[:, None], p[:, 1:])), rel=1e-4)


def test_metrics_of_two_classes_in_fit_and_files(tmp_path):
    """As in a script that ended in a sigmoid: labels 0 and 1, names of Keras, early stopping by one of them."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 80)
    x = (rng.normal(size=(80, 3)) + y[:, None]).astype("float32")
    model = ds.SimplexClassifier(ds.backbones.mlp([4]), "vertices", num_classes=2, head="gaussian")
    names = ["AUC", "Precision", "Recall"]
    model.compile(metrics=["accuracy", *names, km.MeanSquaredError(name="mse")], weighted_metrics=["f1_score"])
    callbacks = [keras.callbacks.EarlyStopping(f"val_{name}") for name in ("AUC", "accuracy", "mse", "Recall")]
    history = model.fit(x, y, validation_data=(x, y), epochs=2, verbose=0, callbacks=callbacks).history
    p = model.predict(x, verbose=0)
    assert history["val_Precision"][-1] == pytest.approx(value_of(km.Precision(), y, p[:, 1]), rel=1e-5)
    assert history["val_AUC"][-1] == pytest.approx(value_of(km.AUC(), y, p[:, 1]), rel=1e-3)
    assert history["val_mse"][-1] == pytest.approx(np.mean((p[:, 1] - y) ** 2), rel=1e-4)
    results = model.evaluate(x, y, verbose=0, return_dict=True)
    assert model.evaluate(x, np.eye(2)[y], verbose=0, return_dict=True).keys() == results.keys()
    model.save(tmp_path / "model.keras")
    reloaded = ds.load(tmp_path / "model.keras").evaluate(x, y, verbose=0, return_dict=True)
    for name, value in results.items():
        np.testing.assert_allclose(reloaded[name], value, rtol=1e-5, err_msg=name)
