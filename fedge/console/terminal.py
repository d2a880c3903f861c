"""Choice of a console by stream, and terminals fit for a live view."""

import os
from collections.abc import Mapping
from typing import TextIO

from fedge.console.lines import Console
from fedge.console.notebook import NotebookConsole, in_notebook
from fedge.console.size import terminal_size

LEAST_WIDTH, LEAST_HEIGHT = 40, 10  # smallest terminal for a frame


def open_console(stream: TextIO, num_rounds: int, environment: Mapping[str, str] | None = None) -> Console:
    """Console for a stream: a bar in a notebook, a live view on a capable terminal, else plain lines."""
    if in_notebook(stream):
        return NotebookConsole(stream, num_rounds)
    if not can_draw(stream, os.environ if environment is None else environment):
        return Console(stream, num_rounds)
    from fedge.console.live import LiveConsole  # loads rich, not needed for plain lines

    return LiveConsole(stream, num_rounds)


def can_draw(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether a stream is a large enough terminal with cursor movement, and not in CI."""
    if environment.get("TERM", "").lower() in ("", "dumb", "unknown") or environment.get("CI"):
        return False
    try:
        if not stream.isatty():
            return False
        width, height = terminal_size(stream)
    except (OSError, ValueError, AttributeError):  # no descriptor, or a closed one
        return False
    return width >= LEAST_WIDTH and height >= LEAST_HEIGHT
