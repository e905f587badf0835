"""AfterTraining over classifiers of other libraries: calibration, sets, density, report, files and exports."""

import copy
import pickle
import re
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import get_scorer, log_loss
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.validation import check_is_fitted

import deepsimplex as ds

NAMES = np.array(["setosa", "versicolor", "virginica"])


@pytest.fixture(scope="module")
def digits():
    """Training, calibration, conformal and test samples of the digits."""
    X, y = load_digits(return_X_y=True)
    return [(X[rows], y[rows]) for rows in np.split(np.arange(len(y)), [600, 900, 1300])]


@pytest.fixture(scope="module")
def iris():
    """Every second flower to train with, and the others."""
    X, y = load_iris(return_X_y=True)
    return (X[::2], y[::2]), (X[1::2], y[1::2])


@pytest.fixture(scope="module")
def forest(digits):
    return RandomForestClassifier(10, random_state=0).fit(*digits[0])


@pytest.fixture(scope="module")
def regression(iris):
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(*iris[0])


@pytest.fixture(scope="module")
def fitted(forest, digits):
    """Everything after training."""
    train, held_out, further, _ = digits
    after = ds.AfterTraining(forest).calibrate(*held_out)
    after.set_priors(after.estimate_priors(further[0])).conformalize(*further)
    return after.set_decision(ds.calibration.RiskControl(0.1), *further).fit_density(*train)


def test_wrapped_classifier_predicts_calibrated_probabilities_and_sets(fitted, forest, digits):
    X, y = digits[3]
    np.testing.assert_array_equal(ds.AfterTraining(forest).predict_proba(X), forest.predict_proba(X))
    p, report = fitted.predict_proba(X), fitted.report(X, y, outside=X[:, ::-1], intervals=0.9, resamples=100)
    assert report.set_coverage == pytest.approx(0.9, abs=0.04)
    assert report.set_coverage == fitted.predict_set(X)[np.arange(len(y)), y].mean()
    assert report.negative_log_likelihood == pytest.approx(log_loss(y, p))
    assert report.out_of_distribution_auroc > 0.7
    assert report.intervals["accuracy"][0] < report.accuracy == np.mean(fitted.predict(X) == y)
    assert fitted.familiarity(X).mean() == pytest.approx(0.5, abs=0.1)
    assert fitted.familiarity(100 + X[:3]).max() == 0


@pytest.mark.parametrize("column", [["red", "blue"] * 30, [1.0, np.nan] * 30], ids=["text", "missing"])
def test_density_of_a_pipeline_needs_its_features(column):
    pandas = pytest.importorskip("pandas")
    frame, y = pandas.DataFrame({"column": column, "size": np.arange(60.0)}), np.arange(60) % 2
    step = OneHotEncoder(sparse_output=False) if column[0] == "red" else SimpleImputer()
    pipeline = make_pipeline(make_column_transformer((step, ["column"]), remainder="passthrough"), LogisticRegression())
    wrapped = ds.AfterTraining(pipeline.fit(frame, y))
    message = r"X must .*; found .*features=pipeline\[:-1\]\.transform, with an imputer where values are missing"
    with pytest.raises((TypeError, ValueError), match=message):
        wrapped.fit_density(frame, y)
    wrapped.set_params(features=pipeline[:-1].transform).fit_density(frame, y)
    assert wrapped.familiarity(frame).max() <= 1


def test_repr_shows_what_is_fitted(iris, regression):
    wrapped = ds.AfterTraining(regression)
    assert " with " not in repr(wrapped)
    wrapped.calibrate(*iris[1]).conformalize(*iris[1], coverage=0.8)
    assert re.search(
        r"^AfterTraining\(classifier=[^$]* with TemperatureScaling\(.*ConformalSets\(coverage=0\.8", repr(wrapped)
    )


def test_report_resamples_groups_and_takes_those_of_sets(forest, digits):
    (X_held, y_held), (X, y) = digits[2:]
    sites, patients = np.arange(len(y)) % 2, np.arange(len(y)) // 5
    classifier = ds.AfterTraining(forest).conformalize(X_held, y_held, groups=np.arange(len(y_held)) % 2)
    report = classifier.report(X, y, set_groups=sites, groups=patients, intervals=0.9, resamples=20)
    p, sets = classifier.predict_proba(X), classifier.predict_set(X, groups=sites)
    assert report == ds.evaluation.report(y, p, sets=sets, groups=patients, intervals=0.9, resamples=20)
    assert report.intervals != classifier.report(X, y, set_groups=sites, intervals=0.9, resamples=20).intervals


@pytest.mark.parametrize(
    "fit",
    [
        ds.GLVQ().fit,
        ds.SimplexGaussianProcess().fit,
        lambda X, y: ds.AfterTraining(LogisticRegression().fit(X, y)),
    ],
    ids=["prototypes", "process", "wrapped"],
)
def test_every_classifier_reports_its_probabilities_and_sets(fit, iris):
    (X, y), (X_held, y_held) = iris
    classifier = fit(X, NAMES[y])
    classifier.calibrate(X_held, NAMES[y_held]).conformalize(X_held, NAMES[y_held], coverage=0.8)
    options = {"sample_weight": 1.0 + y_held, "intervals": 0.9, "resamples": 20}
    report = classifier.report(X_held, NAMES[y_held], outside=X_held[:, ::-1], **options)
    p, outside, sets = (
        classifier.predict_proba(X_held),
        classifier.predict_proba(X_held[:, ::-1]),
        classifier.predict_set(X_held),
    )
    expected = ds.evaluation.report(y_held, p, outside=outside, sets=sets, **options)
    assert report == expected
    assert report.by_class.classes == tuple(NAMES)


def test_network_without_class_names_takes_numbers_and_with_names_those(iris):
    (X, y), (X_test, _) = iris
    y = np.unique(y, return_inverse=True)[1]
    for names, labels in ((None, y), (list(NAMES), NAMES[y])):
        model = ds.SimplexClassifier(keras.layers.Flatten(), num_classes=3, class_names=names)
        model(X[:1])
        after = ds.AfterTraining(model).conformalize(X, labels)
        assert after.classes_.tolist() == (names or [0, 1, 2])
        assert set(after.predict(X_test)) <= set(after.classes_)


def test_network_reports_arrays_and_batches(iris):
    (X, y), (X_test, y_test) = iris
    model = ds.SimplexClassifier(keras.layers.Flatten(), num_classes=3)
    model.compile(run_eagerly=True)
    model.fit(X, y, verbose=0)
    model.calibrate(X, y).conformalize(X, y)
    weights = 1.0 + y_test
    p, sets = model.predict_proba(X_test), model.predict_set(X_test)
    options = {"sets": sets, "sample_weight": weights, "classes": model.class_names}
    expected = ds.evaluation.report(y_test.astype(str), p, **options)
    batches = tf.data.Dataset.from_tensor_slices((X_test, y_test, weights)).batch(50)
    for data, options in (((X_test, y_test), {"sample_weight": weights}), ((batches,), {})):
        report = model.report(*data, **options)
        assert report == expected
        assert report.by_class.classes == expected.by_class.classes


def test_wrapped_classifier_is_a_scikit_learn_classifier(fitted, forest, digits):
    X, y = digits[3]
    assert is_classifier(fitted)
    check_is_fitted(fitted)
    assert fitted.n_features_in_ == 64
    assert fitted.score(X, y) == np.mean(fitted.predict(X) == y)
    assert get_scorer("neg_log_loss")(fitted, X, y) == pytest.approx(-fitted.report(X, y).negative_log_likelihood)
    fresh = clone(fitted)
    assert fresh.classifier is forest
    assert not hasattr(fresh, "calibration_")
    for twin in (copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(twin.predict_proba(X), fitted.predict_proba(X))
    with pytest.raises(TypeError, match="fit must not be called: AfterTraining takes a classifier that is fitted"):
        fitted.fit(X, y)


def test_another_classifier_removes_what_was_fitted(iris, regression):
    wrapped = ds.AfterTraining(regression).calibrate(*iris[1])
    with pytest.raises(NotFittedError, match="classifier must be fitted"):
        wrapped.set_params(classifier=KNeighborsClassifier())
    assert wrapped.classifier is regression
    with pytest.warns(UserWarning, match="set_params changes the outputs, and removes the calibration"):
        wrapped.set_params(classifier=KNeighborsClassifier().fit(*iris[0]))
    assert not hasattr(wrapped, "calibration_")


@pytest.mark.parametrize("method", ["temperature", "platt", "isotonic"])
def test_results_are_those_of_the_package_for_its_classifiers(method, iris):
    classifier = ds.GLVQ(max_iter=3).fit(*iris[0])
    X, y = iris[1]
    wrapped = ds.AfterTraining(copy.deepcopy(classifier)).calibrate(X[::2], y[::2], method)
    wrapped.conformalize(X[1::2], y[1::2], 0.8, "aps", random_state=1).fit_density(*iris[0], "gaussian")
    classifier.calibrate(X[::2], y[::2], method).conformalize(X[1::2], y[1::2], 0.8, "aps", random_state=1)
    classifier.fit_density(*iris[0], "gaussian")
    np.testing.assert_allclose(wrapped.predict_proba(X), classifier.predict_proba(X), atol=1e-12)
    np.testing.assert_array_equal(wrapped.predict_set(X), classifier.predict_set(X))
    np.testing.assert_array_equal(wrapped.familiarity(X), classifier.familiarity(X))


def test_probabilities_alone_stand_for_samples(iris, regression):
    X, y = iris[1]
    p = regression.predict_proba(X)
    alone = ds.AfterTraining(classes=NAMES).calibrate(p, NAMES[y], sample_weight=1 + y)
    wrapped = ds.AfterTraining(regression).calibrate(X, y, sample_weight=1 + y)
    np.testing.assert_array_equal(alone.predict_proba(p), wrapped.predict_proba(X))
    np.testing.assert_array_equal(alone.predict(p), NAMES[wrapped.predict(X)])
    assert alone.fit_density(X, NAMES[y]).familiarity(X).shape == (75,)


@pytest.mark.parametrize("columns", [1, 2])
def test_keras_model_with_names_in_any_order(columns, iris):
    (X, y), (X_held, y_held) = ([part[labels > 0] for part in (X, labels - 1)] for X, labels in iris)
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(3), keras.layers.Dense(columns, activation="sigmoid" if columns == 1 else "softmax")]
    model = keras.Sequential([keras.Input((4,)), *layers])
    names = np.array(["virginica", "versicolor"])  # not sorted
    features = keras.Model(model.inputs, layers[0].output)
    wrapped = ds.AfterTraining(model, classes=names, features=lambda X: features.predict(X, verbose=0))
    p = model.predict(X_held, verbose=0)
    np.testing.assert_array_equal(wrapped.predict_proba(X_held)[:, 1], p[:, -1])
    wrapped.calibrate(X_held, names[y_held], "platt").fit_density(X, names[y])
    assert wrapped.report(X_held, names[y_held]).accuracy == np.mean(wrapped.predict(X_held) == names[y_held]) > 0.8
    assert len(wrapped.density_.mean_) == 3
    np.testing.assert_array_equal(ds.AfterTraining(model).classes_, [0, 1])


@pytest.mark.parametrize(
    "model", [KNeighborsClassifier(5), RandomForestClassifier(10, random_state=0)], ids=["5", "10"]
)
def test_zero_votes_are_calibrated_better_than_by_scikit_learn(model, digits):
    train, held_out, _, (X, y) = digits
    model.fit(*train)
    assert (model.predict_proba(X) == 0).mean() > 0.5
    nll = ds.AfterTraining(model).calibrate(*held_out).report(X, y).negative_log_likelihood
    peer = CalibratedClassifierCV(FrozenEstimator(model), method="temperature").fit(*held_out)
    assert nll < 0.95 * log_loss(y, peer.predict_proba(X))


def test_failed_calibration_changes_nothing(fitted, digits):
    X, y = digits[3]
    before = dict(vars(fitted))
    for method, labels in [("latent", y), ("temperature", y[1:]), ("platt", y[:1]), ("nothing", y)]:
        with pytest.raises(ValueError, match=r"latent|rows|must"):
            fitted.calibrate(0.1 * X, labels, method)
        assert dict(vars(fitted)) == before


def test_saved_without_the_classifier(fitted, forest, digits, tmp_path):
    X = digits[3][0]
    fitted.save(tmp_path / "after.npz")
    names = zipfile.ZipFile(tmp_path / "after.npz").namelist()
    assert not [name for name in names if not name.endswith(".npy")]
    assert (tmp_path / "after.npz").stat().st_size < 1e6
    loaded = ds.AfterTraining.load(tmp_path / "after.npz", forest)
    for method in ("predict_proba", "predict_set", "decide", "familiarity"):
        np.testing.assert_array_equal(getattr(loaded, method)(X), getattr(fitted, method)(X))
    alone = ds.AfterTraining.load(tmp_path / "after.npz")
    np.testing.assert_array_equal(alone.predict_set(forest.predict_proba(X)), fitted.predict_set(X))


def test_other_classifiers_and_damaged_files_are_noticed(iris, regression, tmp_path):
    (X, y), held_out = iris
    path = tmp_path / "after.npz"
    ds.AfterTraining(regression).calibrate(*held_out).save(path)
    for C, labels, message in [
        (0.9, y, r"classifier must be the one .* differ by"),
        (1.0, NAMES[y], "classes must be"),
    ]:
        other = make_pipeline(StandardScaler(), LogisticRegression(C=C)).fit(X, labels)
        with pytest.raises(ValueError, match=message):
            ds.AfterTraining.load(path, other)
    with pytest.raises(ValueError, match=r"AfterTraining\.load\(FILE, classifier\) loads it"):
        ds.load(path)
    content = path.read_bytes()
    for damaged in (content[:400], content.replace(b"temperature_", b"temperature-"), b""):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"is damaged, or no file of AfterTraining\.save"):
            ds.AfterTraining.load(path, regression)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        ds.AfterTraining.load(tmp_path / "other.npz", regression)
    with pytest.raises(ValueError, match=r"filepath must end in \.npz"):
        ds.AfterTraining(regression).save(tmp_path / "after.json")
    with pytest.raises(ValueError, match="classes must be numbers or texts"):
        ds.AfterTraining(regression, classes=[(0,), (1,), (2,)]).save(path)


class Votes:
    """A classifier of no library."""

    def __init__(self, p, **attributes):
        self.p = np.asarray(p)
        vars(self).update(attributes)

    def predict_proba(self, X):
        return self.p

    def __repr__(self):
        return "Votes()"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, r"classes must be given, .* such as range\(10\): there is no classifier"),
        ({"classifier": Votes([])}, ValueError, r"classes must be given, .*: Votes\(\) names none"),
        ({"classifier": LogisticRegression()}, NotFittedError, "classifier must be fitted; found LogisticRegression"),
        ({"classifier": make_pipeline(LogisticRegression())}, NotFittedError, "classifier must be fitted; found Pipel"),
        ({"classifier": Votes([], fit=None)}, NotFittedError, r"must be fitted; found Votes\(\), without classes_"),
        ({"classifier": LogisticRegression}, TypeError, "classifier must have predict_proba, .* found <class"),
        (
            {"classifier": DecisionTreeClassifier().fit([[0], [1]], [[0, 1], [1, 0]])},
            ValueError,
            "classifier must predict one label of each sample; found 2",
        ),
        ({"classifier": LinearRegression()}, TypeError, "classifier must have predict_proba, .* LinearRegression"),
        ({"classifier": np.eye(2)}, TypeError, r"Probabilities alone: AfterTraining\(classes=names\)"),
        ({"classifier": Votes([], classes_=["a"])}, ValueError, r"classes must be at least 2; found \['a'\]"),
        ({"classifier": Votes([], classes_=[0, 1]), "classes": "abc"}, ValueError, "classes must hold 2 different"),
        ({"classifier": Votes([], classes_=["a", "b"]), "classes": ["b", "a"]}, ValueError, r"order, \['a', 'b'\]"),
        ({"classes": [0, 1], "features": np.eye(2)}, TypeError, "features must be a function from samples"),
    ],
)
def test_invalid_arguments_raise(arguments, error, message):
    with pytest.raises(error, match=message):
        ds.AfterTraining(**arguments)


@pytest.mark.parametrize(
    ("p", "y", "message"),
    [
        ([[0.5, 0.6]], ["a"], "every row of the output of classifier must sum to 1 within 0.001; row 0 sums to 1.1"),
        ([[0.5, 0.2, 0.3]], ["a"], r"the output of classifier must have shape \[N, 2\]; found shape \(1, 3\)"),
        ([[np.nan, 0.2]], ["a"], "the output of classifier must be finite"),
        ([[0.5, 0.5]], ["c"], r"y holds labels that classes=.*does not: \['c'\]"),
        ([[0.5, 0.5]], ["a", "b"], "X and y must have as many rows; found 1 and 2"),
        ([[0.5, 0.5]], None, "y must be given beside X"),
    ],
)
def test_invalid_probabilities_and_labels_raise(p, y, message):
    wrapped = ds.AfterTraining(Votes(p), classes=["a", "b"])
    for method in ("calibrate", "conformalize", "report"):
        with pytest.raises(ValueError, match=message):
            getattr(wrapped, method)(np.zeros((1, 2)), y)


def test_saved_model_of_a_keras_model_and_of_probabilities(iris, tmp_path):
    X, y = iris[1]
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
    wrapped = ds.AfterTraining(model).calibrate(X, y, "platt").fit_density(*iris[0])
    wrapped.export(tmp_path / "network")
    served = ds.export.load_served(tmp_path / "network").predict(X)
    np.testing.assert_allclose(served["class_probabilities"], wrapped.predict_proba(X), atol=1e-5)
    np.testing.assert_allclose(served["familiarity"], wrapped.familiarity(X), atol=2e-3)
    wrapped.fit_density(None).save(tmp_path / "after.npz")
    alone = ds.AfterTraining.load(tmp_path / "after.npz")
    alone.export(tmp_path / "alone.tflite", format="litert")
    assert (tmp_path / "alone.tflite").stat().st_size > 1000


def test_exports_that_cannot_hold_the_classifier_raise(iris, regression, tmp_path):
    X, y = iris[1]
    wrapped = ds.AfterTraining(regression).calibrate(X, y)
    with pytest.raises(
        ValueError, match=r"format must be 'onnx' for Pipeline.*AfterTraining\.load\(filepath\)\.export"
    ):
        wrapped.export(tmp_path / "served")
    with pytest.raises(ValueError, match="export has no features for the density"):
        wrapped.fit_density(X, y).export(tmp_path / "iris.onnx", format="onnx")
    assert list(tmp_path.iterdir()) == []


def test_zero_of_new_rows_alone_is_half_the_smallest_held_out_probability():
    held_out = np.array([[0.1, 0.9], [0.8, 0.2], [0.7, 0.3], [0.4, 0.6]])
    after = ds.AfterTraining(classes=[0, 1]).calibrate(held_out, [1, 0, 0, 0])
    assert after.floor_ == 0.05
    expected = after.calibration_.apply_probabilities(np.array([[0.05, 1.0]]) / 1.05)
    np.testing.assert_allclose(after.predict_proba([[0.0, 1.0]]), expected)


@pytest.mark.parametrize("scaled", [False, True])
def test_training_rows_of_a_process_inside_warn(scaled):
    X, y = load_wine(return_X_y=True)
    y[::5] = np.random.default_rng(0).permutation(y[::5])  # so that a calibration has something to do
    process = ds.SimplexGaussianProcess()
    classifier = make_pipeline(StandardScaler(), process) if scaled else process
    after = ds.AfterTraining(classifier.fit(X[::2], y[::2]))
    with pytest.warns(UserWarning, match="^calibrate needs samples that were held out of training; found 89 training"):
        after.calibrate(X[::2], y[::2])
    after.calibrate(X[1::2], y[1::2])


def test_density_compares_the_columns_of_frames():
    X, y = load_wine(return_X_y=True, as_frame=True)
    wrapped = ds.AfterTraining(RandomForestClassifier(5, random_state=0).fit(X, y)).fit_density(X, y)
    assert wrapped.familiarity(X).mean() > 0.4
    for call in (lambda: wrapped.familiarity(X[X.columns[::-1]]), lambda: wrapped.fit_density(X[X.columns[::-1]], y)):
        with pytest.raises(ValueError, match="feature names should match"):
            call()


def test_pipeline_of_its_classifier_alone_is_that_classifier(forest, digits):
    (X, _), held_out, _, _ = digits
    expected = ds.AfterTraining(forest).calibrate(*held_out).conformalize(*held_out)
    wrapped = ds.AfterTraining(make_pipeline(forest)).calibrate(*held_out).conformalize(*held_out)
    np.testing.assert_array_equal(wrapped.predict_set(X), expected.predict_set(X))
    np.testing.assert_array_equal(wrapped.predict_proba(X), expected.predict_proba(X))


def test_network_of_features_is_predicted(iris, capsys):
    (X, y), _ = iris
    network = keras.Sequential([keras.Input((4,)), keras.layers.Dense(5), keras.layers.Dense(3, "softmax")])
    features = keras.Model(network.inputs, network.layers[0].output)
    wrapped = ds.AfterTraining(network, features=features).fit_density(X, y)
    by_hand = ds.AfterTraining(network, features=lambda X: features.predict(X, verbose=0)).fit_density(X, y)
    np.testing.assert_array_equal(wrapped.familiarity(X), by_hand.familiarity(X))
    assert capsys.readouterr().out == ""


def test_data_set_raises(regression, iris):
    data = tf.data.Dataset.from_tensor_slices(iris[1]).batch(16)
    with pytest.raises(TypeError, match=r"X must be an array, .*; found a .*Dataset"):
        ds.AfterTraining(regression).calibrate(data)
