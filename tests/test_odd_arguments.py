"""Odd arguments raise errors that name them, and numbers at the ends of their ranges give finite answers."""

import re

import numpy as np
import pytest

import deepsimplex as ds
from deepsimplex import (
    backbones,
    calibration,
    estimators,
    evaluation,
    experiments,
    geometry,
    losses,
    metrics,
    plots,
    prototypes,
    readout,
    targets,
)
from deepsimplex._utils.validation import (
    check_choice,
    check_class_names,
    check_names,
    check_probabilities,
    check_sample_weight,
)

P = np.array([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3]])
LATENT = {"loc": np.zeros((2, 2)), "scale": np.ones((2, 1))}
NO_TEXTS = [np.array(["a", "b"]), None, 3, ["a"], {}, set()]


@pytest.mark.parametrize("value", NO_TEXTS, ids=repr)
def test_choice_of_another_type_raises(value):
    with pytest.raises(ValueError, match=rf"colors must.*found {re.escape(repr(value))}"):
        check_choice(value, "colors", ["a", "b"])


@pytest.mark.parametrize("names", [8, 0.5, 1j, b"ab", [[0], [1]]], ids=str)
def test_invalid_classes_raise(names):
    with pytest.raises(ValueError, match=rf"classes must.*found {re.escape(repr(names))}"):
        check_class_names(names, 2)


def test_class_names_of_another_type_raise():
    with pytest.raises(ValueError, match=r"class_names must.*found 8"):
        check_names(8, 2, "class_names", "classes")


@pytest.mark.parametrize("function", [geometry.aitchison_distance, geometry.aitchison_inner, geometry.perturb])
def test_invalid_compositions_raise(function):
    with pytest.raises(ValueError, match=r"^x must.*found a smallest part of 0\.0"):
        function(0 * P, P)
    with pytest.raises(ValueError, match=r"^y must be finite"):
        function(P, P * np.nan)
    with pytest.raises(ValueError, match=r"^x and y must.*found \(2, 3\) and \(3, 3\)"):
        function(P, np.ones((3, 3)))


def test_exponents_of_any_magnitude():
    with pytest.raises(ValueError, match=r"^a and x must.*found \(3, 1\) and \(2, 3\)"):
        geometry.power(P, np.ones(3))
    np.testing.assert_array_equal(geometry.power(P, 1e308), [[1, 0, 0], [0, 1, 0]])
    np.testing.assert_array_equal(geometry.power(P, -1e308), [[0, 0, 1], [1, 0, 0]])


@pytest.mark.parametrize("size", [1e300, 1e308])
@pytest.mark.parametrize("function", [geometry.ilr_inverse, geometry.alr_inverse, geometry.to_probability_simplex])
def test_coordinates_of_any_magnitude(function, size):
    np.testing.assert_allclose(function(size * np.array([[0.5, 0.0], [-0.5, 0.2]])).sum(axis=-1), 1)


def test_overflowing_probabilities_raise():
    with pytest.raises(ValueError, match="row 0 sums to inf"):
        check_probabilities(np.full((2, 3), 1e308))


def test_compositions_and_weights_of_any_magnitude():
    np.testing.assert_array_equal(losses.composition(P, np.eye(3), 1e308), [[1, 0, 0], [0, 1, 0]])
    with pytest.raises(ValueError, match=r"^sample_weight must be finite"):
        check_sample_weight([1e308, 1e308], 2)


def test_features_of_any_magnitude_are_unfamiliar():
    rng = np.random.default_rng(0)
    density = calibration.GaussianDensity().fit(rng.normal(size=(30, 2)), np.arange(30) % 3)
    factor = density.variance_factor(np.full((1, 2), 1e308))
    assert np.isfinite(factor).all()
    assert factor[0] > 1


@pytest.mark.parametrize(
    "metric",
    [
        metrics.BrierScore,
        metrics.NegativeLogLikelihood,
        metrics.ExpectedCalibrationError,
        metrics.ClasswiseCalibrationError,
    ],
)
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([0, 1], None), TypeError, r"y_pred must.*found objects"),
        ((["a", "b"], P), TypeError, r"y_true must.*found dtype <U1"),
        (([0, 1], 0.5), ValueError, r"y_pred must.*found \(\) for y_true of shape \(2,\)"),
        (([0, 1, 2], P), ValueError, r"y_pred must.*found \(2, 3\) for y_true of shape \(3,\)"),
        ((0, P), ValueError, r"y_pred must.*found \(2, 3\) for y_true of shape \(\)"),
        (([0, 1], P, np.ones(3)), ValueError, r"sample_weight must.*found shape \(3,\)"),
        (([0, 1], P, ["x", "y"]), TypeError, r"sample_weight must.*found dtype <U1"),
    ],
)
def test_metrics_reject_invalid_batches(metric, arguments, error, message):
    with pytest.raises(error, match=message):
        metric().update_state(*arguments)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: losses.LatentNLL(beta=None), "beta must be a number"),
        (lambda: losses.composition_tau(np.zeros((2, 2)), [0, 1], np.zeros((0, 2))), r"scores must.*found 0"),
        (lambda: readout.softmax(LATENT, scores=[[1.0, 0.0], [1.0]]), "scores must be an array"),
        (lambda: readout.softmax(LATENT, log=set()), r"log must.*found set\(\)"),
        (lambda: geometry.vertices(3, np.zeros(3)), r"construction must.*found array\(\[0\., 0\., 0\.\]\)"),
        (lambda: plots.uncertain_images(3, P), r"images must.*found shape \(\)"),
        (lambda: evaluation.ability_to_separate(P, [0, 1], classes=8), r"classes must.*found 8"),
        (lambda: losses.LatentNLL(beta=10**400), "beta must be a number"),
        (lambda: geometry.closure(10**400), "pi must be finite"),
        (lambda: geometry.clr(np.ma.masked), "pi must not be masked"),
        (lambda: evaluation.coverage([0, 1], [[True], [True]]), r"sets must.*found bool of shape \[2, 1\]"),
        (lambda: evaluation.compare_partitions([0, 1], {"a": P}, assigned=3), r"assigned must.*found 3"),
        (lambda: calibration.GaussianDensity().fit(["a"], [0]), r"^z must.*found dtype <U1"),
        (lambda: readout.softmax(LATENT, scores=1e200 * np.eye(3)[:, :2]), r"scores must.*found 1e\+200 in size"),
        (lambda: readout.SoftmaxReadout(scores="a"), r"scores must.*found dtype <U1"),
        (lambda: readout.decision_function(LATENT, [0], 1), r"^j must.*found \[0\]"),
        (lambda: losses.composition(1e200 * P, 1e200 * np.eye(3), 1.0), r"loc and scores must.*found larger ones"),
        (lambda: plots.confusion_matrix([0, 1], P, ax=3), r"^ax must.*found 3"),
        (lambda: plots.classwise_reliability([0, 1], P, only=[None]), r"only must.*found \[None\]"),
        (lambda: targets.CASIMAC(cache_dir=3), r"cache_dir must.*found 3"),
        (lambda: prototypes.fit_lvq(P, [0, 0.5], P, [0, 1]), r"^y must.*found 0.5 in row 1"),
        (lambda: prototypes.fit_glvq(P, [0, 1], P[:, :2], [0, 1]), r"X and W must.*found shapes \(2, 3\) and \(2, 2\)"),
        (lambda: prototypes.initial_prototypes(P, [0, 1], "a"), r"number must.*found 'a'"),
        (lambda: backbones.cnn(dropout="much"), r"dropout must.*found 'much'"),
        (lambda: backbones.mlp(activation=set()), r".*activation.*set\(\)"),
        (lambda: estimators.LVQ1().fit("much", [0, 1]), "X: "),
        (lambda: estimators.LVQ1().fit(P, [0, 1j]), "y: "),
        (lambda: experiments.load_config("no.yaml", overrides=[3]), r"overrides must.*found 3"),
    ],
)
def test_invalid_argument_raises(call, message):
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        call()


@pytest.mark.parametrize("kind", [ds.GLVQ, ds.GPLVQ, ds.LVQ1, ds.SimplexGaussianProcess, ds.LatentRegressionClassifier])
def test_non_numeric_features_raise_in_every_classifier(kind):
    x, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
    with pytest.raises(ValueError, match="X must not be masked"):
        kind().fit(np.ma.masked_array(x, mask=x > 0.5), y)
    for other in (x.astype(str), x.astype("M8[s]")):
        with pytest.raises(TypeError, match=r"^X must.*found dtype"):
            kind().fit(other, y)


RAGGED = [[0], [0, 1]]
X = np.arange(60.0).reshape(20, 3) % 7
Y = np.arange(20) % 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: readout.LeftOutSoftmax(geometry.vertices(3)).adapt(P), "left_out must be LeftOutLatents"),
        (lambda: readout.LeftOutSoftmax(geometry.vertices(3)).predict(LATENT, log=P), "log must be True or False"),
        (lambda: readout.integrated_gradients(len, np.float64(0.5)), r"x must have shape \[N, ...\]"),
        (
            lambda: readout.integrated_gradients(lambda x: x**2, np.eye(3)[:2]),
            "function must return one value of each sample",
        ),
        (lambda: ds.heads.LayerHead([0]), r"layer must be a keras.layers.Layer; found \[0\]"),
        (lambda: ds.heads.ClosedFormHead(2).solve(X, Y, seed="a"), "seed must be"),
        (lambda: ds.heads.ClosedFormHead(2).solve(RAGGED, [0, 1]), "samples must be an array"),
        (lambda: ds.heads.ClosedFormHead(2).adapt(X, Y).predict(X[:, :2]), "features must have 3 columns"),
        (lambda: calibration.UnknownScore().fit(np.log(P), [1.0]), "variance must have 2 rows"),
        (lambda: calibration.ConformalSets(0.5).fit(P, [0, 1], groups=RAGGED), "groups must be an array"),
        (lambda: estimators.GLVQ(classes=RAGGED).fit(X, Y), "classes must"),
        (lambda: estimators.GLVQ().fit(X, RAGGED), "y must be an array"),
        (lambda: estimators.GLVQ().fit(X, Y).saliency(X, labels=RAGGED), "labels must hold one label for each"),
    ],
)
def test_arguments_of_another_type_raise(call, message):
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        call()
