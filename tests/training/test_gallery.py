"""The gallery of figures: entries, pictures and pages."""

from pathlib import Path

import matplotlib.image
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

import deepsimplex as ds
from training import gallery

ROOT = Path(__file__).parents[2]


def run(*arguments: str):
    import typer

    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(gallery.main)
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize("name", ds.plots.__all__)
def test_every_figure_has_an_entry(name):
    assert name in gallery.ENTRIES
    assert gallery.plot_name(name) == name


def test_every_entry_belongs_to_a_figure():
    assert {gallery.plot_name(entry) for entry in gallery.ENTRIES} == set(ds.plots.__all__)


@pytest.mark.slow
@pytest.mark.examples
def test_all_entries_become_pictures(tmp_path):
    done = run("--output", str(tmp_path / "pictures"))
    assert done.exit_code == 0, done.output
    for name in gallery.ENTRIES:
        path = tmp_path / "pictures" / f"{name}.png"
        pixels = matplotlib.image.imread(path)
        assert pixels[..., :3].std() > 0.01  # not one color
        assert path.stat().st_size > 5_000
        assert f"{path}  " in done.output
    assert len(list((tmp_path / "pictures").iterdir())) == len(gallery.ENTRIES)


def test_named_entries_alone_are_drawn(tmp_path, monkeypatch):
    drawn = dict.fromkeys(gallery.ENTRIES, lambda: Figure(figsize=(1, 1)))
    monkeypatch.setattr(gallery, "ENTRIES", drawn)
    done = run("relevance", "simplex", "--output", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert {path.name for path in tmp_path.iterdir()} == {"relevance.png", "simplex.png"}


def test_unknown_entry_raises(tmp_path):
    done = run("reliabilty", "--output", str(tmp_path / "none"))
    assert done.exit_code == 2
    assert "is no entry of the gallery" in done.output
    assert not (tmp_path / "none").exists()


def test_guide_names_every_figure():
    guide = (ROOT / "docs" / "guides" / "figures.md").read_text(encoding="utf-8")
    for name in ds.plots.__all__:
        assert f"`{name}`" in guide, name


def test_gallery_shows_every_entry():
    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    for name in gallery.ENTRIES:
        assert f"](pictures/{name}.png)" in page, name
