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


def test_guide_is_named_below_the_error_and_on_the_line_of_a_command(capsys):
    from typer import Exit

    from deepsimplex.calibration import ConformalSets
    from deepsimplex.cli import _on_one_line

    page = "docs/guides/decisions.md#return-a-set"
    with pytest.raises(ValueError, match="y must hold at least 9 samples") as raised:
        ConformalSets().fit([[0.5, 0.5]], [0])
    assert raised.value.__notes__ == [f"See {page}"]
    with pytest.raises(Exit), _on_one_line():
        raise raised.value
    assert capsys.readouterr().err.endswith(f"lower the coverage. See {page}\n")
