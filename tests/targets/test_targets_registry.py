"""Targets by name, by configuration and through Keras' serialization, including user-defined ones."""

import inspect
import json
import re

import keras
import numpy as np
import pytest
from sklearn.base import clone

from deepsimplex import targets
from deepsimplex.distances import SSIM
from deepsimplex.losses import Composition, LatentNLL
from deepsimplex.targets import CASIMAC, ILR, TARGETS, Dirichlet, Mean, OneHot, Vertices
from tests.targets.own_target import Ring, root_mean_square

X = np.random.default_rng(3).random((12, 5, 5))
Y = np.arange(12) % 3

EACH = [
    CASIMAC(),
    CASIMAC(SSIM(3), gamma=0.25, attraction_number=2, repulsion_number=3, construction="helmert"),
    CASIMAC({"name": "ssim", "window": 5}),
    CASIMAC(repulsion_function=root_mean_square, repulsion_number=2),
    ILR(0.9, 0.05),
    ILR(noise_scale=0.5),
    Dirichlet(0.1),
    OneHot(),
    Vertices(),
    Mean([CASIMAC(), CASIMAC("cityblock")]),
    Mean(["ilr", Mean([ILR(0.5)])]),
    Ring(2.0, noise_scale=0.1),
]


@pytest.mark.parametrize("target", EACH, ids=lambda target: re.sub(" at 0x.*?>", ">", repr(target)))
def test_serialization_round_trip(target):
    expected = target.fit_transform(X, Y)
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(target)))
    for again in (keras.saving.deserialize_keras_object(config), TARGETS.get(config)):
        assert type(again) is type(target)
        assert again.get_config() == target.get_config()
        latent = again.fit_transform(X, Y)
        np.testing.assert_array_equal(latent.loc, expected.loc)
        np.testing.assert_array_equal(latent.scale, expected.scale)
        np.testing.assert_array_equal(again.scores(3), target.scores(3))


@pytest.mark.parametrize("target", EACH, ids=lambda target: re.sub(" at 0x.*?>", ">", repr(target)))
def test_targets_implement_the_interface(target):
    assert target.scores(4).shape == (4, target.latent_dim(4))
    assert target.default_readout in ("argmax", "softmax")
    is_composition = target.sums_features or isinstance(target, CASIMAC | Vertices)
    assert isinstance(target.default_loss(), Composition if is_composition else LatentNLL)
    assert (target.table(4) is None) == target.needs_samples


@pytest.mark.parametrize("name", sorted(set(TARGETS) - {"mean"}))
def test_get_by_name_gives_defaults(name):
    target = TARGETS.get(name)
    assert TARGETS.name_of(target) == name
    assert target.get_config() == type(target)().get_config()


def test_get_returns_instances_unchanged():
    target = ILR()
    assert TARGETS.get(target) is target


def test_user_defined_targets_by_module_and_class():
    target = TARGETS.get({"name": "tests.targets.own_target:Ring", "radius": 3.0})
    assert target.radius == 3.0
    assert TARGETS.name_of(target) == "tests.targets.own_target:Ring"
    assert Mean(["tests.targets.own_target:Ring"]).latent_dim(5) == 2
    casimac = TARGETS.get({"name": "casimac", "repulsion_function": "own>root_mean_square"})
    assert casimac.repulsion_function is root_mean_square


def test_every_target_is_registered():
    classes = {
        value for value in vars(targets).values() if inspect.isclass(value) and issubclass(value, targets.Target)
    }
    assert {c for c in classes if not inspect.isabstract(c)} == set(TARGETS.values())


@pytest.mark.parametrize(
    ("spec", "error", "words"),
    [
        ("casimak", ValueError, r"target must.*found 'casimak'; did you mean 'casimac'"),
        ("ILR", ValueError, "did you mean 'ilr'"),
        ({"smoothing": 0.9}, TypeError, r"target must.*found \{'smoothing'"),
        ({"name": "ilr", "smothing": 0.9}, ValueError, "no argument 'smothing'; did you mean 'smoothing'"),
        ({"name": "one_hot", "noise": 1}, ValueError, "no argument 'noise'"),
        ("mean", TypeError, "target Mean needs targets; found its name alone"),
        ({"name": "casimac", "distance": {"name": "ssim"}}, TypeError, "window"),
        (
            {"name": "casimac", "distance": "euclidian"},
            ValueError,
            r"distance must.*found 'euclidian'; did you mean 'euclidean'",
        ),
        (3, TypeError, r"target must.*found 3"),
    ],
)
def test_unknown_names_suggest_the_nearest(spec, error, words):
    with pytest.raises(error, match=words):
        TARGETS.get(spec)


def squared(distances):
    return np.square(distances).mean(axis=1)


@pytest.mark.parametrize(
    ("target", "argument"),
    [
        (CASIMAC(repulsion_function=squared), "repulsion_function"),
        (CASIMAC(gamma=0.5, attraction_function=lambda d: d[:, 0]), "attraction_function"),
        (Mean([CASIMAC(), CASIMAC(combination_function=np.sqrt)]), "combination_function"),
    ],
    ids=["function", "lambda", "ufunc"],
)
def test_unregistered_functions_raise_on_save(target, argument):
    with pytest.raises(ValueError, match=f"{argument} must be registered with Keras.*register_keras_serializable"):
        target.get_config()
    assert argument in repr(target)


def test_configurations_contain_no_paths(tmp_path):
    assert str(tmp_path) not in json.dumps(CASIMAC(cache_dir=tmp_path).get_config())
    assert TARGETS.get({"name": "casimac", "cache_dir": str(tmp_path)}).cache_dir == tmp_path


def test_repr_shows_the_arguments_that_differ_from_the_defaults():
    assert repr(Dirichlet(0.5)) == "Dirichlet(concentration=0.5)"
    assert repr(ILR(overlap=0.1)) == "ILR(overlap=0.1)"
    assert repr(Mean(["one_hot"])) == "Mean(targets=[OneHot()])"


def test_get_params_and_set_params():
    target = CASIMAC(SSIM(5), repulsion_number=2)
    assert target.get_params()["distance__window"] == 5
    assert target.get_params(deep=False)["repulsion_number"] == 2
    assert target.set_params(distance__window=3, repulsion_number=4) is target
    assert (target.distance.window, target.repulsion_number) == (3, 4)
    assert target.set_params(gamma=0.25).get_params()["attraction_strength"] == 0.75
    for wrong, message in (
        ({"repulsion": 1}, "CASIMAC has no argument 'repulsion'; did you mean 'repulsion_"),
        ({"distance__windw": 3}, "SSIM has no argument 'windw'; did you mean 'window'"),
        ({"gamma__window": 3}, "CASIMAC has no argument 'gamma__window'"),
        ({"distance__window": 4, "gamma": 0.5}, r"window must.*found 4"),
    ):
        with pytest.raises(ValueError, match=message):
            target.set_params(**wrong)
        assert (target.distance.window, target.repulsion_strength) == (3, 0.25)


@pytest.mark.parametrize("target", EACH, ids=lambda target: re.sub(" at 0x.*?>", ">", repr(target)))
def test_clones_have_equal_arguments_and_set_params_unfits(target):
    again = clone(target)
    assert again is not target
    expected = {key: value for key, value in target.get_config().items() if key != "fitted"}
    assert {key: value for key, value in again.get_config().items() if key != "fitted"} == expected
    if isinstance(target, CASIMAC):
        target.fit(X, Y)
        assert not target.set_params().is_fitted
