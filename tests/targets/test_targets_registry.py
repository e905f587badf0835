"""Targets by name and configuration: there and back through JSON, and what is said of what is unknown."""

import inspect
import json

import numpy as np
import pytest

from deepsimplex import targets
from deepsimplex.distances import SSIM
from deepsimplex.targets import CASIMAC, ILR, TARGETS, Dirichlet, Mean, OneHot, Vertices, get_target, target_from_config

X = np.random.default_rng(3).random((12, 5, 5))
Y = np.arange(12) % 3

WRITABLE = [
    CASIMAC(),
    CASIMAC(SSIM(3), gamma=0.25, attraction_number=2, repulsion_number=3, construction="helmert"),
    CASIMAC({"name": "ssim", "window": 5}),
    ILR(0.9, 0.05),
    ILR(noise=0.5),
    Dirichlet(0.1),
    OneHot(),
    Vertices(),
    Mean([CASIMAC(), CASIMAC("cityblock")]),
    Mean(["ilr", Mean([ILR(0.5)])]),
]


@pytest.mark.parametrize("target", WRITABLE, ids=repr)
def test_configurations_make_the_same_target(target):
    config = json.loads(json.dumps(target.get_config()))
    again = target_from_config(config)
    assert type(again) is type(target)
    assert again.get_config() == target.get_config()
    expected, found = target.fit_transform(X, Y), again.fit_transform(X, Y)
    np.testing.assert_array_equal(found.loc, expected.loc)
    np.testing.assert_array_equal(found.scale, expected.scale)
    np.testing.assert_array_equal(again.scores(3), target.scores(3))


@pytest.mark.parametrize("name", sorted(set(TARGETS) - {"mean"}))
def test_names_make_the_defaults(name):
    target = get_target(name)
    assert target.name == name
    assert target.get_config() == type(target)().get_config()


def test_targets_pass_as_they_are():
    target = ILR()
    assert get_target(target) is target


def test_every_target_of_the_room_has_a_row():
    classes = {
        value for value in vars(targets).values() if inspect.isclass(value) and issubclass(value, targets.Target)
    }
    concrete = {c for c in classes if not inspect.isabstract(c)}
    assert {c.name: (c.__module__, c.__qualname__) for c in concrete} == TARGETS


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("casimak", "found 'casimak'; did you mean 'casimac'"),
        ("ILR", "did you mean 'ilr'"),
        ({"smoothing": 0.9}, "found None"),
        ({"name": "ilr", "smothing": 0.9}, "no argument 'smothing'; did you mean 'smoothing'"),
        ({"name": "one_hot", "noise": 1}, "no argument 'noise'; it takes none"),
        ("mean", "needs the argument 'targets'"),
        ({"name": "casimac", "distance": {"name": "ssim"}}, "window"),
        ({"name": "casimac", "distance": "euclidian"}, "euclidean"),
    ],
)
def test_unknown_things_and_their_nearest_known(spec, words):
    with pytest.raises(ValueError, match=words):
        get_target(spec)


def test_other_types():
    with pytest.raises(TypeError, match="found int"):
        get_target(3)


def squared(distances):
    return np.square(distances).mean(axis=1)


class Loudness:
    def __call__(self, a, b):
        return float(abs(a.sum() - b.sum()))


UNWRITABLE = [
    (CASIMAC(squared), "distance"),
    (CASIMAC(Loudness(), construction="helmert"), "distance"),
    (CASIMAC(np.ones((12, 12))), "distance"),
    (CASIMAC(repulsion_function=squared), "repulsion_function"),
    (CASIMAC(Loudness(), gamma=0.5, attraction_function=squared), "distance, attraction_function"),
    (Mean([CASIMAC(), CASIMAC(combination_function=np.sqrt)]), "combination_function"),
]


@pytest.mark.parametrize(("target", "parts"), UNWRITABLE, ids=lambda value: str(value)[:40])
def test_what_json_cannot_hold_leaves_a_mark(target, parts):
    """A saved model reloads, reads out and says why it cannot be fitted; written again, it stays the same."""
    again = target_from_config(json.loads(json.dumps(target.get_config())))
    assert again.get_config() == target.get_config()
    np.testing.assert_array_equal(again.scores(4), target.scores(4))
    assert (again.latent_dim(4), again.default_readout) == (3, "argmax")
    with pytest.raises(ValueError, match=f"cannot hold its {parts}:.*Make a new CASIMAC with the same objects"):
        again.fit(X, Y)


def test_marks_name_the_callable():
    config = CASIMAC(Loudness(), repulsion_function=squared).get_config()
    assert config["repulsion_function"]["object"].endswith(".squared")
    assert "Loudness" in json.dumps(config["distance"])


def test_configurations_hold_no_places(tmp_path):
    assert str(tmp_path) not in json.dumps(CASIMAC(cache_dir=tmp_path).get_config())
    assert target_from_config({"name": "casimac", "cache_dir": str(tmp_path)}).cache_dir == tmp_path


def test_repr_shows_the_parameters():
    assert repr(Dirichlet(0.5)) == "Dirichlet(concentration=0.5)"
    assert repr(Mean(["one_hot"])).startswith("Mean(targets=[")
