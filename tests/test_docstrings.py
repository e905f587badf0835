"""Public docstrings exist, and their examples run."""

import doctest
import importlib
import inspect
import linecache
import pkgutil
import types
from pathlib import Path

import pytest

import deepsimplex

MODULES = sorted(module.name for module in pkgutil.walk_packages(deepsimplex.__path__, "deepsimplex."))


def public_objects() -> list[tuple[str, object]]:
    """Everything that a room's ``__all__`` offers."""
    found = []
    for name in deepsimplex.__all__:
        room = getattr(deepsimplex, name)
        if isinstance(room, types.ModuleType):
            names = getattr(room, "__all__", None) or [key for key in vars(room) if not key.startswith("_")]
            members = [(f"{name}.{key}", getattr(room, key)) for key in names]
            found += [(key, m) for key, m in members if getattr(m, "__module__", "").startswith("deepsimplex")]
        elif callable(room):
            found.append((name, room))
    return [(key, member) for key, member in found if inspect.isclass(member) or inspect.isfunction(member)]


@pytest.mark.parametrize(
    ("name", "member"), public_objects(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_public_docstrings_have_an_example(name, member):
    assert member.__doc__, name
    if inspect.isclass(member) and issubclass(member, Warning | Exception):
        return
    if inspect.isabstract(member) or getattr(member, "_is_protocol", False):
        return
    assert ">>>" in member.__doc__, name


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
def test_examples_run(module, tmp_path, monkeypatch):
    """In a copy of the working folder's names: configs are read, files go to a temporary folder."""
    (tmp_path / "configs").symlink_to(Path(__file__).parents[1] / "configs")
    monkeypatch.chdir(tmp_path)
    # Before each example all files of the process are looked at: a tenth of the time.
    monkeypatch.setattr(linecache, "checkcache", lambda *names: None)
    failed, _ = doctest.testmod(
        importlib.import_module(module), extraglobs={"folder": tmp_path}, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert failed == 0
