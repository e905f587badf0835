"""The measured tables of the documentation's pages, written into their Markdown from training/results.

    python -m training.pages [PAGE ...]

What stands between ``<!-- results NAME -->``, at the start of a line, and ``<!-- end -->`` becomes the table of
training/results/NAME.json; by default in README.md and in all pages of docs.
"""

import html
import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from training.results import shown

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "training" / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def with_tables(markdown: str, results: Path = RESULTS) -> str:
    """Return a page with the tables of the folder ``results``; raises FileNotFoundError for one that is not there."""

    def between(match: re.Match[str]) -> str:
        content = json.loads((results / f"{match[1]}.json").read_text(encoding="utf-8"))
        return f"<!-- results {match[1]} -->\n\n{table(content)}\n\n<!-- end -->"

    return re.sub(r"^<!-- results (\w+) -->.*?<!-- end -->", between, markdown, flags=re.DOTALL | re.MULTILINE)


def table(results: dict[str, Any]) -> str:
    """Return {"rows": [{column: value}, ...]}, and "command", "date", "cores" and "notes" if given, in Markdown."""
    columns = list(results["rows"][0])
    lines = [columns, ["---"] * len(columns)]
    lines += [["-" if row.get(column) is None else shown(row[column]) for column in columns] for row in results["rows"]]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    notes = "\n".join(f"- {note}" for note in results.get("notes", ()))
    when = f"Measured on {results['date']}, {results['cores']} cores, by" if "date" in results else "Measured by"
    command = html.escape(results.get("command", ""))
    how = f"<details><summary>{when}</summary><code>{command}</code></details>" if command else ""
    return "\n\n".join(part for part in (text, notes, how) if part)


def main(pages: Annotated[list[Path] | None, typer.Argument(help="Markdown files; all by default")] = None) -> None:
    """Write the tables into the pages, and print the pages that changed."""
    for page in pages or PAGES:
        before = page.read_text(encoding="utf-8")
        if (after := with_tables(before)) != before:
            page.write_text(after, encoding="utf-8")
            print(page)


if __name__ == "__main__":
    typer.run(main)
