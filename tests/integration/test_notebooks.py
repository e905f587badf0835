"""The notebooks run: executed as for the site, with shortened training."""

import re
from pathlib import Path

import pytest

from training import notebooks

PATHS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.py"))


def test_number_of_notebooks():
    assert len(PATHS) == 6


@pytest.fixture(scope="module")
def kernel():
    """A kernel whose notebooks train little."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EPOCHS", "2")
        patch.setenv("IMAGES", "300")
        patch.setenv("DATA", "digits")
        with notebooks.running_kernel() as kernel:
            yield kernel


@pytest.mark.slow
@pytest.mark.examples
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_notebook_runs(path, kernel):
    markdown, pictures = notebooks.page(path, kernel)
    linked = re.findall(rf"!\[png\]\(({path.stem}/\w+\.png)\)", markdown)
    assert linked
    assert set(linked) == pictures.keys()
    assert "Traceback" not in markdown
