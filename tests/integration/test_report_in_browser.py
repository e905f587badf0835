"""The report page of two real runs in a browser: complete, at any width, and offline."""

import json
from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

from deepsimplex import evaluation, experiments
from deepsimplex.evaluation.report_comparison import HIGHER_IS_BETTER
from deepsimplex.experiments import RunFolder, load_config, load_predictions, report_page
from tests.browser import browser, errors, keep_screenshot, needs_browser, open_page
from tests.quick_runs import without_pictures

pytestmark = [pytest.mark.slow, needs_browser]
ROOT = Path(__file__).parents[2]
WIDTHS = {"desktop": 1280, "phone": 400}
# What the page shows of each row: its label, the score of each run and the interval below it.
ROWS = """
return [...document.querySelectorAll("#scores tbody tr:not(.group)")].map(row => [
  row.querySelector("th").textContent.replace(/[^a-zA-Z0-9. ]/g, "").trim(),
  [...row.querySelectorAll("td")].map(cell => [".value", ".interval", ".mark"].map(
    part => cell.querySelector(part)?.textContent.trim() ?? ""))])
"""
IMAGES = """
return [...document.images].map(image => [image.complete, image.naturalWidth, image.naturalHeight, image.alt])
"""
# Pairs of neighbors on the page, and of cells of a table, whose boxes overlap; text that is wider than its cell.
OVERLAPS = """
const box = (element) => element.getBoundingClientRect();
const apart = (one, other) => one.right <= other.left + 1 || other.right <= one.left + 1
  || one.bottom <= other.top + 1 || other.bottom <= one.top + 1;
const overlaps = [];
const compare = (elements) => elements.forEach((one, k) => elements.slice(k + 1).forEach((other) => {
  if (!apart(box(one), box(other))) overlaps.push([one.outerHTML.slice(0, 60), other.outerHTML.slice(0, 60)]);
}));
compare([...document.querySelectorAll("header, section")]);
for (const section of document.querySelectorAll("section")) {
  compare([...section.querySelectorAll("h2, p, .scroll, figure, summary")].filter(one => box(one).width));
}
for (const row of document.querySelectorAll(".columns tr")) {
  const cells = [...row.children].filter(one => box(one).width);
  const narrow = cells.filter(one => one.scrollWidth > one.clientWidth + 1);
  narrow.forEach(one => overlaps.push([one.outerHTML.slice(0, 60), "is wider than its cell"]));
}
return overlaps;
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> list[RunFolder]:
    """Two small runs on the digits."""
    place = tmp_path_factory.mktemp("trained")
    small = ["data.limit=200", "data.validation_fraction=0.2", "model.backbone={name: mlp, hidden: [32]}"]
    small += ["training.learning_rate=0.01", "training.batch_size=80", f"output={place / 'runs'}", "cache_dir=null"]
    with without_pictures(export=False, eager=True, saliency=True):
        return [
            experiments.train(load_config(ROOT / "configs" / "digits.yaml", [*small, *options]), verbose=0)
            for options in (
                ["training.epochs=2"],
                ["name=compositions", "target={name: ilr, smoothing: 0.99}", "training.epochs=1"],
            )
        ]


@pytest.fixture(scope="module")
def page(trained, command) -> Path:
    """The page that the command writes of them."""
    path = trained[0].path.parents[1] / "report.html"
    kept = load_predictions(trained[0].test_predictions)
    surest = kept.p.max(axis=1) > np.quantile(kept.p.max(axis=1), 0.7)
    np.savez(path.with_name("later.npz"), p=kept.p[surest], y=kept.y[surest])
    command("monitor", trained[0].path, path.with_name("later.npz"), code=1)
    command("report", *(run.path for run in trained), "--output", path, "--resamples", "50")
    return path


@pytest.fixture(scope="module", params=WIDTHS)
def window(request, page) -> WebDriver:
    """A window of some width, which shows the page."""
    with browser(WIDTHS[request.param], 900) as driver:
        # Windows have a least width; phones do not.
        driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": WIDTHS[request.param], "height": 900, "deviceScaleFactor": 1, "mobile": request.param == "phone"},
        )
        open_page(driver, page.as_uri())
        keep_screenshot(driver, f"report_{request.param}")
        yield driver


@pytest.fixture
def shown(window, page) -> WebDriver:
    """The page as it was written."""
    open_page(window, page.as_uri())
    return window


def test_images_load_without_requests(shown, page):
    images = shown.execute_script(IMAGES)
    assert len(images) == 2 * 9 + 2 + 1  # the last of the drift of one run
    for complete, width, height, words in images:
        assert complete
        assert min(width, height) > 100
        assert len(words) > 20
    resources = shown.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert [name for name in resources if not name.startswith("data:")] == []
    assert errors(shown) == []
    assert not shown.find_elements(By.TAG_NAME, "script")
    assert page.stat().st_size < 2_000_000


def test_page_is_no_wider_than_the_window(shown):
    width = shown.execute_script("return document.documentElement.clientWidth")
    assert shown.execute_script("return document.documentElement.scrollWidth") <= width
    for image in shown.find_elements(By.TAG_NAME, "img"):
        assert 0 < image.rect["width"] <= width - image.rect["x"]


def test_nothing_overlaps(shown):
    for element in shown.find_elements(By.TAG_NAME, "details"):
        shown.execute_script("arguments[0].open = true", element)
    assert shown.execute_script(OVERLAPS) == []


def test_every_section_is_explained_before_its_figures(shown):
    for section in shown.find_elements(By.CSS_SELECTOR, "section:not(#configuration)"):
        paragraph = section.find_element(By.CSS_SELECTOR, "h2 + p")
        assert len(paragraph.text) > 40, section.text[:60]
        assert paragraph.text.endswith(".")


def test_scores_equal_those_of_the_runs(shown, trained):
    rows = dict(shown.execute_script(ROWS))
    kept = [load_predictions(run.test_predictions) for run in trained]
    metrics = [json.loads(run.metrics.read_text()) for run in trained]
    scores = evaluation.compare_reports(
        kept[0].y, {str(run.path): predictions.p for run, predictions in zip(trained, kept, strict=True)}, resamples=50
    )
    shown_scores = list(scores.reports[str(trained[0].path)].intervals)
    assert len(rows) == len(shown_scores) + 4
    for score in shown_scores:
        cells = rows[scores.reports[str(trained[0].path)].label(score)]
        for (value, interval, mark), run, scored in zip(cells, trained, metrics, strict=True):
            assert value == report_page.number(scored[score])
            lower, upper = scores.reports[str(run.path)].intervals[score]
            assert interval == f"{report_page.number(lower)} to {report_page.number(upper)}"
            assert (mark == "★") == (scored[score] == metrics_best(metrics, score))
    assert [cell[0] for cell in rows["epochs"]] == ["2", "1"]
    assert [cell[0] for cell in rows["training time"]] == [report_page.duration(m["training_seconds"]) for m in metrics]


def metrics_best(metrics: list[dict], score: str) -> float | None:
    """The better of the runs' scores; none where neither is better."""
    if score not in HIGHER_IS_BETTER:
        return None
    return (max if HIGHER_IS_BETTER[score] else min)(scored[score] for scored in metrics)


def test_watched_predictions_are_shown(shown):
    [heading] = [one for one in shown.find_elements(By.TAG_NAME, "h2") if one.text == "Drift"]
    section = heading.find_element(By.XPATH, "..")
    rows = [row.text for row in section.find_elements(By.CSS_SELECTOR, "tbody tr")]
    assert any(row.startswith("confidence") and "none" not in row for row in rows)
    assert "DRIFT after" in section.text
    assert len(section.find_elements(By.TAG_NAME, "img")) == 1


def test_details_open_without_a_script(shown):
    details = shown.find_elements(By.CSS_SELECTOR, "#configuration details")
    assert len(details) == 3
    hidden = details[0].find_element(By.TAG_NAME, "pre")
    assert not hidden.is_displayed()
    shown.execute_script("arguments[0].scrollIntoView()", details[0])
    details[0].find_element(By.TAG_NAME, "summary").click()
    assert hidden.is_displayed()
    assert "smoothing" not in hidden.text
    assert "casimac" in hidden.text
