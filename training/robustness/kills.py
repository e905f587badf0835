"""Killed writers: the files that they were writing are either unchanged or complete.

    python -m training.robustness.kills [--kills 200] [--runs 10] [--seed 0] [--output FILE.json]

A third of the kills of a writer are at a random moment; the others at its file operations, one after another: just
before a file is opened, renamed or removed, and on both sides of an exchange of two folders. Afterwards the state is
read, the next writer does its work, and the folder must hold what it does after writers that nobody killed. Whole
trainings are killed, too, and end with the weights of one that was left alone. Processes are killed, not machines: what
a power cut leaves of a disk's cache is not tried.
"""

import itertools
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import deepsimplex as ds
from deepsimplex import experiments
from deepsimplex._utils import atomic_files
from deepsimplex._utils.progress import progress
from training.results import Output, ResultTable
from training.robustness.writers import WRITERS

FORKED = multiprocessing.get_context("forkserver")  # of a process that has imported these, and done nothing with them
FORKED.set_forkserver_preload(["deepsimplex.experiments", "deepsimplex.export", "deepsimplex.plots"])
OPERATIONS = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.copyfile", "shutil.rmtree", "exchange"}
CONFIG = Path(__file__).parents[2] / "configs" / "digits.yaml"


class Faults:
    """Count the file operations of this process within a folder, and kill it at one of them."""

    def __init__(self, folder: Path, step: int | None) -> None:
        self.folder, self.step, self.operations = str(folder), step, 0
        exchange = atomic_files._exchange

        def audited(one: Path, other: Path) -> bool:
            sys.audit("exchange", one)
            done = exchange(one, other)
            sys.audit("exchange", one)
            return done

        atomic_files._exchange = audited
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: Any) -> None:
        """Count an operation; Python calls this before it."""
        if event in OPERATIONS and self.folder in " ".join(map(str, arguments)):
            if self.operations == self.step:
                os.kill(os.getpid(), signal.SIGKILL)
            self.operations += 1


def _child(work: str, arguments: Any, folder: Path, step: int | None, pipe: Any) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    faults = Faults(folder, step)
    pipe.send("begun")
    if work in WRITERS:
        WRITERS[work].write(folder, arguments)
    else:
        train(folder)
    pipe.send(faults.operations)


def in_a_process(
    work: str, arguments: Any, folder: Path, *, step: int | None = None, seconds: float | None = None
) -> tuple[int, float]:
    """Work in a process that is killed at a step, after some seconds or not; return its operations and seconds."""
    ours, theirs = FORKED.Pipe()
    process = FORKED.Process(target=_child, args=(work, arguments, folder, step, theirs))
    process.start()
    theirs.close()
    ours.recv()
    begun = time.monotonic()
    if seconds is not None:
        process.join(seconds)
        process.kill()
    try:
        operations = ours.recv()
    except EOFError:
        operations = -1
    process.join()
    if process.exitcode not in (0, -signal.SIGKILL):
        raise RuntimeError(f"{work} failed with exit code {process.exitcode}; its traceback is above")
    return operations, time.monotonic() - begun


def train(folder: Path) -> experiments.RunFolder:
    """Train three epochs on a few digits, or those that remain of them."""
    settings = ["target=ilr", "data.limit=64", "data.validation_fraction=0.25", "training.epochs=3", "cache_dir=null"]
    settings += ["model.backbone={name: mlp, hidden: [8]}", f"output={folder}"]
    return experiments.train(experiments.load_config(CONFIG, settings), resume=True, verbose=0)


def leftovers(folder: Path) -> list[str]:
    """Return the names of temporary folders and of files that a finished training no longer needs."""
    return [path.name for path in folder.rglob("*") if path.name.startswith(".") or path.name == "backup"]


def same(one: Any, other: Any) -> bool:
    """Return whether two states are equal."""
    return all(map(np.array_equal, one, other)) if one is not None and other is not None else one is other


def moments(operations: int, seconds: list[float], rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """Yield when to kill: every third time at a random moment of the shortest work, else at the next operation."""
    for number in itertools.count():
        yield {"seconds": rng.uniform(0, min(seconds))}
        yield {"step": 2 * number % operations}
        yield {"step": (2 * number + 1) % operations}


def kill_writer(name: str, kills: int, seed: int, advance: Callable[[float], None]) -> Counter[str]:
    """Kill a writer of state 1 over nothing or over state 0; count the states read then and after the next write."""
    writer, counts = WRITERS[name], Counter[str]()
    for earlier in (False, True) if writer.replaces else (False,):
        with tempfile.TemporaryDirectory() as place:
            states: list[Any] = [None]
            if earlier:
                in_a_process(name, 0, Path(place))
                states = [writer.read(Path(place))]
            operations, taken = in_a_process(name, 1, Path(place))
            states.append(writer.read(Path(place)))
        killed, seconds = 0, [taken]
        for moment in moments(operations, seconds, np.random.default_rng([seed, earlier])):
            with tempfile.TemporaryDirectory() as place:
                folder = Path(place)
                if earlier:
                    writer.write(folder, 0)
                done, taken = in_a_process(name, 1, folder, **moment)
                if done >= 0:  # before it could be killed
                    seconds.append(taken)
                    continue
                problems = []
                try:
                    equal = [same(writer.read(folder), state) for state in states]
                    problems += [] if any(equal) else ["lost"]
                    writer.write(folder, 1)
                    problems += [] if same(writer.read(folder), states[1]) else ["not resumed"]
                    problems += ["leftovers"] if leftovers(folder) else []
                except Exception as error:
                    problems = ["lost", f"{type(error).__name__}: {error}"]
            counts.update(["killed", *(problems or ["as it was to be" if equal[1] else "as before"])])
            if problems:
                print(f"{name}, over {'state 0' if earlier else 'nothing'}, {moment}: {problems}", file=sys.stderr)
            advance(1)
            killed += 1
            if killed == kills // (1 + writer.replaces):
                break
    return counts


def kill_runs(kills: int, seed: int, advance: Callable[[float], None]) -> Counter[str]:
    """Kill trainings, resume them, and compare their weights with those of an uninterrupted one."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        operations, taken = in_a_process("train", None, Path(place))
        weights = ds.load(Path(place) / "digits/001/model.keras").get_weights()
    rng, seconds = np.random.default_rng(seed), [taken]
    steps = iter(rng.permutation(operations))
    while counts["killed"] < kills:
        moment = {"step": int(next(steps))} if counts["killed"] % 2 else {"seconds": rng.uniform(0, min(seconds))}
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            done, taken = in_a_process("train", None, folder, **moment)
            if done >= 0:
                seconds.append(taken)
                continue
            model = folder / "digits/001/model.keras"
            was_there = (folder / "digits/001/metrics.json").exists()
            try:
                in_a_process("train", None, folder)
                problems = [] if same(ds.load(model).get_weights(), weights) else ["not resumed"]
                problems += ["leftovers"] if leftovers(folder) else []
            except (RuntimeError, OSError, ValueError) as error:
                problems = ["lost", str(error)]
            if problems:
                print(f"training, {moment}: {problems}", file=sys.stderr)
        counts.update(["killed", *(problems or ["as it was to be" if was_there else "as before"])])
        advance(1)
    return counts


def main(
    kills: Annotated[int, typer.Option(help="kills in all")] = 200,
    runs: Annotated[int, typer.Option(help="of which kills of whole trainings, the longest")] = 10,
    seed: Annotated[int, typer.Option(help="of the random moments")] = 0,
    only: Annotated[str, typer.Option(help="writers whose name holds this text")] = "",
    output: Output = None,
) -> None:
    """Kill the writers, and print the counts of the outcomes."""
    names = [name for name in WRITERS if only in name]
    shares = {name: 1 if name in ("model (.keras)", "SavedModel") else 4 for name in names}  # these take seconds
    table = ResultTable("training.robustness.kills")
    with progress("kills", kills, True, unit="kills") as advance:
        for name in names:
            each = 2 * round((kills - runs) * shares[name] / sum(shares.values()) / 2)
            add(table, name, kill_writer(name, each, seed, advance), output)
        if only in "deepsimplex train":
            add(table, "deepsimplex train", kill_runs(runs, seed, advance), output)


def add(table: ResultTable, name: str, counts: Counter[str], output: Path | None) -> None:
    """Add the row of a writer and write the table, so that an interrupted run keeps its rows."""
    columns = ("killed", "as before", "as it was to be", "lost", "not resumed", "leftovers")
    table.add(writer=name, **{column: int(counts[column]) for column in columns})
    table.write(output)


if __name__ == "__main__":
    typer.run(main)
