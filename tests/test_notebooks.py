"""Notebooks stay alive: IPython executes them, with their training cut short."""

import re
from pathlib import Path

import jupytext
import pytest

from tests.fresh_process import run

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.py"))

EXECUTE = """
import os, sys, jupytext
os.environ.update(EPOCHS="2", IMAGES="300", MPLBACKEND="agg")
from IPython.core.interactiveshell import InteractiveShell
class Shell(InteractiveShell):
    def enable_gui(self, gui=None):
        pass  # figures are drawn inline
shell = Shell.instance()
for cell in jupytext.read(sys.argv[1]).cells:
    if cell.cell_type == "code":
        done = shell.run_cell(cell.source)
        done.raise_error()
        print("shown as", *shell.display_formatter.format(done.result)[0])
"""


def test_notebooks_are_found():
    assert len(NOTEBOOKS) == 6


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, tmp_path):
    jupytext.write(jupytext.read(path), tmp_path / "notebook.ipynb")
    printed = run(EXECUTE, "notebook.ipynb", folder=tmp_path)
    assert re.search(r"^shown as .*image/png", printed, flags=re.MULTILINE)
