"""LVQ1, LVQ2, GLVQ, GMLVQ, LGMLVQ and GPLVQ as scikit-learn classifiers."""

import pickle
import warnings

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import StratifiedKFold, cross_val_score

import deepsimplex as ds

CLASSIFIERS = {
    "LVQ1": ds.LVQ1(max_iter=30),
    "LVQ2": ds.LVQ2(2, window=0.3, max_iter=30),
    "GLVQ": ds.GLVQ(2, initialization="k-means++"),
    "GMLVQ": ds.GMLVQ(),
    "GMLVQ, one direction": ds.GMLVQ(2, rank=1, regularization=0.0, activation="linear"),
    "LGMLVQ": ds.LGMLVQ(),
    "GPLVQ": ds.GPLVQ(),
    "GPLVQ, constant rate": ds.GPLVQ(lengthscale=3.0, noise_variance=0.3, decay=False),
}
each_classifier = pytest.mark.parametrize("classifier", CLASSIFIERS.values(), ids=CLASSIFIERS)
NEAREST = {name: classifier for name, classifier in CLASSIFIERS.items() if not isinstance(classifier, ds.GPLVQ)}
idle_are_reported = pytest.mark.filterwarnings("ignore:prototypes .* are the nearest of no training sample:UserWarning")


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    return X[::2], y[::2], X[1::2], y[1::2]


def fitted(classifier, *data, **options):
    return clone(classifier).set_params(**options).fit(*data)


@each_classifier
def test_wine_is_classified_with_numbers_and_names(classifier, wine):
    X, y, X_test, y_test = wine
    numbered = fitted(classifier, X, y)
    p = numbered.predict_proba(X_test)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(p.argmax(axis=1), numbered.predict(X_test))
    np.testing.assert_allclose(np.exp(numbered.predict_log_proba(X_test)), p, rtol=1e-12)
    np.testing.assert_array_equal(numbered.decision_function(X_test).argmax(axis=1), numbered.predict(X_test))
    assert numbered.score(X_test, y_test) > 0.85
    assert ds.evaluation.negative_log_likelihood(y_test, p) < 0.45
    for names in (np.array(["amber", "red", "white"]), np.array(["amber", "red", "white"], dtype=object)):
        named = fitted(classifier, X, names[y])
        np.testing.assert_array_equal(named.predict_proba(X_test), p)
        np.testing.assert_array_equal(named.predict(X_test), names[numbered.predict(X_test)])
        np.testing.assert_array_equal(named.prototype_labels_, names[numbered.prototype_labels_])


@pytest.mark.parametrize("load", [load_wine, load_iris])
def test_gmlvq_is_as_accurate_as_linear_discriminant_analysis(load):
    """And its probabilities are not far from those, which know that classes are Gaussian."""
    X, y = load(return_X_y=True)
    folds = StratifiedKFold(n_splits=10, shuffle=True, random_state=0)

    def mean(classifier, scoring="accuracy"):
        return cross_val_score(classifier, X, y, cv=folds, scoring=scoring).mean()

    assert mean(ds.GMLVQ()) >= mean(LinearDiscriminantAnalysis()) - 1e-12
    assert -mean(ds.GMLVQ(), "neg_log_loss") < 0.09


@pytest.mark.parametrize("load", [load_wine, load_iris])
def test_gmlvq_with_large_regularization_is_linear_discriminant_analysis(load):
    X, y = load(return_X_y=True)
    n = len(np.unique(y))
    held = ds.GMLVQ(regularization=1e9).fit(X, y)
    np.testing.assert_allclose(held.prototypes_, [X[y == label].mean(axis=0) for label in range(n)], rtol=1e-4)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    limit = LinearDiscriminantAnalysis("lsqr", shrinkage="auto", priors=[1 / n] * n).fit(scaled, y)
    assert np.mean(held.predict(X) == limit.predict(scaled)) > 0.99


@pytest.mark.parametrize("name", ["GLVQ", "GMLVQ", "GPLVQ"])
def test_decision_function_of_two_classes(name, wine):
    X, y, X_test, _ = wine
    classifier = fitted(CLASSIFIERS[name], X[y < 2], y[y < 2])
    decision, p = classifier.decision_function(X_test), classifier.predict_proba(X_test)
    assert decision.shape == (len(X_test),)
    np.testing.assert_allclose(1 / (1 + np.exp(-decision)), p[:, 1], rtol=1e-9)
    np.testing.assert_array_equal(decision > 0, classifier.predict(X_test) == 1)


@pytest.mark.parametrize("classifier", NEAREST.values(), ids=NEAREST)
def test_explain_sorts_prototypes_by_distance(classifier, wine):
    X, y, X_test, _ = wine
    classifier = fitted(classifier, X, y)
    P = len(classifier.prototypes_)
    explained, p = classifier.explain(X_test, k=50), classifier.predict_proba(X_test)
    assert explained.indices.shape == (len(X_test), P)
    assert (np.diff(explained.distances, axis=1) >= 0).all()
    np.testing.assert_array_equal(explained.labels[:, 0], classifier.predict(X_test))
    np.testing.assert_array_equal(explained.labels, classifier.prototype_labels_[explained.indices])
    np.testing.assert_allclose(explained.weights.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(explained.weights[:, 0], p.max(axis=1), rtol=1e-12)
    scaled = (X_test[:, None] - classifier.prototypes_) / classifier.width_
    if isinstance(classifier, ds.GMLVQ):
        scaled = scaled @ classifier.omega_.T
    if isinstance(classifier, ds.LGMLVQ):
        scaled = np.einsum("npd,pmd->npm", scaled, classifier.omega_)
    np.testing.assert_allclose(
        explained.distances, np.take_along_axis(np.sum(scaled**2, axis=2), explained.indices, axis=1), rtol=1e-9
    )
    one = classifier.explain(X_test[:1], k=1)
    np.testing.assert_array_equal(one.indices, explained.indices[:1, :1])
    with pytest.raises(ValueError, match=r"^k must.*found 0"):
        classifier.explain(X_test, k=0)


@each_classifier
def test_pickle_file_and_refit_predict_the_same(classifier, wine, tmp_path):
    X, y, X_test, _ = wine
    one, other = fitted(classifier, X, y), fitted(classifier, X, y)
    p = one.predict_proba(X_test)
    np.testing.assert_array_equal(other.predict_proba(X_test), p)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(one)).predict_proba(X_test), p)
    one.save(tmp_path / "one.npz")
    loaded = ds.load(tmp_path / "one.npz")
    assert type(loaded) is type(one)
    assert loaded.get_params() == one.get_params()
    assert vars(loaded).keys() == vars(one).keys()
    np.testing.assert_array_equal(loaded.predict_proba(X_test), p)
    np.testing.assert_array_equal(clone(loaded).fit(X, y).predict_proba(X_test), p)
    order = np.random.default_rng(0).permutation(len(X_test))
    np.testing.assert_allclose(one.predict_proba(X_test[order]), p[order], rtol=1e-9)


def test_save_with_named_labels_and_invalid_random_state(wine, tmp_path):
    X, y, X_test, _ = wine
    names = np.array(["amber", "red", "white"], dtype=object)
    classifier = ds.GMLVQ(classes=names).fit(X, names[y])
    classifier.save(tmp_path / "named.npz")
    np.testing.assert_array_equal(ds.load(tmp_path / "named.npz").predict(X_test), classifier.predict(X_test))
    with pytest.raises(ValueError, match="random_state cannot be saved"):
        ds.GLVQ(random_state=np.random.RandomState(0)).fit(X, y).save(tmp_path / "other.npz")
    with pytest.raises(NotFittedError):
        ds.GLVQ().save(tmp_path / "other.npz")


@each_classifier
def test_callback_and_its_error(classifier, wine):
    X, y, X_test, _ = wine
    steps = []
    again = clone(classifier)
    again.fit(X, y, callback=lambda step: steps.append((step.iteration, step.objective, step.classifier())))
    assert [iteration for iteration, *_ in steps] == list(range(1, again.n_iter_ + 1))
    np.testing.assert_allclose(steps[-1][2].predict_proba(X_test), again.predict_proba(X_test), rtol=1e-9)
    if isinstance(again, ds.GLVQ | ds.GMLVQ | ds.LGMLVQ):
        assert steps[-1][1] == again.objective_ < steps[0][1]
    elif isinstance(again, ds.GPLVQ):
        assert steps[-1][1] == again.objective_
    else:
        assert steps[-1][1] == np.sum(again.predict(X) != y)
    before = dict(vars(again))

    def interrupt(step):
        with pytest.raises(NotFittedError):
            again.predict(X_test)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        again.fit(X[:, :3], y, callback=interrupt)
    assert vars(again).keys() == before.keys()
    assert all(value is before[name] for name, value in vars(again).items())


def test_callback_fit_ended_is_called(wine):
    class Watch:
        ended = None

        def __call__(self, step):
            assert self.ended is None

        def fit_ended(self, classifier):
            self.ended = classifier

    watch = Watch()
    assert ds.GLVQ().fit(*wine[:2], callback=watch) is watch.ended


@each_classifier
def test_idle_prototypes_warn(classifier):
    """Two prototypes in a place of few samples, and a class in the middle of another."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = np.zeros(60, dtype=int)
    y[:3] = 1
    X[:3] = [[0.0, 0.0], [1e-3, 0.0], [-1e-3, 0.0]]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        classifier = fitted(classifier, X, y, prototypes_per_class=30)
    assert classifier.wins_.sum() == 60
    idle = np.flatnonzero(classifier.wins_ == 0)
    assert len(caught) == (len(idle) > 0)
    for warning in caught:
        assert f"prototypes {idle.tolist()} are the nearest of no training sample" in str(warning.message)
        assert "test_prototype_classifiers" in warning.filename
    assert np.isfinite(classifier.predict_proba(X)).all()


def test_warning_points_at_the_call_of_fit():
    X, y = np.array([[0.0], [1.0], [0.5], [0.5]]), np.array([0, 0, 1, 0])
    with pytest.warns(UserWarning, match=r"prototypes \[1\] are the nearest of no training sample") as caught:
        ds.GLVQ(max_iter=0).fit(X, y)
    assert caught[0].filename == __file__


def test_warning_names_class_that_is_never_predicted():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(500, 2)), rng.normal(loc=4.0, size=(5, 2))])
    y = np.repeat(["many", "few"], [500, 5])
    with pytest.warns(UserWarning, match=r"prototypes \[0\] are .*: classes \['few'\] are hardly ever predicted"):
        ds.GLVQ().fit(X, y)
    assert ds.GMLVQ().fit(X, y).predict(X[500:]).tolist() == ["few"] * 5


@pytest.mark.parametrize("initialization", ["samples", "k-means++"])
def test_gmlvq_does_not_depend_on_initialization(initialization, wine):
    X, y, X_test, _ = wine
    p = ds.GMLVQ().fit(X, y).predict_proba(X_test)
    np.testing.assert_allclose(ds.GMLVQ(initialization=initialization).fit(X, y).predict_proba(X_test), p, atol=0.02)


def test_class_has_at_most_as_many_prototypes_as_samples():
    X, y = np.arange(10.0)[:, None], np.array(["a"] * 8 + ["b"] * 2)
    classifier = ds.GLVQ(5).fit(X, y)
    assert classifier.prototype_labels_.tolist() == ["a"] * 5 + ["b"] * 2
    assert classifier.score(X, y) == 1.0


@idle_are_reported
@each_classifier
def test_duplicates_of_different_classes_are_finite(classifier):
    X = np.repeat(np.eye(3), 8, axis=0)
    classifier = fitted(classifier, X, np.arange(24) % 2)
    p = classifier.predict_proba(np.vstack([X, np.full((1, 3), 9.0)]))
    np.testing.assert_allclose(p, 0.5, atol=0.3)
    for value in vars(classifier).values():
        assert not isinstance(value, np.ndarray) or np.isfinite(value).all()


@idle_are_reported
@each_classifier
def test_one_feature(classifier):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    X = rng.normal(size=(60, 1)) + 6.0 * y[:, None]
    assert fitted(classifier, X, y).score(X, y) > 0.98


@idle_are_reported
@each_classifier
def test_constant_feature_is_ignored(classifier, wine):
    X, y, X_test, _ = wine
    p = fitted(classifier, X, y).predict_proba(X_test)
    more, more_test = (np.column_stack([part, np.full(len(part), 0.1)]) for part in (X, X_test))
    with_it = fitted(classifier, more, y)
    np.testing.assert_allclose(with_it.predict_proba(more_test), p, atol=1e-6)
    np.testing.assert_allclose(with_it.prototypes_[:, -1], 0.1)
    if isinstance(with_it, ds.GMLVQ):
        assert with_it.relevance_[-1] == 0.0
        assert with_it.relevance_.sum() == pytest.approx(1.0)
        more_test[:, -1] = 50.0
        np.testing.assert_allclose(with_it.predict_proba(more_test), p, atol=1e-6)


@idle_are_reported
@each_classifier
def test_constant_features_give_equal_probabilities(classifier):
    X, y = np.full((12, 2), 0.1), np.arange(12) % 3
    p = fitted(classifier, X, y).predict_proba([[0.1, 0.1], [5.0, 0.1]])
    np.testing.assert_allclose(p, 1 / 3, atol=1e-6)


@each_classifier
@pytest.mark.parametrize("units", [2.0**-27, 2.0**27])
def test_predictions_do_not_depend_on_units(classifier, units, wine):
    X, y, X_test, _ = wine
    p = fitted(classifier, X, y).predict_proba(X_test)
    np.testing.assert_allclose(fitted(classifier, units * X, y).predict_proba(units * X_test), p, atol=1e-3)


def test_scale_features_false(wine):
    X, y, X_test, y_test = wine
    scaled, plain = ds.GLVQ().fit(X, y), ds.GLVQ(scale_features=False).fit(X, y)
    assert scaled.score(X_test, y_test) > plain.score(X_test, y_test) + 0.1
    np.testing.assert_array_equal(plain.width_, 1.0)
    start = ds.GLVQ(scale_features=False, max_iter=0).fit(X, y)
    np.testing.assert_allclose(start.prototypes_, [X[y == label].mean(axis=0) for label in range(3)], rtol=1e-9)


@each_classifier
def test_class_without_samples_has_probability_zero(classifier, wine):
    X, y, X_test, _ = wine
    some = y != 1
    classifier = fitted(classifier, X[some], y[some], classes=[2, 1, 0])
    p, decision = classifier.predict_proba(X_test), classifier.decision_function(X_test)
    np.testing.assert_array_equal(p[:, 1], 0.0)
    np.testing.assert_array_equal(decision[:, 1], -np.inf)
    np.testing.assert_array_equal(classifier.classes_[decision.argmax(axis=1)], classifier.predict(X_test))
    assert np.isfinite(decision[:, [0, 2]]).all()
    alone = clone(classifier).fit(X[y == 0], y[y == 0])
    np.testing.assert_array_equal(alone.predict_proba(X_test), [[1.0, 0.0, 0.0]] * len(X_test))


@pytest.mark.parametrize("name", [name for name in CLASSIFIERS if name != "LGMLVQ"])
def test_classes_far_from_prototypes_are_equally_likely(name, wine):
    X, y, *_ = wine
    classifier = fitted(CLASSIFIERS[name], X, y)
    far = 1e9 * np.random.default_rng(0).normal(size=(20, X.shape[1]))
    np.testing.assert_allclose(classifier.predict_proba(far), 1 / 3, atol=1e-3)
    np.testing.assert_allclose(classifier.predict_proba(1e200 * far), 1 / 3)


@each_classifier
def test_soft_labels_raise(classifier, wine):
    X, y, *_ = wine
    with pytest.raises(ValueError, match=r"^y must.*found soft labels of shape \(89, 3\)"):
        clone(classifier).fit(X, np.eye(3)[y])


@pytest.mark.parametrize(
    ("classifier", "message"),
    [
        (ds.LVQ1(0), r"prototypes_per_class must.*found 0"),
        (ds.LVQ1(2.5), r"prototypes_per_class must.*found 2.5"),
        (ds.LVQ1(learning_rate=0.0), r"learning_rate must.*found 0.0"),
        (ds.LVQ1(max_iter=-1), r"max_iter must.*found -1"),
        (ds.LVQ2(window=2.0), r"window, unless it is None, must.*found 2.0"),
        (ds.GLVQ(activation="relu"), r"activation must.*found 'relu'"),
        (ds.GLVQ(steepness=0.0), r"steepness must.*found 0.0"),
        (ds.GLVQ(steepness="2"), r"steepness must.*found '2'"),
        (ds.GLVQ(initialization="mean"), r"initialization must.*did you mean 'means'"),
        (ds.GLVQ(max_iter=-1), r"max_iter must.*found -1"),
        (ds.GLVQ(tol=-1.0), r"tol must.*found -1.0"),
        (ds.GLVQ(random_state="0"), r"random_state must.*found '0'"),
        (ds.GPLVQ(lengthscale=0.0), r'lengthscale, unless it is "median", must.*found 0.0'),
        (ds.GPLVQ(lengthscale="mean"), r'lengthscale, unless it is "median", must.*found .mean'),
        (ds.GPLVQ(noise_variance=-0.1), r"noise_variance must.*found -0.1"),
        (ds.GPLVQ(learning_rate=np.nan), r"learning_rate must.*found nan"),
        (ds.GPLVQ(max_iter=1.5), r"max_iter must.*found 1.5"),
        (ds.GMLVQ(rank=0), r"rank, unless it is None, must.*found 0"),
        (ds.GMLVQ(rank=14), r"rank must.*found 14"),
        (ds.GMLVQ(regularization=-1.0), r"regularization must.*found -1.0"),
        (ds.LGMLVQ(rank=14), r"rank must.*found 14"),
        (ds.GLVQ({"a": 2}), r"prototypes_per_class must name classes, 0, 1, 2; found 'a'"),
        (ds.GLVQ([1, 2]), r"prototypes_per_class must be a number or 3, .*; found 2"),
        (ds.GLVQ({0: 0}), r"prototypes_per_class must.*found 0"),
        (ds.GLVQ("two"), r"prototypes_per_class must.*found 'two'"),
        (ds.GMLVQ(classes=[0, 1]), "labels that classes=.* does not"),
    ],
)
def test_invalid_argument_raises(classifier, message, wine):
    X, y, *_ = wine
    with pytest.raises(ValueError, match=message):
        classifier.fit(X, y)


def test_numbers_of_prototypes_by_class(wine):
    X, y, *_ = wine
    names = np.array(["a", "b", "c"])[y]
    for numbers in ({"b": 3}, [1, 3, 1]):
        classifier = ds.GLVQ(numbers, max_iter=3).fit(X, names)
        assert classifier.prototype_labels_.tolist() == ["a", "b", "b", "b", "c"]
        np.testing.assert_array_equal(sklearn.base.clone(classifier).fit(X, names).prototypes_, classifier.prototypes_)


def test_transformed_rows_have_the_distances_of_the_metric(wine):
    X, y, X_test, _ = wine
    classifier = ds.GMLVQ(rank=2).fit(X, y)
    explained, mapped = classifier.explain(X_test), classifier.transform(X_test)
    at = classifier.transform(classifier.prototypes_)[explained.indices]
    np.testing.assert_allclose(np.sum((mapped[:, None] - at) ** 2, axis=2), explained.distances, rtol=1e-9)
    assert classifier.get_feature_names_out().tolist() == ["gmlvq0", "gmlvq1"]


def test_local_metrics_separate_classes_that_cross():
    rng, y = np.random.default_rng(0), np.arange(300) % 2
    X = rng.normal(size=(300, 2)) * np.where(y[:, None] == [0, 1], 4.0, 0.5)
    classifier = ds.LGMLVQ().fit(X[:200], y[:200])
    assert classifier.score(X[200:], y[200:]) > 0.8
    assert (classifier.relevance_.argmax(axis=1) == [1, 0]).all()
    np.testing.assert_allclose(np.mean(np.sum(classifier.omega_**2, axis=(1, 2))), 1.0)


def test_rows_between_classes_look_unknown(wine):
    X, y, X_test, _ = wine
    classifier = ds.GLVQ().fit(X, y)
    similarity = classifier.relative_similarity(X_test)
    distances = np.sum(((X_test[:, None] - classifier.prototypes_) / classifier.width_) ** 2, axis=2)
    first, second = np.sort(distances, axis=1)[:, :2].T  # one prototype for each class
    np.testing.assert_allclose(similarity, (second - first) / (second + first), rtol=1e-9)
    score = classifier.fit_unknown(X_test).unknown_score(X_test)
    np.testing.assert_array_equal(score.argsort(kind="stable"), (-similarity).argsort(kind="stable"))
    assert classifier.unknown_score(1e6 * X_test).min() > 0.99  # far from all prototypes


@idle_are_reported
@each_classifier
def test_share_of_known_rows_is_rejected(classifier, wine, tmp_path):
    X, y, X_test, y_test = wine
    names = np.array(["a", "b", "c"])
    classifier = clone(classifier).fit(X, names[y])
    with pytest.raises(ValueError, match=r"^unknown_score needs.*fit_unknown\(X_held\)"):
        classifier.predict_or_unknown(X_test)
    predicted = classifier.fit_unknown(X_test).predict_or_unknown(X_test, 0.2)
    known = predicted != "unknown"
    np.testing.assert_allclose(np.mean(~known), 0.2, atol=1.5 / len(X_test))
    np.testing.assert_array_equal(predicted[known], classifier.predict(X_test)[known])
    assert np.mean(predicted[known] == names[y_test][known]) >= classifier.score(X_test, names[y_test])
    assert "none" in classifier.predict_or_unknown(X_test, 0.2, abstention="none")
    for rejected in (1.0, -0.1, np.nan):
        with pytest.raises(ValueError, match="rejected must"):
            classifier.predict_or_unknown(X_test, rejected)
    classifier.set_priors([1, 1, 1], trained=[1, 2, 1])  # which do not change it
    classifier.save(tmp_path / "classifier.npz")
    for copy in (ds.load(tmp_path / "classifier.npz"), pickle.loads(pickle.dumps(classifier))):
        np.testing.assert_array_equal(copy.predict_or_unknown(X_test, 0.2) == "unknown", ~known)
    assert "Samples of no known class" not in classifier.card()
    with pytest.raises(ValueError, match="fit_unknown"):
        classifier.fit(X, y).unknown_score(X_test)


def test_distances_are_computed_once(wine, monkeypatch):
    X, y, X_test, _ = wine
    classifier, passes = ds.GMLVQ().fit(X, y).fit_unknown(X_test), []
    distances = ds.GMLVQ._distances
    monkeypatch.setattr(ds.GMLVQ, "_distances", lambda self, X: passes.append(len(X)) or distances(self, X))
    classifier.predict_or_unknown(X_test)
    assert passes == [len(X_test)]
