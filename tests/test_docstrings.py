"""Public docstrings exist, and their examples run."""

import doctest
import importlib
import inspect
import linecache
import pkgutil
import re
import types
from pathlib import Path

import pytest

import deepsimplex

ROOMS: dict[str, list[str]] = {}
for module in pkgutil.walk_packages(deepsimplex.__path__, "deepsimplex."):
    ROOMS.setdefault(module.name.split(".")[1], []).append(module.name)


def public_objects() -> list[tuple[str, object]]:
    """Classes and functions in the ``__all__`` of the package and of its rooms."""
    objects = []
    for name in deepsimplex.__all__:
        room = getattr(deepsimplex, name)
        if isinstance(room, types.ModuleType):
            names = getattr(room, "__all__", None) or [key for key in vars(room) if not key.startswith("_")]
            members = [(f"{name}.{key}", getattr(room, key)) for key in names]
            objects += [(key, m) for key, m in members if getattr(m, "__module__", "").startswith("deepsimplex")]
        elif callable(room):
            objects.append((name, room))
    return [(key, member) for key, member in objects if inspect.isclass(member) or inspect.isfunction(member)]


def needs_example(member: object) -> bool:
    return not (
        inspect.isclass(member) and (issubclass(member, Warning | Exception) or getattr(member, "_is_protocol", False))
    )


def shows_output(member: object) -> bool:
    """Whether some line of an example is followed by one that is no code."""
    return re.search(r"^ *(>>>|\.\.\.) .*\n *(?!>>>|\.\.\.)[^\s]", member.__doc__ or "", flags=re.MULTILINE) is not None


def test_public_docstrings_have_examples():
    objects = public_objects()
    assert len(objects) > 150
    assert [name for name, member in objects if not member.__doc__] == []
    assert [name for name, member in objects if needs_example(member) and not shows_output(member)] == []


@pytest.mark.slow
@pytest.mark.examples
@pytest.mark.parametrize("room", ROOMS)
def test_examples_run(room, tmp_path, monkeypatch):
    """In folders that have the configurations."""
    # Before each example all files of the process are looked at: a tenth of the time.
    monkeypatch.setattr(linecache, "checkcache", lambda *names: None)
    failed = {}
    for name in ROOMS[room]:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "configs").symlink_to(Path(__file__).parents[1] / "configs")
        monkeypatch.chdir(folder)
        module, options = importlib.import_module(name), doctest.NORMALIZE_WHITESPACE
        failed[name] = doctest.testmod(module, extraglobs={"folder": folder}, optionflags=options).failed
    assert {name: count for name, count in failed.items() if count} == {}
