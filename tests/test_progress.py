"""Progress is shown only where it should be, and is accurate."""

import io
import re
import sys

import pytest

from deepsimplex._utils import progress as module
from deepsimplex._utils.progress import progress, rate_text


class Clock:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    """Replace the clock of rates and times."""
    fake = Clock()
    monkeypatch.setattr(module, "time", fake)
    return fake


@pytest.fixture
def terminal(monkeypatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "120")


def work(clock, steps=4, seconds=1.0, amount=1, total=None, show=True, **options) -> None:
    """Do ``amount`` units in each of so many steps of so many seconds."""
    with progress("counting blocks", steps * amount if total is None else total, show, **options) as advance:
        for _ in range(steps):
            clock.now += seconds
            advance(amount)


def without_styles(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_fast_work_shows_no_bar(clock, capsys, terminal):
    work(clock, seconds=0.4)
    assert capsys.readouterr() == ("", "")


def test_fast_work_prints_no_line(clock, capsys):
    work(clock, seconds=0.4)
    assert capsys.readouterr() == ("", "")


def test_log_has_a_line_per_interval_and_a_final_line(clock, capsys):
    work(clock, steps=100, seconds=0.25, amount=850_000, unit="pairs")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "counting blocks: 8%, 3.4 M pairs/s, 23 s left",
        "counting blocks: 48%, 3.4 M pairs/s, 13 s left",
        "counting blocks: 88%, 3.4 M pairs/s, 3 s left",
        "counting blocks: 100%, 3.4 M pairs/s, after 25 s",
    ]


def test_log_lines_are_neither_wrapped_nor_parsed_as_markup(clock, capsys):
    description = "[bold]distances[/bold] " + "very " * 30 + "long"
    with progress(description, 10, show=True) as advance:
        clock.now += 3
        advance(1)
    assert capsys.readouterr().err.splitlines()[0] == f"{description}: 10%, 0.333 steps/s, 27 s left"


def test_finished_work_prints_final_line_once(clock, capsys):
    work(clock, steps=1, seconds=60)
    assert capsys.readouterr().err == "counting blocks: 100%, 0.0167 steps/s, after 1 min 0 s\n"


def fail_half_way(clock, seconds):
    with progress("counting blocks", total=4, show=True) as advance:
        clock.now += seconds
        advance(1)
        raise RuntimeError("failed")


def test_failed_work_prints_percentage(clock, capsys):
    with pytest.raises(RuntimeError, match="failed"):
        fail_half_way(clock, seconds=5000)
    assert capsys.readouterr().err.splitlines() == [
        "counting blocks: 25%, 0.0002 steps/s, 4 h 10 min left",
        "counting blocks: 25%, 0.0002 steps/s, after 1 h 23 min",
    ]


def test_percentage_is_rounded_down(clock, capsys):
    work(clock, steps=1, seconds=3, amount=999, total=1000)
    assert "counting blocks: 99%" in capsys.readouterr().err


@pytest.mark.parametrize("total", [0, 4])
def test_long_work_without_units_shows_no_time_left(total, clock, capsys):
    work(clock, steps=2, seconds=3, amount=0, total=total)
    assert "left" not in capsys.readouterr().err


def test_bar_ends_full_on_stderr(clock, capsys, terminal):
    work(clock, amount=2_500_000, unit="pairs")
    captured = capsys.readouterr()
    assert captured.out == ""
    last = without_styles(captured.err).split("\r")[-1]
    assert re.search(r"counting blocks ━+ 100% 2.5 M pairs/s 0:00:04 0:00:00", last)


def test_bar_shows_time_left(clock, capsys, terminal):
    work(clock, steps=5, amount=10, total=80, show=None)
    assert re.search(r" 62% 10 steps/s 0:00:05 0:00:03", without_styles(capsys.readouterr().err))


def test_show_false_or_no_terminal_shows_nothing(clock, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    for show in (None, False):
        work(clock, seconds=60, show=show)
        assert capsys.readouterr().out == ""
        assert sys.stderr.getvalue() == ""


def test_bar_stops_when_the_work_fails(clock, capsys, terminal):
    with pytest.raises(RuntimeError, match="failed"):
        fail_half_way(clock, seconds=3)
    assert "25%" in without_styles(capsys.readouterr().err)


@pytest.mark.parametrize(
    ("rate", "text"),
    [(0, "0 pairs/s"), (999.4, "999 pairs/s"), (999.6, "1 k pairs/s"), (12_345_678, "12.3 M pairs/s"),
     (2.5e9, "2.5 G pairs/s"), (7e14, "700 T pairs/s")],
)  # fmt: skip
def test_rates_have_three_digits_and_a_prefix(rate, text):
    assert rate_text(rate, "pairs") == text
