"""Run programs in fresh processes.

A process is forked from a server that has imported TensorFlow and Keras and done nothing with them, which saves the six
seconds of the imports. Nothing of the tests, nor of deepsimplex, is in its memory.
"""

import multiprocessing
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["tensorflow", "keras"])


def run(program: str, *arguments: Any, folder: Path | None = None, exitcode: int = 0) -> str:
    """Run a program with command-line arguments in ``folder``, check its exit code, and return what it printed."""
    with tempfile.TemporaryDirectory() as outputs:
        process = start(program, *arguments, folder=folder, outputs=outputs)
        process.join()
        printed, errors = ((Path(outputs) / name).read_text() for name in ("stdout", "stderr"))
    assert process.exitcode == exitcode, errors
    return printed


def start(program: str, *arguments: Any, outputs: str | Path, folder: Path | None = None) -> Any:
    """Start a program with command-line arguments in ``folder``: its process, which prints to files in ``outputs``."""
    process = SERVER.Process(target=_execute, args=(program, [*map(str, arguments)], folder, str(outputs)))
    process.start()
    return process


def _execute(program: str, arguments: list[str], folder: Path | None, outputs: str) -> None:
    for stream in (sys.stdout, sys.stderr):
        file = os.open(f"{outputs}/{stream.name.strip('<>')}", os.O_WRONLY | os.O_CREAT)
        os.dup2(file, stream.fileno())
    if folder:
        os.chdir(folder)
    sys.argv = ["program", *arguments]
    exec(compile(program, "program", "exec"), {"__name__": "__main__"})
