"""Headless browser for tests of web pages."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("selenium")
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.remote.webdriver import WebDriver

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
SCREENSHOTS = "DEEPSIMPLEX_SCREENSHOTS"
"""Names a folder where screenshots are kept, for whoever wants to look at them."""

LOADED = "return (location.href === 'about:blank') === arguments[0] && document.readyState === 'complete'"

needs_browser = pytest.mark.needs("Debian's packages chromium and chromium-driver")


@contextmanager
def browser(width: int = 1280, height: int = 1600) -> Iterator[WebDriver]:
    """Debian's Chromium, which finds no host but this machine; it ends with the block.

    Parameters
    ----------
    width, height : int
        Of its window, in pixels.
    """
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (
        "--headless=new",
        "--no-sandbox",  # it would refuse to run as root
        "--disable-dev-shm-usage",  # containers have little of it
        "--disable-gpu",
        "--hide-scrollbars",
        "--no-proxy-server",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
        f"--window-size={width},{height}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def wait_for(condition: Callable[[], Any], description: str, seconds: float = 60) -> Any:
    """Wait until ``condition()`` is true, and return its value."""
    until = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < until, f"{description}: not on the page after {seconds} s"
        time.sleep(0.3)
    return answer


def open_page(driver: WebDriver, address: str) -> None:
    """Load a page anew, whatever was shown before, and wait until all of it is there; `errors` are then this page's.

    On a busy machine the driver's own `get` may return while the page is still being loaded. It comes by way of an
    empty page, since an address that differs from the last by its fragment alone would load nothing.
    """
    for page in ("about:blank", address):
        driver.get(page)
        loaded = partial(driver.execute_script, LOADED, page == "about:blank")
        wait_for(loaded, f"all of {page}", seconds=30)
        if page == "about:blank":
            driver.get_log("browser")  # reading the log empties it


def errors(driver: WebDriver) -> list[str]:
    """Errors on the page's console."""
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]


def keep_screenshot(driver: WebDriver, name: str) -> None:
    """Save a screenshot of the window as NAME.png, if a folder is given for it."""
    if folder := os.environ.get(SCREENSHOTS):
        Path(folder).mkdir(parents=True, exist_ok=True)
        driver.save_screenshot(str(Path(folder, f"{name}.png")))
