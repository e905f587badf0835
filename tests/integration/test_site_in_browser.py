"""The documentation builds without a warning, and a browser shows its formulas, figures and reference offline."""

import functools
import html
import importlib
import inspect
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.browser import browser, errors, keep_screenshot, needs_browser, open_page

pytestmark = pytest.mark.needs("the extra docs (pip install '.[docs]')")
ROOT = Path(__file__).parents[2]
REQUESTS = "return performance.getEntriesByType('resource').map((entry) => entry.name)"
WIDTHS = "return [...document.querySelectorAll('article img')].map((image) => [image.src, image.naturalWidth])"
FORMULAS = """
return [...document.querySelectorAll('article math')].map((formula) => {
  const box = formula.getBoundingClientRect();
  return [box.width, box.height];
});
"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Requests are not printed."""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The documentation, built strictly: a warning or a dead link would be an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": ""}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def address(site) -> Iterator[str]:
    """A server of the documentation on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(timeout=30)


@pytest.fixture(scope="module")
def driver():
    with browser() as driver:
        yield driver


def hooks():
    """The build's hooks."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_unknown_formula_command_raises():
    module = hooks()
    assert "<math" in module.on_page_content(r'<span class="arithmatex">\(\frac{a}{b}\)</span>', None, None, None)
    with pytest.raises(ValueError, match="nosuchthing"):
        module.on_page_content(r'<span class="arithmatex">\(\nosuchthing x\)</span>', None, None, None)


def text_of(driver) -> str:
    return driver.execute_script("return document.querySelector('article').innerText")


def assert_offline(driver, address: str) -> None:
    """Everything that the page asked for came from this machine, and nothing was missing."""
    asked = driver.execute_script(REQUESTS)
    assert asked
    assert [name for name in asked if not name.startswith((f"{address}/", "data:", "blob:"))] == []
    assert errors(driver) == []


@pytest.mark.slow
def test_pages_have_no_external_references(site):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert re.findall(r"<(?:script|img|iframe)[^>]* src=[\"']?(?:https?:)?//", text) == [], page
        assert re.findall(r"<link[^>]* rel=[\"']?(?:stylesheet|preconnect|icon)[^>]* href=[\"']?//", text) == [], page
        assert re.findall(r"<link[^>]* href=[\"']?https?:", text) == [], page


@pytest.mark.slow
def test_all_formulas_are_converted(site):
    for page in site.rglob("*.html"):
        assert "arithmatex" not in page.read_text(encoding="utf-8"), page


@pytest.mark.slow
def test_site_contains_all_figures(site):
    for page in site.rglob("*.html"):
        for source in re.findall(r"<img[^>]* src=\"([^\"]+)\"", page.read_text(encoding="utf-8")):
            assert source.startswith("data:") or (page.parent / source).is_file(), (page, source)


@pytest.mark.slow
def test_shipped_font_has_every_letter_of_formulas(site):
    from fontTools.ttLib import TTFont

    font = TTFont(site / "assets" / "stix_two_math.woff")
    assert "MATH" in font
    formulas = [
        re.sub("<[^>]+>", "", formula)
        for page in site.rglob("*.html")
        for formula in re.findall(r"<math.*?</math>", page.read_text(encoding="utf-8"), re.DOTALL)
    ]
    letters = {letter for formula in formulas for letter in html.unescape(formula) if not letter.isspace()}
    assert len(letters) > 80
    italic = {0x1D434 + k for k in range(52)} - {0x1D455}  # which browsers show for single letters; h is another
    assert {ord(letter) for letter in letters} | italic <= font.getBestCmap().keys()


@needs_browser
@pytest.mark.slow
def test_formulas_are_rendered(driver, address):
    open_page(driver, f"{address}/mathematics/readouts.html")
    assert driver.execute_script("return [...document.fonts].map((font) => font.status)") == ["loaded"]
    boxes = driver.execute_script(FORMULAS)
    assert len(boxes) > 30
    assert all(width > 2 and height > 2 for width, height in boxes)
    assert max(width for width, _ in boxes) > 100
    text = text_of(driver)
    assert re.findall(r"\\\(|\\\[|\\[a-zA-Z]{2,}|\$\$", text) == []
    assert_offline(driver, address)
    keep_screenshot(driver, "site_mathematics")


@needs_browser
@pytest.mark.slow
def test_figures_are_displayed(driver, address):
    open_page(driver, f"{address}/guides/figures.html")
    widths = driver.execute_script(WIDTHS)
    assert len(widths) == 2
    assert all(width > 200 for _, width in widths), widths
    assert_offline(driver, address)
    keep_screenshot(driver, "site_figures")


def described(page: str, room: str) -> set[str]:
    """Names of a room that have a heading; one that a module bears too is described as NAME.NAME."""
    names = re.findall(rf'<h\d[^>]* id="deepsimplex\.{room}\.([\w.]+)"', page)
    return {name.split(".")[0] if len(set(name.split("."))) == 1 else name for name in names}


@pytest.mark.slow
def test_parameters_that_share_a_description_have_types_of_their_own(site):
    page = (site / "reference" / "estimators.html").read_text(encoding="utf-8")
    entries = re.findall(r"<b><code>scale_features</code></b>(.*?)</li>", page, re.DOTALL)
    shown = {re.sub(r"<[^>]+>|\s", "", entry).partition("–")[0] for entry in entries}
    assert shown == {"(bool,default:True)"}


@pytest.mark.slow
@pytest.mark.parametrize("room", sorted(path.stem for path in (ROOT / "docs" / "reference").glob("*.md")))
def test_reference_describes_every_public_name(site, room):
    page = (site / "reference" / f"{room}.html").read_text(encoding="utf-8")
    if room == "deepsimplex":
        assert {"SimplexClassifier.fit", "SimplexClassifier.predict_proba", "load"} <= set(
            re.findall(r'id="deepsimplex\.([\w.]+)"', page)
        )
        return
    module = importlib.import_module(f"deepsimplex.{room}")
    public = {
        name
        for name in getattr(module, "__all__", [])
        if inspect.isroutine(value := getattr(module, name)) or inspect.isclass(value)
    }
    assert public - described(page, room) == set()
    assert "PreparedScore" not in page  # what a decorator hides


@pytest.mark.slow
def test_every_room_has_a_page():
    import deepsimplex

    rooms = {name for name in deepsimplex.__all__ if inspect.ismodule(getattr(deepsimplex, name))}
    assert rooms <= {path.stem for path in (ROOT / "docs" / "reference").glob("*.md")}


@needs_browser
@pytest.mark.slow
def test_reference_is_displayed(driver, address):
    open_page(driver, f"{address}/reference/evaluation.html")
    headings = driver.execute_script("return [...document.querySelectorAll('article h2')].map((one) => one.innerText)")
    assert {"brier_score", "expected_calibration_error", "Report"} <= {heading.split()[0] for heading in headings}
    text = text_of(driver)
    assert "Parameters" in text
    assert "Examples" in text
    assert "brier_score(y, p)" in text
    assert_offline(driver, address)
    keep_screenshot(driver, "site_reference")


@needs_browser
@pytest.mark.slow
def test_pages_open_from_disk(driver, site):
    open_page(driver, f"{site.as_uri()}/index.html")
    ((_, width),) = driver.execute_script(WIDTHS)
    assert width > 200
    assert "New here" in text_of(driver)


TOO_WIDE = """
const wide = (one) => one.scrollWidth > one.clientWidth + 1;
const code = arguments[0] ? [...document.querySelectorAll("article pre > code")].filter(wide) : [];
return [...code, ...[document.documentElement].filter(wide)].map((one) => one.innerText.slice(0, 80));
"""


@needs_browser
@pytest.mark.slow
def test_wide_tables_show_that_they_go_on(driver, address):
    """By a shadow, which the table's background does not hide."""
    size = {"width": 390, "height": 900, "deviceScaleFactor": 1, "mobile": True}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        open_page(driver, f"{address}/benchmarks.html")
        wide = """
        const tables = [...document.querySelectorAll(".md-typeset__scrollwrap")];
        const wide = tables.filter((e) => e.scrollWidth > e.clientWidth);
        const style = (e) => getComputedStyle(e);
        return wide.map((e) => [style(e).backgroundAttachment, style(e.querySelector("table")).backgroundColor]);
        """
        shown = driver.execute_script(wide)
        assert len(shown) > 3
        assert {tuple(each) for each in shown} == {("local, local, scroll, scroll", "rgba(0, 0, 0, 0)")}
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("width", [1440, 390])
def test_nothing_is_cut_at_the_width_of_a_desk_and_of_a_phone(driver, site, address, width):
    """Code scrolls on a phone, and in executed notebooks, which print long lines."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        for page in sorted(site.rglob("*.html")):
            driver.get(f"{address}/{page.relative_to(site)}")
            fits = width > 500 and page.parent.name != "notebooks"
            assert driver.execute_script(TOO_WIDE, fits) == [], page
            pictures = driver.execute_script("return [...document.images].map((one) => one.alt)")
            assert all(pictures), page
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
