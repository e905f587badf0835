"""Odd arguments are refused by name, and numbers at the ends of their ranges give finite answers."""

import numpy as np
import pytest

from deepsimplex import evaluation, geometry, losses, metrics, plots, readout
from deepsimplex._utils.validation import check_choice, check_class_names, check_names, check_probabilities

P = np.array([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3]])
LATENT = {"loc": np.zeros((2, 2)), "scale": np.ones((2, 1))}
NO_TEXTS = [np.array(["a", "b"]), None, 3, ["a"], {}, set()]


@pytest.mark.parametrize("value", NO_TEXTS, ids=repr)
def test_a_choice_is_a_text(value):
    with pytest.raises(ValueError, match="colors must be one of a, b; found"):
        check_choice(value, "colors", ["a", "b"])


@pytest.mark.parametrize("names", [8, 0.5, 1j, b"ab", [[0], [1]]], ids=str)
def test_names_of_classes_are_a_list_of_names(names):
    with pytest.raises(ValueError, match="classes must hold 2 different names"):
        check_class_names(names, 2)


def test_names_are_a_list():
    with pytest.raises(ValueError, match="class_names must hold one name for each of the 2 classes; found 8"):
        check_names(8, 2, "class_names", "classes")


@pytest.mark.parametrize("function", [geometry.aitchison_distance, geometry.aitchison_inner, geometry.perturb])
def test_both_compositions_are_named(function):
    with pytest.raises(ValueError, match=r"^x must have positive parts"):
        function(0 * P, P)
    with pytest.raises(ValueError, match=r"^y must be finite"):
        function(P, P * np.nan)
    with pytest.raises(ValueError, match=r"^x and y must have shapes that fit; found \(2, 3\) and \(3, 3\)"):
        function(P, np.ones((3, 3)))


def test_exponents_fit_and_may_be_of_any_size():
    with pytest.raises(ValueError, match=r"^a and x must have shapes that fit"):
        geometry.power(P, np.ones(3))
    np.testing.assert_array_equal(geometry.power(P, 1e308), [[1, 0, 0], [0, 1, 0]])
    np.testing.assert_array_equal(geometry.power(P, -1e308), [[0, 0, 1], [1, 0, 0]])


@pytest.mark.parametrize("size", [1e300, 1e308])
@pytest.mark.parametrize("function", [geometry.ilr_inverse, geometry.alr_inverse, geometry.to_probability_simplex])
def test_coordinates_may_be_of_any_size(function, size):
    np.testing.assert_allclose(function(size * np.array([[0.5, 0.0], [-0.5, 0.2]])).sum(axis=-1), 1)


def test_probabilities_whose_sum_overflows_are_refused():
    with pytest.raises(ValueError, match="row 0 sums to inf"):
        check_probabilities(np.full((2, 3), 1e308))


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
        (([0, 1], None), TypeError, "y_pred must hold real numbers"),
        ((["a", "b"], P), TypeError, "y_true must hold real numbers"),
        (([0, 1], 0.5), ValueError, "y_pred must have shape"),
        (([0, 1, 2], P), ValueError, "y_pred must have shape"),
        ((0, P), ValueError, "y_pred must have shape"),
        (([0, 1], P, np.ones(3)), ValueError, r"sample_weight must have shape \[2\]"),
        (([0, 1], P, ["x", "y"]), TypeError, "sample_weight must hold real numbers"),
    ],
)
def test_metrics_name_what_is_no_batch(metric, arguments, error, message):
    with pytest.raises(error, match=message):
        metric().update_state(*arguments)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: losses.LatentNLL(beta=None), "beta must be a number"),
        (lambda: losses.composition_scale(np.zeros((2, 2)), [0, 1], np.zeros((0, 2))), "scores must have at least 2"),
        (lambda: readout.softmax(LATENT, scores=[[1.0, 0.0], [1.0]]), "scores must be an array"),
        (lambda: readout.softmax(LATENT, log=set()), "log must be True or False"),
        (lambda: geometry.vertices(3, np.zeros(3)), "construction must be one of"),
        (lambda: plots.uncertain_images(3, P), "images must be as many as the 2 rows of p"),
        (lambda: evaluation.ability_to_separate(P, [0, 1], classes=8), "classes must hold 3 different names"),
    ],
)
def test_refusals_name_the_argument(call, message):
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        call()
