"""The scikit-learn classifiers: their ecosystem's own checks, labels of every kind, and what users do with them."""

import pickle

import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine
from sklearn.linear_model import BayesianRidge, LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import deepsimplex as ds

CLASSIFIERS = {
    "exact": ds.SimplexGaussianProcess(max_iterations=20),
    "exact, Dirichlet": ds.SimplexGaussianProcess("dirichlet", max_iterations=20),
    "collapsed": ds.SimplexGaussianProcess(inference="collapsed", inducing=20, max_iterations=20),
    "stochastic": ds.SimplexGaussianProcess(inference="stochastic", inducing=20, epochs=20, batch_size=16),
    "categorical": ds.CategoricalGaussianProcess(inducing=20, epochs=10, batch_size=16),
    "CASIMAC": ds.LatentRegressionClassifier(KNeighborsRegressor(), ds.targets.CASIMAC()),
}
each_classifier = pytest.mark.parametrize("classifier", CLASSIFIERS.values(), ids=CLASSIFIERS)


@parametrize_with_checks(list(CLASSIFIERS.values()))
def test_scikit_learn_takes_it_for_one_of_its_own(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    return X[::2], y[::2], X[1::2], y[1::2]


def fitted(classifier, *data):
    from sklearn.base import clone

    return clone(classifier).fit(*data)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_labels_of_any_kind_name_the_columns(name, wine):
    """The order of the classes is that of their inducing points too, and of the minibatches' random numbers."""
    classifier, difference = CLASSIFIERS[name], 1e-3 if name.startswith("exact") else 0.25
    X, y, X_test, y_test = wine
    names = np.array(["red", "white", "amber"])
    named = fitted(classifier, X, names[y])
    np.testing.assert_array_equal(named.classes_, np.sort(names))
    p = fitted(classifier, X, y).predict_proba(X_test)
    np.testing.assert_allclose(named.predict_proba(X_test)[:, [1, 2, 0]], p, atol=difference)
    assert np.mean(named.predict(X_test) == names[y_test]) > 0.6
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.exp(named.predict_log_proba(X_test)), named.predict_proba(X_test), rtol=1e-9)


@pytest.mark.parametrize("target", ["ilr", "dirichlet", "one_hot"])
@pytest.mark.parametrize("inference", ["exact", "collapsed", "stochastic"])
def test_every_target_of_labels_classifies_wine(target, inference, wine):
    X, y, X_test, y_test = wine
    classifier = ds.SimplexGaussianProcess(target, inference, inducing=30, batch_size=30).fit(X, y)
    p = classifier.predict_proba(X_test)
    assert ds.evaluation.accuracy(y_test, p) > 0.94
    assert ds.evaluation.negative_log_likelihood(y_test, p) < 0.6


def test_distance_targets_classify_too(wine):
    X, y, X_test, y_test = wine
    scaler = StandardScaler().fit(X)
    classifier = ds.SimplexGaussianProcess("casimac").fit(scaler.transform(X), y)
    assert classifier.score(scaler.transform(X_test), y_test) > 0.94


def test_distances_of_ones_own_work_too(wine):
    X, y, X_test, _ = wine
    scaler = StandardScaler().fit(X)
    X, X_test = scaler.transform(X), scaler.transform(X_test)

    def manhattan(a, b):
        return np.abs(a - b).sum()

    own = ds.LatentRegressionClassifier(KNeighborsRegressor(), ds.targets.CASIMAC(manhattan)).fit(X, y)
    named = ds.LatentRegressionClassifier(KNeighborsRegressor(), ds.targets.CASIMAC("cityblock")).fit(X, y)
    np.testing.assert_allclose(own.predict_proba(X_test), named.predict_proba(X_test), rtol=1e-6)
    assert not own.target.is_fitted


@pytest.mark.parametrize("inference", ["stochastic", "categorical"])
def test_defaults_serve_small_data(inference):
    X, y = load_iris(return_X_y=True)
    make = ds.CategoricalGaussianProcess if inference == "categorical" else ds.SimplexGaussianProcess
    classifier = make(**({} if inference == "categorical" else {"inference": inference})).fit(X[::2], y[::2])
    assert classifier.score(X[1::2], y[1::2]) > 0.93
    assert ds.evaluation.negative_log_likelihood(y[1::2], classifier.predict_proba(X[1::2])) < 0.35


def test_a_class_that_is_not_there_keeps_its_column(wine):
    X, y, X_test, _ = wine
    some = y != 1
    for classifier in (ds.SimplexGaussianProcess(classes=[0, 1, 2]), ds.SimplexGaussianProcess(classes=[2, 0, 1])):
        classifier.fit(X[some], y[some])
        p = classifier.predict_proba(X_test)
        assert p.shape == (len(X_test), 3)
        np.testing.assert_array_equal(classifier.classes_, classifier.classes)
        assert p[:, classifier.classes.index(1)].max() < 0.34


def test_soft_labels_are_shares_of_the_classes(wine):
    X, y, X_test, _ = wine
    hard = ds.SimplexGaussianProcess().fit(X, y)
    shares = ds.SimplexGaussianProcess(classes=["a", "b", "c"]).fit(X, np.eye(3)[y])
    np.testing.assert_allclose(shares.predict_proba(X_test), hard.predict_proba(X_test), atol=1e-6)
    assert set(shares.predict(X_test)) == {"a", "b", "c"}
    soft = ds.SimplexGaussianProcess().fit(X, 0.6 * np.eye(3)[y] + 0.4 / 3)
    assert soft.predict_proba(X_test).max() < hard.predict_proba(X_test).max()


def test_two_classes_of_ilr_are_one_gaussian_process(wine):
    """The latent is one number, a multiple of that of regression onto +1 and -1."""
    X, y, X_test, _ = wine
    X, y = X[y < 2], y[y < 2]
    latent = ds.SimplexGaussianProcess(noise="learned").fit(X, y).predict_latent(X_test)
    signs = ds.LatentGaussian(np.where(y == 0, 1.0, -1.0)[:, None], np.zeros((len(y), 1)))
    single = ds.gp.ExactGaussianProcess().fit(X, signs).predict(X_test)
    size = ds.targets.ILR().fit_transform(None, [0], num_classes=2).loc[0, 0]
    np.testing.assert_allclose(latent.loc, size * single.loc, rtol=1e-3, atol=1e-3 * abs(size))
    np.testing.assert_allclose(latent.scale, abs(size) * single.scale, rtol=1e-3)


@each_classifier
def test_a_pickle_and_another_fit_give_the_same_answer(classifier, wine):
    X, y, X_test, _ = wine
    one, other = fitted(classifier, X, y), fitted(classifier, X, y)
    p = one.predict_proba(X_test)
    np.testing.assert_array_equal(other.predict_proba(X_test), p)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(one)).predict_proba(X_test), p)
    order = np.random.default_rng(0).permutation(len(X_test))
    np.testing.assert_allclose(one.predict_proba(X_test[order]), p[order], rtol=1e-10)


def test_decisions_and_intervals(wine):
    X, y, X_test, _ = wine
    classifier = ds.SimplexGaussianProcess().fit(X, y)
    decision = classifier.decision_function(X_test)
    np.testing.assert_array_equal(decision.argmax(axis=1), classifier.predict(X_test))
    distance = classifier.decision_function(X_test, pair=(0, 2))
    latent = classifier.predict_latent(X_test)
    expected = ds.readout.decision_function(latent, 0, 2, classifier.target_.scores_)
    np.testing.assert_array_equal(distance, expected)
    lower, upper = classifier.class_intervals(X_test, level=0.9)
    assert ((lower >= 0) & (lower <= upper) & (upper <= 1)).all()
    with pytest.raises(ValueError, match="pair must hold two of classes_"):
        classifier.decision_function(X_test, pair=(0, "red"))


def test_it_joins_pipelines_and_searches(wine):
    X, y, *_ = wine
    pipeline = make_pipeline(StandardScaler(), ds.SimplexGaussianProcess(scale_features=False, max_iterations=30))
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.9
    grid = {"target": [ds.targets.ILR(0.9), ds.targets.ILR(0.999), "dirichlet"]}
    search = GridSearchCV(ds.SimplexGaussianProcess(max_iterations=10), grid, scoring="neg_log_loss", cv=3).fit(X, y)
    assert search.best_score_ > -0.5


def test_regressors_without_deviations_take_those_of_their_residuals(wine):
    X, y, X_test, y_test = wine
    classifier = ds.LatentRegressionClassifier(make_pipeline(StandardScaler(), LinearRegression()), "ilr").fit(X, y)
    assert classifier.deviation_ > 0
    p = classifier.predict_proba(X_test)
    assert ds.evaluation.accuracy(y_test, p) > 0.94
    assert ds.evaluation.negative_log_likelihood(y_test, p) < 0.4


def test_regressors_of_one_output_serve_two_classes(wine):
    X, y, X_test, y_test = wine
    classifier = ds.LatentRegressionClassifier(BayesianRidge(), "ilr").fit(X[y < 2], y[y < 2])
    assert classifier.deviation_ is None
    assert classifier.score(X_test[y_test < 2], y_test[y_test < 2]) > 0.9


def test_the_papers_regressor_is_the_default():
    X, y = load_iris(return_X_y=True)
    classifier = ds.LatentRegressionClassifier().fit(X[::2], y[::2])
    assert classifier.predict_latent(X[1::2]).covariance == "isotropic"
    assert classifier.score(X[1::2], y[1::2]) > 0.93


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"inference": "exactly"}, "inference must be one of"),
        ({"readout": "max"}, "readout must be one of"),
        ({"classes": [0, 1]}, "labels that classes=.* does not"),
        ({"classes": [0, 1, 1, 2]}, "classes must differ"),
        ({"target": "ilrr"}, "did you mean"),
    ],
)
def test_what_is_wrong_is_said(arguments, message, wine):
    X, y, *_ = wine
    with pytest.raises(ValueError, match=message):
        ds.SimplexGaussianProcess(**arguments).fit(X, y)
