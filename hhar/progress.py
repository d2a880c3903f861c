"""Progress of long work: a callback that the command line turns into bars and others may leave out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

# (what, done, total): total is 0 where it is not known; done and total share a unit, bytes or steps
ProgressCallback = Callable[[str, int, int], None]


def no_progress(what: str, done: int, total: int) -> None:
    """Report to nobody."""


@contextmanager
def progress_bars() -> Iterator[ProgressCallback]:
    """Bars on stderr, one per thing in work; plain silence where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield no_progress
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=console) as bars:

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total or None)
            bars.update(tasks[what], completed=done, total=total or None)

        yield report
