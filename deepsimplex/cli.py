"""Command line of the package.

``deepsimplex train|evaluate|export|targets --config configs/NAME.yaml [key=value ...]``, and
``deepsimplex report RUN [RUN ...]``, which compares runs on one page.
"""

import os
import re
import shlex
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

application = typer.Typer(
    help="Classification by regression on the probability simplex, with calibrated class probabilities.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"deepsimplex {version('deepsimplex')}")
        raise typer.Exit


@application.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="show the version and exit")
    ] = False,
) -> None:
    sys.path.append(os.getcwd())  # so that "module:Class" finds the user's own members


Config = Annotated[Path, typer.Option("--config", help="YAML file, such as configs/digits.yaml", show_default=False)]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="overrides, such as training.epochs=3")
]


@contextmanager
def _on_one_line(again: str | None = None) -> Iterator[None]:
    """Report errors that a user can fix, and Ctrl-C with the command that resumes, on one line without a traceback.

    So are warnings to users, without a line of code.
    """
    show = warnings.showwarning

    def show_concisely(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
    ) -> None:
        if category is UserWarning:
            print(f"deepsimplex: warning: {' '.join(str(message).split())}", file=sys.stderr)
        else:
            show(message, category, filename, lineno, file, line)

    try:
        with warnings.catch_warnings():
            warnings.showwarning = show_concisely
            yield
    except (ValueError, OSError, ImportError, MemoryError) as error:
        print(f"deepsimplex: {' '.join(str(error).split())}", file=sys.stderr)
        raise typer.Exit(2) from error
    except KeyboardInterrupt as interrupt:
        print(f"deepsimplex: interrupted{f'; go on by {again}' if again else ''}", file=sys.stderr)
        raise typer.Exit(130) from interrupt


# What TensorFlow writes about a machine that has all that it needs.
_NOTES = re.compile(
    rb"I\d{4} |WARNING: All log messages before absl|To enable the following instr|E\d{4} .* failed call to cuInit"
)


@contextmanager
def _loading() -> Iterator[None]:
    """Say that TensorFlow is loaded inside the block, if somebody looks, and hold its notes about the machine back.

    They are written to the file descriptor. All other lines follow at the end.
    """
    from rich.console import Console

    sys.stderr.flush()
    descriptor = os.dup(2)
    with os.fdopen(descriptor, "w") as terminal, tempfile.TemporaryFile() as written:
        os.dup2(written.fileno(), 2)
        try:
            with Console(file=terminal).status("loading TensorFlow"):
                yield
                import tensorflow as tf

                tf.config.list_physical_devices()  # looks for GPUs, and writes of them
        finally:
            sys.stderr.flush()
            os.dup2(descriptor, 2)
            written.seek(0)
            for line in written:
                if not _NOTES.match(line):
                    sys.stderr.buffer.write(line)
            sys.stderr.flush()


def _run(command: str, path: Path, overrides: list[str] | None, **options: Any) -> None:
    """Run a command of ``deepsimplex.experiments`` under a checked configuration."""
    with _loading():
        from deepsimplex import experiments  # imported here: --help needs no TensorFlow

    work: Callable[..., Any] = getattr(experiments, command)
    work(experiments.load_config(path, overrides or ()), **options)


@application.command()
def train(
    config: Config,
    overrides: Overrides = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="continue the newest run if it is unfinished, or make what it lacks")
    ] = False,
    workers: Annotated[int, typer.Option("--workers", help="processes of this machine that train together")] = 1,
) -> None:
    """Train a classifier, evaluate it on the test samples and export it.

    On several machines: the same command on each, with TF_CONFIG set as for tf.distribute.
    """
    arguments = ["--config", str(config), *(overrides or ())]
    together = [] if workers == 1 else [f"--workers={workers}"]
    with _on_one_line(shlex.join(["deepsimplex", "train", "--resume", *together, *arguments])):
        with _loading():
            from deepsimplex.experiments.worker_processes import open_strategy, run_workers

        if together:
            options = ["--resume"] if resume else []
            raise typer.Exit(run_workers(workers, ["-m", "deepsimplex.cli", "train", *options, *arguments]))
        strategy = open_strategy()  # before a configuration is checked: its members are made
        _run("train", config, overrides, resume=resume, strategy=strategy)


@application.command()
@_on_one_line()
def evaluate(config: Config, overrides: Overrides = None) -> None:
    """Evaluate the newest trained model of a configuration again, as it is."""
    _run("evaluate", config, overrides)


@application.command()
@_on_one_line()
def export(config: Config, overrides: Overrides = None) -> None:
    """Export the newest trained model of a configuration as a SavedModel."""
    _run("export", config, overrides)


@application.command()
@_on_one_line()
def targets(config: Config, overrides: Overrides = None) -> None:
    """Compute and cache the latent targets alone."""
    _run("make_targets", config, overrides)


@application.command()
@_on_one_line()
def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="runs/NAME/001, runs/NAME (its newest run) or an .npz file")
    ],
    output: Annotated[Path, typer.Option("--output", help="the page to write")] = Path("report.html"),
    title: Annotated[str | None, typer.Option("--title", help="of the page", show_default=False)] = None,
    level: Annotated[float, typer.Option("--level", help="of the intervals, between 0 and 1")] = 0.95,
    resamples: Annotated[int, typer.Option("--resamples", help="of the test samples, for the intervals")] = 1000,
    seed: Annotated[int, typer.Option("--seed", help="of the resamples")] = 0,
) -> None:
    """Compare runs on one HTML page that needs no network, and write a model card of each beside it."""
    with _loading():
        from deepsimplex import experiments

    page = experiments.write_report(
        output, runs, title=title, level=level, resamples=resamples, seed=seed, cards=True, announce=print
    )
    print(f"{page}, {page.stat().st_size / 1e6:.1f} MB")


def main() -> None:
    """Entry point of the ``deepsimplex`` command."""
    application()


if __name__ == "__main__":
    main()
