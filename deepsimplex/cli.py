"""The command line: ``deepsimplex train|evaluate|export|targets --config configs/NAME.yaml [key=value ...]``.

``deepsimplex report RUN [RUN ...]`` compares runs on one page.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

application = typer.Typer(
    help="Classification by regression on the probability simplex, with class probabilities to be trusted.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Config = Annotated[Path, typer.Option("--config", help="YAML file, such as configs/digits.yaml", show_default=False)]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="overrides, such as training.epochs=3")
]


@application.command()
def train(
    config: Config,
    overrides: Overrides = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with the newest unfinished run")] = False,
) -> None:
    """Train a classifier, evaluate it on the test samples and export it."""
    from deepsimplex import experiments

    _with_config(config, overrides, lambda checked, console: experiments.train(checked, console, resume))


@application.command()
def evaluate(config: Config, overrides: Overrides = None) -> None:
    """Evaluate the newest trained model of a configuration."""
    from deepsimplex import experiments

    _with_config(config, overrides, experiments.evaluate)


@application.command()
def export(config: Config, overrides: Overrides = None) -> None:
    """Export the newest trained model of a configuration as a SavedModel."""
    from deepsimplex import experiments

    _with_config(config, overrides, experiments.export)


@application.command()
def targets(config: Config, overrides: Overrides = None) -> None:
    """Compute and cache the latent targets alone."""
    from deepsimplex import experiments

    _with_config(config, overrides, experiments.make_targets)


@application.command()
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
    """Compare runs on one HTML page that needs no network."""
    from rich.console import Console

    with _errors_on_one_line():
        from deepsimplex.experiments import write_report

        console = Console(soft_wrap=True, highlight=False)
        with console.status("reading the runs"):
            page = write_report(
                output,
                runs,
                title=title,
                level=level,
                resamples=resamples,
                seed=seed,
                announce=lambda text: console.print(text, markup=False),
            )
        console.print(f"{page}, {page.stat().st_size / 1e6:.1f} MB", markup=False)


def _with_config(path: Path, overrides: list[str] | None, work: Callable[..., Any]) -> None:
    """Do the work under a checked configuration."""
    from rich.console import Console

    from deepsimplex.experiments.configuration import load_config

    with _errors_on_one_line():
        work(load_config(path, overrides or ()), Console(soft_wrap=True))


@contextmanager
def _errors_on_one_line() -> Iterator[None]:
    """Errors a user can mend are one line, not a traceback."""
    try:
        yield
    except (ValueError, OSError) as error:
        print(f"deepsimplex: {' '.join(str(error).split())}", file=sys.stderr)
        raise typer.Exit(2) from error


def main() -> None:
    """Entry point of the ``deepsimplex`` command."""
    application()


if __name__ == "__main__":
    main()
