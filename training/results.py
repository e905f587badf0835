"""Tables of measured results: printed line by line in Markdown, and written as JSON for the documentation's pages."""

import datetime
import json
import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

Measurement = tuple[str, str]
"""Name of a measurement, and its result."""


def _with_folder(path: Path | None) -> Path | None:
    """Create the folder of a file before the work whose result it holds."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    return path


Output = Annotated[Path | None, typer.Option(help="a JSON file for the table", callback=_with_folder)]


def write_json(path: Path, content: Any) -> None:
    """Write a file atomically."""
    fresh = path.with_name(f".{path.name}")
    fresh.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    fresh.replace(path)


class ResultTable:
    """Rows of one table, each a dict from column to value; all have the columns of the first.

    Parameters
    ----------
    script : str
        Module that measures them: "training.grid".
    """

    def __init__(self, script: str) -> None:
        self.script = script
        self.rows: list[dict[str, Any]] = []

    def add(self, **row: Any) -> None:
        """Add a row, and print it."""
        if not self.rows:
            print(f"| {' | '.join(row)} |\n|{'---|' * len(row)}")
        self.rows.append(row)
        print(f"| {' | '.join(map(shown, row.values()))} |", flush=True)

    def measure(self, measurements: Iterable[Measurement]) -> None:
        """Add a row for every measurement and its result, as they come."""
        for measured, result in measurements:
            self.add(measured=measured, result=result)

    def write(self, path: Path | None, **facts: Any) -> None:
        """Write the rows, the command, the date, the number of cores and other facts; nothing without a path."""
        if path is None:
            return
        command = shlex.join(["python", "-m", self.script, *sys.argv[1:]])
        when = {"command": command, "date": datetime.date.today().isoformat(), "cores": os.cpu_count()}
        write_json(path, when | {"rows": self.rows} | facts)


def shown(value: Any) -> str:
    """A cell: floats have three decimals."""
    return f"{value:.3f}" if isinstance(value, float) else str(value)
