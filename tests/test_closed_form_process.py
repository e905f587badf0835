"""``SimplexGaussianProcess()``: solved in closed form, chosen and calibrated by exact leave-one-out."""

import re
import warnings

import numpy as np
import pandas
import pytest
import tensorflow as tf
from sklearn.datasets import load_wine

import deepsimplex as ds
from deepsimplex._utils import memory
from deepsimplex.estimators import gaussian_process
from deepsimplex.estimators.label_process import SmoothSteps
from deepsimplex.kernels import LabelRegression
from tests.fresh_process import run

X, y = load_wine(return_X_y=True)
X, y, X_TEST, y_TEST = X[::3], y[::3], X[1::3], y[1::3]
GROUPS = np.arange(len(X)) // 2


@pytest.fixture(scope="module")
def classifier():
    return ds.SimplexGaussianProcess().fit(X, y)


@pytest.mark.parametrize("groups", [None, GROUPS], ids=["rows", "groups"])
def test_left_out_probabilities_equal_refitting(groups):
    classifier = ds.SimplexGaussianProcess().fit(X, y, groups=groups)
    head = ds.heads.ClosedFormHead(3, len(X), dtype="float64")
    features = SmoothSteps.of(X)(X)
    left_out = head.solve(features, y, groups=groups, transformations=["raw"])
    kernel, noise, Y = head.regression.kernel, head.regression.noise, np.eye(3)[y]
    units = np.arange(len(X)) if groups is None else groups
    loc = np.empty((len(X), 2))
    for unit in np.unique(units):
        rows = units == unit
        refitted = LabelRegression(kernel, kernel.transform(features), 3).add(features[~rows], Y[~rows])
        loc[rows] = refitted.solve(noise).predict(features[rows]).mean @ ds.geometry.vertices(3)
    np.testing.assert_allclose(left_out.loc, loc, atol=1e-8)
    p = ds.readout.LeftOutSoftmax(ds.geometry.vertices(3), dtype="float64").cross_fit(left_out._replace(loc=loc))
    p = np.exp(p)
    np.testing.assert_allclose(classifier.loo_proba_, p, atol=1e-6)
    assert classifier.loo_score_ == pytest.approx(np.log(p[np.arange(len(X)), y]).mean(), abs=1e-6)


@pytest.mark.parametrize("distance", [0.0, 1.5], ids=["labels of chance", "classes that overlap"])
def test_choice_does_not_overfit_fifty_rows(distance):
    """Over ten draws left-out rows are hardly more likely than new ones."""
    rng = np.random.default_rng(0)
    left_out, test = [], []
    for _ in range(10):
        labels = np.arange(1050) % 3
        features = rng.normal(size=(1050, 4)) + distance * np.eye(3, 4)[labels]
        classifier = ds.SimplexGaussianProcess().fit(features[:50], labels[:50])
        left_out.append(-classifier.loo_score_)
        test.append(ds.evaluation.negative_log_likelihood(labels[50:], classifier.predict_proba(features[50:])))
    assert np.mean(left_out) > np.mean(test) - 0.1
    assert np.mean(test) < np.log(3) + 0.05


def test_curves_that_are_flat_where_most_rows_lie_keep_the_features():
    rng = np.random.default_rng(1)
    features = rng.normal(size=(1400, 3))
    labels = np.sin(3.0 * features[:, 0]) > 0
    classifier = ds.SimplexGaussianProcess().fit(features[:1000], labels[:1000])
    assert classifier.score(features[1000:], labels[1000:]) > 0.95


def test_choice_can_be_read(classifier):
    assert classifier.label_noise_ == 0.0
    assert set(classifier.kernel_) == {"name", "lengthscale", "linear", "noise"}
    assert classifier.kernel_["name"] in ("rbf", "matern12", "matern32", "matern52")
    assert (classifier.inference_, classifier.readout_, classifier.n_iter_) == ("exact", "left_out", 1)
    assert classifier.loo_proba_.shape == (60, 3)
    assert classifier.score(X_TEST, y_TEST) > 0.9


def test_rows_that_are_not_left_out_have_no_left_out_probabilities():
    labels, weights = np.where(np.arange(60) == 7, 3, y), np.where(np.arange(60) == 9, 0.0, 1.0)
    with pytest.warns(UserWarning, match="1 samples are the only ones"):
        classifier = ds.SimplexGaussianProcess().fit(X, labels, sample_weight=weights)
    p, rows = classifier.loo_proba_, np.delete(np.arange(60), [7, 9])
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(p[:, 0])), [7, 9])
    assert classifier.loo_score_ == pytest.approx(np.log(p[rows, labels[rows]]).mean())


def test_groups_are_left_out_together():
    """Copies of rows predict each other, unless they are left out together."""
    rng = np.random.default_rng(0)
    features, groups = np.repeat(rng.normal(size=(30, 3)), 2, axis=0), np.arange(60) // 2
    labels = groups % 2
    alone, together = (ds.SimplexGaussianProcess().fit(features, labels, groups=g).loo_score_ for g in (None, groups))
    assert together < -0.5 < -0.1 < alone


@pytest.mark.parametrize("groups", [np.arange(3), np.zeros((60, 2))])
def test_groups_of_another_shape_raise(groups):
    message = f"groups must have a value for each row of arrays X; found shape {groups.shape}"
    with pytest.raises(ValueError, match=re.escape(message)):
        ds.SimplexGaussianProcess().fit(X, y, groups=groups)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (np.where(np.arange(60) == 2, np.nan, GROUPS), "must not be missing; found nan in row 2"),
        ([None, "a"] * 30, "must not be missing; found None in row 0"),
        (
            pandas.array([1, 2, None] * 20, dtype="Int64"),
            "must not be masked; found 20 masked values, the first in row 2",
        ),
        (np.array([1, pandas.NA] * 30, dtype=object), "must not be missing; found <NA> in row 1"),
        (["a", 1] * 30, "must be all text or all numbers; found 'a' and 1"),
        (np.array(["a", 1] * 30, dtype=object), "must be all text or all numbers; found 'a' and 1"),
    ],
)
def test_invalid_groups_raise(groups, message):
    with pytest.raises((TypeError, ValueError), match=f"^groups {message}[^\n]*$"):
        ds.SimplexGaussianProcess().fit(X, y, groups=groups)


def test_groups_of_text_equal_those_of_numbers(classifier):
    fits = [
        ds.SimplexGaussianProcess().fit(X, y, groups=groups).loo_proba_
        for groups in (GROUPS, [f"patient {group:02}" for group in GROUPS], pandas.Series(GROUPS, dtype="Int64"))
    ]
    np.testing.assert_array_equal(fits[1], fits[0])
    np.testing.assert_array_equal(fits[2], fits[0])


@pytest.mark.parametrize(
    ("inducing", "value"),
    [
        (np.zeros((3, 13)), "ndarray of shape (3, 13)"),
        (pandas.DataFrame({"a": [1.0]}), "DataFrame of shape (1, 1)"),
        (np.zeros(2), "array([0., 0.])"),
        (0, "0"),
    ],
)
def test_invalid_number_of_inducing_rows_raises(inducing, value):
    with pytest.raises(ValueError, match=f"^inducing must be a whole number, at least 1; found {re.escape(value)}$"):
        ds.SimplexGaussianProcess(inducing=inducing).fit(X, y)


def test_collapsed_inference_without_effect_warns(classifier):
    with pytest.warns(UserWarning, match="changes nothing: all 60 rows X are inducing; lower inducing=None"):
        collapsed = ds.SimplexGaussianProcess(inference="collapsed").fit(X, y)
    np.testing.assert_array_equal(collapsed.predict_proba(X_TEST), classifier.predict_proba(X_TEST))
    few = ds.SimplexGaussianProcess(inference="collapsed", inducing=30).fit(X, y)
    assert few.inference_ == "collapsed"


def test_features_whose_squares_overflow_raise():
    with pytest.raises(ValueError, match=r"features must be at most 1e\+150 in size; found .*e\+303"):
        ds.SimplexGaussianProcess(scale_features=False).fit(1e300 * X, y)


def test_outliers_do_not_hide_the_other_values(classifier):
    """A value far away in every column makes up its standard deviation."""
    outliers = np.concatenate([X, 1e9 * np.diag(np.arange(1.0, 14.0))])
    p = ds.SimplexGaussianProcess().fit(outliers, np.concatenate([y, np.arange(13) % 3])).predict_proba(X_TEST)
    assert np.mean(p.argmax(axis=1) == y_TEST) > 0.9


@pytest.mark.parametrize("value", [9999.0, 1e20, np.finfo(np.float32).min])
@pytest.mark.parametrize("kind", ["flag", "numbers"])
def test_one_outlier_does_not_hide_its_column(kind, value):
    rng = np.random.default_rng(0)
    column = (rng.random(600) < 0.2).astype(float) if kind == "flag" else rng.normal(size=600)
    labels = ((column > 0) ^ (rng.random(600) < 0.08)).astype(int)
    table = np.column_stack([column, rng.normal(size=600)])
    table[5, 0] = value
    process = ds.SimplexGaussianProcess().fit(table[:200], labels[:200])
    assert process.score(table[200:], labels[200:]) > 0.88  # with the other column alone 0.75 and 0.5


def test_groups_beside_a_named_target_raise():
    with pytest.raises(ValueError, match="groups must be given with target='auto' only; found target='ilr'"):
        ds.SimplexGaussianProcess("ilr").fit(X, y, groups=GROUPS)


NAMED_TARGET_SETTINGS = {
    **{"kernel": "rbf", "ard": True, "noise": "learned", "smoothing": "validate", "readout": "softmax"},
    **{"learn_inducing": True, "separate_inducing": True, "epochs": 3, "batch_size": 10, "learning_rate": 0.1},
    **{"max_iter": 3, "n_restarts": 1, "inference": "stochastic"},
}


@pytest.mark.parametrize("name", NAMED_TARGET_SETTINGS)
def test_settings_of_named_targets_raise(name):
    value = NAMED_TARGET_SETTINGS[name]
    message = f"{name}={value!r} must be given with a named target, such as target='ilr'; found target='auto'"
    with pytest.raises(ValueError, match=re.escape(message)):
        ds.SimplexGaussianProcess(**{name: value}).fit(X, y)


@pytest.mark.parametrize("inducing", [0, 2.5, X[:5]], ids=["zero", "fraction", "points"])
def test_invalid_inducing_raises(inducing):
    with pytest.raises((TypeError, ValueError), match=r"^inducing must be a whole number"):
        ds.SimplexGaussianProcess(inducing=inducing).fit(X, y)


def test_saved_classifier_predicts_the_same(classifier, tmp_path):
    classifier.save(tmp_path / "classifier.npz")
    loaded = ds.load(tmp_path / "classifier.npz")
    np.testing.assert_array_equal(loaded.predict_proba(X_TEST), classifier.predict_proba(X_TEST))


def test_board_reads_latents_out_as_the_classifier(tmp_path):
    ds.SimplexGaussianProcess().fit(X, y, callback=ds.monitoring.CalibrationBoard(tmp_path, (X_TEST[:20], y_TEST[:20])))
    assert list(tmp_path.rglob("events*"))


def test_streams_and_memory_maps_give_the_classifier_of_arrays(classifier, tmp_path):
    p = classifier.predict_proba(X_TEST)
    np.save(tmp_path / "rows.npy", X)
    mapped = ds.SimplexGaussianProcess().fit(np.load(tmp_path / "rows.npy", mmap_mode="r"), y)
    np.testing.assert_array_equal(mapped.predict_proba(X_TEST), p)
    streamed = ds.SimplexGaussianProcess().fit(tf.data.Dataset.from_tensor_slices((X, y)).batch(16))
    np.testing.assert_allclose(streamed.predict_proba(X_TEST), p, atol=1e-9)
    np.testing.assert_allclose(streamed.loo_proba_, classifier.loo_proba_, atol=1e-9)


def test_one_hot_labels_equal_class_numbers(classifier):
    one_hot = ds.SimplexGaussianProcess().fit(X, np.eye(3)[y])
    np.testing.assert_allclose(one_hot.predict_proba(X_TEST), classifier.predict_proba(X_TEST), atol=1e-9)


def test_units_of_features_do_not_matter_unless_told_otherwise(classifier):
    units, p = np.logspace(-150, 150, 13), classifier.predict_proba(X_TEST)
    np.testing.assert_allclose(
        ds.SimplexGaussianProcess().fit(X * units, y).predict_proba(X_TEST * units), p, atol=1e-4
    )
    assert np.abs(ds.SimplexGaussianProcess(scale_features=False).fit(X, y).predict_proba(X_TEST) - p).max() > 0.1


def test_fewer_inducing_rows_than_rows(classifier):
    few = ds.SimplexGaussianProcess(inducing=30).fit(X, y)
    assert few.inference_ == "collapsed"
    assert few.score(X_TEST, y_TEST) > 0.9
    exact = ds.SimplexGaussianProcess(inference="exact", inducing=30).fit(X, y)
    np.testing.assert_array_equal(exact.predict_proba(X_TEST), classifier.predict_proba(X_TEST))


@pytest.mark.parametrize("target", ["auto", "ilr"])
def test_exact_inference_of_too_many_rows_raises(target, monkeypatch):
    monkeypatch.setattr(memory, "memory_size", lambda: 1e5)
    with pytest.raises(MemoryError, match=r"exact Gaussian process of 60 rows X needs .* GB of memory; found"):
        ds.SimplexGaussianProcess(target, inference="exact").fit(X, y)


def test_inference_follows_the_number_of_rows(monkeypatch):
    settings = {"inducing": 10, "epochs": 1, "max_iter": 1}
    inferences = []
    for exact, collapsed in [(60, 60), (59, 60), (1, 59)]:
        monkeypatch.setattr(gaussian_process, "_EXACT_ROWS", exact)
        monkeypatch.setattr(gaussian_process, "_COLLAPSED_ROWS", collapsed)
        inferences.append(ds.SimplexGaussianProcess("ilr", **settings).fit(X, y).inference_)
    stream = tf.data.Dataset.from_tensor_slices((X, y)).batch(16)
    inferences.append(ds.SimplexGaussianProcess("ilr", **settings).fit(stream).inference_)
    assert inferences == ["exact", "collapsed", "stochastic", "stochastic"]


@pytest.mark.parametrize("inducing", [20, 2000])
def test_added_and_forgotten_rows(inducing):
    known, new = y < 2, y == 2
    classifier = ds.SimplexGaussianProcess(inducing=inducing, classes=[0, 1, 2]).fit(X[known], y[known])
    before = classifier.predict_proba(X_TEST)
    classifier.partial_fit(X[new], y[new])
    assert classifier.predict_proba(X_TEST[y_TEST == 2])[:, 2].mean() > before[y_TEST == 2, 2].mean()
    assert not hasattr(classifier, "loo_proba_")
    classifier.forget(X[new], y[new])
    np.testing.assert_allclose(classifier.predict_proba(X_TEST), before, atol=1e-6)
    with pytest.raises(ValueError, match="found another in row 0"):
        classifier.forget(X_TEST[:1], y_TEST[:1])
    np.testing.assert_allclose(classifier.predict_proba(X_TEST), before, atol=1e-6)


def test_partial_fit_of_a_new_classifier_fits():
    classifier = ds.SimplexGaussianProcess().partial_fit(X[y < 2], y[y < 2], classes=[0, 1, 2])
    np.testing.assert_array_equal(classifier.classes_, [0, 1, 2])
    assert classifier.classes is None
    assert not hasattr(ds.SimplexGaussianProcess("ilr"), "partial_fit")


def test_added_rows_remove_prediction_sets():
    classifier = ds.SimplexGaussianProcess().fit(X, y).conformalize(X_TEST, y_TEST)
    with pytest.warns(UserWarning, match="partial_fit changes the probabilities, and removes the sets"):
        classifier.partial_fit(X_TEST, y_TEST)
    assert not hasattr(classifier, "prediction_sets_")


def test_refit_with_a_named_target_has_nothing_left_out():
    classifier = ds.SimplexGaussianProcess().fit(X, y).set_params(target="ilr", max_iter=1).fit(X, y)
    assert not any(hasattr(classifier, name) for name in ("loo_proba_", "loo_score_", "kernel_", "label_noise_"))


def test_callback_is_called_once():
    steps = []
    ds.SimplexGaussianProcess().fit(X, y, callback=steps.append)
    (step,) = steps
    assert set(step.hyperparameters) == {"lengthscale", "linear", "noise"}
    assert step.classifier().score(X_TEST, y_TEST) > 0.9


def test_served_in_double_precision(tmp_path):
    """Of little noise, where single precision is farther off."""
    rows = np.linspace(-1.0, 1.0, 40)[:, None] * [1.0, 0.5]
    classifier = ds.SimplexGaussianProcess().fit(rows, (rows[:, 0] > 0.3).astype(int))
    classifier.export(tmp_path / "served", input_dtype="float64")
    artefact = tf.saved_model.load(tmp_path / "served")
    served = artefact.serve(tf.constant(rows + 1.0))
    latent = classifier.predict_latent(rows + 1.0)
    np.testing.assert_allclose(served["class_probabilities"], classifier.predict_proba(rows + 1.0), atol=1e-9)
    np.testing.assert_allclose(served["latent_scale"], latent.scale, atol=1e-7)


def test_served_by_litert(classifier, tmp_path):
    classifier.export(tmp_path / "m.tflite", format="litert")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the interpreter is about to move to another package
        serve = tf.lite.Interpreter(str(tmp_path / "m.tflite")).get_signature_runner()
    p = serve(features=X_TEST.astype("float32"))["class_probabilities"]
    np.testing.assert_allclose(p, classifier.predict_proba(X_TEST), atol=1e-4)


def test_gpflow_is_not_imported():
    run(
        "import sys, numpy as np, deepsimplex as ds\n"
        "ds.SimplexGaussianProcess().fit(np.arange(20.0)[:, None], np.arange(20) // 10)\n"
        "assert 'gpflow' not in sys.modules"
    )
