"""The scikit-learn classifiers: scikit-learn's own checks, labels of every kind, and common uses."""

import pickle
import re

import numpy as np
import pytest
import tensorflow as tf
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.cross_decomposition import PLSRegression
from sklearn.datasets import load_iris, load_wine
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import BayesianRidge, LinearRegression, MultiTaskLasso
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

import deepsimplex as ds

CLASSIFIERS = {
    "exact": ds.SimplexGaussianProcess("ilr", max_iter=10),
    "exact, Dirichlet": ds.SimplexGaussianProcess("dirichlet", max_iter=10),
    "collapsed": ds.SimplexGaussianProcess("ilr", inference="collapsed", inducing=20, max_iter=10),
    "stochastic": ds.SimplexGaussianProcess("ilr", inference="stochastic", inducing=20, epochs=5, batch_size=16),
    "categorical": ds.CategoricalGaussianProcess(inducing=20, epochs=5, batch_size=16),
    "CASIMAC": ds.LatentRegressionClassifier(KNeighborsRegressor(), ds.targets.CASIMAC()),
}
each_classifier = pytest.mark.parametrize("classifier", CLASSIFIERS.values(), ids=CLASSIFIERS)


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    return X[::2], y[::2], X[1::2], y[1::2]


def fitted(classifier, *data):
    return clone(classifier).fit(*data)


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classes_are_labels_of_any_type(name, wine):
    """The order of the classes is that of their inducing points too, and of the minibatches' random numbers."""
    classifier, difference = CLASSIFIERS[name], 1e-3 if name.startswith(("exact", "CASIMAC")) else 0.25
    X, y, X_test, y_test = wine
    names = np.array(["red", "white", "amber"])
    named = fitted(classifier, X, names[y])
    np.testing.assert_array_equal(named.classes_, np.sort(names))
    p = fitted(classifier, X, y).predict_proba(X_test)
    np.testing.assert_allclose(named.predict_proba(X_test)[:, [1, 2, 0]], p, atol=difference)
    assert np.mean(named.predict(X_test) == names[y_test]) > 0.6
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.exp(named.predict_log_proba(X_test)), named.predict_proba(X_test), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("inference", "target"),
    [
        *[("exact", target) for target in ("ilr", "dirichlet", "one_hot")],
        ("collapsed", "dirichlet"),  # whose noise differs between dimensions
        ("stochastic", "ilr"),
    ],
)
def test_label_targets_classify_wine(target, inference, wine):
    X, y, X_test, y_test = wine
    classifier = ds.SimplexGaussianProcess(target, inference, inducing=30, batch_size=30).fit(X, y)
    p = classifier.predict_proba(X_test)
    assert ds.evaluation.accuracy(y_test, p) > 0.94
    assert ds.evaluation.negative_log_likelihood(y_test, p) < 0.6


def test_distance_targets_do_not_depend_on_units(wine):
    X, y, X_test, y_test = wine
    for classifier in (ds.SimplexGaussianProcess("casimac"), ds.LatentRegressionClassifier()):
        assert classifier.fit(X, y).score(X_test, y_test) > 0.94
        assert ds.evaluation.negative_log_likelihood(y_test, classifier.predict_proba(X_test)) < 0.1


def test_custom_distances(wine):
    X, y, X_test, _ = wine
    scaler = StandardScaler().fit(X)
    X, X_test = scaler.transform(X), scaler.transform(X_test)

    def manhattan(a, b):
        return np.abs(a - b).sum()

    custom = ds.LatentRegressionClassifier(KNeighborsRegressor(), ds.targets.CASIMAC(manhattan)).fit(X, y)
    named = ds.LatentRegressionClassifier(KNeighborsRegressor(), ds.targets.CASIMAC("cityblock")).fit(X, y)
    np.testing.assert_allclose(custom.predict_proba(X_test), named.predict_proba(X_test), rtol=1e-6)
    assert not custom.target.is_fitted


@pytest.mark.slow
@pytest.mark.parametrize("inference", ["stochastic", "categorical"])
def test_defaults_classify_small_data(inference):
    X, y = load_iris(return_X_y=True)
    categorical = inference == "categorical"
    process = ds.CategoricalGaussianProcess() if categorical else ds.SimplexGaussianProcess("ilr", inference)
    classifier = process.fit(X[::2], y[::2])
    assert classifier.score(X[1::2], y[1::2]) > 0.93
    assert ds.evaluation.negative_log_likelihood(y[1::2], classifier.predict_proba(X[1::2])) < 0.35


@pytest.mark.slow
@pytest.mark.parametrize("inference", ["collapsed", "stochastic", "categorical"])
def test_separate_inducing_points(inference, wine):
    X, y, X_test, y_test = wine
    make = ds.CategoricalGaussianProcess if inference == "categorical" else ds.SimplexGaussianProcess
    options = {} if inference == "categorical" else {"target": "ilr", "inference": inference}
    classifier = make(**options, inducing=4, separate_inducing=True, batch_size=30).fit(X, y)
    supports = classifier.regressor_.posterior_.support.numpy()
    assert supports.shape == (2, 4, X.shape[1])
    assert np.abs(supports[0] - supports[1]).max() > 0.1
    assert classifier.score(X_test, y_test) > 0.85


def test_absent_class_keeps_column(wine):
    X, y, X_test, _ = wine
    some = y != 1
    p = [
        ds.SimplexGaussianProcess(classes=classes).fit(X[some], y[some]).predict_proba(X_test)
        for classes in ([0, 1, 2], [2, 0, 1])
    ]
    assert p[0].shape == (len(X_test), 3)
    assert p[0][:, 1].max() < 0.34
    np.testing.assert_array_equal(p[1], p[0])


# What meta-estimators and scorers do with classes: any classifier is an example.
UNSORTED = ds.GLVQ(classes=["white", "red", "amber"])


@pytest.mark.parametrize("scoring", ["neg_log_loss", "roc_auc_ovr", "neg_brier_score", "accuracy"])
def test_scorers_do_not_depend_on_the_order_of_classes(scoring, wine):
    X, y, *_ = wine
    names = np.array(["red", "white", "amber"])[y]
    scores = [cross_val_score(one, X, names, scoring=scoring, cv=3) for one in (UNSORTED, ds.GLVQ())]
    np.testing.assert_array_equal(*scores)


def test_classes_of_soft_labels_name_their_columns(wine):
    """The columns of probabilities are those of the sorted classes, from arrays and from streams of several batches."""
    X, y, X_test, y_test = wine
    soft, names = (0.9 * np.eye(3)[y] + 0.1 / 3).astype("float32"), np.array(["white", "red", "amber"])
    process = ds.SimplexGaussianProcess(
        "vertices", "stochastic", classes=names, inducing=20, epochs=5, scale_features=True
    )
    stream = tf.data.Dataset.from_tensor_slices((X, soft)).batch(30)
    for data in ((stream,), (X, soft)):
        classifier = clone(process).fit(*data)
        np.testing.assert_array_equal(classifier.classes_, ["amber", "red", "white"])
        assert classifier.score(X_test, names[y_test]) > 0.8


RENUMBERING = {
    "Voting": lambda one, X, y: VotingClassifier([("one", one)], voting="soft").fit(X, y),
    "Bagging": lambda one, X, y: BaggingClassifier(one, 2).fit(X, y),
    "Stacking": lambda one, X, y: StackingClassifier([("one", one)], cv=2).fit(X, y),
    "cross_val_predict": lambda one, X, y: cross_val_predict(one, X, y, method="predict_proba", cv=2),
    "OneVsRest": lambda one, X, y: OneVsRestClassifier(one).fit(X, y),
}


@pytest.mark.parametrize("fit", RENUMBERING.values(), ids=RENUMBERING)
def test_meta_estimators_that_renumber_labels_are_named(fit, wine):
    X, y, *_ = wine
    with pytest.raises(ValueError, match=r"classes=.* does not: \[0, 1.*BaggingClassifier"):
        fit(clone(UNSORTED), X, np.array(["red", "white", "amber"])[y])
    fit(ds.GLVQ(classes=[2, 0, 1]), X, y)


def test_class_numbers_in_place_of_names_raise_after_fit(wine):
    X, y, *_ = wine
    classifier = ds.GLVQ().fit(X, np.array(["red", "white", "amber"])[y])
    with pytest.raises(ValueError, match=r"does not: \[0, 1, 2\], the first in row 0$"):
        classifier.calibrate(X, y)


def test_column_vector_labels_warn_at_caller(wine):
    X, y, X_test, _ = wine
    classifier = ds.LatentRegressionClassifier(KNeighborsRegressor(), "ilr")
    p = classifier.fit(X, y).predict_proba(X_test)
    with pytest.warns(DataConversionWarning, match="A column-vector y was passed") as warned:
        classifier.fit(X, y[:, np.newaxis])
    assert [warning.filename for warning in warned] == [__file__]
    np.testing.assert_array_equal(classifier.predict_proba(X_test), p)


@pytest.mark.slow
def test_soft_labels(wine):
    X, y, X_test, _ = wine
    hard = ds.SimplexGaussianProcess().fit(X, y)
    shares = ds.SimplexGaussianProcess(classes=["a", "b", "c"]).fit(X, np.eye(3)[y])
    np.testing.assert_allclose(shares.predict_proba(X_test), hard.predict_proba(X_test), atol=1e-6)
    assert set(shares.predict(X_test)) == {"a", "b", "c"}
    soft = ds.SimplexGaussianProcess().fit(X, 0.6 * np.eye(3)[y] + 0.4 / 3)
    assert soft.predict_proba(X_test).max() < hard.predict_proba(X_test).max()
    for classes in (["a", "b"], ["a", "b", "a"], "abc"):
        with pytest.raises(ValueError, match="classes must hold 3 different names, one for each column of soft labels"):
            ds.SimplexGaussianProcess(classes=classes).fit(X, np.eye(3)[y])


def test_two_ilr_classes_are_one_gaussian_process(wine):
    """The latent is one number, a multiple of that of regression onto +1 and -1."""
    X, y, X_test, _ = wine
    X, y = X[y < 2], y[y < 2]
    latent = ds.SimplexGaussianProcess("ilr", noise="learned").fit(X, y).predict_latent(X_test)
    signs = ds.LatentGaussian(np.where(y == 0, 1.0, -1.0)[:, None], np.zeros((len(y), 1)))
    single = ds.gp.ExactGaussianProcess().fit(X, signs).predict(X_test)
    size = ds.targets.ILR().fit_transform(None, [0], num_classes=2).loc[0, 0]
    np.testing.assert_allclose(latent.loc, size * single.loc, rtol=1e-3, atol=1e-3 * abs(size))
    np.testing.assert_allclose(latent.scale, abs(size) * single.scale, rtol=1e-3)


@pytest.mark.slow
@each_classifier
def test_pickle_and_refit_predict_the_same(classifier, wine):
    X, y, X_test, _ = wine
    one, other = fitted(classifier, X, y), fitted(classifier, X, y)
    p = one.predict_proba(X_test)
    np.testing.assert_array_equal(other.predict_proba(X_test), p)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(one)).predict_proba(X_test), p)
    order = np.random.default_rng(0).permutation(len(X_test))
    np.testing.assert_allclose(one.predict_proba(X_test[order]), p[order], rtol=1e-10)


@each_classifier
def test_failed_refit_keeps_earlier_fit(classifier, wine):
    """The refit has other features and classes, and fails in its last step."""
    X, y, X_test, _ = wine
    again = fitted(classifier, X, y)
    watch = {"callback": lambda step: interrupted(again, X_test)}
    if isinstance(classifier, ds.LatentRegressionClassifier):
        watch = {}
        again.set_params(regressor=Patchy(None))  # whose deviations cannot be had
    before, loc = dict(vars(again)), again.predict_latent(X_test).loc
    for features, error in ((np.full_like(X, np.nan), ValueError), (X[:, :2], (KeyboardInterrupt, TypeError))):
        with pytest.raises(error):
            again.fit(features, np.where(y == 0, "a", "b"), **watch)
        assert vars(again).keys() == before.keys()
        assert all(value is before[name] for name, value in vars(again).items())
        np.testing.assert_array_equal(again.predict_latent(X_test).loc, loc)
    first = clone(classifier)
    with pytest.raises(ValueError, match="NaN"):
        first.fit(np.full_like(X, np.nan), y)
    with pytest.raises(NotFittedError):
        first.predict(X)


def interrupted(classifier, X):
    """Check that the classifier is unfitted during a refit, then interrupt it."""
    with pytest.raises(NotFittedError):
        classifier.predict(X)
    raise KeyboardInterrupt


DRAWN = {
    "stochastic": ds.SimplexGaussianProcess("ilr", inference="stochastic", inducing=20, epochs=1, batch_size=16),
    "categorical": ds.CategoricalGaussianProcess(inducing=20, epochs=1, batch_size=16),
    "residuals": ds.LatentRegressionClassifier(KNeighborsRegressor(), "ilr"),
}


@pytest.mark.parametrize("classifier", DRAWN.values(), ids=DRAWN)
def test_random_generator_draws_new_seed_for_every_fit(classifier, wine):
    X, y, X_test, _ = wine

    def answers(random_state, fits=1):
        one = clone(classifier).set_params(random_state=random_state)
        return [one.fit(X, y).predict_latent(X_test).scale for _ in range(fits)]

    first, second = answers(np.random.RandomState(3), fits=2)
    assert np.abs(first - second).max() > 0
    drawn = np.random.RandomState(3).randint(np.iinfo(np.int32).max)
    np.testing.assert_array_equal(first, *answers(int(drawn)))
    global_state = np.random.get_state()  # noqa: NPY002
    np.random.seed(3)  # noqa: NPY002
    np.testing.assert_array_equal(first, *answers(None))
    np.random.set_state(global_state)  # noqa: NPY002


@each_classifier
@pytest.mark.parametrize("random_state", [-1, 2**32, 0.5, True, "0", np.random.default_rng(0)])
def test_invalid_random_state_raises(classifier, random_state, wine):
    X, y, *_ = wine
    value = repr(random_state).split(" at ")[0]  # clone copies a Generator
    with pytest.raises(ValueError, match=rf"random_state must.*found {re.escape(value)}"):
        clone(classifier).set_params(random_state=random_state).fit(X, y)


@pytest.mark.slow
def test_decision_function_and_intervals(wine):
    X, y, X_test, _ = wine
    classifier = ds.SimplexGaussianProcess("ilr").fit(X, y)
    decision = classifier.decision_function(X_test)
    np.testing.assert_array_equal(decision.argmax(axis=1), classifier.predict(X_test))
    distance = classifier.decision_function(X_test, pair=(0, 2))
    latent = classifier.predict_latent(X_test)
    expected = ds.readout.decision_function(latent, 0, 2, classifier.target_.scores_)
    np.testing.assert_array_equal(distance, expected)
    intervals = classifier.class_intervals(X_test, level=0.9)
    expected = ds.readout.class_intervals(latent, 0.9, classifier.target_.scores_, "softmax")
    np.testing.assert_array_equal(intervals, expected)
    assert (intervals.upper - intervals.lower).mean() > 0.01
    lower, upper = classifier.set_params(readout="argmax").class_intervals(X_test, level=0.9)
    np.testing.assert_allclose(lower, classifier.predict_proba(X_test), atol=1e-9)
    np.testing.assert_allclose(upper, lower, atol=1e-9)
    with pytest.raises(ValueError, match="pair must hold two of classes_"):
        classifier.decision_function(X_test, pair=(0, "red"))


@pytest.mark.slow
def test_pipelines_and_grid_search(wine):
    X, y, *_ = wine
    pipeline = make_pipeline(StandardScaler(), ds.SimplexGaussianProcess("ilr", scale_features=False, max_iter=30))
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.9
    grid = {"target": [ds.targets.ILR(0.9), ds.targets.ILR(0.999), "dirichlet"]}
    search = GridSearchCV(ds.SimplexGaussianProcess("ilr", max_iter=10), grid, scoring="neg_log_loss", cv=3).fit(X, y)
    assert search.best_score_ > -0.5


def test_grid_search_over_parameters_of_targets_and_distances(wine):
    X, y, *_ = wine
    grid = {"target__smoothing": [0.5, 0.999]}
    for target in ("ilr", ds.targets.ILR()):
        search = GridSearchCV(ds.LatentRegressionClassifier(LinearRegression(), target), grid, cv=2).fit(X, y)
        assert {row["target__smoothing"] for row in search.cv_results_["params"]} == {0.5, 0.999}
        assert search.best_estimator_.target_.smoothing == search.best_params_["target__smoothing"]
    casimac = ds.LatentRegressionClassifier(KNeighborsRegressor(), ds.targets.CASIMAC())
    assert clone(casimac).set_params(target__repulsion_number=3).target.repulsion_number == 3
    assert casimac.target.repulsion_number == 1


def test_regressors_without_std_use_residuals(wine):
    X, y, X_test, y_test = wine
    classifier = ds.LatentRegressionClassifier(make_pipeline(StandardScaler(), LinearRegression()), "ilr").fit(X, y)
    assert classifier.residual_scale_ > 0
    p = classifier.predict_proba(X_test)
    assert ds.evaluation.accuracy(y_test, p) > 0.94
    assert ds.evaluation.negative_log_likelihood(y_test, p) < 0.4


@pytest.mark.slow
def test_latents_include_documented_noise():
    """Many equal rows determine the latent function well, but not a single observation."""
    X, y = np.zeros((300, 1)), np.arange(300) % 2
    noise = float(np.std(ds.targets.ILR().fit_transform(X, y).loc))

    def deviation(classifier):
        return float(classifier.fit(X, y).predict_latent(X[:1]).scale[0, 0])

    for stated in ({"target": ds.targets.ILR(noise_scale=noise)}, {"target": "ilr", "noise": "learned"}):
        assert deviation(ds.SimplexGaussianProcess(**stated)) < 0.1 * noise
    residuals = ds.LatentRegressionClassifier(LinearRegression(), "ilr")
    white = ds.LatentRegressionClassifier(target="ilr")
    assert deviation(residuals) == pytest.approx(noise, rel=0.02)
    assert deviation(ds.LatentRegressionClassifier(BayesianRidge(), "ilr")) == pytest.approx(noise, rel=0.02)
    assert deviation(white) == pytest.approx(noise, rel=0.02)
    alpha = GaussianProcessRegressor(alpha=noise**2, optimizer=None)
    assert deviation(ds.LatentRegressionClassifier(alpha, "ilr")) < 0.1 * noise


@pytest.mark.parametrize("regressor", [MultiTaskLasso(0.01), PLSRegression(1)])
def test_matrix_output_regressors_with_two_classes(regressor, wine):
    X, y, X_test, y_test = wine
    few, few_test = y < 2, y_test < 2
    classifier = ds.LatentRegressionClassifier(regressor, "ilr").fit(X[few], y[few])
    latents = classifier.target_.fit_transform(X[few], y[few], num_classes=2).loc
    assert classifier.residual_scale_ < latents.std()
    assert classifier.score(X_test[few_test], y_test[few_test]) > 0.85


def test_single_output_regressors_with_two_classes(wine):
    X, y, X_test, y_test = wine
    classifier = ds.LatentRegressionClassifier(BayesianRidge(), "ilr").fit(X[y < 2], y[y < 2])
    assert classifier.residual_scale_ is None
    assert classifier.score(X_test[y_test < 2], y_test[y_test < 2]) > 0.9


ONE_OUTPUT = {
    "itself": BayesianRidge(),
    "pipeline": make_pipeline(StandardScaler(), BayesianRidge()),
    "pipeline of one step": make_pipeline(BayesianRidge()),
    "search": GridSearchCV(make_pipeline(StandardScaler(), BayesianRidge()), {"bayesianridge__alpha_1": [1e-6]}),
    "pipeline of a search": make_pipeline(StandardScaler(), GridSearchCV(BayesianRidge(), {"alpha_1": [1e-6]})),
}


@pytest.mark.parametrize("regressor", ONE_OUTPUT.values(), ids=ONE_OUTPUT)
def test_single_output_regressors_fit_every_dimension_and_keep_std(regressor, wine):
    X, y, X_test, y_test = wine
    classifier = ds.LatentRegressionClassifier(regressor, "ilr", scale_features=False).fit(X, y)
    assert (classifier.residual_scale_, classifier.covariance_) == (None, "diagonal")
    Z = ds.targets.ILR().fit_transform(X, y).loc
    columns = [clone(ONE_OUTPUT["pipeline" if "StandardScaler" in repr(regressor) else "itself"]) for _ in range(2)]
    moments = [column.fit(X, z).predict(X_test, return_std=True) for column, z in zip(columns, Z.T, strict=True)]
    latent = classifier.predict_latent(X_test)
    np.testing.assert_allclose(latent.loc, np.stack([mean for mean, _ in moments], axis=1), rtol=1e-9)
    np.testing.assert_allclose(latent.scale, np.stack([deviation for _, deviation in moments], axis=1), rtol=1e-9)
    assert classifier.score(X_test, y_test) > 0.9


@pytest.mark.parametrize("regressor", [SVR(), make_pipeline(StandardScaler(), SVR())], ids=["itself", "pipeline"])
def test_single_output_regressors_without_std_use_residuals(regressor, wine):
    X, y, X_test, y_test = wine
    scaler = StandardScaler().fit(X)
    classifier = ds.LatentRegressionClassifier(regressor, "ilr").fit(scaler.transform(X), y)
    assert classifier.residual_scale_ > 0
    assert classifier.predict_latent(X_test).covariance == classifier.covariance_ == "isotropic"
    assert classifier.score(scaler.transform(X_test), y_test) > 0.93


def test_transformed_target_regressor_uses_residuals(wine):
    X, y, *_ = wine
    regressor = TransformedTargetRegressor(BayesianRidge(), transformer=StandardScaler())
    assert ds.LatentRegressionClassifier(regressor, "ilr").fit(X, y).residual_scale_ > 0


FAST = {"class_name": "Adam", "config": {"learning_rate": 0.1}}
CERTAIN = {
    "argmax": ds.LatentRegressionClassifier(LinearRegression(), "vertices"),
    "softmax": ds.LatentRegressionClassifier(LinearRegression(), "ilr"),
    "diagonal": ds.LatentRegressionClassifier(BayesianRidge(), "ilr"),
    "class without samples": ds.GLVQ(classes=[0, 1, 2, 3]),
    "GPLVQ": ds.GPLVQ(),
    "network": ds.estimators.SimplexNetworkClassifier(
        {"name": "mlp", "hidden": [4]}, "vertices", head="gaussian", optimizer=FAST, epochs=3
    ),
}


@pytest.mark.parametrize("calibration", [None, "temperature", "isotonic"])
@pytest.mark.parametrize("classifier", CERTAIN.values(), ids=CERTAIN)
def test_log_probabilities_have_one_floor(classifier, calibration, wine):
    """Far from the training samples probabilities underflow; softmax ones below 1e-30 are averages over samples."""
    X, y, X_test, y_test = wine
    classifier = clone(classifier).fit(X, y)
    if calibration is not None:
        if len(classifier.classes_) > 3 and calibration == "isotonic":
            pytest.skip("isotonic curves need samples of every class")
        some_wrong = np.where(np.arange(len(y_test)) % 15, y_test, (y_test + 1) % 3)
        classifier.calibrate(X_test, some_wrong, calibration)
    far = np.concatenate([X_test, 1e2 * X_test, 1e5 * X_test])
    p, logarithms = classifier.predict_proba(far), classifier.predict_log_proba(far)
    least = np.finfo(p.dtype).tiny
    assert logarithms.min() >= np.log(least)
    np.testing.assert_allclose(logarithms, np.log(np.maximum(p, least)), rtol=0.03, atol=1e-6)
    if calibration is None:
        np.testing.assert_array_equal(classifier.decision_function(far).argmax(axis=1), classifier.predict(far))


def test_diverging_network_raises_and_keeps_earlier_fit(wine):
    X, y, X_test, _ = wine
    network = ds.estimators.SimplexNetworkClassifier({"name": "mlp", "hidden": [4]}, head="gaussian", epochs=1)
    p = network.fit(X, y).predict_proba(X_test)
    network.set_params(optimizer={"class_name": "SGD", "config": {"learning_rate": 1e20}})
    with pytest.raises(ValueError, match=r"optimizer must keep the network finite.*learning rate of 1e\+20"):
        network.fit(X, y)
    np.testing.assert_array_equal(network.predict_proba(X_test), p)


class Patchy(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Returns one standard deviation for all outputs of some rows only."""

    def __init__(self, differ):
        self.differ = differ

    def fit(self, X, Z):
        self.mean_ = Z.mean(axis=0)
        return self

    def predict(self, X, return_std=False):
        mean = np.tile(self.mean_, (len(X), 1))
        other = np.where(self.differ(X[:, 0]), 2.0, 1.0)
        return (mean, np.stack([np.ones(len(X)), other], axis=1)) if return_std else mean


@pytest.mark.parametrize(
    ("differ", "covariance"),
    [(lambda x: x > 13, "diagonal"), (lambda x: x > 1e6, "isotropic")],
    ids=["among training samples", "far away"],
)
def test_covariance_type_is_set_by_fit(differ, covariance, wine):
    """Rows are answered by themselves: neither their order nor the size of a batch matters."""
    X, y, X_test, _ = wine
    classifier = ds.LatentRegressionClassifier(Patchy(differ), "ilr", scale_features=False).fit(X, y)
    X_test = np.concatenate([X_test[:6], [[1e7, *X[0, 1:]]]])
    p = classifier.predict_proba(X_test)
    for row in range(len(X_test)):
        assert classifier.predict_latent(X_test[[row]]).covariance == classifier.covariance_ == covariance
        np.testing.assert_allclose(classifier.predict_proba(X_test[[row]])[0], p[row], rtol=1e-10)
    np.testing.assert_allclose(classifier.predict_proba(X_test[::-1])[::-1], p, rtol=1e-10)


def test_default_regressor_is_that_of_the_paper():
    X, y = load_iris(return_X_y=True)
    classifier = ds.LatentRegressionClassifier().fit(X[::2], y[::2])
    assert classifier.predict_latent(X[1::2]).covariance == "isotropic"
    assert classifier.score(X[1::2], y[1::2]) > 0.93


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"inference": "exactly"}, r"inference must.*found 'exactly'"),
        ({"readout": "max"}, r"readout must.*found 'max'"),
        ({"classes": [0, 1]}, "labels that classes=.* does not"),
        ({"classes": [0, 1, 1, 2]}, r"classes must.*found \[0, 1, 1, 2\]"),
        ({"target": "ilrr"}, "did you mean"),
    ],
)
def test_invalid_argument_raises(arguments, message, wine):
    X, y, *_ = wine
    with pytest.raises(ValueError, match=message):
        ds.SimplexGaussianProcess(**{"target": "ilr"} | arguments).fit(X, y)
