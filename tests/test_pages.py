"""Pages can be read where they lie: tables as measured, pictures and links that exist, formulas that viewers render."""

import ast
import json
import re

import pytest

from training.pages import PAGES, ROOT, with_tables

PAGE = "before\n<!-- results grid -->\nwhat was there\n<!-- end -->\nafter"


def test_tables_are_written_from_results(tmp_path):
    rows = [{"target": "ilr", "NLL": 0.1}, {"target": "casimac", "NLL": None}]
    results = {"command": "python -m training.grid --only 'a<b'", "rows": rows, "notes": ["A note."]}
    (tmp_path / "grid.json").write_text(json.dumps(results))
    page = with_tables(PAGE, tmp_path)
    assert page.startswith(
        "before\n<!-- results grid -->\n\n| target | NLL |\n| --- | --- |\n| ilr | 0.100 |\n| casimac | - |"
    )
    assert (
        "\n\n- A note.\n\n<details><summary>Measured by</summary><code>python -m training.grid --only &#x27;a&lt;b"
        in page
    )
    assert "what was there" not in page
    assert with_tables(page, tmp_path) == page
    quoted = "`<!-- results NAME -->` and `<!-- end -->`"
    assert with_tables(quoted, tmp_path) == quoted


def test_missing_results_raise(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"grid\.json"):
        with_tables(PAGE, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_holds_its_results_pictures_and_links(page):
    text = page.read_text(encoding="utf-8")
    assert with_tables(text) == text, "run `make tables`"
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for caption, address in re.findall(r"!\[(.*?)\]\((.+?)\)", text, flags=re.DOTALL):
        assert caption
        assert (page.parent / address).is_file(), address
    for address in re.findall(r"(?<!!)\[[^\]]+\]\(([^)#\s]+)", text):
        if "://" not in address and "notebooks/" not in address:
            assert (page.parent / address).exists(), address
    assert r"\(" not in text
    assert "The site shows" not in text


GUIDES = sorted(page for page in (ROOT / "docs" / "guides").glob("*.md") if page.stem != "decisions")


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_guide_has_at_most_a_hundred_lines_beside_its_tables(page):
    text = re.sub(r"<!-- results .*?<!-- end -->\n", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert text.count("\n") <= 100


def anchors(page):
    """The anchors of headings, as the site and the usual viewers of repositories make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


def test_errors_name_guides_and_sections_that_exist():
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "deepsimplex").rglob("*.py")]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [ast.literal_eval(call.args[0]) for call in calls if ast.unparse(call.func) == "guided"]
    assert len(named) >= 20
    for address in named:
        page, _, anchor = address.partition("#")
        assert not anchor or anchor in anchors(ROOT / "docs" / "guides" / page), address
        assert (ROOT / "docs" / "guides" / page).is_file(), address
