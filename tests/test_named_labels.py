"""Labels that are names: every function of labels and probabilities takes the names of the columns as ``classes``."""

import inspect

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from deepsimplex import LatentGaussian, calibration, evaluation, geometry, plots

NAMES = ["setosa", "virginica", "versicolor"]  # not sorted
RNG = np.random.default_rng(0)
N = 24
P = RNG.dirichlet(np.ones(3), N)
Y = np.where(np.arange(N) % 3, P.argmax(axis=1), np.arange(N) // 3 % 3)
ARGUMENTS = {
    "p": P,
    "membership": P,
    "lower": P - np.minimum(P, 0.01),
    "upper": P,
    "sets": P > 0.3,
    "memberships": {"one": P, "other": P[::-1]},
    "probabilities": {"one": P, "other": P[::-1]},
    "metric": evaluation.weighted_f1,
    "k": 1,
    "threshold": 0.3,
    "decisions": P.argmax(axis=1),
    "costs": 1 - np.eye(3),
    "latent": LatentGaussian(geometry.vertices(3)[Y] + RNG.normal(size=(N, 2)), np.ones((N, 1))),
    "images": np.zeros((N, 2, 2)),
}
# decision_regions takes labels as the classifier's ``classes_`` names them, and Platt's labels are those of its caller.
FUNCTIONS = {
    name: function
    for room in (evaluation, plots)
    for name, function in inspect.getmembers(room, inspect.isfunction)
    if {"y", "assigned"} & inspect.signature(function).parameters.keys() and name != "decision_regions"
}
CALIBRATIONS = [
    "AutomaticCalibration",
    "TemperatureScaling",
    "BiasCorrectedTemperature",
    "MatrixScaling",
    "VectorScaling",
    "VennAbers",
    "PlattScaling",
    "IsotonicCalibration",
    "LatentScaling",
    "ConformalSets",
]


def arguments(function, y):
    """The labels, and a value for every argument that has no default."""
    parameters = inspect.signature(function).parameters
    given = {
        name: ARGUMENTS[name]
        for name, parameter in parameters.items()
        if name != "y"
        and parameter.default is inspect.Parameter.empty
        and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }
    named = "y" if "y" in parameters else "assigned"
    options = {"by": "likelihood", "resamples": 10}
    if function in (evaluation.decision_curve, evaluation.net_benefit):  # of three classes, one must be given
        options["positive"] = 1
    return {**given, named: y, **{name: value for name, value in options.items() if name in parameters}}


def plain(result):
    """A result in numbers and texts that can be compared."""
    if isinstance(result, Figure):
        return [text.get_text() for text in result.findobj(Text)]
    return {key: repr(value) for key, value in vars(result).items()} if hasattr(result, "__dict__") else repr(result)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_names_are_read_as_numbers_are(name):
    function = FUNCTIONS[name]
    numbered = function(**arguments(function, Y))
    named = function(**arguments(function, np.array(NAMES)[Y]), classes=NAMES)
    if "class_names" in inspect.signature(function).parameters:
        numbered = function(**arguments(function, Y), class_names=NAMES)
    if name not in ("standardized_partition", "compare_partitions", "class_scores", "report"):  # that hold the names
        assert plain(named) == plain(numbered)


@pytest.mark.parametrize("function", [evaluation.class_scores, evaluation.report])
def test_scores_of_classes_are_named(function):
    named = function(np.array(NAMES)[Y], P, classes=NAMES)
    by_class = getattr(named, "by_class", named)
    numbered = evaluation.class_scores(Y, P)
    assert [by_class[name] for name in NAMES] == [numbered[k] for k in range(3)]
    assert all(name in str(named) for name in NAMES)


def test_functions_of_labels_are_many():
    assert len(FUNCTIONS) > 35


@pytest.mark.parametrize("name", CALIBRATIONS)
def test_calibrations_read_names_as_numbers(name):
    make, outputs = getattr(calibration, name), ARGUMENTS["latent"] if name == "LatentScaling" else P
    numbered = make().fit(outputs, Y)
    named = make().fit(outputs, np.array(NAMES)[Y], classes=NAMES)
    for attribute in make.fitted_attributes:
        assert repr(getattr(named, attribute)) == repr(getattr(numbered, attribute))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_names_without_classes_raise(name):
    function = FUNCTIONS[name]
    with pytest.raises(TypeError, match=r"must hold class numbers 0\.\.2; found dtype <U.*classes="):
        function(**arguments(function, np.array(NAMES)[Y]))
    with pytest.raises(ValueError, match=r"must hold class numbers 0\.\.2; found 3 in row .*classes="):
        function(**arguments(function, Y + 1))
