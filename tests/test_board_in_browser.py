"""TensorBoard on a real run, seen through a browser."""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue

import keras
import pytest

import deepsimplex as ds
from tests.browser import browser, keep_screenshot, needs_browser
from tests.event_files import SCORES

# TensorBoard's pages hide most of what they show in shadow trees.
EVERYTHING = """
const found = {text: [], images: []};
const visit = (node) => {
  if (node.nodeType === Node.TEXT_NODE && node.textContent.trim()) found.text.push(node.textContent.trim());
  if (node.tagName === "IMG") found.images.push([node.src, node.naturalWidth]);
  if (["STYLE", "SCRIPT", "TEMPLATE"].includes(node.tagName)) return;
  if (node.shadowRoot) visit(node.shadowRoot);
  for (const child of node.childNodes) visit(child);
};
visit(document.documentElement);
return found;
"""


@contextmanager
def tensorboard(folder: Path) -> Iterator[str]:
    """TensorBoard on a free port: its address."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder), "--port", "0", "--host", "127.0.0.1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said: Queue[str] = Queue()
    threading.Thread(target=lambda: [said.put(line) for line in process.stderr], daemon=True).start()
    try:
        lines, until, address = [], time.monotonic() + 120, None
        while address is None and time.monotonic() < until and process.poll() is None:
            try:
                lines.append(said.get(timeout=1))
            except Empty:
                continue
            address = re.search(r"http://\S+", lines[-1])
        assert address, f"TensorBoard did not start: {''.join(lines)}"
        yield address[0].rstrip("/")
    finally:
        process.terminate()
        process.wait(timeout=30)


def wait_for(found, what, seconds=60):
    """What ``found()`` gives once it gives something."""
    until = time.monotonic() + seconds
    while not (answer := found()):
        assert time.monotonic() < until, f"{what}: not on the page after {seconds} s"
        time.sleep(0.3)
    return answer


def texts(driver):
    return driver.execute_script(EVERYTHING)["text"]


def cards(driver, address, group):
    """The tags and the pictures of the cards of a group on the Time Series page, which are made when scrolled to."""
    driver.get("about:blank")
    driver.get(f"{address}/?tagFilter=^{group}/#timeseries")
    wait_for(lambda: driver.execute_script("return document.querySelectorAll('card-view').length"), f"cards of {group}")
    tags, images = set(), {}
    for _ in range(20):
        views = driver.execute_script("return [...document.querySelectorAll('card-view')]")
        for view in views:
            driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", view)
            time.sleep(0.3)
            tag = driver.execute_script("return arguments[0].querySelector('.tag, tb-truncated-path')?.innerText", view)
            tags.add((tag or "").replace("\u200b", "").replace("\n", "").strip())
            image = driver.execute_script("return arguments[0].querySelector('img')", view)
            if image is not None:
                wide = wait_for(lambda: driver.execute_script("return arguments[0].naturalWidth", image), tag)  # noqa: B023
                images[tag] = wide
        following = driver.execute_script(
            "const next = [...document.querySelectorAll('button.next')].find(b => !b.disabled);"
            "if (next) next.click(); return Boolean(next)"
        )
        if not following:
            return tags, images
        time.sleep(0.5)
    return tags, images


@pytest.fixture(scope="module")
def address(digits, tmp_path_factory):
    """TensorBoard on a run of two epochs on the digits."""
    folder, (data, test) = tmp_path_factory.mktemp("events"), digits
    keras.utils.set_random_seed(0)
    model = ds.SimplexClassifier(ds.heads.cnn([8], units=16), ds.targets.CASIMAC("euclidean"), num_classes=10)
    model.compile("adam")
    board = ds.monitoring.CalibrationBoard(folder, test, hparams={"chosen_by": "hand"})
    callbacks = [keras.callbacks.TensorBoard(folder), board]
    model.fit(*data, epochs=2, validation_data=test, verbose=0, callbacks=callbacks)
    with tensorboard(folder) as address:
        yield address


@pytest.fixture(scope="module")
def driver():
    with browser() as driver:
        yield driver


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("group", ["score", "calibration"])
def test_scalars_are_on_the_page(group, driver, address):
    tags, _ = cards(driver, address, group)
    keep_screenshot(driver, f"tensorboard_{group}")
    expected = {tag for tag in SCORES if tag.startswith(f"{group}/")}
    assert {tag.split("/")[1] for tag in expected} <= {tag.split("/")[-1] for tag in tags}


@needs_browser
@pytest.mark.slow
def test_pictures_are_on_the_page(driver, address):
    tags, images = cards(driver, address, "pictures")
    keep_screenshot(driver, "tensorboard_pictures")
    assert {tag.split("/")[-1] for tag in tags} == {"reliability", "latent_space", "highest_loss"}
    assert len(images) == 3
    assert all(width > 200 for width in images.values())


@needs_browser
@pytest.mark.slow
def test_hyperparameters_are_on_the_page(driver, address):
    driver.get("about:blank")
    driver.get(f"{address}/#hparams")
    wanted = {"chosen_by", "target", "covariance", "readout", "learning_rate"}
    wait_for(lambda: wanted <= set(texts(driver)), f"the names {wanted}")
    wait_for(lambda: {"casimac", "hand", "isotropic"} <= set(texts(driver)), "their values")
    keep_screenshot(driver, "tensorboard_hparams")


@needs_browser
@pytest.mark.slow
def test_latents_are_in_the_projector(driver, address):
    driver.get("about:blank")
    driver.get(f"{address}/#projector")

    def shown():
        """The projector has a frame of its own."""
        driver.switch_to.default_content()
        frames = driver.execute_script(
            "const found = []; const visit = (node) => { if (node.tagName === 'IFRAME') found.push(node);"
            "if (node.shadowRoot) visit(node.shadowRoot); for (const child of node.childNodes) visit(child); };"
            "visit(document.body); return found"
        )
        for frame in frames:
            driver.switch_to.frame(frame)
            words = " ".join(texts(driver))
            if re.search(r"360", words) and "latent" in words:
                return words
            driver.switch_to.default_content()
        return None

    words = wait_for(shown, "360 latents")
    time.sleep(3)  # the points are drawn
    driver.switch_to.default_content()
    keep_screenshot(driver, "tensorboard_projector")
    assert re.search(r"Points:\s*360", words)
    assert re.search(r"Dimension:\s*9", words)
