"""The head that is solved in closed form, and the readout fitted to its left-out latents."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import deepsimplex as ds
from deepsimplex import kernels
from deepsimplex.geometry import vertices
from tests.layer_contract import assert_layer_contract

FEATURES = np.random.default_rng(0).normal(size=(5, 7)).astype("float32")


@pytest.fixture(scope="module")
def digits():
    (x, y), (x_test, y_test) = ds.datasets.load("digits")
    return x[:300].reshape(-1, 64), y[:300], x_test.reshape(-1, 64), y_test


@pytest.fixture(scope="module")
def solved(digits):
    head, readout = ds.heads.ClosedFormHead(10, inducing=320), ds.readout.LeftOutSoftmax()
    left_out = head.solve(*digits[:2])
    return head, readout.adapt(left_out), left_out


def test_head_keeps_the_layer_contract(tmp_path):
    assert_layer_contract(lambda: ds.heads.ClosedFormHead(3, 4), FEATURES, tmp_path)


@pytest.mark.filterwarnings("ignore:When providing `inputs` as a dict")
def test_readout_keeps_the_layer_contract(tmp_path):
    latent = {"loc": FEATURES[:, :3], "scale": np.exp(FEATURES[:, 3:4])}
    assert_layer_contract(ds.readout.LeftOutSoftmax, latent, tmp_path)


def test_digits_are_classified_and_calibrated(digits, solved):
    *_, x_test, y_test = digits
    head, readout, _ = solved
    p = readout(head(x_test)).numpy()
    assert ds.evaluation.accuracy(y_test, p) > 0.94
    assert ds.evaluation.negative_log_likelihood(y_test, p) < 0.2
    assert ds.evaluation.expected_calibration_error(y_test, p) < 0.03


def test_latents_equal_those_of_the_regression(digits, solved):
    """The same means and variances as the solver's, also with more inducing rows allowed than there are samples."""
    x, y, x_test, _ = digits
    head, _, left_out = solved
    result = kernels.ClosedForm.solve(kernels.array_blocks(x.astype(float), y), 10, 320)
    expected, latent = result.regression.predict(x_test), head(x_test)
    np.testing.assert_allclose(latent["loc"], expected.mean @ vertices(10), atol=1e-5)
    deviation = result.scale(vertices(10)) * np.sqrt(expected.variance)
    np.testing.assert_allclose(np.asarray(latent["scale"])[:, 0], np.hypot(deviation, 1e-3), rtol=3e-3)
    np.testing.assert_array_equal(left_out.rows, np.arange(300))
    np.testing.assert_allclose(left_out.loc, result.left_out.mean @ vertices(10), atol=1e-8)


def test_scale_is_the_size_of_left_out_errors(digits, solved):
    """With the noise of labels; the variance of f alone is smaller."""
    x, y, *_ = digits
    left_out = solved[2]
    result = kernels.ClosedForm.solve(kernels.array_blocks(x.astype(float), y), 10, 320)
    residuals = left_out.labels @ vertices(10) - left_out.loc
    variance = result.left_out.variance + result.regression.noise
    standardized = residuals / (result.scale(vertices(10)) * np.sqrt(variance))[:, None]
    assert np.mean(standardized**2) == pytest.approx(1.0)


def test_far_samples_have_large_scales(digits, solved):
    x, *_ = digits
    head, *_ = solved
    typical = np.asarray(head(x)["scale"])
    assert np.asarray(head(np.random.default_rng(0).permuted(x, axis=1))["scale"]).min() > np.median(typical)


@pytest.mark.parametrize("target", ["ilr", "one_hot", "dirichlet"])
def test_other_targets_of_labels(digits, target):
    x, y, x_test, y_test = digits
    head = ds.heads.ClosedFormHead(10, 100, target=target)
    readout = ds.readout.LeftOutSoftmax(ds.targets.TARGETS.get(target).scores(10)).adapt(head.solve(x, y))
    assert head(x_test)["loc"].shape[1] == ds.targets.TARGETS.get(target).latent_dim(10)
    assert ds.evaluation.negative_log_likelihood(y_test, readout(head(x_test)).numpy()) < 0.4


def test_adapting_solves(digits, solved):
    x, y, x_test, _ = digits
    head = ds.heads.ClosedFormHead(10, 320).adapt(x, y)
    assert head.adapted
    assert not head.trainable_weights + solved[1].trainable_weights
    np.testing.assert_allclose(head(x_test)["loc"], solved[0](x_test)["loc"], atol=1e-6)


def test_streams_images_and_soft_labels_give_the_same_head(digits):
    x, y, x_test, _ = digits
    backbone = keras.Sequential([keras.Input((8, 8)), keras.layers.Flatten()])
    expected = ds.heads.ClosedFormHead(10, 50)
    expected.solve(x, y)
    images = x.reshape(-1, 8, 8)
    for arguments in (
        (tf.data.Dataset.from_tensor_slices((images, y)).batch(70), None, backbone),
        (images, np.eye(10)[y], backbone),
        (images, y[:, None], backbone),
    ):
        head = ds.heads.ClosedFormHead(10, 50)
        head.solve(*arguments)
        np.testing.assert_allclose(head(x_test)["loc"], expected(x_test)["loc"], atol=1e-5)


def test_solved_head_and_readout_are_saved_and_exported(digits, solved, tmp_path):
    *_, x_test, _ = digits
    head, readout, _ = solved
    inputs = keras.Input((64,))
    model = keras.Model(inputs, readout(head(inputs)))
    expected = model.predict(x_test, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(x_test, verbose=0), expected)
    assert loaded.layers[1].adapted
    twin = keras.models.clone_model(model)
    twin.set_weights(model.get_weights())
    np.testing.assert_allclose(twin.predict(x_test, verbose=0), expected, atol=1e-6)
    model.export(tmp_path / "served", verbose=False)
    served = tf.saved_model.load(tmp_path / "served")
    np.testing.assert_allclose(served.serve(tf.constant(x_test)), expected, atol=1e-6)


@pytest.mark.parametrize(("num_classes", "inducing"), [(2, 2000), (80, 2000), (100, 2500), (1000, 3500)])
def test_default_number_of_inducing_rows(num_classes, inducing):
    assert ds.heads.ClosedFormHead(num_classes).inducing == inducing
    assert ds.heads.ClosedFormHead(num_classes).get_config()["inducing"] == inducing
    assert ds.heads.ClosedFormHead(num_classes, 30).inducing == 30


def test_model_that_was_never_called_is_saved(digits, solved, tmp_path):
    backbone = keras.Sequential([keras.layers.Rescaling(1.0)])
    model = ds.SimplexClassifier(backbone, num_classes=10, head="closed_form")
    model.compile()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras: it has not been built
        model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert not loaded.head.built

    filled = {**{str(key): np.asarray(weight) for key, weight in enumerate(solved[0].weights)}, "signatures": []}
    with pytest.raises(ValueError, match="never built"):
        loaded.head.load_own_variables(filled)


def test_files_hold_inducing_rows_alone(digits, tmp_path):
    x, y, *_ = digits
    head = ds.heads.ClosedFormHead(10, inducing=2000)
    head.solve(x[:50], y[:50])
    model = keras.Sequential([keras.Input((64,)), head])
    model.save(tmp_path / "model.keras")
    assert (tmp_path / "model.keras").stat().st_size < 150_000
    loaded = keras.models.load_model(tmp_path / "model.keras").layers[-1]
    for weight, other in zip(head.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(weight, other, weight.name)


@pytest.mark.parametrize("inducing", [60, 320])
def test_added_and_forgotten_samples_equal_solving_without_them(digits, inducing, tmp_path):
    """Of a new class, and by a head that was loaded; with all samples inducing and with some."""
    x, y, x_test, _ = digits
    x = x.astype(float)
    known = np.flatnonzero(y < 9)[:200]
    head = ds.heads.ClosedFormHead(10, inducing)
    inputs = keras.Input((64,))
    keras.Model(inputs, head(inputs)).save(tmp_path / "unsolved.keras")
    head.solve(x[known], y[known])
    new = np.setdiff1d(np.arange(300), known)
    head.partial_fit(x[new], y[new])
    model = keras.Model(inputs, head(inputs))
    model.save(tmp_path / "model.keras")
    head = keras.models.load_model(tmp_path / "model.keras").layers[-1]
    regression = head.regression
    everything = kernels.LabelRegression(regression.kernel, regression.points, 10).add(x, np.eye(10)[y])
    expected = everything.solve(float(head.kernel_numbers[8])).predict(x_test).mean @ vertices(10)
    np.testing.assert_allclose(head(x_test)["loc"], expected, atol=1e-6)
    head.forget(x[new].astype("float32"), y[new]).forget(x[known[:20]], y[known[:20]])
    points = head.regression.points
    assert len(points) == (180 if inducing > 300 else len(points))
    left = kernels.LabelRegression(regression.kernel, points, 10).add(x[known[20:]], np.eye(10)[y[known[20:]]])
    expected = left.solve(float(head.kernel_numbers[8])).predict(x_test)
    np.testing.assert_allclose(head(x_test)["loc"], expected.mean @ vertices(10), atol=1e-6)
    with pytest.raises(ValueError, match="found another in row 0"):
        head.forget(x[new[:1]], y[new[:1]])
    forgotten = regression.kernel.transform(x[known[:20]])
    assert kernels.squared_distances(points, forgotten).min() > 1e-6


def test_one_of_two_equal_samples_is_forgotten_and_new_ones_stay_inducing(digits):
    x, y, x_test, _ = digits
    x, y = x[:100].astype(float), y[:100].copy()
    x[1], y[1] = x[0], (y[0] + 1) % 10
    head = ds.heads.ClosedFormHead(10, 200).adapt(x, y)
    head.forget(x[1:2], y[1:2]).partial_fit(digits[0][100:150], digits[1][100:150])
    kept = np.setdiff1d(np.arange(150), 1)
    rows, labels = digits[0][kept].astype(float), digits[1][kept]
    kernel = head.regression.kernel
    expected = kernels.LabelRegression(kernel, kernel.transform(rows), 10).add(rows, np.eye(10)[labels])
    assert len(head.regression.points) == 149
    expected = expected.solve(head.regression.noise).predict(x_test).mean @ vertices(10)
    np.testing.assert_allclose(head(x_test)["loc"], expected, atol=1e-6)


def test_readout_of_labels_mistaken_at_random_is_no_surer_than_they_allow(digits):
    x, y, x_test, y_test = digits
    rng = np.random.default_rng(0)
    y, y_test = (
        np.where(rng.uniform(size=len(part)) < 0.15, rng.integers(0, 10, len(part)), part) for part in (y, y_test)
    )
    head, readout = ds.heads.ClosedFormHead(10, 300), ds.readout.LeftOutSoftmax()
    readout.adapt(head.solve(x, y))
    e, latent = readout.label_noise, head(x_test)
    p = readout(latent).numpy()
    assert 0.08 < e < 0.22
    assert p.min() >= 0.99 * e / 10
    assert ds.evaluation.expected_calibration_error(y_test, p) < 0.05
    np.testing.assert_allclose(readout.log_probabilities(latent), np.log(p), atol=1e-5)


def test_small_variances_are_those_of_the_solver():
    """Where a few of many rows are of another class the noise is the smallest, and the variance nearly the kernel's."""
    rng = np.random.default_rng(0)
    y = np.r_[np.zeros(800, int), np.ones(4, int)]
    x, x_test = (rng.normal(size=(804, 5)) + 2.0 * y[:, None] for _ in range(2))
    head = ds.heads.ClosedFormHead(2).adapt(x, y)
    expected = head.regression.predict(x_test).variance
    assert head.regression.noise < 1e-3
    assert np.median(expected) < 0.02
    variance = np.square(np.ravel(head(x_test)["scale"]) / float(head.unit))
    np.testing.assert_allclose(variance, expected, rtol=0.1)


def test_head_of_copied_weights_adds_samples_and_says_that_it_cannot_forget(digits):
    """Also a head whose weights were set after it was solved with other samples."""
    x, y, x_test, _ = digits
    head = ds.heads.ClosedFormHead(10, 60).adapt(x[:200], y[:200])
    twin = ds.heads.ClosedFormHead(10, 60).adapt(x[100:], y[100:])
    twin.set_weights(head.get_weights())
    copied = ds.heads.ClosedFormHead(10, 60)
    copied.build((None, 64))
    copied.set_weights(head.get_weights())
    copied.adapted = True
    with pytest.raises(ValueError, match="copy the head by a file"):
        copied.forget(x[:1], y[:1])
    head.partial_fit(x[200:210], y[200:210])
    twin.partial_fit(x[200:210], y[200:210])
    for name in ("loc", "scale"):
        np.testing.assert_allclose(twin(x_test)[name], head(x_test)[name], atol=1e-6)
    assert twin.kernel_numbers[10] == 210


def test_samples_of_weight_zero_do_not_count_and_streams_may_hold_weights(digits):
    x, y, x_test, _ = digits
    weights = np.where(np.arange(300) < 200, 1.0, 0.0).astype("float32")
    expected = ds.heads.ClosedFormHead(10, 50).adapt(x[:200], y[:200])
    head = ds.heads.ClosedFormHead(10, 50)
    left_out = head.solve(x, y, sample_weight=weights, groups=np.arange(300))
    assert len(left_out.loc) == 200
    np.testing.assert_allclose(head(x_test)["loc"], expected(x_test)["loc"], atol=1e-5)
    head = ds.heads.ClosedFormHead(10, 50)
    head.solve(tf.data.Dataset.from_tensor_slices((x, y, weights)).batch(70))
    np.testing.assert_allclose(head(x_test)["loc"], expected(x_test)["loc"], atol=1e-5)
    heavy = ds.heads.ClosedFormHead(10, 50)
    heavy.solve(x, y, sample_weight=1.0 + 4.0 * (y == 3))
    lean = ds.heads.ClosedFormHead(10, 50).adapt(x, y)
    direction = vertices(10)[3]
    assert np.mean(np.asarray(heavy(x_test)["loc"]) @ direction) > np.mean(np.asarray(lean(x_test)["loc"]) @ direction)


@pytest.mark.parametrize("method", ["partial_fit", "forget"])
def test_head_that_is_not_solved_raises(digits, method):
    with pytest.raises(ValueError, match="solved first"):
        getattr(ds.heads.ClosedFormHead(10, 50), method)(*digits[:2])


def test_samples_that_were_not_solved_with_are_not_forgotten(digits, solved):
    """Another label, another sample, twice the same; nothing changes."""
    x, y, x_test, _ = digits
    head = solved[0]
    before = np.asarray(head(x_test)["loc"])
    for samples, labels in ((x[:2], [y[0], (y[1] + 1) % 10]), (x_test[:1], [0]), (x[[3, 3]], y[[3, 3]]), (x, y)):
        with pytest.raises(ValueError, match=r"found another in row|found all"):
            head.forget(samples, labels)
    np.testing.assert_array_equal(head(x_test)["loc"], before)


def test_classes_of_one_sample_warn_and_are_left_out(digits):
    x, y, *_ = digits
    rows = np.concatenate([np.flatnonzero(y < 9), np.flatnonzero(y == 9)[:1]])
    with pytest.warns(UserWarning, match=r"1 samples? .* of .* class"):
        left_out = ds.heads.ClosedFormHead(10, 50).solve(x[rows], y[rows])
    assert len(left_out.loc) == len(rows) - 1


def test_samples_of_a_group_are_left_out_together(digits):
    """Repeated samples of a group predict one another, unless they are left out together."""
    x, y, *_ = digits
    x, y, groups = x[:60].repeat(3, axis=0), y[:60].repeat(3), np.arange(60).repeat(3)
    errors = []
    for given in (None, groups):
        left_out = ds.heads.ClosedFormHead(10, 200).solve(x, y, groups=given)
        errors.append(np.mean(np.square(left_out.labels @ vertices(10) - left_out.loc)))
    assert errors[0] < 0.2 * errors[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda x, y: (np.where(x > 0.9, np.nan, x), y), "finite"),
        (lambda x, y: (x.reshape(-1, 8, 8), y), "features"),
        (lambda x, y: (x, y + 1), r"0\.\.9.*found 10"),
        (lambda x, y: (x, y[:-1]), "300"),
        (lambda x, y: (x[:0], y[:0]), "samples|sample"),
        (lambda x, y: (x, None), "y must"),
    ],
)
def test_invalid_samples_raise(digits, arguments, message):
    head = ds.heads.ClosedFormHead(10, 50)
    with pytest.raises(ValueError, match=message):
        head.solve(*arguments(*digits[:2]))
    assert not head.adapted


def test_features_of_another_size_raise(digits, solved):
    x, y, *_ = digits
    with pytest.raises(ValueError, match=r"64 features.*found 60"):
        solved[0].solve(x[:, :60], y)
    with pytest.raises(ValueError, match=r"groups must .*found shape \(3,\)"):
        solved[0].solve(x, y, groups=[1, 2, 3])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": 1}, r"num_classes must.*found 1"),
        ({"num_classes": 3, "inducing": 0}, r"inducing must.*found 0"),
        ({"num_classes": 3, "scale_floor": -1.0}, r"scale_floor must.*found -1"),
        ({"num_classes": 3, "target": "casimac"}, "target must be made from labels"),
    ],
)
def test_invalid_argument_raises(arguments, message):
    with pytest.raises(ValueError, match=message):
        ds.heads.ClosedFormHead(**arguments)


def test_head_of_another_target_raises():
    with pytest.raises(ValueError, match="head must have"):
        ds.heads.ClosedFormHead(3, target="ilr").check_target(ds.targets.Vertices(), 3)
