"""Files appear whole or not at all."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from deepsimplex._utils import atomic_files
from deepsimplex._utils.atomic_files import check_writable, replacing


def test_a_file_is_written_and_nothing_else_is_left(tmp_path):
    target = tmp_path / "deep" / "numbers.txt"
    with replacing(target) as fresh:
        assert fresh.name == "numbers.txt"
        fresh.write_text("1")
        assert not target.exists()
    with replacing(target) as fresh:
        fresh.write_text("2")
    assert target.read_text() == "2"
    assert [path.name for path in target.parent.iterdir()] == ["numbers.txt"]


def test_an_earlier_good_file_survives_an_exception(tmp_path):
    target = tmp_path / "numbers.txt"
    target.write_text("good")

    def write_half() -> None:
        with replacing(target) as fresh:
            fresh.write_text("go")
            raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        write_half()
    assert target.read_text() == "good"
    assert list(tmp_path.iterdir()) == [target]


def test_an_earlier_good_file_survives_a_kill(tmp_path):
    target = tmp_path / "numbers.txt"
    target.write_text("good")
    # The module by its path: the package would bring TensorFlow.
    script = f"""
        import os, runpy, signal
        replacing = runpy.run_path({atomic_files.__file__!r})["replacing"]
        with replacing({str(target)!r}) as fresh:
            fresh.write_text("go")
            os.kill(os.getpid(), signal.SIGKILL)
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False, capture_output=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert target.read_text() == "good"


def test_a_folder_replaces_a_folder(tmp_path):
    target = tmp_path / "served"
    for content in ("old", "new"):
        with replacing(target) as fresh:
            fresh.mkdir()
            (fresh / content).write_text(content)
    assert [path.name for path in target.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("failure", [OSError, KeyboardInterrupt])
def test_the_old_folder_comes_back_when_the_new_one_cannot_take_its_place(failure, tmp_path, monkeypatch):
    target = tmp_path / "served"
    target.mkdir()
    (target / "old").touch()
    real = os.replace

    def failing(source, destination):
        if os.fspath(destination) == os.fspath(target) and os.path.basename(source) == "served":
            raise failure("no")
        real(source, destination)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(failure, match="no"), replacing(target) as fresh:
        fresh.mkdir()
    assert [path.name for path in target.iterdir()] == ["old"]


def test_a_block_that_writes_nothing_is_an_error_and_keeps_the_earlier_file(tmp_path):
    target = tmp_path / "numbers.txt"
    target.write_text("good")
    with pytest.raises(FileNotFoundError), replacing(target):
        pass
    assert target.read_text() == "good"


def test_check_writable_creates_and_leaves_the_folder_empty(tmp_path):
    folder = check_writable(tmp_path / "a" / "b", "cache")
    assert folder.is_dir()
    assert list(folder.iterdir()) == []


def test_check_writable_names_the_argument_and_the_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"cache is not a folder that can be written.*file"):
        check_writable(tmp_path / "file" / "below", "cache")
