"""Class frequencies and rules of decision of classifiers: every prediction, files, exports, further training."""

import copy

import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.base import clone
from sklearn.datasets import load_wine

import deepsimplex as ds
from deepsimplex import evaluation
from deepsimplex.calibration import DecisionRule, ExpectedCost, RiskControl


@pytest.fixture(scope="module")
def four(four):
    (x, y), (x_test, y_test) = four
    return (x[:150], y[:150]), (x[150:], y[150:]), (x_test, y_test)


@pytest.fixture(scope="module")
def trained(four):
    keras.utils.set_random_seed(0)
    names = ["zero", "one", "two", "three"]
    model = ds.SimplexClassifier(ds.backbones.mlp([16]), "vertices", head="gaussian", class_names=names)
    model.compile(keras.optimizers.Adam(0.02), metrics=[ds.metrics.NegativeLogLikelihood()], run_eagerly=True)
    model.fit(*four[0], epochs=4, batch_size=50, verbose=0)
    return model


@pytest.fixture
def model(trained):
    return copy.deepcopy(trained)


@pytest.mark.parametrize("method", ["bias_corrected_temperature", "latent"])
def test_every_prediction_is_for_the_frequencies_that_are_set(method, model, four, tmp_path):
    x, y = four[2]
    model.calibrate(*four[1], method)
    before, raw = model.predict_proba(x), model(x, training=True).numpy()
    w = {"zero": 0.1, "one": 0.2, "three": 0.3, "two": 0.4}
    priors = model.set_priors(w).priors
    np.testing.assert_allclose(priors.trained, model._without_priors(four[1][0]).mean(axis=0), rtol=1e-5)
    np.testing.assert_array_equal(priors.frequencies_, [0.1, 0.2, 0.4, 0.3])
    expected = before * priors.frequencies_ / priors.trained
    expected /= expected.sum(axis=1, keepdims=True)
    assert np.abs(expected - before).max() > 0.05
    for p in (model.predict_proba(x), model.predict(x, verbose=0), model(x).numpy(), model.predict_on_batch(x)):
        np.testing.assert_allclose(p, expected, atol=1e-5)
    np.testing.assert_array_equal(model(x, training=True), raw)
    nll = model.evaluate(x, y, verbose=0, return_dict=True)["negative_log_likelihood"]
    assert nll == pytest.approx(evaluation.negative_log_likelihood(y, expected), rel=1e-4)
    model.save(tmp_path / "model.keras")
    np.testing.assert_allclose(ds.load(tmp_path / "model.keras").predict_proba(x), expected, atol=1e-5)
    model.export(tmp_path / "served")
    served = ds.export.load_served(tmp_path / "served").predict(x)
    np.testing.assert_allclose(served["class_probabilities"], expected, atol=1e-5)
    np.testing.assert_allclose(model.set_priors(None).predict_proba(x), before, atol=1e-6)


def test_metrics_of_a_closed_form_head_are_for_the_frequencies_that_are_set(four):
    (x, y), _, (x_test, y_test) = four
    model = ds.SimplexClassifier(keras.Sequential([keras.Input((8, 8)), keras.layers.Flatten()]), num_classes=4)
    model.compile(metrics=[ds.metrics.NegativeLogLikelihood()])
    model.fit(x, y, verbose=0)
    model.set_priors([1, 2, 3, 4], trained=np.bincount(y))
    nll = model.evaluate(x_test, y_test, verbose=0, return_dict=True)["negative_log_likelihood"]
    assert nll == pytest.approx(evaluation.negative_log_likelihood(y_test, model.predict_proba(x_test)), rel=1e-4)


RULES = {
    "costs": ExpectedCost(1 - np.eye(4), abstention=0.3),
    "error": RiskControl(0.1),
    "misses": RiskControl(0.3, "false_negative_rate", positive="two"),
    "rejections": RiskControl(0.3, "rejection_rate"),
    "coverage": RiskControl(0.3, "miscoverage", method="conformal"),
}


@pytest.mark.parametrize("name", RULES)
def test_rule_decides_in_model_file_and_saved_model(name, model, four, tmp_path):
    x, y = four[2]
    rule, p = RULES[name], model.predict_proba(x)
    model.set_decision(rule, *(four[1] if rule.fitted_attributes else ()))
    decided = model.decide(x)
    np.testing.assert_array_equal(decided, model.decision_rule.decide(p))
    if name == "misses":
        assert (decided[y == 2] == 2).mean() > 0.6
        assert model.decision_rule is not rule
    else:
        least = 0 if name == "error" else 1  # errors are rarer than the bound
        assert least <= np.sum(decided == -1) < len(x)
        np.testing.assert_array_equal(decided[decided >= 0], p.argmax(axis=1)[decided >= 0])
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(ds.load(tmp_path / "model.keras").decide(x), decided)
    if name in ("costs", "misses"):  # the others are served as the misses are
        model.export(tmp_path / "served")
        served = ds.export.load_served(tmp_path / "served").predict(x)["decision"]
        assert served.dtype == np.int64
        assert np.mean(served == decided) > 0.99  # one at the threshold may be rounded to the other side
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(model.decision_rule))
    assert again.get_config() == model.decision_rule.get_config()


def test_training_removes_frequencies_and_rules_that_were_fitted(model, four):
    model.set_priors([1, 2, 3, 4], trained=[1, 1, 1, 1]).set_decision(RiskControl(0.3), *four[1])
    with (
        pytest.warns(UserWarning, match="training changes the probabilities, and removes the class frequencies"),
        pytest.warns(UserWarning, match="training changes the probabilities, and removes the rule"),
    ):
        model.fit(*four[0], verbose=0)
    assert model.priors is model.decision_rule is None
    model.set_decision(RULES["costs"]).fit(*four[0], verbose=0)
    assert model.decision_rule is RULES["costs"]


@keras.saving.register_keras_serializable(package="tests")
class Threshold(DecisionRule):
    def __init__(self, threshold=0.2):
        self.threshold = threshold

    def decide_tensor(self, p):
        return tf.cast(p[:, 1] >= self.threshold, tf.int64)


def test_rule_of_a_user_is_saved(model, four, tmp_path):
    x = four[2][0]
    model.set_decision(Threshold(0.4)).save(tmp_path / "model.keras")
    decided = ds.load(tmp_path / "model.keras").decide(x)
    np.testing.assert_array_equal(decided, model.predict_proba(x)[:, 1] >= 0.4)


CLASSIFIERS = {
    "closed form": ds.SimplexGaussianProcess(),
    "process": ds.SimplexGaussianProcess("dirichlet", readout="argmax", max_iter=3),
    "categorical": ds.CategoricalGaussianProcess(inducing=10, epochs=2, batch_size=30),
    "lvq": ds.GLVQ(max_iter=5),
    "gplvq": ds.GPLVQ(prototypes_per_class=1, max_iter=3),
    "regression": ds.LatentRegressionClassifier(),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.filterwarnings("ignore:the hyperparameters were still moving")
def test_estimators_decide_for_other_frequencies(name, tmp_path):
    X, y = load_wine(return_X_y=True)
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), np.array(["a", "b", "c"])[y]
    X = X.astype(np.float32).astype(np.float64)[:, :3]
    classifier = clone(CLASSIFIERS[name]).fit(X[::3], y[::3])
    before = classifier.predict_proba(X)
    classifier.set_priors({"a": 1, "b": 1, "c": 8}, trained={"c": 1, "a": 1, "b": 1})
    p = before * [1, 1, 8]
    p /= p.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(classifier.predict_proba(X), p, rtol=1e-9)
    np.testing.assert_allclose(np.exp(classifier.predict_log_proba(X)), p, atol=1e-9)
    np.testing.assert_array_equal(classifier.predict(X), classifier.classes_[p.argmax(axis=1)])
    classifier.set_decision(ExpectedCost(1 - np.eye(3), abstention=0.4))
    decided = classifier.decide(X)
    likely = p.max(axis=1) > 0.6
    np.testing.assert_array_equal(decided, np.where(likely, classifier.predict(X), "unknown"))
    np.testing.assert_array_equal(classifier.decide(X, abstention="?") == "?", ~likely)
    with pytest.raises(ValueError, match="abstention must be a value besides classes_, a, b, c; found 'b'"):
        classifier.decide(X, abstention="b")
    if name != "regression":  # its regressor is not one of ours
        classifier.save(tmp_path / "c.npz")
        loaded = ds.load(tmp_path / "c.npz")
        np.testing.assert_array_equal(loaded.decide(X), decided)
        assert loaded.decision_rule.get_config() == classifier.decision_rule.get_config()
        assert loaded.priors_.get_config() == classifier.priors_.get_config()
    if name in ("closed form", "process", "lvq"):  # the others are served as these
        classifier.export(tmp_path / "served")
        served = ds.export.load_served(tmp_path / "served").predict(X.astype(np.float32))
        np.testing.assert_allclose(served["class_probabilities"], p, atol=1e-5)
        assert np.mean(np.array(["a", "b", "c", "unknown"])[served["decision"]] == decided) > 0.98
    classifier.set_decision(RiskControl(0.4, "false_negative_rate", positive="c"), X[1::3], y[1::3])
    assert classifier.decision_rule.positive_ == 2
    assert np.mean(classifier.decide(X)[y == "c"] == "c") > 0.5
    with pytest.warns(UserWarning, match="set_priors changes the probabilities, and removes the rule"):
        classifier.set_priors(None)
    np.testing.assert_allclose(classifier.predict_proba(X), before, rtol=1e-12)
    assert classifier.set_priors([1, 1, 1], trained=[1, 1, 1]).fit(X[::3], y[::3]).decision_rule is None
    assert not hasattr(classifier, "priors_")


@pytest.mark.parametrize("classes", [[3, 5], [False, True], [1.0, 2.0]])
def test_abstentions_beside_numbers_are_minus_one(classes):
    p = np.column_stack([np.linspace(0.01, 0.99, 20), np.linspace(0.99, 0.01, 20)])
    rule = ExpectedCost(1 - np.eye(2), abstention=0.2)
    undecided = ds.AfterTraining(classes=classes).set_decision(rule).decide(p[[0, 9, -1]])
    assert undecided.tolist() == [classes[1], -1, classes[0]]
    with pytest.raises(ValueError, match=r"abstention must be a value besides classes_, -1, 1; found -1"):
        ds.AfterTraining(classes=[-1, 1]).set_decision(rule).decide(p)
    never = ds.AfterTraining(classes=[-1, 1]).set_decision(ExpectedCost(1 - np.eye(2)))
    assert never.decide(p[[0, -1]]).tolist() == [1, -1]
    with pytest.raises(ValueError, match=r"abstention must be a value besides classes_.*found \[0, 1\]"):
        ds.AfterTraining(classes=classes).set_decision(rule).decide(p, abstention=[0, 1])
