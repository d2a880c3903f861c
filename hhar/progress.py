"""Progress of long work: an optional callback, which the command line draws as bars."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, Task
    from rich.text import Text

_FRAMES_PER_S = 4
_WIDE = 100  # columns; on narrower terminals bars take the rest of the line
BYTES = "bytes"


class ProgressCallback(Protocol):
    """Callback for long work, called from time to time."""

    def __call__(self, what: str, done: int, total: int, unit: str = BYTES) -> None:
        """Report that `done` of `total` is finished, both in `unit`; `total` is 0 if unknown."""


def no_progress(what: str, done: int, total: int, unit: str = BYTES) -> None:
    """Ignore the report."""


@contextmanager
def progress_bars() -> Iterator[ProgressCallback]:
    """Bars on stderr, one per task; nothing is drawn unless stderr is a terminal with a movable cursor."""
    from rich.console import Console
    from rich.progress import TaskID

    console = Console(stderr=True)
    if not _can_draw(console):
        yield no_progress
        return
    tasks: dict[str, TaskID] = {}
    with _bars(console) as bars:

        def report(what: str, done: int, total: int, unit: str = BYTES) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(_printable(what), total=total or None, unit=unit)
            bars.update(tasks[what], completed=done, total=total or None)

        yield report


def _can_draw(console: Console) -> bool:
    """Whether a console is a terminal with a movable cursor, and not a CI's."""
    quiet = console.is_dumb_terminal or not os.environ.get("TERM") or os.environ.get("CI")
    return console.is_terminal and not quiet


def _bars(console: Console) -> Progress:
    """Empty bars: name, bar, amount, and the time left or, at the end, taken."""
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

    class Amount(ProgressColumn):
        """Amount done, in the task's unit."""

        def render(self, task: Task) -> Text:
            """Amount and speed as text."""
            from rich.text import Text

            speed = None if task.finished else task.speed
            return Text(amount(task.completed, task.total, task.fields["unit"], speed))

    narrow = console.width < _WIDE
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None if narrow else 40),
        Amount(),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        console=console,
        expand=narrow,
        refresh_per_second=_FRAMES_PER_S,
    )


def amount(done: float, total: float | None, unit: str, speed: float | None) -> str:
    """Amount done as text: "412 of 822 MB, 12.3 MB/s", or "3 of 9 users"."""
    scale = 1e6 if unit == BYTES else 1.0
    text = f"{done / scale:.0f}"
    if total is not None:
        text += f" of {total / scale:.0f}"
    if unit != BYTES:
        return f"{text} {unit}"
    return f"{text} MB" + (f", {speed / scale:.1f} MB/s" if speed else "")


def _printable(text: str) -> str:
    """A name from outside as one short line, without control characters for the terminal."""
    return "".join(c if c.isprintable() else "?" for c in text[:40])
