"""Show the progress of long work: a bar on terminals and in notebooks, lines in log files."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PATIENCE_SECONDS = 2.0  # work that is done sooner shows nothing
LINE_SECONDS = 10.0  # minimum time between lines in a log
BAR_SECONDS = 0.1  # minimum time between updates of the bar


@contextmanager
def progress(
    description: str, total: float, show: bool | None = None, *, unit: str = "steps", done: float = 0
) -> Iterator[Callable[[float], None]]:
    """Show percentage, rate and time left of work that takes longer than ``PATIENCE_SECONDS``.

    On a terminal and in a notebook that is a bar. Elsewhere, as in a log file, it is a line every ``LINE_SECONDS`` at
    most and one at the end: "ssim neighbors: 34%, 5.1 M pairs/s, 1 min 20 s left". All goes to stderr.

    Parameters
    ----------
    description : str
        What is being done, shown first.
    total : float
        Units of work in all.
    show : bool, optional
        None (default) shows the bar on a terminal and in a notebook, and nothing elsewhere; True shows lines
        elsewhere, too; False never shows anything.
    unit : str
        What is counted, in the plural. The default is "steps".
    done : float
        Units of the total that were done before an interruption. They count as done, but not in the rate.
        The default is 0.

    Yields
    ------
    callable
        Call it with the number of units just done, as often as you like, from one thread.

    Examples
    --------
    >>> with progress("blocks", total=3, show=False, unit="blocks") as advance:
    ...     for _ in range(3):
    ...         advance(1)
    """
    if show is False:
        yield lambda amount: None
        return
    from rich.console import Console  # imported late: most calls end before anything is shown

    console = Console(stderr=True)
    drawn = console.is_terminal or console.is_jupyter
    if show is None and not drawn:
        yield lambda amount: None
        return
    display = (_Bar if drawn else _Lines)(description, total, unit, done, console)
    try:
        yield display.advance
    finally:
        if time.monotonic() >= display.begun + PATIENCE_SECONDS:
            display.close()


def rate_text(rate: float, unit: str) -> str:
    """A rate to three digits, with an SI prefix.

    Parameters
    ----------
    rate : float
        Units per second.
    unit : str
        Their name.

    Returns
    -------
    str

    Examples
    --------
    >>> rate_text(5_100_000, "pairs"), rate_text(0.25, "blocks")
    ('5.1 M pairs/s', '0.25 blocks/s')
    """
    prefix = ""
    for larger in "kMGT":
        if rate < 999.5:  # what rounds to 1000 has the larger prefix
            break
        rate, prefix = rate / 1000, f"{larger} "
    return f"{rate:.3g} {prefix}{unit}/s"


class _Lines:
    """Progress as printed lines, the last with the time that the work took."""

    interval = LINE_SECONDS

    def __init__(self, description: str, total: float, unit: str, done: float, console: "Console") -> None:
        self.description, self.total, self.unit, self.console = description, total, unit, console
        self.earlier = self.completed = done
        self.begun = self.latest = time.monotonic()  # latest: when units were last done
        self.due = self.begun + PATIENCE_SECONDS

    def advance(self, amount: float, /) -> None:
        self.completed += amount
        self.latest = time.monotonic()
        if self.latest >= self.due:
            self.due = self.latest + self.interval
            self.update()

    def update(self) -> None:
        if self.completed < self.total:  # else ``close`` prints the last line
            self._print(self.left)

    def close(self) -> None:
        self._print(f"after {rounded_duration(time.monotonic() - self.begun)}")

    @property
    def percentage(self) -> int:
        """Percentage done, rounded down: 100 means that nothing is left."""
        return int(100 * self.completed / self.total) if self.total else 100

    @property
    def rate(self) -> float:
        """Mean number of units per second since the work began."""
        return (self.completed - self.earlier) / max(self.latest - self.begun, 1e-9)

    @property
    def speed(self) -> str:
        return rate_text(self.rate, self.unit)

    @property
    def left(self) -> str:
        """Time that the rest takes at this rate; empty if unknown or if nothing is left."""
        if self.rate == 0 or self.completed >= self.total:
            return ""
        # Less the time since the latest update, so that the time left counts down between updates.
        seconds = (self.total - self.completed) / self.rate - (time.monotonic() - self.latest)
        return f"{rounded_duration(max(seconds, 0))} left"

    def _print(self, end: str) -> None:
        figures = ", ".join(filter(None, (f"{self.percentage}%", self.speed, end)))
        self.console.out(f"{self.description}: {figures}", highlight=False)


class _Bar(_Lines):
    """A bar that appears at the first update and stays when it is closed."""

    interval = BAR_SECONDS

    def __init__(self, description: str, total: float, unit: str, done: float, console: "Console") -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        super().__init__(description, total, unit, done, console)
        self.bar = Progress(
            TextColumn("{task.description}", markup=False),  # names of files may have brackets
            BarColumn(),
            TextColumn("{task.fields[work].percentage:>3}%", style="progress.percentage"),
            TextColumn("{task.fields[work].speed}", style="progress.data.speed", markup=False),
            TimeElapsedColumn(),
            TextColumn("{task.fields[work].left}", style="progress.remaining"),
            console=console,
        )
        self.task = self.bar.add_task(description, total=total, work=self)

    def update(self) -> None:
        self.bar.update(self.task, completed=self.completed)
        self.bar.start()  # has no effect on a bar that is already shown

    def close(self) -> None:
        if self.bar.live.is_started:  # stopping one that was never shown prints an empty line
            self.bar.update(self.task, completed=self.completed)
            self.bar.stop()


def rounded_duration(seconds: float) -> str:
    """Seconds in words: "45 s", "1 min 20 s", "2 h 5 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
