"""Hooks of the site's build: formulas become MathML, and executed notebooks pages."""

import html
import re
from pathlib import Path
from typing import Any

import jupytext
from latex2mathml.converter import convert
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
NOTEBOOKS, EXECUTED = ROOT / "notebooks", ROOT / "build" / "notebooks"


def on_files(files: Any, config: Any) -> Any:
    """Add the notebooks; one that has not been executed becomes a page without results."""
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
    """Put files of the repository in place of ``<!-- include FILE -->``, their links those of the site."""

    def include(match: re.Match[str]) -> str:
        return (ROOT / match[1]).read_text(encoding="utf-8").replace("](docs/", "](")

    return re.sub(r"<!-- include (\S+) -->", include, markdown)


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
