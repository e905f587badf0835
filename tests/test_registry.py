"""Members by name: parameters of constructors are the same on every version of Python."""

import pytest

from deepsimplex._utils.parameters import constructor_parameters
from deepsimplex._utils.registry import Registry


class Made:
    def __new__(cls, *args, **kwargs):
        return super().__new__(cls)

    def __init__(self, units, bias=True):
        self.units, self.bias = units, bias


def test_constructor_signature_equals_init():
    assert list(constructor_parameters(Made)) == ["units", "bias"]
    assert constructor_parameters(type("Plain", (), {})) == {}


def test_name_of_a_member_that_needs_arguments_raises():
    layers = Registry("layer", Made, {"made": Made})
    with pytest.raises(TypeError, match="layer Made needs units; found its name alone"):
        layers.get("made")
    with pytest.raises(TypeError, match="layer Made needs units; found bias"):
        layers.get({"name": "made", "bias": False})
    assert layers.get("made", units=3).units == 3
