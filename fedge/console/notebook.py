"""View of a run in a notebook: a bar below the cell, then the final table.

A notebook's output is saved, so a line per round would fill the page; the bar shows only the newest round. It
is plain HTML, displayed once and replaced in place, so it needs no widgets and its last state is saved.
"""

import html
import logging
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from fedge.console.lines import Console, round_line
from fedge.exchange.clients import ExchangeProgress
from fedge.rounds.measurements.results import RoundResult
from hhar.quantity import quantity

logger = logging.getLogger(__name__)

_LEAST_S = 0.5  # seconds between states of the bar


def in_notebook(stream: TextIO) -> bool:
    """Whether a stream is the output of a Jupyter cell."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel") and stream is sys.stdout


class NotebookConsole(Console):
    """Console with a run's rounds as a bar."""

    def __init__(
        self,
        stream: TextIO,
        num_rounds: int,
        show: Callable[[str], Callable[[str], None]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Console on `stream`.

        Args:
            stream: output of the cell.
            num_rounds: planned global rounds.
            show: displays HTML and returns a function to replace it; None for IPython's.
            clock: returns seconds.
        """
        super().__init__(stream, num_rounds)
        self._show = show or _display
        self._replace: Callable[[str], None] | None = None
        self._clock = clock
        self._next_draw = 0.0
        self._done = 0
        self._caption = ""
        self._standing: Callable[[], ExchangeProgress] | None = None

    def phase(self, text: str) -> None:
        """Show a phase of the run's preparation, until its first round."""
        self._caption = text
        self._draw()

    def follow(self, standing: Callable[[], ExchangeProgress]) -> None:
        """Show the number of clients with a reply."""
        self._standing = standing
        self.tick()

    def tick(self) -> None:
        """Show the newest state if due."""
        if self._replace is not None and self._clock() >= self._next_draw:
            self._draw()

    def round(self, result: RoundResult, seconds: float) -> None:
        """Show a global round, which took `seconds` seconds, on the bar."""
        left_s = self._left_s(result.global_round, seconds)
        self._done = result.global_round
        self._caption = round_line(result, self._num_rounds, seconds, left_s)
        if self._replace is None or self._done == self._num_rounds:
            self._draw()
        self.tick()

    def close(self, failed: bool = False) -> None:
        """Leave the last state, without clients in training."""
        self._standing = None
        if self._replace is not None:
            self._draw()
        self._replace = None

    def _draw(self) -> None:
        """Show the state in place of the previous one."""
        try:
            page = bar(self._done, self._num_rounds, self._caption, self._standing and self._standing())
            if self._replace is None:
                self._replace = self._show(page)
            else:
                self._replace(page)
        except Exception as error:  # a drawing error must not fail the run
            logger.warning("the bar fails: %s: %s", type(error).__name__, error, exc_info=error)
        self._next_draw = self._clock() + _LEAST_S


def bar(done: int, rounds: int, words: str, standing: ExchangeProgress | None) -> str:
    """The bar as HTML: rounds done, the newest round in words, and the number of replies."""
    exchange_text = ""
    if standing is not None and done < rounds:
        exchange_text = (
            f"<br>{standing.kind}: {len(standing.back)} of {quantity(len(standing.asked), 'client')} back"
        )
    return (
        f'<div style="font-family: monospace"><progress value="{done}" max="{rounds}" '
        f'style="width: 16em"></progress> {html.escape(words)}{exchange_text}</div>'
    )


def _display(page: str) -> Callable[[str], None]:
    """Display HTML below the running cell; returns a function to replace it."""
    from IPython.display import HTML, display

    shown: Any = display(HTML(page), display_id=True)

    def replace(newer: str) -> None:
        shown.update(HTML(newer))

    return replace
