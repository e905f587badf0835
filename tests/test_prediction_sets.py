"""Prediction sets have the given coverage: fitted directly, in classifiers, files and exports."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_wine

import deepsimplex as ds
from deepsimplex.calibration import ConformalSets

METHODS = ["lac", "aps", "raps"]


def draw(seed, samples, n=6):
    """Probabilities that are right, and labels drawn from them."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(n, 0.4), samples)
    return p, np.argmax(np.log(p) + rng.gumbel(size=p.shape), axis=1)


@pytest.mark.parametrize("by_class", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_coverage_on_exchangeable_samples(method, by_class):
    covered = []
    for seed in range(20):
        p, y = draw(seed, 1200)
        sets = ConformalSets(0.8, method, by_class).fit(p[:400], y[:400]).predict(p[400:])
        covered.append(ds.evaluation.coverage(y[400:], sets))
        if by_class:
            assert ds.evaluation.coverage_by_class(y[400:], sets).min() > 0.6
    # 20 draws of 400 held-out samples: a standard deviation of 0.005 about 0.8, and by class up to 1 / 60 more.
    assert 0.785 < np.mean(covered) < 0.835


@pytest.mark.parametrize("by_class", [False, True])
def test_coverage_in_every_group(by_class):
    """Probabilities of group "b" are overconfident: one threshold for all samples does not cover it."""
    p, y = draw(0, 6000, n=3)
    groups = np.where(np.arange(6000) % 3, "a", "b")
    overconfident = p**10 / np.sum(p**10, axis=1, keepdims=True)
    p = np.where(groups[:, None] == "b", overconfident, p)
    held_out, new = slice(3000), slice(3000, None)
    b = groups[new] == "b"
    marginal = ConformalSets(0.8).fit(p[held_out], y[held_out]).predict(p[new])
    assert ds.evaluation.coverage(y[new][b], marginal[b]) < 0.77
    sets = ConformalSets(0.8, by_class=by_class).fit(p[held_out], y[held_out], groups=groups[held_out])
    predicted = sets.predict(p[new], groups[new])
    assert sets.thresholds_.shape == (2, 3 if by_class else 1)
    for group in (b, ~b):
        assert 0.77 < ds.evaluation.coverage(y[new][group], predicted[group]) < 0.84
        if by_class:
            assert ds.evaluation.coverage_by_class(y[new][group], predicted[group]).min() > 0.73
    # The sets of a group are those of its samples alone.
    part = groups[held_out] == "b"
    alone = ConformalSets(0.8, by_class=by_class).fit(p[held_out][part], y[held_out][part])
    np.testing.assert_array_equal(predicted[b], alone.predict(p[new][b]))
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(sets))
    np.testing.assert_array_equal(again.predict(p[new], groups[new]), predicted)


@pytest.mark.parametrize(
    "groups",
    [[3, 2**60, 3], [True, False, True], ["a", "bc", "a"], np.array(["a", "b", "a"], "O"), np.array([1, 2, 1], "O")],
)
def test_groups_of_any_kind_survive_config_round_trip(groups):
    p, y = draw(1, 150)
    rows = np.arange(150) % 3
    sets = ConformalSets(0.8).fit(p, y, groups=np.asarray(groups)[rows])
    again = ConformalSets.from_config(json.loads(json.dumps(sets.get_config())))
    expected = sets.predict(p, np.asarray(groups)[rows])
    np.testing.assert_array_equal(again.predict(p, np.asarray(groups)[rows]), expected)


def test_invalid_groups_raise():
    p, y = draw(2, 60)
    groups = np.arange(60) % 2
    sets = ConformalSets(0.8).fit(p, y, groups=groups)
    for given, message in [
        (None, "groups must be given: every group, 0, 1, has a threshold"),
        (groups[1:], r"groups must have a value for each row of p; found shape \(59,\)"),
        (groups + 1, "groups must be those of the held-out samples, 0, 1; found 2"),
        (groups.astype(str), "groups must be those of the held-out samples, 0, 1; found '0'"),
        (np.where(groups, np.nan, 0.0), "groups must not be missing; found nan in row 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            sets.predict(p, given)
    with pytest.raises(ValueError, match="groups must not be missing; found None in row 0"):
        ConformalSets().fit(p, y, groups=[None, "a"] * 30)
    with pytest.raises(ValueError, match=r"at least 9 samples of group 'b' for coverage = 0\.9; found 1"):
        ConformalSets().fit(p, y, groups=["a"] * 59 + ["b"])
    with pytest.raises(ValueError, match="groups must be given in the fit, too"):
        ConformalSets(0.8).fit(p, y).predict(p, groups)


@pytest.mark.parametrize("method", METHODS)
def test_coverage_of_tied_scores_is_not_below_the_promise(method):
    """Samples of equal probabilities, as of a tree's leaves, have equal sets; coverage may be above the promise."""
    rng = np.random.default_rng(0)
    leaves = np.array([[0.25, 0.25, 0.25, 0.25], [0.7, 0.1, 0.1, 0.1], [0.0, 0.5, 0.5, 0.0]])
    leaf = rng.integers(3, size=4000)
    y = np.array([rng.choice(4, p=leaves[k]) for k in leaf])
    sets = ConformalSets(0.5, method).fit(leaves[leaf[:2000]], y[:2000]).predict(leaves[leaf])
    assert len(np.unique(np.column_stack([leaf, sets]), axis=0)) == 3
    assert ds.evaluation.coverage(y[2000:], sets[2000:]) > 0.46


def slow_scores(method, p, u, penalty=0.01, free_classes=5):
    """As the papers write them, class by class."""
    scores = np.empty_like(p)
    for i, row in enumerate(p):
        for k in range(len(row)):
            if method == "lac":
                scores[i, k] = 1 - row[k]
                continue
            rank = 1 + np.sum(row > row[k])
            scores[i, k] = row[row > row[k]].sum() + (1 - u[i]) * row[k]
            if method == "raps":
                scores[i, k] += penalty * max(rank - free_classes, 0)
    return scores


@pytest.mark.parametrize("method", METHODS)
def test_set_scores_and_thresholds_match_formulas(method):
    p, y = draw(0, 60, n=9)
    sets = ConformalSets(0.9, method, free_classes=3, penalty=0.2, seed=5).fit(p, y)
    u = (p @ np.random.default_rng(5).uniform(1e3, 1e4, 9)) % 1
    scores = slow_scores(method, p, u, 0.2, 3)
    true_class_scores = np.sort(scores[np.arange(60), y])
    assert sets.thresholds_ == pytest.approx([true_class_scores[55 - 1]], abs=1e-9)  # ceil(61 * 0.9) = 55
    near = np.abs(scores - sets.thresholds_) < 1e-9
    np.testing.assert_array_equal(sets.predict(p) | near, (scores <= sets.thresholds_) | near)


class Given(ClassifierMixin, BaseEstimator):
    """A classifier whose samples are their class probabilities."""

    def __init__(self, classes=6):
        self.classes = classes
        self.classes_ = np.arange(classes)

    def predict_proba(self, X):
        return X

    def predict(self, X):
        return X.argmax(axis=1)

    def __sklearn_is_fitted__(self):
        return True


@pytest.mark.peers
@pytest.mark.parametrize("method", ["lac", "aps"])
@pytest.mark.parametrize("promised", [0.7, 0.9, 0.99])
def test_sets_match_mapie(promised, method, monkeypatch):
    """With the same random numbers; RAPS of MAPIE 1.6 penalizes held-out samples otherwise than those it predicts."""
    peer = pytest.importorskip("mapie.classification")
    p, y = draw(0, 1000)
    theirs = peer.SplitConformalClassifier(
        Given(), confidence_level=promised, conformity_score=method, prefit=True, random_state=0
    )
    randomized = {"include_last_label": "randomized"} if method == "aps" else {}
    _, expected = theirs.conformalize(p[:400], y[:400]).predict_set(p[400:], conformity_score_params=randomized)
    monkeypatch.setattr(ConformalSets, "_uniform", lambda self, p: np.random.RandomState(0).uniform(size=(len(p), 1)))
    sets = ConformalSets(promised, method).fit(p[:400], y[:400])
    np.testing.assert_array_equal(sets.predict(p[400:]), expected[..., 0])


@pytest.mark.parametrize("method", METHODS)
def test_sets_do_not_depend_on_batch_or_config_round_trip(method):
    p, y = draw(1, 300)
    sets = ConformalSets(method=method).fit(p, y)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(sets))
    np.testing.assert_array_equal(again.predict(p[::-1])[::-1], sets.predict(p))
    np.testing.assert_array_equal(np.concatenate([sets.predict(p[:7]), sets.predict(p[7:])]), sets.predict(p))


@pytest.mark.parametrize("by_class", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_most_probable_class_is_added_to_empty_sets(method, by_class):
    p, y = draw(3, 600, n=3)
    p, y = p[p.max(axis=1) > 0.7], y[p.max(axis=1) > 0.7]  # right more often than the coverage
    fitted = ConformalSets(0.6, method, by_class, allow_empty=False).fit(p, y)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(fitted))
    allowed = ConformalSets(0.6, method, by_class).fit(p, y).predict(p)
    expected = np.where(allowed.any(axis=1, keepdims=True), allowed, np.eye(3, dtype=bool)[p.argmax(axis=1)])
    assert 0 < np.mean(~allowed.any(axis=1)) == ds.evaluation.report(y, p, sets=allowed).empty_sets
    for sets in (fitted.predict(p), again.predict(p), fitted.predict(tf.constant(p)).numpy()):
        np.testing.assert_array_equal(sets, expected)
    with pytest.raises(TypeError, match="allow_empty must be True or False; found 'no'"):
        ConformalSets(allow_empty="no")


def test_invalid_sets_raise():
    p, y = draw(2, 50)
    with pytest.raises(ValueError, match=r"coverage must.*found 1\.0"):
        ConformalSets(1.0)
    with pytest.raises(ValueError, match=r"method must.*found 'naps'"):
        ConformalSets(method="naps")
    with pytest.raises(ValueError, match=r"^y must.*found 50"):
        ConformalSets(0.99).fit(p, y)
    with pytest.raises(ValueError, match=r"at least 19 samples of class \d for coverage = 0\.95; found"):
        ConformalSets(0.95, by_class=True).fit(p, y)
    ConformalSets(0.9).fit(p[:9], y[:9])  # 9 of 10 is a promise that nine samples can give
    with pytest.raises(ValueError, match="not fitted"):
        ConformalSets().predict(p)
    with pytest.raises(ValueError, match=r"^p must.*found \(50, 2\)"):
        ConformalSets(0.5, by_class=True).fit(*draw(2, 300)).predict(p[:, :2] / p[:, :2].sum(axis=1, keepdims=True))


def test_coverage_by_size_and_invalid_sets():
    sets = np.array([[True, False, True], [True, True, True], [False, False, False]])
    np.testing.assert_array_equal(ds.evaluation.coverage_by_size([2, 0, 1], sets), [0, np.nan, 1, 1])
    assert ds.evaluation.set_size([2, 0, 1], sets) == pytest.approx(5 / 3)
    with pytest.raises(ValueError, match=r"sets must.*found float64"):
        ds.evaluation.coverage([0, 1], np.eye(2))


@pytest.fixture(scope="module")
def model(four):
    (x, y), _ = four
    keras.utils.set_random_seed(0)
    model = ds.SimplexClassifier(ds.backbones.mlp([16]), "vertices", 4, head="gaussian")
    model.compile(keras.optimizers.Adam(0.02), run_eagerly=True)
    model.fit(x[:150], y[:150], epochs=2, batch_size=50, verbose=0)
    return model.conformalize(x[150:], y[150:], 0.8, "aps")


@pytest.mark.slow
def test_model_files_and_exports_keep_sets(model, four, tmp_path):
    _, (x_test, y_test) = four
    sets = model.predict_set(x_test)
    assert 0.65 < ds.evaluation.coverage(y_test, sets) < 0.95
    model.save(tmp_path / "m.keras")
    np.testing.assert_array_equal(ds.load(tmp_path / "m.keras").predict_set(x_test), sets)
    model.export(tmp_path / "served")
    served = ds.export.load_served(tmp_path / "served").predict(x_test)["prediction_set"]
    assert served.dtype == bool
    assert np.mean(served == sets) > 0.99  # scores are compared in single precision
    (x, y), _ = four
    filled = keras.models.clone_model(model)
    filled.set_weights(model.get_weights())
    assert not filled.conformalize(x[150:], y[150:], 0.2).predict_set(x_test).any(axis=1).all()
    filled.conformalize(x[150:], y[150:], 0.2, allow_empty=False).export(tmp_path / "filled")
    served = ds.export.load_served(tmp_path / "filled").predict(x_test)["prediction_set"]
    assert served.any(axis=1).all()
    np.testing.assert_array_equal(served, filled.predict_set(x_test))


def test_model_predicts_sets_by_group(model, four, tmp_path):
    (x, y), (x_test, _) = four
    grouped = keras.models.clone_model(model)
    grouped.set_weights(model.get_weights())
    site, site_test = (np.where(np.arange(len(part)) % 2, "north", "south") for part in (x[150:], x_test))
    sets = grouped.conformalize(x[150:], y[150:], 0.8, groups=site).predict_set(x_test, groups=site_test)
    north = ConformalSets(0.8).fit(grouped.predict_proba(x[150:])[1::2], y[151::2])
    np.testing.assert_array_equal(sets[1::2], north.predict(grouped.predict_proba(x_test)[1::2]))
    with pytest.raises(ValueError, match="An export has no input of groups"):
        grouped.export(tmp_path / "served")
    assert not any(tmp_path.iterdir())


def test_calibration_and_training_remove_sets(model, four):
    (x, y), _ = four
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    copy.conformalize(x[150:], y[150:])
    with pytest.warns(UserWarning, match="calibrate changes the probabilities, and removes the sets"):
        copy.calibrate(x[150:], y[150:])
    copy.conformalize(x[150:], y[150:])
    copy.compile(run_eagerly=True)
    with (
        pytest.warns(UserWarning, match="removes the calibration"),
        pytest.warns(UserWarning, match="training changes the probabilities"),
    ):
        copy.fit(x[:50], y[:50], verbose=0)
    assert copy.prediction_sets is None
    with pytest.raises(ValueError, match="predict_set needs conformalize"):
        copy.predict_set(x)
    with pytest.raises(ValueError, match=r"conformalize\(None\) removes"):
        copy.conformalize(None, y)


CLASSIFIERS = {
    "process": ds.SimplexGaussianProcess("dirichlet", readout="argmax", max_iter=3),
    "lvq": ds.GLVQ(max_iter=5),
    "regression": ds.LatentRegressionClassifier(),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.filterwarnings("ignore:the hyperparameters were still moving")
def test_estimators_have_sets(name, tmp_path):
    X, y = load_wine(return_X_y=True)
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), np.array(["a", "b", "c"])[y]
    classifier = CLASSIFIERS[name].fit(X[::3], y[::3])
    with pytest.raises(ValueError, match="predict_set needs conformalize"):
        classifier.predict_set(X)
    sets = classifier.conformalize(X[1::3], y[1::3], coverage=0.9).predict_set(X[2::3])
    assert 0.75 < ds.evaluation.coverage(np.searchsorted(["a", "b", "c"], y[2::3]), sets) <= 1
    if name != "regression":  # its regressor is not one of ours
        classifier.save(tmp_path / "c.npz")
        np.testing.assert_array_equal(ds.load(tmp_path / "c.npz").predict_set(X[2::3]), sets)
    with pytest.warns(UserWarning, match="calibrate changes the probabilities"):
        classifier.calibrate(None)
    sets = classifier.conformalize(X[1::3], y[1::3], coverage=0.5).predict_set(X[2::3])
    filled = classifier.conformalize(X[1::3], y[1::3], coverage=0.5, allow_empty=False).predict_set(X[2::3])
    assert np.all(sets <= filled)
    assert not sets.any(axis=1).all()
    assert filled.any(axis=1).all()
    groups = np.arange(len(X)) % 2
    sets = classifier.conformalize(X[1::3], y[1::3], groups=groups[1::3]).predict_set(X[2::3], groups[2::3])
    assert 0.75 < ds.evaluation.coverage(np.searchsorted(["a", "b", "c"], y[2::3]), sets) <= 1
    classifier.fit(X[::3], y[::3])
    assert not hasattr(classifier, "prediction_sets_")
