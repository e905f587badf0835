"""Files are written atomically."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from deepsimplex._utils import atomic_files
from deepsimplex._utils.atomic_files import check_writable, locked, replacing


def test_replacing_leaves_no_temporary_files(tmp_path):
    target = tmp_path / "deep" / "numbers.txt"
    with replacing(target) as fresh:
        assert fresh.name == "numbers.txt"
        fresh.write_text("1")
        assert not target.exists()
    with replacing(target) as fresh:
        fresh.write_text("2")
    assert target.read_text() == "2"
    assert [path.name for path in target.parent.iterdir()] == ["numbers.txt"]


def test_exception_keeps_the_earlier_file(tmp_path):
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


def test_kill_keeps_the_earlier_file(tmp_path):
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


def test_folder_replaces_a_folder(tmp_path):
    target = tmp_path / "served"
    for content in ("old", "new"):
        with replacing(target) as fresh:
            fresh.mkdir()
            (fresh / content).write_text(content)
    assert [path.name for path in target.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("failure", [OSError, KeyboardInterrupt])
def test_failed_replacement_restores_the_earlier_folder(failure, tmp_path, monkeypatch):
    target = tmp_path / "served"
    target.mkdir()
    (target / "old").touch()
    real = os.replace

    def failing(source, destination):
        if os.fspath(destination) == os.fspath(target) and os.path.basename(source) == "served":
            raise failure("no")
        real(source, destination)

    monkeypatch.setattr(atomic_files, "_exchange", lambda one, other: False)  # as where the system cannot
    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(failure, match="no"), replacing(target) as fresh:
        fresh.mkdir()
    assert [path.name for path in target.iterdir()] == ["old"]


KILLED = """
    import os, runpy, signal
    module = runpy.run_path({module!r})
    names = module["replacing"].__wrapped__.__globals__
    if not {exchange}:
        names["_exchange"] = lambda one, other: False
    real, calls = os.replace, []
    def killing(source, destination):
        if len(calls) == {step}:
            os.kill(os.getpid(), signal.SIGKILL)
        calls.append(source)
        real(source, destination)
    os.replace = killing
    with module["replacing"]({target!r}) as fresh:
        fresh.mkdir()
        (fresh / "new").touch()
        if {step} < 0:
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("step", "exchange"), [(-1, True), (-1, False), (0, False), (1, False)])
def test_kill_at_any_step_loses_no_folder(step, exchange, tmp_path):
    target = tmp_path / "served"
    target.mkdir()
    (target / "old").touch()
    script = KILLED.format(module=atomic_files.__file__, target=str(target), step=step, exchange=exchange)
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False, capture_output=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    with replacing(target) as fresh:
        # Neither folder was in its place after the first of two steps: this writer has brought one back.
        assert [path.name for path in target.iterdir()] == ["old"]
        assert len(list(tmp_path.iterdir())) == 2  # it and the temporary folder
        fresh.mkdir()
    assert list(tmp_path.iterdir()) == [target]


def test_temporary_folders_of_running_writers_are_kept(tmp_path):
    target = tmp_path / "numbers.txt"
    with replacing(target) as one:
        one.write_text("1")
        with replacing(target) as other:
            other.write_text("2")
        assert target.read_text() == "2"
    assert target.read_text() == "1"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("of", ["the system", "the file system"])
def test_replacing_without_locks(of, tmp_path, monkeypatch):
    if of == "the system":
        monkeypatch.setattr(atomic_files, "fcntl", None)
    else:
        monkeypatch.setattr(atomic_files.fcntl, "flock", lambda *arguments: os.open(tmp_path / "nowhere", os.O_RDONLY))
    target = tmp_path / "numbers.txt"
    with replacing(target) as one, replacing(target) as other:
        one.write_text("1")
        other.write_text("2")
    assert target.read_text() == "1"
    assert list(tmp_path.iterdir()) == [target]
    with locked(tmp_path) as first, locked(tmp_path) as second:
        assert (first, second) == (False, False)


def test_symbolic_link_is_kept(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link.txt").symlink_to(tmp_path / "disk" / "numbers.txt")
    (tmp_path / "served").symlink_to(tmp_path / "disk" / "served")
    (tmp_path / "disk" / "served").mkdir()
    with replacing(tmp_path / "link.txt") as fresh:
        fresh.write_text("1")
    with replacing(tmp_path / "served") as fresh:
        fresh.mkdir()
        (fresh / "new").touch()
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "disk" / "numbers.txt").read_text() == "1"
    assert (tmp_path / "served").is_symlink()
    assert (tmp_path / "disk" / "served" / "new").exists()


def test_longest_file_names(tmp_path):
    with replacing(tmp_path / ("n" * 255)) as fresh:
        fresh.write_text("1")
    assert (tmp_path / ("n" * 255)).read_text() == "1"


def test_block_that_writes_nothing_raises(tmp_path):
    target = tmp_path / "numbers.txt"
    target.write_text("good")
    with pytest.raises(FileNotFoundError), replacing(target):
        pass
    assert target.read_text() == "good"


def test_check_writable_creates_an_empty_folder(tmp_path):
    folder = check_writable(tmp_path / "a" / "b", "cache")
    assert folder.is_dir()
    assert list(folder.iterdir()) == []


def test_check_writable_of_an_unwritable_folder_raises(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"cache is not a folder that can be written.*file"):
        check_writable(tmp_path / "file" / "below", "cache")
