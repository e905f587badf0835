"""A progress bar for work that takes longer than a few seconds, and none for work that does not."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

PATIENCE_SECONDS = 2.0


class Advance(Protocol):
    """What ``progress`` yields: call it with the number of units just done."""

    def __call__(self, amount: float, /) -> None: ...


@contextmanager
def progress(description: str, total: float, show: bool | None = None) -> Iterator[Advance]:
    """Show a bar with rate and time left once the work has lasted ``PATIENCE_SECONDS``.

    Parameters
    ----------
    description : str
        What is being done, shown before the bar.
    total : float
        Units of work in all.
    show : bool, optional
        None (default) shows the bar on a terminal and in a notebook only; True always; False never.

    Yields
    ------
    callable
        Called with the units just done.

    Examples
    --------
    >>> with progress("blocks", total=3, show=False) as advance:
    ...     for _ in range(3):
    ...         advance(1)
    """
    if show is False:
        yield lambda amount: None
        return
    # Imported late: most calls are done before a bar is due.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if show is None and not (console.is_terminal or console.is_jupyter):
        yield lambda amount: None
        return
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(show_speed=True),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    )
    task = bar.add_task(description, total=total)
    begun = time.monotonic()

    def advance(amount: float, /) -> None:
        bar.advance(task, amount)
        if not bar.live.is_started and time.monotonic() - begun > PATIENCE_SECONDS:
            bar.start()

    try:
        yield advance
    finally:
        if bar.live.is_started:  # stopping one that was never shown prints an empty line
            bar.stop()
