"""Reproduce the tables of the papers.

    python -m training.tables [NAME ...] [--data FOLDER] [--runs runs/tables] [--results training/results]
        [--pictures docs/pictures] [--repetitions K] [--only TEXT ...]

prints every table, the paper's numbers in brackets beside means and standard deviations over as many repetitions as the
paper has (or more, where it has one or does not say), and writes NAME.json with all repetitions, and the figures.
Repetitions are kept in the folder of the runs, and an interrupted command goes on with those that are missing; remove
them after a change of settings. --only measures the rows whose data set or method is TEXT; the others are those that
were kept, or left out. FOLDER has the data sets as NAME.npz with the arrays X and y; the environment variable
DEEPSIMPLEX_DATA names it as well. Those that it lacks come from the UCI repository, with a checksum. A data set that is
not available is left out, with a line that says so.
"""

import datetime
import json
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from training.results import ResultTable, write_json
from training.tables import casimac, fashion_mnist, figures, gpd, gplvq, ilr_gp, ilr_gp_synthetic, sps
from training.tables.paper_table import Cell, DataFolder, MissingDataError, PaperTable

TABLES: dict[str, PaperTable] = {
    **casimac.TABLES,
    **fashion_mnist.TABLES,
    **ilr_gp.TABLES,
    **ilr_gp_synthetic.TABLES,
    **gpd.TABLES,
    **gplvq.TABLES,
    **sps.TABLES,
}

Record = dict[str, Any]
"""One repetition: its scores, the date, and the number of cores."""

LONG = 5.0
"""Seconds from which every repetition has a line of its own, and not only the last of a cell."""


def main(
    names: Annotated[list[str] | None, typer.Argument(help=f"default all: {', '.join(TABLES)}")] = None,
    data: Annotated[Path | None, typer.Option(help="a folder of NAME.npz files that hold X and y")] = None,
    runs: Annotated[Path, typer.Option(help="where repetitions are kept")] = Path("runs/tables"),
    results: Annotated[Path, typer.Option(help="where NAME.json is written")] = Path("training/results"),
    pictures: Annotated[Path, typer.Option(help="where figures are written")] = Path("docs/pictures"),
    repetitions: Annotated[int | None, typer.Option(min=1, help="of every cell; default the paper's")] = None,
    only: Annotated[list[str] | None, typer.Option(help="data sets or methods; default all")] = None,
) -> None:
    """Measure what is missing, print the tables and write them."""
    if unknown := set(names or ()) - TABLES.keys():
        raise typer.BadParameter(f"NAMES must be among {', '.join(TABLES)}; found {', '.join(sorted(unknown))}")
    known = {text for name in names or TABLES for cell in TABLES[name].cells for text in cell}
    if unknown := set(only or ()) - known:
        raise typer.BadParameter(f"--only must be among {', '.join(sorted(known))}; found {', '.join(sorted(unknown))}")
    results.mkdir(parents=True, exist_ok=True)
    for name in names or TABLES:
        reproduce(name, TABLES[name], DataFolder(data), runs / name, results / f"{name}.json", repetitions, only)
        figures.draw(name, results, pictures, DataFolder(data))


def reproduce(
    name: str,
    table: PaperTable,
    data: DataFolder,
    runs: Path,
    path: Path,
    repetitions: int | None = None,
    only: Sequence[str] | None = None,
) -> None:
    """Measure one table, or some of its rows, print it and write it."""
    runs.mkdir(parents=True, exist_ok=True)
    number = repetitions or table.repetitions
    measured: dict[Cell, dict[int, Record]] = {}
    missing = []
    console = Console(stderr=True, highlight=False)
    for cell in table.cells:
        chosen: Sequence[int] = range(number)
        if only and not set(cell) & set(only):
            chosen = [k for k in range(number) if _kept(cell, k, runs).is_file()]
            if len(chosen) < number:
                known = f"{len(chosen)} of {number} repetitions" if chosen else "not measured"
                missing.append(f"{', '.join(cell)}: {known}.")
            if not chosen:
                continue
        try:
            measured[cell] = {k: _measured(table, cell, k, number, data, runs, console) for k in chosen}
        except MissingDataError as error:
            missing.append(f"{cell[0]} is left out: {error}")
            console.print(f"{name}: {missing[-1]}", markup=False)
    listed: list[Record] = [
        {"data": cell[0], "method": cell[1], "repetition": k} | record
        for cell, repetitions_of_cell in measured.items()
        for k, record in repetitions_of_cell.items()
    ]
    columns = ["data", "method", *table.scores([item["scores"] for item in listed])]
    print(f"\n{table.title}\n")
    shown = ResultTable("training.tables")
    for cell, repetitions_of_cell in measured.items():
        row = table.row(cell, [record["scores"] for record in repetitions_of_cell.values()])
        shown.add(**dict.fromkeys(columns, "") | row)
    notes = [*table.notes, *dict.fromkeys(missing)]
    if number < table.repetitions:
        notes.append(f"{number} of the paper's {table.repetitions} repetitions.")
    print("", *notes, sep="\n")
    facts = {"command": f"make reproduce TABLE={name}", "title": table.title, "notes": notes, "repetitions": listed}
    shown.write(path, **_when(listed), **facts)


def _when(records: Sequence[Record]) -> dict[str, Any]:
    """The days on which repetitions were measured, and the numbers of cores, which are today's for none."""
    if not records:
        return {}
    days = sorted({record["date"] for record in records})
    cores = sorted({record["cores"] for record in records})
    return {"date": " to ".join(dict.fromkeys([days[0], days[-1]])), "cores": " or ".join(map(str, cores))}


def _measured(
    table: PaperTable, cell: Cell, repetition: int, number: int, data: DataFolder, runs: Path, console: Console
) -> Record:
    """Return one repetition's scores, date and number of cores: those of an earlier run, or measured now."""
    path = _kept(cell, repetition, runs)
    if path.is_file():
        return json.loads(path.read_text(encoding="utf-8"))
    what = f"{', '.join(cell)}: {repetition + 1} of {number}"
    begun = time.monotonic()
    with console.status(what):
        scores = table.measure(*cell, repetition, data)
    seconds = time.monotonic() - begun
    if seconds > LONG or repetition + 1 == number:
        console.print(f"{what}, {seconds:.1f} s", markup=False)
    record = {"date": datetime.date.today().isoformat(), "cores": os.cpu_count(), "scores": scores}
    write_json(path, record)
    return record


def _kept(cell: Cell, repetition: int, runs: Path) -> Path:
    return runs / f"{re.sub(r'[^a-z0-9.]+', '-', '-'.join(cell).lower())}-{repetition}.json"


if __name__ == "__main__":
    typer.run(main)
