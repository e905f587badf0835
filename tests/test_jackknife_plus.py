"""Prediction sets from left-out training samples: predictions without them, definition, coverage, files, exports."""

import copy
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import deepsimplex as ds
from deepsimplex.calibration import JackknifePlusSets, PriorShift

MEANS = 1.2 * np.eye(3, 4)


def draw(rng, samples):
    y = np.arange(samples) % 3
    return MEANS[y] + rng.normal(size=(samples, 4)), y


def fitted(rng, samples=90):
    X, y = draw(rng, samples)
    return ds.SimplexGaussianProcess(random_state=0).fit(X, y), X, y


@pytest.fixture(scope="module")
def process():
    return fitted(np.random.default_rng(0))


@pytest.fixture(scope="module")
def network():
    """Fewer inducing rows than samples, and class weights, so that samples count several times."""
    X, y = draw(np.random.default_rng(1), 90)
    keras.utils.set_random_seed(0)
    backbone = keras.Sequential([keras.Input((4,)), keras.layers.Dense(5, trainable=False)])
    model = ds.SimplexClassifier(
        backbone, class_names=["ant", "bee", "cat"], head={"name": "closed_form", "inducing": 40}
    )
    model.compile(run_eagerly=True)
    model.fit(X, y, class_weight={0: 2.0, 1: 1.0, 2: 0.5}, verbose=0)
    return model, X, y


def test_latents_without_a_row_are_those_of_a_refit(process):
    """With the kernel, noise and inducing rows as they are."""
    classifier, X, y = process
    sets = copy.copy(classifier).conformalize(X, y, left_out=True).prediction_sets_
    new = draw(np.random.default_rng(2), 6)[0]
    loc, _ = classifier._latents_without(tf.constant(new), sets.influence_, sets.residuals_)
    posterior = classifier.regressor_.posterior_
    for i in (0, 31, 89):
        without = posterior.copied(90)
        regression = copy.deepcopy(without.head.regression)
        regression.add(posterior.features(X[i : i + 1]), np.eye(3)[y[i : i + 1]], sign=-1)
        mean = regression.solve(regression.noise).predict(posterior.features(new)).mean
        np.testing.assert_allclose(loc[:, i], mean @ without.head._positions, atol=1e-8)
    # Left out of its own prediction, a row is predicted as by leave-one-out.
    own, _ = classifier._latents_without(tf.constant(X), sets.influence_, sets.residuals_)
    left_out = posterior.head.leave_out(posterior.features(X), y)
    np.testing.assert_allclose(own.numpy()[range(90), range(90)], left_out.loc, atol=1e-8)


def test_latents_without_a_weighted_sample_are_those_of_leave_one_out(network):
    model, X, y = network
    sets = copy.deepcopy(model).conformalize(X, y, 0.8, left_out=True).prediction_sets
    own, _ = model._latents_without(tf.constant(model.predict_features(X)), sets.influence_, sets.residuals_)
    weights = model.unweighted_readout.factors(y)
    left_out = model.head.leave_out(model.predict_features(X), y, sample_weight=weights)
    np.testing.assert_allclose(own.numpy()[range(90), range(90)], left_out.loc, atol=1e-5)


@pytest.mark.parametrize("by_class", [False, True])
@pytest.mark.parametrize("method", ["lac", "raps"])
def test_sets_match_definition(method, by_class):
    """A class is left out if (m + 1) coverage left-out samples, or more, conform better than it does without them."""
    rng, m, n = np.random.default_rng(3), 40, 3
    p = rng.dirichlet(np.full(n, 0.4), m)
    y = np.array([rng.choice(n, p=row) for row in p])
    new = 0.9 * rng.dirichlet(np.full(n, 0.4), (25, 1)) + 0.1 * rng.dirichlet(np.ones(n), (25, m))
    sets = JackknifePlusSets(0.8, method, by_class)
    sets.influence_ = sets.residuals_ = np.zeros((m, 2))
    sets.fit(p, y)
    predicted = sets.predict(tf.constant(new)).numpy()
    left_out = sets._scores(tf.constant(p)).numpy()[range(m), y]
    scores = sets._scores(tf.constant(new.reshape(-1, n))).numpy().reshape(25, m, n)
    for row, chosen in zip(scores, predicted, strict=True):
        for k in range(n):
            counted = [i for i in range(m) if not by_class or y[i] == k]
            better = sum(left_out[i] < row[i, k] for i in counted)
            assert chosen[k] == (better < 0.8 * (len(counted) + 1))
    assert 0 < predicted.mean() < 1


def test_coverage_is_the_one_asked_for_without_held_out_rows():
    """Of 20 trainings on 60 rows: proved is a mean coverage of 0.6 for 0.8."""
    rng = np.random.default_rng(4)
    covered, sizes = [], []
    for _ in range(20):
        classifier, X, y = fitted(rng, 60)
        X_new, y_new = draw(rng, 240)
        sets = classifier.conformalize(X, y, 0.8, left_out=True).predict_set(X_new)
        covered.append(ds.evaluation.coverage(y_new, sets))
        sizes.append(sets.sum(axis=1).mean())
    assert 0.77 < np.mean(covered) < 0.85
    assert np.mean(sizes) < 2


def test_probabilities_without_samples_are_calibrated_and_for_other_frequencies(process):
    classifier, X, y = process
    classifier = copy.copy(classifier).calibrate(*draw(np.random.default_rng(5), 60), "vector").set_priors([1, 1, 4])
    sets = classifier.conformalize(X, y, 0.8, left_out=True).prediction_sets_
    new = draw(np.random.default_rng(6), 9)[0]
    loc, readout = classifier._latents_without(tf.constant(new), sets.influence_, sets.residuals_)
    p = np.asarray(readout.class_probabilities(loc)).reshape(-1, 3)
    p = classifier.priors_.transform(classifier.calibration_.transform(p)).reshape(9, -1, 3)
    np.testing.assert_array_equal(classifier.predict_set(new), sets.predict(tf.constant(p)))
    assert isinstance(classifier.priors_, PriorShift)
    np.testing.assert_allclose(p.sum(axis=2), 1)


@pytest.mark.parametrize("kind", ["process", "network"])
def test_files_and_exports_keep_sets(kind, request, tmp_path):
    classifier, X, y = request.getfixturevalue(kind)
    classifier = copy.deepcopy(classifier).conformalize(X, y, 0.8, "aps", left_out=True)
    new = draw(np.random.default_rng(7), 40)[0].astype(np.float32)
    sets = classifier.predict_set(new)
    assert 0.3 < sets.mean() < 0.8
    path = tmp_path / ("c.npz" if kind == "process" else "c.keras")
    classifier.save(path)
    np.testing.assert_array_equal(ds.load(path).predict_set(new), sets)
    classifier.export(tmp_path / "served")
    served = ds.export.load_served(tmp_path / "served").predict(new)["prediction_set"]
    assert np.mean(served == sets) > 0.98


def test_most_probable_class_is_added_to_empty_sets(process, tmp_path):
    classifier, X, y = process
    new, _ = draw(np.random.default_rng(9), 60)
    options = {"coverage": 0.3, "left_out": True}
    allowed = copy.copy(classifier).conformalize(X, y, **options).predict_set(new)
    filled = copy.copy(classifier).conformalize(X, y, allow_empty=False, **options)
    likeliest = np.eye(allowed.shape[1], dtype=bool)[classifier.predict_proba(new).argmax(axis=1)]
    expected = np.where(allowed.any(axis=1, keepdims=True), allowed, likeliest)
    assert not allowed.any(axis=1).all()
    np.testing.assert_array_equal(filled.predict_set(new), expected)
    filled.save(tmp_path / "filled.npz")
    np.testing.assert_array_equal(ds.load(tmp_path / "filled.npz").predict_set(new), expected)


def test_left_out_samples_must_be_those_of_training(process, network):
    classifier, X, y = process
    other = draw(np.random.default_rng(8), 90)
    for call, message in [
        (lambda: classifier.conformalize(*other, left_out=True), "x must hold samples that the head was solved with"),
        (lambda: classifier.conformalize(X, np.roll(y, 1), left_out=True), "x must hold samples that the head was"),
        (lambda: classifier.conformalize(X, y, 0.999, left_out=True), "y must hold at least 999 samples for coverage"),
        (lambda: classifier.conformalize(X, y, groups=y, left_out=True), "groups must not be given with left_out=True"),
        (lambda: network[0].conformalize(*other, left_out=True), "x must hold samples that the head was solved with"),
        (
            lambda: ds.GLVQ(max_iter=2).fit(X, y).conformalize(X, y, left_out=True),
            "left_out must be False but for a SimplexGaussianProcess.*found GLVQ",
        ),
        (
            lambda: ds.SimplexGaussianProcess("ilr", max_iter=2).fit(X, y).conformalize(X, y, left_out=True),
            "left_out must be False but for a SimplexGaussianProcess",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    assert not hasattr(classifier, "prediction_sets_")


@pytest.mark.filterwarnings("ignore:none of the 90 held-out samples:UserWarning")
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of copies of Keras models
@pytest.mark.parametrize("kind", ["process", "network"])
def test_training_samples_in_place_of_held_out_ones_warn(request, kind):
    """Of a classifier that is solved; a minority that equals training samples does not."""
    classifier, X, y = copy.deepcopy(request.getfixturevalue(kind))
    rule = ds.calibration.RiskControl(0.2, "false_negative_rate", positive=2)
    calls = {
        "conformalize": lambda: classifier.conformalize(X, y, 0.8),
        "set_decision": lambda: classifier.set_decision(rule, X, y),
        "calibrate": lambda: classifier.conformalize(None).set_decision(None).calibrate(X, y),
    }
    if kind == "network":
        calls["fit_unknown"] = lambda: classifier.fit_unknown(X)
    for method, call in calls.items():
        with pytest.warns(UserWarning, match=f"^{method} needs samples that were held out.*found 90 training samples"):
            call()
    other, labels = draw(np.random.default_rng(8), 180)
    classifier.conformalize(np.concatenate([X, other]), np.concatenate([y, labels]), 0.8)


def test_rows_of_few_distinct_values_may_equal_training_rows():
    """A sample and its label are drawn again, from four kinds of rows."""
    X, y = draw(np.random.default_rng(0), 80)
    X = np.sign(X[:, :2])
    ds.SimplexGaussianProcess().fit(X[:40], y[:40]).conformalize(X[40:], y[40:], 0.8)


def test_left_out_samples_of_groups_raise(tmp_path):
    """They would be left out one by one; of files, too."""
    X, y = draw(np.random.default_rng(0), 30)
    groups = np.arange(30) // 2
    classifier = ds.SimplexGaussianProcess().fit(X, y, groups=groups)
    classifier.save(tmp_path / "grouped.npz")
    rule = ds.calibration.RiskControl(0.2, "false_negative_rate", positive=2)
    for twin in (classifier, ds.load(tmp_path / "grouped.npz").partial_fit(X[:3], y[:3])):
        for call in (twin.conformalize, functools.partial(twin.set_decision, rule)):
            with pytest.raises(ValueError, match=r"^left_out must be False after fit with groups"):
                call(X, y, left_out=True)
    assert classifier.fit(X, y).conformalize(X, y, 0.8, left_out=True).prediction_sets_ is not None
    with pytest.raises(AttributeError, match=r"^left-out predictions are those of fit"):
        classifier.conformalize(None).partial_fit(X[:3], y[:3]).loo_proba_.mean()


def test_rule_is_fitted_to_left_out_rows(process):
    classifier, X, y = process
    rule = ds.calibration.RiskControl(0.2, "false_negative_rate", positive=2)
    decided = copy.copy(classifier).set_decision(rule, X, y, left_out=True)
    posterior = classifier.regressor_.posterior_
    left_out = posterior.head.leave_out(posterior.features(X), y)
    p = classifier._readout.predict(ds.LatentGaussian(left_out.loc, left_out.scale))
    assert decided.decision_rule.threshold_ == pytest.approx(rule.fit(p, y).threshold_)
    new, y_new = draw(np.random.default_rng(9), 300)
    assert np.mean(decided.decide(new)[y_new == 2] == 2) > 0.8


def test_runs_and_tables_of_files_have_the_sets_of_the_model(network):
    from deepsimplex.experiments.file_predictions import predicted_columns
    from deepsimplex.experiments.run_results import scores_of

    model, X, y = network
    model = copy.deepcopy(model).conformalize(X, y, 0.8, left_out=True)
    x, labels = (part[:20] for part in draw(np.random.default_rng(8), 40))
    sets = model.predict_set(x)
    np.testing.assert_array_equal(predicted_columns(model, x, 0.05)["sets"], sets)
    report, _ = scores_of(labels, model.predict_all(x), model.class_names)
    assert report.set_size == ds.evaluation.set_size(labels, sets)
