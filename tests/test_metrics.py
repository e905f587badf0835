"""The Keras metrics: streaming, and equal to ``deepsimplex.evaluation``."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from deepsimplex import evaluation, metrics
from tests.reference import evaluation as oracle

few = settings(max_examples=12, deadline=None)
EXACT = {
    metrics.BrierScore: evaluation.brier_score,
    metrics.ClasswiseCalibrationError: evaluation.classwise_calibration_error,
    metrics.ExpectedCalibrationError: evaluation.expected_calibration_error,
    metrics.NegativeLogLikelihood: evaluation.negative_log_likelihood,
}
each = pytest.mark.parametrize("metric_class", EXACT)


def make_case(n: int, samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, n, samples), rng.dirichlet(np.ones(n), samples).astype(np.float32)


def stream(metric: keras.metrics.Metric, y: np.ndarray, p: np.ndarray, cuts: list[int], weights=None) -> float:
    for rows in np.split(np.arange(len(p)), cuts):
        metric.update_state(y[rows], p[rows], sample_weight=None if weights is None else weights[rows])
    return float(metric.result())


@each
@given(n=st.integers(2, 30), seed=st.integers(0, 2**32 - 1), cuts=st.lists(st.integers(1, 99), max_size=3))
@few
def test_batches_equal_evaluation_of_all_samples(metric_class, n, seed, cuts):
    y, p = make_case(n, 100, seed)
    assert stream(metric_class(), y, p, sorted(cuts)) == pytest.approx(EXACT[metric_class](y, p), abs=2e-6, rel=2e-6)


@pytest.mark.parametrize("bins", [1, 5, 10, 15])
def test_bin_edges_equal_evaluation(bins):
    q = (np.arange(bins + 1) / bins).astype(np.float32)
    p = np.column_stack([1 - q, q])
    y = np.random.default_rng(0).integers(0, 2, len(q))
    metric = metrics.ExpectedCalibrationError(bins)
    metric.update_state(y, p)
    curve = evaluation.reliability_curve(y, p, bins)
    expected = curve.counts * np.nan_to_num(curve.confidence - curve.frequency)
    np.testing.assert_allclose(metric.gaps[0], expected, atol=1e-6)
    assert float(metric.result()) == pytest.approx(evaluation.expected_calibration_error(y, p, bins), abs=1e-6)


@pytest.mark.parametrize("n", [2, 6])
def test_integer_weights_equal_repeated_samples(n):
    y, p = make_case(n, 80, seed=3)
    repeats = np.random.default_rng(4).integers(0, 4, 80)
    y_repeated, p_repeated = np.repeat(y, repeats), np.repeat(p, repeats, axis=0)
    for metric_class, exact in EXACT.items():
        weighted = stream(metric_class(), y, p, [30], weights=repeats)
        assert weighted == pytest.approx(exact(y_repeated, p_repeated), rel=1e-5)
    fractions = np.random.default_rng(5).uniform(size=80)
    ours = stream(metrics.ExpectedCalibrationError(), y, p, [10, 50], weights=fractions[:, None])
    expected = oracle.expected_calibration_error(y, p.astype(np.float64), 15, fractions)
    assert ours == pytest.approx(expected, rel=1e-5)


@each
@pytest.mark.parametrize("n", [2, 5])
def test_labels_of_every_form(metric_class, n):
    y, p = make_case(n, 40, seed=6)
    one_hot = np.eye(n, dtype=np.float32)[y]
    soft = 0.6 * one_hot + 0.4 / n
    results = [stream(metric_class(), form, p, []) for form in (y, y[:, None], y.astype(np.float32), one_hot, soft)]
    assert results == [pytest.approx(EXACT[metric_class](y, p), rel=1e-5)] * 5


@each
def test_sigmoid_output_is_probability_of_class_one(metric_class):
    y, p = make_case(2, 40, seed=7)
    for q in (p[:, 1], p[:, 1:]):
        assert stream(metric_class(), y, q, []) == pytest.approx(EXACT[metric_class](y, p), rel=1e-5)


def test_zero_probability_gives_infinite_nll_unless_weight_is_zero():
    p = np.array([[1.0, 0.0], [0.5, 0.5]], np.float32)
    metric = metrics.NegativeLogLikelihood()
    metric.update_state([1, 1], p)
    assert float(metric.result()) == np.inf
    metric.reset_state()
    metric.update_state([1, 1], p, sample_weight=[0.0, 1.0])
    assert float(metric.result()) == pytest.approx(np.log(2))


@each
def test_result_is_zero_initially_and_after_reset(metric_class):
    metric = metric_class()
    assert float(metric.result()) == 0.0
    metric.update_state(*make_case(3, 10, seed=0))
    assert float(metric.result()) > 0
    metric.reset_state()
    assert float(metric.result()) == 0.0


@each
def test_metrics_compile_with_xla_at_any_batch_size(metric_class):
    metric = metric_class(num_classes=4) if metric_class is metrics.ClasswiseCalibrationError else metric_class()

    signature = [tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, 4])]

    @tf.function(jit_compile=True, input_signature=signature, autograph=False)
    def update(y, p):
        metric.update_state(y, p)
        return metric.result()

    y, p = make_case(4, 60, seed=8)
    update(y[:20], p[:20])
    assert float(update(y[20:], p[20:])) == pytest.approx(EXACT[metric_class](y, p), rel=1e-5)


@pytest.mark.slow
@each
def test_invalid_label_gives_nan_unless_weight_is_zero(metric_class):
    eager, graph, compiled = metric_class(), metric_class(), metric_class()
    for metric in (eager, graph, compiled):
        metric.update_state([], np.zeros((0, 3), np.float32))  # creates the variables
    updates = {
        eager: eager.update_state,
        graph: tf.function(graph.update_state, autograph=False),
        compiled: tf.function(compiled.update_state, jit_compile=True, autograph=False),
    }
    labels, p = make_case(3, 12, seed=9)
    weights = np.where(np.arange(12) == 5, 0.0, 1.0)
    kept = weights > 0
    expected = EXACT[metric_class](labels[kept], p[kept])
    for label in (-1, 3, 2**32, 0.5, np.nan):
        y = labels.astype(type(label) if isinstance(label, float) else np.int64)
        y[5] = label
        for metric, update in updates.items():
            metric.reset_state()
            update(tf.constant(y), tf.constant(p))
            assert np.isnan(float(metric.result())), label
        assert stream(metric_class(), y, p, [], weights) == pytest.approx(expected, rel=1e-5), label


@each
def test_invalid_probabilities_give_nan(metric_class):
    y, p = make_case(3, 12, seed=10)
    for wrong in (np.log(p), 1.02 * p, p - [0.5, 0, -0.5], np.where(p == p.max(), np.nan, p)):
        assert np.isnan(stream(metric_class(), y, wrong, [4]))
    assert np.isnan(stream(metric_class(), y % 2, np.linspace(-1, 2, 12), [4]))  # logits of a sigmoid
    halves = p.astype(np.float16)
    assert stream(metric_class(), y, halves, [4]) == pytest.approx(EXACT[metric_class](y, halves), rel=1e-2)


def make_classifier(jit_compile: bool, dtype: str = "float32") -> keras.Model:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, activation="softmax", dtype=dtype)])
    model.compile(
        "sgd",
        "sparse_categorical_crossentropy",
        metrics=[
            metrics.ExpectedCalibrationError(bins=7),
            *(metric() for metric in EXACT if metric.__name__[0] != "E"),
        ],
        weighted_metrics=None
        if jit_compile
        else [
            metrics.ExpectedCalibrationError(bins=7, name="weighted"),
            metrics.ClasswiseCalibrationError(name="weighted_classwise"),
            metrics.BrierScore(name="weighted_brier"),
        ],
        jit_compile=jit_compile,
    )
    return model


def make_data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(96, 4)).astype(np.float32), rng.integers(0, 3, 96)


def assert_agrees(results: dict, y: np.ndarray, p: np.ndarray, rel: float = 1e-4) -> None:
    p = p.astype(np.float32)
    assert results["expected_calibration_error"] == pytest.approx(
        evaluation.expected_calibration_error(y, p, 7), rel=rel
    )
    for name in ("negative_log_likelihood", "brier_score", "classwise_calibration_error"):
        assert results[name] == pytest.approx(getattr(evaluation, name)(y, p), rel=rel), name


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "mixed_float16"])
def test_metrics_of_a_compiled_classifier(dtype):
    x, y = make_data()
    model = make_classifier(jit_compile=True, dtype=dtype)
    results = model.evaluate(x, y, batch_size=96, verbose=0, return_dict=True)
    # Compiled alike: half-precision probabilities of another program may lie in other bins.
    p = model(x).numpy() if dtype == "float32" else model.predict(x, batch_size=96, verbose=0)
    assert_agrees(results, y, p, rel=1e-4 if dtype == "float32" else 1e-2)


@pytest.mark.slow
def test_metrics_of_keras_classifiers_are_saved(tmp_path):
    x, y = make_data()
    model = make_classifier(jit_compile=False)
    model.run_eagerly = True  # one epoch needs no trace
    model.fit(x, y, epochs=1, batch_size=40, verbose=0)
    model.run_eagerly = False
    weights = np.repeat([0.0, 1.0], 48)
    results = model.evaluate(x, y, batch_size=40, sample_weight=weights, verbose=0, return_dict=True)
    p = model.predict(x, verbose=0)
    assert_agrees(results, y, p)
    assert results["weighted"] == pytest.approx(evaluation.expected_calibration_error(y[48:], p[48:], 7), rel=1e-4)
    for name in ("classwise_calibration_error", "brier_score"):
        expected = getattr(evaluation, name)(y[48:], p[48:])
        assert results["weighted_" + name.split("_")[0]] == pytest.approx(expected, rel=1e-4)

    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    again.run_eagerly = True
    reloaded = again.evaluate(x, y, batch_size=40, sample_weight=weights, verbose=0, return_dict=True)
    assert reloaded == pytest.approx(results)


@pytest.mark.parametrize("one_hot", [False, True])
def test_metrics_of_a_sigmoid_output(one_hot):
    x, y = make_data()
    y = y % 2
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1, activation="sigmoid")])
    if one_hot:
        model.add(keras.layers.Lambda(lambda q: keras.ops.concatenate([1 - q, q], axis=-1)))
    model.compile("sgd", "binary_crossentropy", metrics=[metric() for metric in EXACT], run_eagerly=True)
    labels = np.eye(2, dtype=np.float32)[y] if one_hot else y
    results = model.evaluate(x, labels, batch_size=40, verbose=0, return_dict=True)
    q = model.predict(x, verbose=0)[:, -1]
    for metric_class, exact in EXACT.items():
        assert results[metric_class().name] == pytest.approx(exact(y, np.column_stack([1 - q, q])), rel=1e-4)


def test_config_round_trip():
    metric = metrics.ExpectedCalibrationError(bins=9, name="ece", dtype="float64")
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
    assert isinstance(again, metrics.ExpectedCalibrationError)
    assert (again.bins, again.name, again.dtype) == (9, "ece", "float64")
    for metric_class in EXACT:
        assert keras.saving.get_registered_name(metric_class) == f"deepsimplex>{metric_class.__name__}"
    classwise = metrics.ClasswiseCalibrationError(bins=4, num_classes=3)
    again = metrics.ClasswiseCalibrationError.from_config(classwise.get_config())
    assert (again.bins, again.num_classes, tuple(again.gaps.shape)) == (4, 3, (3, 4))


def test_invalid_input_raises():
    with pytest.raises(ValueError, match=r"bins must.*found 0"):
        metrics.ExpectedCalibrationError(bins=0)
    with pytest.raises(ValueError, match=r"y_true must.*found \(5, 4\) for probabilities of shape \(5, 3\)"):
        metrics.NegativeLogLikelihood().update_state(np.zeros((5, 4)), np.full((5, 3), 1 / 3))
    with pytest.raises(ValueError, match=r"num_classes must.*found 1"):
        metrics.ClasswiseCalibrationError(num_classes=1)
    with pytest.raises(ValueError, match=r"y_pred must.*found 3"):
        metrics.ClasswiseCalibrationError(num_classes=4).update_state(*make_case(3, 5, seed=0))
