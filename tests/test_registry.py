"""Members by name: parameters of constructors are the same on every version of Python."""

from deepsimplex._utils.parameters import constructor_parameters


class Made:
    def __new__(cls, *args, **kwargs):
        return super().__new__(cls)

    def __init__(self, units, bias=True):
        self.units, self.bias = units, bias


def test_constructor_signature_equals_init():
    assert list(constructor_parameters(Made)) == ["units", "bias"]
    assert constructor_parameters(type("Plain", (), {})) == {}
