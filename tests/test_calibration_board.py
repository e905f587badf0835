"""The board of Keras classifiers: everything it wrote is read back."""

import io
import math
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import deepsimplex as ds
from deepsimplex.monitoring.validation_samples import as_images, draw_samples
from tests.event_files import SCORES, events

ALWAYS = {"validation_samples"}


def classifier(n=4, target="one_hot", eager=True, **options):
    keras.utils.set_random_seed(0)
    model = ds.SimplexClassifier(ds.backbones.mlp([16], dropout=0.2), target, n, **{"head": "gaussian", **options})
    model.compile("adam", run_eagerly=eager)  # a few steps take less time than to trace them
    return model


def plain(n=4, final="softmax", eager=True):
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Flatten(), keras.layers.Dense(16, "relu"), keras.layers.Dropout(0.2)]
    model = keras.Sequential([keras.Input((8, 8, 1)), *layers, keras.layers.Dense(n, final)])
    model.compile("adam", "sparse_categorical_crossentropy", run_eagerly=eager)
    return model


def fit(model, data, board, **options):
    callbacks = [board] if board else []
    return model.fit(*data, **{"epochs": 2, "batch_size": 150, "verbose": 0, "callbacks": callbacks, **options})


def tags(written):
    return {tag for tag, _ in written}


@pytest.fixture(scope="module")
def run(four, tmp_path_factory):
    """A run of two epochs on digits: its model, its validation samples, its folder and what was written."""
    folder, (data, test) = tmp_path_factory.mktemp("run"), four
    model = classifier(eager=False, class_names=["none", "one", "two", "three"])
    with ds.monitoring.CalibrationBoard(folder, test) as b:
        fit(model, data, b, batch_size=50)
    (written,) = events(folder / "calibration")
    return model, test, folder / "calibration", written


@pytest.mark.slow
def test_all_documented_tags_are_written(run):
    *_, written = run
    kinds = ("calibration_of_class", "sensitivity_of_class")
    by_epoch = {*SCORES, *(f"{kind}/{k}" for kind in kinds for k in ("0_none", "1_one", "2_two", "3_three"))}
    by_epoch |= {"confidence", "latent/scale", "latent/norm"}
    by_epoch |= {"pictures/reliability", "pictures/simplex", "pictures/highest_loss"}
    assert written.keys() == {(tag, step) for tag in by_epoch for step in (0, 1)} | {(tag, 0) for tag in ALWAYS}


@pytest.mark.slow
def test_scores_equal_those_of_a_report(run):
    model, (x, y), _, written = run
    p = model.predict_proba(x)
    report = ds.evaluation.report(y, p).as_dict()
    assert {tag.split("/")[1] for tag in SCORES} == report.keys() - {"samples", "classes", "bins", "k", "coverage"}
    for tag in SCORES:
        assert float(written[tag, 1]) == pytest.approx(report[tag.split("/")[1]], rel=1e-4, abs=1e-6), tag
    curve = ds.evaluation.reliability_curve(y, p, class_index=2)
    assert float(written["calibration_of_class/2_two", 1]) == pytest.approx(curve.expected_calibration_error, rel=1e-4)
    sensitivity = ds.evaluation.class_scores(y, p)[2]["sensitivity"]
    assert float(written["sensitivity_of_class/2_two", 1]) == pytest.approx(sensitivity, rel=1e-4)


def test_histograms_equal_those_of_the_predictions(run):
    model, (x, _), _, written = run
    latent = model.predict_latent(x)
    values = {"confidence": model.predict_proba(x).max(axis=1), "latent/scale": latent.scale}
    values["latent/norm"] = np.linalg.norm(latent.loc, axis=1)
    for tag, expected in values.items():
        left, right, count = written[tag, 1].T
        assert count.sum() == len(x)
        assert (left[0], right[-1]) == pytest.approx((expected.min(), expected.max()), rel=1e-4)


def test_pictures_are_valid_images(run):
    *_, written = run
    for (tag, _), value in written.items():
        if tag.startswith("pictures/"):
            width, height, png = value
            image = Image.open(io.BytesIO(png))
            image.load()
            assert (int(width), int(height)) == image.size
            assert min(image.size) > 200
            assert np.asarray(image).std() > 10, "nothing is drawn"


@pytest.mark.slow
@pytest.mark.parametrize(("every", "epochs", "steps"), [(2, 3, {0, 2}), (2, 2, {0, 1})])
def test_last_epoch_is_always_written(every, epochs, steps, few, tmp_path):
    model = plain(10)
    fit(model, few[0], ds.monitoring.CalibrationBoard(tmp_path, few[1], every=every, pictures=False), epochs=epochs)
    (written,) = events(tmp_path / "calibration")
    assert {step for tag, step in written if tag == "score/accuracy"} == steps
    assert not any(tag.startswith("pictures/") for tag in tags(written))
    accuracy = ds.evaluation.accuracy(few[1][1], model.predict(few[1][0], verbose=0))
    assert float(written["score/accuracy", max(steps)]) == pytest.approx(accuracy)


@pytest.mark.slow
def test_model_without_latents_has_no_latent_pictures(four, tmp_path):
    data, (x, y) = four
    model = plain()
    fit(model, data, ds.monitoring.CalibrationBoard(tmp_path, (x, y[:, None]), class_names=list("abcd")), epochs=1)
    (written,) = events(tmp_path / "calibration")
    kinds = ("calibration_of_class", "sensitivity_of_class")
    classes = {f"{kind}/{k}_{name}" for kind in kinds for k, name in enumerate("abcd")}
    assert tags(written) == {*SCORES, *classes, *ALWAYS, "confidence"} | {
        f"pictures/{name}" for name in ("reliability", "simplex", "highest_loss")
    }
    nll = ds.evaluation.negative_log_likelihood(y, model.predict(x, verbose=0))
    assert float(written["score/negative_log_likelihood", 0]) == pytest.approx(nll, rel=1e-4)


@pytest.mark.slow
def test_two_classes_with_one_output_probability(four, tmp_path):
    (x, y), (x_test, y_test) = [(x[y < 2], y[y < 2]) for x, y in four]
    model = plain(1, "sigmoid")
    model.compile("adam", "binary_crossentropy", run_eagerly=True)
    fit(model, (x, y), ds.monitoring.CalibrationBoard(tmp_path, (x_test, y_test), pictures=False))
    (written,) = events(tmp_path / "calibration")
    q = model.predict(x_test, verbose=0)
    report = ds.evaluation.report(y_test, np.concatenate([1 - q, q], axis=1))
    assert float(written["score/brier_score", 1]) == pytest.approx(report.brier_score, rel=1e-4)
    assert not any(tag.startswith("calibration_of_class") for tag in tags(written))


@pytest.mark.slow
@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_latent_scales_are_standard_deviations(covariance, four, tmp_path):
    data, (x, y) = four
    model = classifier(target="ilr", covariance=covariance)
    fit(model, data, ds.monitoring.CalibrationBoard(tmp_path, (x, y)), epochs=1)
    (written,) = events(tmp_path / "calibration")
    scale = model.predict_latent(x).scale
    expected = scale if covariance == "diagonal" else np.sqrt(np.einsum("nij,nij->ni", scale, scale))
    left, right, count = written["latent/scale", 0].T
    assert count.sum() == expected.size
    assert (left[0], right[-1]) == pytest.approx((expected.min(), expected.max()), rel=1e-3)
    assert [step for tag, step in written if tag == "pictures/reliability_band"] == [0]


class Noisy(keras.layers.Layer):
    """Noise in predictions too, as a sampling layer has it."""

    def __init__(self):
        super().__init__()
        self.seeds = keras.random.SeedGenerator(3)

    def call(self, inputs):
        return inputs + keras.random.normal(keras.ops.shape(inputs), stddev=0.1, seed=self.seeds)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["simplex", "plain", "noisy"])
def test_training_is_unchanged(kind, four, tmp_path):
    data, test = four

    def weights(board):
        model = {"simplex": classifier, "plain": plain, "noisy": plain}[kind](eager=kind != "plain")
        if kind == "noisy":
            model = keras.Sequential([keras.Input((8, 8, 1)), Noisy(), *model.layers])
            model.compile("adam", "sparse_categorical_crossentropy", run_eagerly=True)
        fit(model, data, board, epochs=2)
        return model.get_weights()

    board = ds.monitoring.CalibrationBoard(tmp_path, test, pictures=kind == "plain")
    for ours, alone in zip(weights(board), weights(None), strict=True):
        np.testing.assert_array_equal(ours, alone)


@pytest.mark.slow
def test_resumed_run_writes_the_remaining_epochs(few, tmp_path):
    model, board = plain(10), ds.monitoring.CalibrationBoard(tmp_path, few[1], every=2, pictures=False)
    fit(model, few[0], board, epochs=2)
    fit(
        model,
        few[0],
        ds.monitoring.CalibrationBoard(tmp_path, few[1], every=2, pictures=False),
        epochs=5,
        initial_epoch=2,
    )
    first, second = events(tmp_path / "calibration")
    assert {step for tag, step in first if tag == "confidence"} == {0, 1}
    assert {step for tag, step in second if tag == "confidence"} == {2, 4}


class Interrupt(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_events_before_an_exception_are_kept(few, tmp_path):
    model, backup = plain(10), tmp_path / "backup"
    with pytest.raises(KeyboardInterrupt), ds.monitoring.CalibrationBoard(tmp_path, few[1], pictures=False) as board:
        fit(model, few[0], None, callbacks=[keras.callbacks.BackupAndRestore(backup), board, Interrupt()])
    (written,) = events(tmp_path / "calibration")
    assert {step for tag, step in written if tag == "score/accuracy"} == {0}
    resumed = ds.monitoring.CalibrationBoard(tmp_path, few[1], pictures=False)
    fit(plain(10), few[0], None, callbacks=[keras.callbacks.BackupAndRestore(backup), resumed])
    _, written = events(tmp_path / "calibration")
    assert {step for tag, step in written if tag == "score/accuracy"} == {1}


@pytest.mark.slow
def test_compatible_with_keras_tensorboard_callback(few, tmp_path):
    """It asks TensorFlow to record some steps only, while an epoch ends too."""
    tensorboard = keras.callbacks.TensorBoard(tmp_path, update_freq=4)
    board = ds.monitoring.CalibrationBoard(tmp_path, few[1], pictures=False)
    fit(plain(10), few[0], None, callbacks=[tensorboard, board], validation_data=few[1], batch_size=50)
    assert {path.parent.name for path in tmp_path.rglob("*.tfevents.*")} == {"train", "validation", "calibration"}
    (written,) = events(tmp_path / "calibration")
    assert {step for tag, step in written if tag == "score/accuracy"} == {0, 1}
    (theirs,) = events(tmp_path / "validation")
    assert ("epoch_loss", 1) in theirs
    assert not tags(theirs) & SCORES


@pytest.mark.slow
def test_diverged_training_warns_once(four, tmp_path):
    data, test = four
    for name, model in {"simplex": classifier(), "plain": plain()}.items():

        class Diverge(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                if epoch == 0:
                    self.model.set_weights([np.full_like(w, np.nan) for w in self.model.get_weights()])

        board = ds.monitoring.CalibrationBoard(tmp_path / name, test, outside=test[0][:20])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fit(model, data, None, epochs=3, callbacks=[Diverge(), board])
        assert len([w for w in caught if "training has diverged" in str(w.message)]) == 1
        assert "after epoch 0 predictions of" in str(caught[0].message)
        (written,) = events(tmp_path / name / "calibration")
        for tag in {*SCORES, "score/out_of_distribution_auroc"}:
            assert all(math.isnan(written[tag, step]) for step in range(3)), tag
        assert not any(tag.startswith("pictures/") or tag == "confidence" for tag in tags(written))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["simplex", "plain"])
def test_half_precision_is_scored(kind, four, tmp_path):
    data, (x, y) = four
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = {"simplex": classifier, "plain": plain}[kind]()
        fit(model, data, ds.monitoring.CalibrationBoard(tmp_path, (x, y)), epochs=1)
        p = model.predict(x, verbose=0).astype(np.float64)
    finally:
        keras.config.set_dtype_policy("float32")
    (written,) = events(tmp_path / "calibration")
    nll = ds.evaluation.negative_log_likelihood(y, p / p.sum(axis=1, keepdims=True))
    assert float(written["score/negative_log_likelihood", 0]) == pytest.approx(nll, rel=1e-2)
    assert "pictures/reliability" in tags(written)


@pytest.mark.slow
def test_outside_samples_are_detected(four, digits, tmp_path):
    data, (x, y) = four
    (others, digit), _ = digits
    others = others[digit > 5][:150]
    model = classifier()
    fit(model, data, ds.monitoring.CalibrationBoard(tmp_path, (x, y), outside=others, pictures=False))
    (written,) = events(tmp_path / "calibration")
    report = ds.evaluation.report(y, model.predict_proba(x), outside=model.predict_proba(others))
    auroc = float(written["score/out_of_distribution_auroc", 1])
    assert auroc == pytest.approx(report.out_of_distribution_auroc, abs=1e-3)


def test_arrays_and_data_sets_give_the_same_draw(digits):
    (x, y), _ = digits
    drawn = draw_samples((x, y), 100, seed=1)
    assert (len(np.unique(drawn.rows)), drawn.given) == (100, len(x))
    np.testing.assert_array_equal(drawn.columns[1], y[drawn.rows])
    np.testing.assert_array_equal(drawn.columns[0], x[drawn.rows])
    streamed = draw_samples(tf.data.Dataset.from_tensor_slices((x, y)).batch(64), 100, seed=1)
    np.testing.assert_array_equal(streamed.rows, drawn.rows)
    np.testing.assert_array_equal(streamed.columns[0], drawn.columns[0])
    assert not np.array_equal(draw_samples((x, y), 100, seed=2).rows, drawn.rows)
    assert len(draw_samples((x, y), None, seed=1).rows) == len(x)
    share = np.mean([draw_samples((x, y), 100, seed).rows.mean() for seed in range(50)]) / (len(x) - 1)
    assert share == pytest.approx(0.5, abs=4 * np.sqrt(1 / 12 / 5000))


class Frame:
    """The part of a pandas data frame that is used: scikit-learn's classifiers warn of features without names."""

    def __init__(self, values, names):
        self.values, self.names, self.shape, self.iloc = values, names, values.shape, self

    def __getitem__(self, rows):
        return Frame(self.values[rows], self.names)

    def __len__(self):
        return len(self.values)

    def __array__(self, dtype=None, copy=None):
        return self.values


def test_samples_of_a_data_frame_keep_column_names():
    drawn = draw_samples((Frame(np.eye(5), list("abcde")), np.arange(5)), 3, seed=0)
    assert drawn.columns[0].names == list("abcde")
    np.testing.assert_array_equal(drawn.columns[0], np.eye(5)[drawn.rows])


@pytest.mark.slow
def test_structured_inputs(few, tmp_path):
    (x, y), (x_test, y_test) = few
    upper, lower = keras.Input((4, 8, 1), name="upper"), keras.Input((4, 8, 1), name="lower")
    joined = keras.layers.Concatenate(axis=1)([upper, lower])
    outputs = keras.layers.Dense(10, "softmax")(keras.layers.Flatten()(joined))
    model = keras.Model({"upper": upper, "lower": lower}, outputs)
    model.compile("adam", "sparse_categorical_crossentropy")
    halves = [{"upper": images[:, :4], "lower": images[:, 4:]} for images in (x, x_test)]
    data = tf.data.Dataset.from_tensor_slices((halves[1], y_test)).batch(32)
    fit(model, (halves[0], y), ds.monitoring.CalibrationBoard(tmp_path, data, samples=60), epochs=1)
    (written,) = events(tmp_path / "calibration")
    rows = draw_samples(data, 60, 0).rows
    expected = ds.evaluation.accuracy(y_test[rows], model.predict(halves[1], verbose=0)[rows])
    assert float(written["score/accuracy", 0]) == pytest.approx(expected)
    assert "pictures/highest_loss" not in tags(written)
    assert b"60 of 100 samples, drawn with seed 0" in written["validation_samples", 0].item()


def test_images_of_any_range_are_scaled():
    gray = np.linspace(-2, 3, 2 * 64, dtype=np.float32).reshape(2, 8, 8, 1)
    shown = as_images(gray)
    assert (shown.shape, shown.min(), shown.max()) == ((2, 8, 8), 0, 1)
    color = np.full((1, 8, 8, 3), 51, np.uint8)
    np.testing.assert_allclose(as_images(color), 0.2)
    np.testing.assert_array_equal(as_images(np.full((1, 8, 8), 0.25, np.float32)), 0.25)
    for other in (np.zeros((5, 30)), np.zeros((5, 8, 8, 2)), np.zeros((5, 100, 3)), {"a": gray}):
        assert as_images(other) is None


DATA = (np.zeros((6, 8, 8, 1), np.float32), np.arange(6) % 4)


@pytest.mark.parametrize(
    ("data", "options", "error", "message"),
    [
        (DATA, {"every": 0}, ValueError, r"every must.*found 0"),
        (DATA, {"samples": 0}, ValueError, r"samples must.*found 0"),
        (DATA, {"bins": 0}, ValueError, "bins"),
        (DATA[0], {}, TypeError, r"validation_data must.*found ndarray"),
        ((*DATA, DATA[1]), {}, TypeError, r"validation_data must.*found tuple of length 3"),
        (
            (DATA[0], DATA[1][1:]),
            {},
            ValueError,
            r"validation_data must.*found x of shape \(6, 8, 8, 1\) and y of shape \(5,\)",
        ),
        (
            (DATA[0], np.full((6, 6), 1 / 6)),
            {},
            ValueError,
            r"^y must.*found soft labels, row 0 .* Pass y.argmax\(axis=1\)",
        ),
        ((DATA[0][:0], DATA[1][:0]), {}, ValueError, r"validation_data must.*found none"),
        ((DATA[0] * np.nan, DATA[1]), {}, ValueError, r"x of validation_data must.*found nan"),
        ((np.ma.masked_less(DATA[0], 0.5), DATA[1]), {}, ValueError, "x of validation_data must not be masked"),
        ((DATA[0], np.ma.masked_equal(DATA[1], 0)), {}, ValueError, "labels of validation_data must not be masked"),
        (("images", DATA[1]), {}, TypeError, r"validation_data must.*found str"),
        (
            tf.data.Dataset.from_tensor_slices(DATA[0]).batch(2),
            {},
            TypeError,
            r"validation_data must.*found .*TensorSpec",
        ),
        (
            tf.data.Dataset.from_tensor_slices(DATA).batch(2).repeat(),
            {},
            ValueError,
            "validation_data must be a finite",
        ),
        (DATA, {"outside": 3}, TypeError, r"outside must.*found int"),
    ],
)
def test_invalid_argument_raises(data, options, error, message, tmp_path):
    with pytest.raises(error, match=message):
        ds.monitoring.CalibrationBoard(tmp_path, data, **options)


@pytest.mark.parametrize(
    ("model", "labels", "options", "message"),
    [
        (lambda: plain(4, None), DATA[1], {}, "what the model gives .*logits are no class probabilities"),
        (plain, DATA[1] + 1, {}, r"the labels of validation_data must.*found 4 in row 3"),
        (plain, DATA[1] - 1, {}, r"labels of validation_data must.*found -1 in row 0"),
        (plain, np.array(list("abcdef")), {}, r"labels of validation_data must.*found dtype"),
        (plain, None, {}, r"validation_data must.*found None"),
        (
            plain,
            DATA[1],
            {"class_names": ["a"]},
            r"class_names must.*found \['a'\]",
        ),
        (plain, DATA[1], {"class_names": "abcd"}, r"class_names must.*found 'abcd'"),
        (
            lambda: keras.Sequential([keras.Input((8, 8, 1)), keras.layers.ReLU()]),
            DATA[1],
            {},
            r"the model must.*found outputs of shape \(6, 8, 8, 1\)",
        ),
    ],
)
def test_incompatible_model_raises_before_training(model, labels, options, message, tmp_path):
    model = model()
    model.compile("adam", "mse")
    before = model.get_weights()
    board = ds.monitoring.CalibrationBoard(tmp_path, None if labels is None else (DATA[0], labels), **options)
    with pytest.raises((ValueError, TypeError), match=message):
        fit(model, DATA, board)
    for ours, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(ours, then)


@pytest.mark.slow
def test_single_validation_sample(four, tmp_path):
    data, (x, y) = four
    model = plain()
    fit(model, data, ds.monitoring.CalibrationBoard(tmp_path, (x[:1], y[:1])), epochs=1)
    (written,) = events(tmp_path / "calibration")
    p = model.predict(x[:1], verbose=0)[0, y[0]]
    assert float(written["score/proba_loss", 0]) == pytest.approx(1 - p, abs=1e-6)
    assert {"pictures/reliability", "pictures/simplex"} <= tags(written)


def test_unwritable_folder_raises(tmp_path):
    (tmp_path / "calibration").write_text("")
    with pytest.raises(OSError, match="log_dir is not a folder that can be written"):
        ds.monitoring.CalibrationBoard(tmp_path, DATA)


def test_one_hot_labels_are_class_numbers(tmp_path):
    x, y = DATA
    for labels in (np.eye(10)[y], y[:, None]):
        board = ds.monitoring.CalibrationBoard(tmp_path, (x, labels))
        np.testing.assert_array_equal(board.validation.columns[1], y)
