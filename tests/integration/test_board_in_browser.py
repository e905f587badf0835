"""TensorBoard on a real run, seen through a browser."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import keras
import pytest

import deepsimplex as ds
from tests.browser import browser, keep_screenshot, needs_browser, open_page, wait_for
from tests.event_files import SCORES
from tests.fresh_process import start

# TensorBoard's pages hide most of what they show in shadow trees.
EVERYTHING = """
const content = {text: [], images: []};
const visit = (node) => {
  if (node.nodeType === Node.TEXT_NODE && node.textContent.trim()) content.text.push(node.textContent.trim());
  if (node.tagName === "IMG") content.images.push([node.src, node.naturalWidth]);
  if (["STYLE", "SCRIPT", "TEMPLATE"].includes(node.tagName)) return;
  if (node.shadowRoot) visit(node.shadowRoot);
  for (const child of node.childNodes) visit(child);
};
visit(document.documentElement);
return content;
"""


TENSORBOARD = 'import runpy; runpy.run_module("tensorboard.main", run_name="__main__")'


@contextmanager
def tensorboard(events: Path, outputs: Path) -> Iterator[str]:
    """TensorBoard on a free port, whose messages go to files in ``outputs``: its address."""
    process = start(TENSORBOARD, "--logdir", events, "--port", 0, "--host", "127.0.0.1", outputs=outputs)
    log = outputs / "stderr"
    try:
        until, address = time.monotonic() + 120, None
        while address is None and time.monotonic() < until and process.is_alive():
            time.sleep(0.3)
            address = re.search(r"(http://\S+)/ \(", log.read_text() if log.exists() else "")
        assert address, f"TensorBoard did not start: {log.read_text()}"
        yield address[1]
    finally:
        process.terminate()
        process.join(timeout=30)


def texts(driver):
    return driver.execute_script(EVERYTHING)["text"]


CARDS = "metrics-filtered-view card-view"  # those that match the filter: the page hides others below
TAG = "return arguments[0].querySelector('tb-truncated-path')?.title"
WIDTH = "return arguments[0].querySelector('img')?.naturalWidth"
NEXT = """
const buttons = [...document.querySelectorAll("metrics-filtered-view button.next")];
const next = buttons.find((button) => !button.disabled);
if (next) next.click();
return Boolean(next);
"""


def cards(driver, address, group):
    """The tags of the cards of a group on the Time Series page, and how wide their pictures are.

    A card is made when it is scrolled to, and a page holds some of them.
    """
    open_page(driver, f"{address}/?tagFilter=^{group}/#timeseries")
    tags, widths = set(), {}
    while True:
        views = wait_for(lambda: driver.find_elements("css selector", CARDS), f"cards of {group}")
        for view in views:
            driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", view)
            tag = wait_for(lambda view=view: driver.execute_script(TAG, view), "the tag of a card")
            tags.add(tag)
            if group == "pictures":
                widths[tag] = wait_for(lambda view=view: driver.execute_script(WIDTH, view), f"the picture of {tag}")
        if len(tags) == len(views):
            driver.execute_script("arguments[0].scrollIntoView({block: 'end'})", views[0])
            time.sleep(1)  # curves are drawn
            keep_screenshot(driver, f"tensorboard_{group}")
        if not driver.execute_script(NEXT):
            return tags, widths
        time.sleep(1)


@pytest.fixture(scope="module")
def address(digits, tmp_path_factory):
    """TensorBoard on a run of two epochs on some of the digits."""
    folder, ((x, y), test) = tmp_path_factory.mktemp("events"), digits
    keras.utils.set_random_seed(0)
    model = ds.SimplexClassifier(ds.backbones.cnn([8], units=16), ds.targets.CASIMAC("euclidean"), num_classes=10)
    model.compile("adam")
    board = ds.monitoring.CalibrationBoard(folder, test)
    callbacks = [keras.callbacks.TensorBoard(folder), board]
    model.fit(x[:320], y[:320], epochs=2, validation_data=test, verbose=0, callbacks=callbacks)
    with tensorboard(folder, tmp_path_factory.mktemp("said")) as address:
        yield address


@pytest.fixture(scope="module")
def driver():
    with browser() as driver:
        yield driver


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("group", ["score", "calibration"])
def test_scalars_are_displayed(group, driver, address):
    tags, _ = cards(driver, address, group)
    assert tags == {tag for tag in SCORES if tag.startswith(f"{group}/")}


@needs_browser
@pytest.mark.slow
def test_images_are_displayed(driver, address):
    tags, widths = cards(driver, address, "pictures")
    assert tags == {f"pictures/{name}" for name in ("reliability", "latent_space", "highest_loss")}
    assert all(widths[tag] > 200 for tag in tags)
