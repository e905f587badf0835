"""Hints for unknown names: one helper, used everywhere."""

from pathlib import Path

import pytest

import deepsimplex
from deepsimplex._utils.messages import did_you_mean

PACKAGE = Path(deepsimplex.__file__).parent


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("mpl", "; did you mean 'mlp'?"),
        ("ADAMX", "; did you mean 'Adamax'?"),
        ("transformer", ""),
        (3, ""),
        (None, ""),
    ],
)
def test_suggestion_keeps_its_spelling(name, hint):
    assert did_you_mean(name, ["mlp", "Adamax"]) == hint


def test_difflib_is_used_in_one_file():
    users = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if "difflib" in path.read_text()}
    assert users == {"_utils/messages.py"}
