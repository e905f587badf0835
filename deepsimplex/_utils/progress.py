"""Show the progress of long work: a bar on terminals and in notebooks, lines in log files."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_SECONDS = 2.0  # work that is done sooner shows nothing
LINE_SECONDS = 10.0  # minimum time between lines in a log
BAR_SECONDS = 0.1  # minimum time between updates of the bar


@contextmanager
def progress(
    description: str, total: float, show: bool | None = None, *, unit: str = "steps"
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
    from rich.console import Console  # imported here: most calls end before anything is shown
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    as_bar = console.is_terminal or console.is_jupyter
    if show is None and not as_bar:
        yield lambda amount: None
        return
    bar = Progress(
        TextColumn("{task.description}", markup=False),  # names of files may have brackets
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rate]}", style="progress.data.speed", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        get_time=time.monotonic,
        speed_estimate_period=math.inf,
    )
    bar.add_task(description, total=total, rate="")
    task = bar.tasks[0]
    bar.advance(task.id, 0)  # the rate is measured from here on
    begun = time.monotonic()
    due = begun + PATIENCE_SECONDS

    def rate() -> str:
        return rate_text(task.speed or 0, unit)

    def print_line(time_text: str) -> None:
        figures = ", ".join(filter(None, (f"{int(task.percentage)}%", rate(), time_text)))
        console.out(f"{description}: {figures}", highlight=False)

    def advance(amount: float, /) -> None:
        nonlocal due
        bar.advance(task.id, amount)
        now = time.monotonic()
        if now < due:
            return
        due = now + (BAR_SECONDS if as_bar else LINE_SECONDS)
        if as_bar:
            bar.update(task.id, rate=rate())
            bar.start()  # has no effect on a bar that is already shown
        elif not task.finished:
            left = task.time_remaining
            print_line("" if left is None else f"{rounded_duration(left)} left")

    try:
        yield advance
    finally:
        if bar.live.is_started:  # stopping a bar that was never shown prints an empty line
            bar.update(task.id, rate=rate())
            bar.stop()
        elif not as_bar and time.monotonic() >= begun + PATIENCE_SECONDS:
            print_line(f"after {rounded_duration(time.monotonic() - begun)}")


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


def rounded_duration(seconds: float) -> str:
    """Seconds in words: "45 s", "1 min 20 s", "2 h 5 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
