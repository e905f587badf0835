"""Hooks of the site's build: formulas become MathML; figures, measured tables and executed notebooks are put in."""

import html
import json
import re
from pathlib import Path
from typing import Any

import jupytext
from latex2mathml.converter import convert
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
FIGURES = (ROOT / "build" / "gallery", ROOT / "training" / "pictures")  # the committed ones come last, and win
RESULTS = ROOT / "training" / "results"
NOTEBOOKS, EXECUTED = ROOT / "notebooks", ROOT / "build" / "notebooks"


def on_files(files: Any, config: Any) -> Any:
    """Add the committed figures, and those that ``make gallery`` has drawn, as pictures/NAME.png, and the notebooks.

    A notebook that has not been executed becomes a page without results.
    """
    for path in {path.name: path for folder in FIGURES for path in sorted(folder.glob("*.png"))}.values():
        files.append(File.generated(config, f"pictures/{path.name}", abs_src_path=str(path)))
    for path in sorted(NOTEBOOKS.glob("*.py")):
        executed = EXECUTED / f"{path.stem}.md"
        content = (
            executed.read_text(encoding="utf-8") if executed.is_file() else jupytext.writes(jupytext.read(path), "md")
        )
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=content))
    for path in sorted(EXECUTED.glob("*/*.png")):
        files.append(File.generated(config, f"notebooks/{path.relative_to(EXECUTED)}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Fill in the markers of a page.

    ``<!-- figure NAME: caption -->`` becomes the figure, or its caption alone if it has not been drawn.
    ``<!-- results NAME --> ... <!-- end -->``, at the start of a line, becomes the table of
    training/results/NAME.json if that file exists, and stays as written otherwise. ``<!-- include FILE -->`` becomes a
    file of the repository, its links those of the site.
    """

    def include(match: re.Match[str]) -> str:
        return (ROOT / match[1]).read_text(encoding="utf-8").replace("](docs/", "](")

    def figure(match: re.Match[str]) -> str:
        name, caption = match[1], match[2]
        if files.get_file_from_path(f"pictures/{name}.png") is None:
            return f"*{caption}* (drawn by `make gallery`)"
        return f"![{name}](pictures/{name}.png)\n\n*{caption}*"

    def results(match: re.Match[str]) -> str:
        path = RESULTS / f"{match[1]}.json"
        return _table(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else match[2].strip()

    markdown = re.sub(r"<!-- include (\S+) -->", include, markdown)
    markdown = re.sub(r"<!-- figure (\w+): (.*?) -->", figure, markdown, flags=re.DOTALL)
    return re.sub(r"^<!-- results (\w+) -->(.*?)<!-- end -->", results, markdown, flags=re.DOTALL | re.MULTILINE)


def _table(results: dict[str, Any]) -> str:
    """A table in Markdown from {"rows": [{column: value}, ...]}, and "command", "date", "cores", "notes" if given."""
    columns = list(results["rows"][0])
    lines = [columns, ["---"] * len(columns)]
    lines += [[_shown(row.get(column)) for column in columns] for row in results["rows"]]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    when = f" on {results['date']}, {results['cores']} cores" if "date" in results else ""
    command = f"Measured{when} by `{results['command']}`." if "command" in results else ""
    notes = "\n".join(f"- {note}" for note in results.get("notes", ()))
    return f"{command}\n\n{table}\n\n{notes}".strip()


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def on_page_content(content: str, page: Any, config: Any, files: Any) -> str:
    r"""Render the formulas \( ... \) and \[ ... \] as MathML, which browsers show without a script or a network."""
    content = re.sub(r'<span class="arithmatex">\\\((.*?)\\\)</span>', _inline, content, flags=re.DOTALL)
    return re.sub(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', _block, content, flags=re.DOTALL)


def _inline(match: re.Match[str]) -> str:
    return _mathml(match[1], "inline")


def _block(match: re.Match[str]) -> str:
    return f'<div class="formula">{_mathml(match[1], "block")}</div>'


def _mathml(formula: str, display: str) -> str:
    written = convert(html.unescape(formula), display=display)
    if unknown := re.search(r"\\\w+|&#x0005C;\w*", written):
        raise ValueError(f"formula {formula!r} has {unknown[0]!r}, which latex2mathml does not know")
    return written
