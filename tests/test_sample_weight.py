"""Weights of samples and classes in the scikit-learn classifiers, and the network among them."""

from functools import partialmethod

import keras
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern
from sklearn.linear_model import BayesianRidge, LinearRegression, Ridge
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import deepsimplex as ds
from deepsimplex.estimators.latent_regression import WeightedWhiteKernel

NETWORK = ds.estimators.SimplexNetworkClassifier({"name": "mlp", "hidden": [4]}, head="gaussian", epochs=1)
CLASSIFIERS = {
    "LVQ1": ds.LVQ1(max_iter=5),
    "LVQ2": ds.LVQ2(max_iter=5),
    "GLVQ": ds.GLVQ(2, max_iter=5),
    "GMLVQ": ds.GMLVQ(max_iter=5),
    "LGMLVQ": ds.LGMLVQ(max_iter=5),
    "GPLVQ": ds.GPLVQ(max_iter=5),
    "closed form": ds.SimplexGaussianProcess(),
    "exact": ds.SimplexGaussianProcess("ilr", max_iter=0),
    "collapsed": ds.SimplexGaussianProcess("dirichlet", "collapsed", inducing=10, max_iter=0),
    "stochastic": ds.SimplexGaussianProcess("ilr", inference="stochastic", inducing=10, epochs=1),
    "categorical": ds.CategoricalGaussianProcess(inducing=10, epochs=1),
    "CASIMAC": ds.LatentRegressionClassifier(BayesianRidge()),
    "residuals": ds.LatentRegressionClassifier(LinearRegression(), "ilr"),
    "network": NETWORK,
}
each_classifier = pytest.mark.parametrize("classifier", CLASSIFIERS.values(), ids=CLASSIFIERS)


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    return X[::3], np.array(["amber", "red", "white"])[y[::3]]


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    """A few steps of a network take less time eagerly than the tracing of their functions."""
    monkeypatch.setattr(ds.SimplexClassifier, "compile", partialmethod(ds.SimplexClassifier.compile, run_eagerly=True))


@pytest.mark.filterwarnings("ignore:prototypes")
@each_classifier
def test_zero_weight_removes_samples(classifier, wine):
    X, y = wine
    weights = np.where(np.arange(len(X)) % 4 == 0, 0.0, 1.0)
    used = weights > 0
    p = clone(classifier).fit(X, y, sample_weight=weights).predict_proba(X)
    np.testing.assert_array_equal(p, clone(classifier).fit(X[used], y[used]).predict_proba(X))
    heavy = clone(classifier).fit(X, y, sample_weight=np.where(y == "red", 20.0, 0.1)).predict_proba(X)
    assert np.abs(heavy - p).max() > 1e-3


@each_classifier
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(3), r"sample_weight must.*found shape \(3,\)"),
        (np.full(60, -1.0), r"sample_weight must.*found -1.0 in row 0"),
        (np.eye(60)[0], r"sample_weight, times class_weight, must.*found fewer"),
    ],
)
def test_invalid_sample_weight_raises(classifier, weights, message, wine):
    with pytest.raises(ValueError, match=message):
        clone(classifier).fit(*wine, sample_weight=weights)


# Of the classes 0 and 1.
INVALID_CLASS_WEIGHTS = [
    ({0: -5}, r"class_weight\[0\] must.*found -5"),
    ({0: np.nan}, r"class_weight\[0\] must.*found nan"),
    ({0: np.inf}, r"class_weight\[0\] must.*found inf"),
    ({1: 1e39}, r"class_weight\[1\] must.*found 1e\+39"),
    ({0: None}, r"class_weight\[0\] must.*found None"),
    ({0: "2"}, r"class_weight\[0\] must.*found '2'"),
    ({0: [1.0]}, r"class_weight\[0\] must.*found \[1.0\]"),
    ({7: 1.0}, "class_weight must.*classes 0, 1; found the class 7"),
    ({"a": 1.0}, "class_weight must.*classes 0, 1; found the class 'a'"),
    ({0: 0, 1: 0.0}, "class_weight must not be 0 for every class"),
    (np.ones(2), "class_weight must be a dict.*found ndarray"),
    ([1.0, 2.0], "class_weight must be a dict.*found list"),
    (2.0, "class_weight must be a dict.*found float"),
    ("balanced_subsample", "class_weight must be a dict.*found 'balanced_subsample'"),
]


@pytest.mark.parametrize(("weights", "message"), INVALID_CLASS_WEIGHTS)
def test_invalid_class_weight_raises(weights, message):
    X, y = np.eye(2, dtype="float32")[[0, 1] * 4], np.array([0, 1] * 4)
    for kind in (ds.LVQ1, ds.LVQ2, ds.GLVQ, ds.GMLVQ, ds.GPLVQ):
        with pytest.raises((TypeError, ValueError), match=message):
            kind(class_weight=weights).fit(X, y)
    model = ds.SimplexClassifier(ds.backbones.mlp([2]), "vertices", num_classes=2, head="gaussian")
    model.compile()
    for method in (model.fit, model.train_on_batch):
        with pytest.raises((TypeError, ValueError), match=message):
            method(X, y, class_weight=weights)


@pytest.mark.parametrize(
    "regressor", [BayesianRidge(), make_pipeline(BayesianRidge()), GridSearchCV(Ridge(), {"alpha": [1.0]}, cv=2)]
)
def test_regressors_in_pipelines_receive_weights(regressor, wine):
    X, y = wine
    weights = np.arange(len(X)) % 3
    weighted = ds.LatentRegressionClassifier(regressor, "ilr").fit(X, y, sample_weight=weights)
    every = np.repeat(np.arange(len(X)), weights)
    repeated = ds.LatentRegressionClassifier(regressor, "ilr").fit(X[every], y[every])
    np.testing.assert_allclose(weighted.predict_latent(X).loc, repeated.predict_latent(X).loc, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "regressor", [GaussianProcessRegressor(), KNeighborsRegressor(), make_pipeline(KNeighborsRegressor())]
)
def test_regressor_without_sample_weight_takes_equal_weights_only(regressor, wine):
    X, y = wine
    with pytest.raises(ValueError, match=r"sample_weight needs a regressor whose fit takes it.*found a (K|G)"):
        ds.LatentRegressionClassifier(regressor, "ilr").fit(X, y, sample_weight=1.0 + np.arange(60) % 2)
    weighted = ds.LatentRegressionClassifier(regressor, "ilr").fit(X, y, sample_weight=np.full(60, 0.3))
    plain = ds.LatentRegressionClassifier(regressor, "ilr").fit(X, y)
    np.testing.assert_allclose(weighted.predict_proba(X), plain.predict_proba(X), rtol=1e-9)


def test_weights_divide_the_noise_of_the_default_regressor(wine):
    """As repeated samples do, up to the likelihood of the noise."""
    X, y = wine
    weights = 1 + np.arange(len(X)) % 3
    Z, every = (
        ds.targets.ILR().fit_transform(X, np.unique(y, return_inverse=True)[1]).loc,
        np.repeat(np.arange(len(X)), weights),
    )
    moments = [
        GaussianProcessRegressor(Matern(2.0) + WeightedWhiteKernel(0.1, weights=given), optimizer=None)
        .fit(X[rows], Z[rows])
        .predict(X, return_std=True)
        for rows, given in ((np.arange(len(X)), weights.astype(float)), (every, None))
    ]
    np.testing.assert_allclose(*moments, rtol=1e-6, atol=1e-9)
    classifier = ds.LatentRegressionClassifier(target="ilr").fit(X, y, sample_weight=weights)
    kernel = classifier.regressor_.kernel_
    _, analytic = kernel(classifier.scaler_.transform(X), eval_gradient=True)
    step = 1e-6
    shifted = kernel.clone_with_theta(kernel.theta + np.array([0.0, step]))
    numeric = (shifted(classifier.scaler_.transform(X)) - kernel(classifier.scaler_.transform(X))) / step
    np.testing.assert_allclose(analytic[..., 1], numeric, rtol=1e-4, atol=1e-12)
    assert classifier.score(X, y) == 1.0


def test_weights_that_make_a_regressor_predict_nan_raise(wine):
    X, y = wine
    classifier = ds.LatentRegressionClassifier(BayesianRidge(), "vertices")
    with pytest.raises(ValueError, match=r"regressor must.*BayesianRidge\(\) with a sample_weight that sums to 1:"):
        classifier.fit(X, y, sample_weight=np.full(60, 1 / 60))
    assert classifier.fit(X, y, sample_weight=np.ones(60)).score(X, y) == 1.0


def test_folds_may_be_those_of_scikit_learn(wine):
    """An iterable of splits is one of all rows, those without weight too."""
    X, y = wine
    weights = 1.0 * (np.arange(60) % 4 > 0)
    rows = np.arange(60)
    splits = [(rows[rows % 5 != k], rows[rows % 5 == k]) for k in range(5)]

    def residual(cv, *data, **options):
        return ds.LatentRegressionClassifier(LinearRegression(), "ilr", cv=cv).fit(*data, **options).residual_scale_

    kept = weights > 0
    expected = residual(PredefinedSplit((rows % 5)[kept]), X[kept], y[kept])
    assert residual(splits, X, y, sample_weight=weights) == pytest.approx(expected, rel=1e-9)
    for cv in (1, 2.5, "five", None):
        with pytest.raises(ValueError, match=f"cv must.*found {cv!r}"):
            residual(cv, X, y)


@pytest.mark.filterwarnings("ignore:prototypes")
@pytest.mark.parametrize("make", [ds.LVQ1, ds.LVQ2, ds.GLVQ, ds.GMLVQ, ds.GPLVQ])
def test_class_weight_equals_sample_weight(make):
    rng = np.random.default_rng(1)
    y = np.repeat(["common", "rare"], [200, 20])
    X = rng.normal(size=(220, 2)) + np.where(y == "rare", 1.5, 0.0)[:, None]
    balanced = make(class_weight="balanced").fit(X, y)
    named = make(class_weight={"common": 220 / 400, "rare": 220 / 40}).fit(X, y)
    weighted = make().fit(X, y, sample_weight=np.where(y == "rare", 220 / 40, 220 / 400))
    for other in (named, weighted):
        np.testing.assert_array_equal(other.predict_proba(X), balanced.predict_proba(X))
    assert balanced_accuracy_score(y, balanced.predict(X)) >= balanced_accuracy_score(y, make().fit(X, y).predict(X))


def test_network_classifier_in_grid_search_and_saved(wine, tmp_path):
    X, y = wine
    optimizer = keras.optimizers.Adam(0.1)
    pipeline = make_pipeline(StandardScaler(), clone(NETWORK).set_params(optimizer=optimizer, scale_features=False))
    grid = {"simplexnetworkclassifier__loss": ["sparse_categorical_crossentropy"]}
    search = GridSearchCV(pipeline, grid, cv=2, scoring="neg_log_loss").fit(X, y)
    assert search.best_score_ < 0.0
    assert not optimizer.built
    X, best = search.best_estimator_[0].transform(X), search.best_estimator_[1]
    best.model_.save(tmp_path / "wine.keras")
    loaded = ds.load(tmp_path / "wine.keras")
    assert loaded.class_names == best.classes_.tolist()
    np.testing.assert_allclose(loaded.predict_proba(X.astype("float32")), best.predict_proba(X), atol=1e-5)
    again = clone(best).fit(X, y)
    np.testing.assert_array_equal(again.predict_proba(X), best.predict_proba(X))
    assert np.abs(clone(best).set_params(random_state=1).fit(X, y).predict_proba(X) - best.predict_proba(X)).max() > 0
    with pytest.raises(ValueError, match=r"backbone must.*found the model 'mlp'"):
        ds.estimators.SimplexNetworkClassifier(ds.backbones.mlp([4])).fit(X, y)


def test_explain_of_network_uses_class_names(wine):
    X, y = wine
    classifier = clone(NETWORK).set_params(head="prototypes", target="vertices").fit(X, y)
    explained = classifier.model_.explain(X, k=2)
    numbers = classifier.model_.head.explain(X, k=2, backbone=classifier.model_.backbone).labels
    np.testing.assert_array_equal(explained.labels, classifier.classes_[numbers])
    with pytest.raises(
        ValueError, match="explain needs a head of prototypes, as head='prototypes'; found GaussianHead"
    ):
        clone(NETWORK).fit(X, y).model_.explain(X)


@pytest.mark.parametrize("name", ["x", "y", "sample_weight", "epochs", "batch_size"])
def test_options_of_fit_that_are_other_arguments_raise(name):
    with pytest.raises(ValueError, match=f"^fit_options must not hold {name}: "):
        clone(NETWORK).set_params(fit_options={name: 2}).fit(np.eye(4), [0, 1, 0, 1])


@pytest.fixture
def network():
    model = ds.SimplexClassifier(ds.backbones.mlp([8]), num_classes=3)
    model.compile()
    return model


def test_sample_weights_that_are_all_zero_raise(network):
    x, y = load_wine(return_X_y=True)
    with pytest.raises(ValueError, match=r"^sample_weight must.*not all zero"):
        network.fit(x, y, sample_weight=np.zeros(len(y)), verbose=0)


def test_validation_data_without_labels_raise(network):
    x, y = load_wine(return_X_y=True)
    with pytest.raises(ValueError, match=r"^validation_data must.*found ndarray$"):
        network.fit(x, y, validation_data=x, verbose=0)


def test_list_of_samples_raises_with_the_array_to_pass(network):
    x, y = load_wine(return_X_y=True)
    with pytest.raises(ValueError, match=r"^x and y must.*A list of samples becomes numpy.array\(x\)$"):
        network.fit(list(x), y, verbose=0)
