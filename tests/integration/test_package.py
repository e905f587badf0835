"""The archives that are published: built, checked, complete, and installed where nothing of the repository is."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOT_SOURCE = (".git", ".venv*", "build", "dist", "runs", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis")


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """A wheel, built from the source archive, which is built from a copy of the repository."""
    folder = tmp_path_factory.mktemp("package")
    shutil.copytree(ROOT, folder / "source", ignore=shutil.ignore_patterns(*NOT_SOURCE))
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", folder / "source"]
    subprocess.run(command, check=True, capture_output=True)
    (source,), (wheel,) = (folder / "dist").glob("*.tar.gz"), (folder / "dist").glob("*.whl")
    return source, wheel


@pytest.mark.slow
def test_archives_hold_the_package_and_nothing_else(archives):
    source, wheel = archives
    package = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "deepsimplex").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        assert {name for name in archive.namelist() if ".dist-info/" not in name} == package
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert package | {"pyproject.toml", "README.md"} <= names
    assert {name.partition("/")[0] for name in names} <= {
        *("", "deepsimplex", "deepsimplex.egg-info", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg", "tests")
    }
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *archives], capture_output=True, text=True
    )
    assert done.stdout.count("PASSED") == 2, done.stdout


@pytest.mark.slow
def test_installed_wheel_runs_its_commands(archives, tmp_path):
    _, wheel = archives
    target = tmp_path / "installed"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", target, wheel]
    subprocess.run(install, check=True)
    program = """
import sys
import deepsimplex.evaluation, deepsimplex.cli
assert deepsimplex.__file__.startswith(sys.argv[1]), deepsimplex.__file__
print(deepsimplex.evaluation.brier_score([0, 1], [[0.5, 0.5], [0.5, 0.5]]))
sys.argv[1:] = ["--version"]
deepsimplex.cli.main()
"""
    environment = {"PYTHONPATH": str(target), "PATH": ""}
    command = [sys.executable, "-c", program, str(target)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["0.25", "deepsimplex", "0.1.0"], done.stderr
