"""Command line of the package.

``deepsimplex train|evaluate|export|targets --config configs/NAME.yaml [key=value ...]``; without a configuration
``train FOLDER``, ``predict MODEL FOLDER`` and ``evaluate MODEL --data FOLDER``; ``report RUN [RUN ...]``, which
compares runs on one page; and ``monitor REFERENCE PREDICTIONS ...``, which watches predictions for drift.
"""

import io
import json
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


# Rows or files with an error that are named, at most.
_LISTED_ERRORS = 10

Config = Annotated[Path, typer.Option("--config", help="YAML file, such as configs/digits.yaml", show_default=False)]
OptionalConfig = Annotated[
    Path | None, typer.Option("--config", help="YAML file, such as configs/digits.yaml", show_default=False)
]
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
        lines = [str(error), *getattr(error, "__notes__", ())]
        print(f"deepsimplex: {' '.join('. '.join(lines).split())}", file=sys.stderr)
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


def _experiments() -> Any:
    """Import what the commands do, when one is called with correct options: --help needs no TensorFlow."""
    with _loading():
        import tensorflow as tf

        from deepsimplex import experiments

        experiments.train  # noqa: B018, imports Keras
    # It counts the predictions of several models, each traced once, as those of one.
    tf.get_logger().addFilter(lambda record: "triggered tf.function retracing" not in record.getMessage())
    return experiments


def _run(command: str, path: Path, overrides: list[str] | None, **options: Any) -> None:
    """Run a command of ``deepsimplex.experiments`` under a checked configuration."""
    from deepsimplex._utils.atomic_files import check_place
    from deepsimplex.datasets.loading import check_source
    from deepsimplex.experiments.configuration import check_members, read_config
    from deepsimplex.experiments.finished_runs import trained_runs

    config = read_config(path, overrides or ())  # before TensorFlow is loaded, which takes seconds
    if command != "make_targets":
        trained_runs(config)
    if command != "export":
        check_source(config.data.name, config.data.options.get("class_names"))
    if config.cache_dir:
        check_place(config.cache_dir, "cache_dir")
    work: Callable[..., Any] = getattr(_experiments(), command)
    work(check_members(config, str(path)), **options)


def _first_apart(arguments: list[str] | None) -> tuple[str | None, list[str]]:
    """Return the first argument, a path unless it reads key=value, and the others."""
    first, *others = arguments or [""]
    if first and ("=" not in first or Path(first).exists()):
        return first, others
    return None, list(arguments or ())


@application.command()
def train(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FOLDER] [KEY=VALUE]...",
            help="without --config: images by class, or a .csv file that lists them; or a .csv table and "
            "target_column=NAME; overrides, as training.epochs=3",
        ),
    ] = None,
    config: OptionalConfig = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="continue the newest run if it is unfinished, or make what it lacks")
    ] = False,
    workers: Annotated[int, typer.Option("--workers", help="processes of this machine that train together")] = 1,
    unknown: Annotated[
        bool, typer.Option("--unknown", help="fit the score of unknown samples, which FOLDER alone has by default")
    ] = False,
    groups: Annotated[
        str | None,
        typer.Option(
            "--groups", help="hold out whole groups: a pattern in paths, 'folder', or a column", show_default=False
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option("--time", help="hold out the latest: a pattern in paths or a column", show_default=False),
    ] = None,
) -> None:
    """Train a classifier, evaluate it on the test samples and export it.

    On several machines: the same command on each, with TF_CONFIG set as for tf.distribute.
    """
    folder, overrides = (None, list(arguments or ())) if config else _first_apart(arguments)
    overrides += ["calibration.unknown=true"] if unknown else []
    for name, value in {"groups": groups, "time": time}.items():
        overrides += [] if value is None else [f"data.options.{name}={json.dumps(value)}"]  # which YAML reads, too
    given = ["--config", str(config)] if config else [folder or ""]
    together = [] if workers == 1 else [f"--workers={workers}"]
    with _on_one_line(shlex.join(["deepsimplex", "train", "--resume", *together, *given, *overrides])):
        if not config and not folder:
            raise ValueError("train needs a folder of images by class, a .csv table, or --config with a YAML file")
        from deepsimplex._utils.atomic_files import check_place
        from deepsimplex.datasets.image_lists import is_table
        from deepsimplex.datasets.loading import check_source, source_kind
        from deepsimplex.experiments.configuration import check_members, read_config
        from deepsimplex.experiments.folder_configuration import read_folder

        if not config:
            source_kind(str(folder))
        read = read_config(config, overrides) if config else read_folder(str(folder), overrides)
        check_source(read.data.name, read.data.options.get("class_names"))  # before TensorFlow is loaded
        for name in ("output", "cache_dir"):
            if place := getattr(read, name):
                check_place(place, name)
        experiments = _experiments()
        from deepsimplex.experiments.worker_processes import open_strategy, run_workers

        if together:
            options = ["--resume"] if resume else []
            raise typer.Exit(run_workers(workers, ["-m", "deepsimplex.cli", "train", *options, *given, *overrides]))
        strategy = open_strategy()  # before members are made
        checked = check_members(read, str(config) if config else f"configuration for {folder}")
        table_given = is_table(checked.data.name)
        if folder:
            print(_chosen(checked))
        if folder and table_given:
            print("SimplexGaussianProcess() in Python usually predicts tables better: docs/guides/tables.md")
        run = experiments.train(checked, resume=resume, strategy=strategy)
        if folder:
            what, new = ("rows", "TABLE.csv") if table_given else ("files", "FOLDER")
            print(f"predict new {what} by: {shlex.join(['deepsimplex', 'predict', str(run.path), new])}")


def _chosen(config: Any) -> str:
    """Return a line on what a configuration without a file has."""
    backbone, training, calibration = config.model.backbone, config.training, config.calibration
    options, network = (
        "".join(f", {name} {value}" for name, value in given.items() if name != "name")
        for given in (config.data.options, backbone)
    )
    sets = (
        f"sets of coverage {calibration.coverage}" if calibration.coverage else "no sets, for which there are too few"
    )
    return (
        f"chosen for {config.data.name}{options}: {backbone['name']}{network}, {training.epochs} "
        f"epochs, batches of {training.batch_size}; {sets}. Others as key=value, or in a copy of config.yaml of the run"
    )


@application.command()
@_on_one_line()
def predict(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="runs/NAME, runs/NAME/001, a .keras or .npz file"),
    ],
    files: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="of images, in folders below too; or an image, a .csv or .txt list; or a .csv table"
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="what the model does not state: image_size, color, pixel_scale, antialias; target_column",
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", help="the table to write")] = Path("predictions.csv"),
    rejected: Annotated[
        float, typer.Option("--rejected", help="share of known samples that may be called unknown")
    ] = 0.05,
) -> None:
    """Predict new images, or rows of a table, read as in training, and write a row for each.

    Exit code 1: some files or rows cannot be read; the others are predicted.
    """
    from deepsimplex._utils.atomic_files import check_output
    from deepsimplex.datasets.image_lists import check_files, is_table

    table_given = is_table(files) or model.suffix == ".npz"  # of a classifier of tables
    options = _read_options(overrides, ("target_column",) if table_given else _READING)
    _check_model(model)
    check_files(files, "a list of files or a table")
    check_output(output, ".csv", samples=files)
    predict = _experiments().predict_table if table_given else _experiments().predict_files
    table = predict(model, files, output, rejected=rejected, **options)
    failed = [(file, error) for file, error in zip(table.files, table.errors, strict=True) if error]
    for file, error in failed[:_LISTED_ERRORS]:
        name = f"line {file}" if table_given else file if file.isprintable() else repr(file)
        print(f"deepsimplex: {name}: {error}", file=sys.stderr)
    if len(failed) > _LISTED_ERRORS:
        print(f"deepsimplex: {len(failed) - _LISTED_ERRORS} more, in column 'error' of {output}", file=sys.stderr)
    what = "rows" if table_given else "files"
    print(f"{len(table.files) - len(failed)} of {len(table.files)} {what} predicted: {output}")
    if failed:
        raise typer.Exit(1)


def _check_model(model: str | Path) -> None:
    """Raise an error if there is no trained model, before TensorFlow is loaded."""
    from deepsimplex.experiments.finished_runs import trained_model

    trained_model(model)


_READING = ("image_size", "color", "pixel_scale", "antialias")


def _read_options(overrides: list[str] | None, known: tuple[str, ...]) -> dict[str, Any]:
    from deepsimplex.experiments.configuration import ConfigurationError, read_options

    options = read_options(overrides or ())
    if unknown := [name for name in options if name not in known]:
        raise ConfigurationError(f"unknown key {unknown[0]!r}; known keys are {', '.join(known)}")
    return options


@application.command()
@_on_one_line()
def evaluate(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL] [KEY=VALUE]...",
            help="with --data: a model as for predict, and options of datasets.load; with --config: overrides",
        ),
    ] = None,
    config: OptionalConfig = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", help="other images by class, a .csv or .npz file, or a data set's name", show_default=False
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="JSON file, by default beside MODEL", show_default=False)
    ] = None,
) -> None:
    """Evaluate a model on other data, or the newest trained model of a configuration again on its test samples."""
    if config and data is None and output is None:
        _run("evaluate", config, arguments)
        return
    model, overrides = _first_apart(arguments)
    if model is None or data is None or config:
        raise ValueError(
            "evaluate needs MODEL and --data with other labeled samples, or --config, which has test samples of its own"
        )
    options = _read_options(overrides, (*_READING, "on_error", "target_column", "groups", "time"))
    from deepsimplex._utils.atomic_files import check_output
    from deepsimplex.datasets.loading import source_kind

    _check_model(model)
    source_kind(data)
    if output is not None:
        check_output(output, ".json")
    _experiments().evaluate_on(model, data, output, announce=print, **options)


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
    from deepsimplex._utils.atomic_files import check_output
    from deepsimplex.experiments.finished_runs import find_run

    for run in runs:
        find_run(run)  # raises if there is none, before TensorFlow is loaded
    check_output(output, None, "the page", "report.html")
    page = _experiments().write_report(
        output, runs, title=title, level=level, resamples=resamples, seed=seed, cards=True, announce=print
    )
    print(f"{page}, {page.stat().st_size / 1e6:.1f} MB")


@application.command()
@_on_one_line()
def monitor(
    reference: Annotated[Path, typer.Argument(help="predictions for held-out samples, .csv or .npz, or a run")],
    predictions: Annotated[
        list[Path] | None, typer.Argument(metavar="[PREDICTIONS]...", help="in the order of their time, .csv or .npz")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            help="file in which the next call goes on; default: REFERENCE_drift.npz beside it, where reports find it",
            show_default=False,
        ),
    ] = None,
    level: Annotated[float, typer.Option("--level", help="probability of ever raising a false alarm")] = 0.05,
    coverage: Annotated[float, typer.Option("--coverage", help="of the sets, where samples are labeled")] = 0.9,
    seed: Annotated[int, typer.Option("--seed", help="of the order of equal values")] = 0,
    figure: Annotated[Path | None, typer.Option("--figure", help="picture to draw", show_default=False)] = None,
    log_dir: Annotated[
        Path | None, typer.Option("--log-dir", help="folder of TensorBoard events", show_default=False)
    ] = None,
) -> None:
    """Watch predictions for drift; exit with status 1 once there is an alarm."""
    from deepsimplex._utils.atomic_files import check_output, check_writable
    from deepsimplex.experiments.finished_runs import find_run

    options: dict[str, Any] = {"figure": figure, "log_dir": log_dir, "announce": print}
    find_run(reference)
    for path in predictions or ():
        if not path.expanduser().is_file():
            raise FileNotFoundError(f"predictions must be files; found no {str(path)!r}")
    if figure:
        check_output(figure, None, "figure")
    if log_dir:
        check_writable(log_dir, "log_dir")
    if figure or log_dir:  # which alone need TensorFlow
        _experiments()
    from deepsimplex.experiments.watched_predictions import monitor

    watched = monitor(reference, predictions or (), state=state, level=level, coverage=coverage, seed=seed, **options)
    print(watched)
    if watched.alarm is not None:
        raise typer.Exit(1)


class _UnlessClosed(io.FileIO):
    """Standard output or error, which drops what is written after the reader, such as ``head``, has closed it."""

    def write(self, content: Any, /) -> int:
        try:
            return super().write(content)
        except BrokenPipeError:
            return memoryview(content).nbytes


@contextmanager
def _unless_closed(name: str) -> Iterator[None]:
    """Let commands end their work, whose results are files, when nobody reads a standard stream any more."""
    stream = getattr(sys, name)
    try:
        raw = _UnlessClosed(stream.fileno(), "w", closefd=False)
    except (AttributeError, OSError):  # no file, or none at all
        yield
        return
    stream.flush()  # before what is written now
    by_line = stream.line_buffering or stream.write_through
    with io.TextIOWrapper(io.BufferedWriter(raw), stream.encoding, stream.errors, line_buffering=by_line) as writer:
        setattr(sys, name, writer)
        try:
            yield
        finally:
            setattr(sys, name, stream)


def main() -> None:
    """Entry point of the ``deepsimplex`` command."""
    with _unless_closed("stdout"), _unless_closed("stderr"):
        application()


if __name__ == "__main__":
    main()
