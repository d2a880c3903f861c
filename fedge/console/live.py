"""Live view at a terminal: a run's plain lines, with a redrawn frame below them.

The frame (`fedge.console.frame`) is redrawn by the thread waiting for clients, never by a training thread, at
most four times per second and in at most a hundredth of the time. It neither hides the cursor nor uses the
alternate screen, so the terminal works however the process ends. If drawing fails, plain lines continue.
"""

import io
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console as Painter

from fedge.console.frame import Board, frame, marks_for
from fedge.console.lines import Console, escape_lines, round_line
from fedge.console.size import terminal_size
from fedge.exchange.clients import ExchangeProgress
from fedge.exchange.joint import JOINT
from fedge.exchange.train import TRAIN
from fedge.rounds.measurements.results import RoundResult

logger = logging.getLogger(__name__)

_LEAST_S = 0.25  # seconds between frames
_SHARE = 0.01  # share of the time allowed for drawing
_LOCK_S = 1.0  # a stopped terminal (Ctrl-S) must not delay the end of a run
_CLEAR_BELOW = "\x1b[J"


class LiveConsole(Console):
    """Console with a frame below a run's lines."""

    def __init__(self, stream: TextIO, num_rounds: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Console on `stream`; `clock` returns seconds."""
        super().__init__(stream, num_rounds)
        self._clock = clock
        self._began = self._round_began = clock()
        self._round_s: float | None = None  # expected seconds per round
        self._board = Board(num_rounds)
        self._standing: Callable[[], ExchangeProgress] | None = None
        self._clock_text: Callable[[], str] | None = None  # state of the virtual clock
        self._marks = marks_for(stream.encoding or "ascii")
        self._pending_lines: list[str] = []  # lines to write above the frame
        self._widths: list[int] = []  # widths of the frame's lines on the screen
        self._is_open = False
        self._next_draw = 0.0
        self._lock = threading.RLock()

    # --- events of the run -------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """Write a line; if there is a frame, above it, together with the next frame."""
        if not self._is_open:
            super().say(text)
            return
        self._pending_lines.append(escape_lines(text))
        self.tick()

    def phase(self, text: str) -> None:
        """Show a phase of the run's preparation, until its first round."""
        self._is_open = True
        self._board.phase = text
        self._draw()

    def begin(self, leaves: Sequence[Sequence[int]], leaf_rounds: int, done: int) -> None:
        """Show the leaves."""
        self._board.begin(leaves, leaf_rounds, done)
        self._round_began = self._clock()

    def follow(self, standing: Callable[[], ExchangeProgress]) -> None:
        """Show the clients in training."""
        if standing is not self._standing:  # another exchange
            self._standing = standing
            self._board.leaf_round += standing().kind == TRAIN
        self.tick()

    def watch(self, words: Callable[[], str]) -> None:
        """Show the state of the virtual clock in the frame."""
        self._clock_text = words

    def round(self, result: RoundResult, seconds: float) -> None:
        """Write the line of a round of `seconds` seconds; the frame also shows the time left."""
        self._left_s(result.global_round, seconds)
        self._round_s = sum(self._seconds) / len(self._seconds)
        self._round_began = self._clock()
        self._board.take(result)
        has_joined = self._standing is not None and self._standing().kind == JOINT
        self._board.leaf_round = int(has_joined)  # the next round's first leaf round is in progress
        self.say(round_line(result, self._num_rounds, seconds, None, self._width()))

    def tick(self) -> None:
        """Draw a frame if due."""
        if self._is_open and self._clock() >= self._next_draw:
            self._draw()

    # --- the screen ---------------------------------------------------------------------------------

    def close(self, failed: bool = False) -> None:
        """Write waiting lines, and remove the frame or, if the run failed, leave its last state."""
        if self._is_open and failed:
            self._draw()
        with self._locked():
            if self._is_open:
                self._write("\n" if failed else self._erase_codes() + self._take_pending())
            self._is_open = False

    def last_words(self, lines: Sequence[str]) -> None:
        """Write lines from a signal handler below the frame, which stays."""
        separator = [""] if self._is_open and self._widths else []
        self._is_open = False
        super().last_words([*separator, *lines])

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other threads (the watchdog) from writing, unless the lock is not available in time."""
        acquired = self._lock.acquire(timeout=_LOCK_S)
        try:
            yield
        finally:
            if acquired:
                self._lock.release()

    def _draw(self) -> None:
        """Replace the frame by a new one, below the waiting lines."""
        began = self._clock()
        with self._locked():
            if not self._is_open:
                return
            frame_text = ""
            widths: list[int] = []
            try:
                frame_text, widths = self._render_frame()
            except Exception as error:  # a drawing error must not fail the run
                logger.warning("the live view ends: %s: %s", type(error).__name__, error, exc_info=error)
                self._is_open = False
            self._write(self._erase_codes() + self._take_pending() + frame_text)
            self._widths = widths
        now = self._clock()
        self._next_draw = now + max(_LEAST_S, (now - began) / _SHARE)

    def _render_frame(self) -> tuple[str, list[int]]:
        """A new frame, without a final line break, and the width of each line."""
        width, height = terminal_size(self._stream)
        now = self._clock()
        board = self._board
        board.elapsed_s = now - self._began
        board.standing = self._standing() if self._standing else None
        if self._clock_text is not None:
            board.phase = self._clock_text()
        if self._round_s is not None:
            rounds_s = self._round_s * (self._num_rounds - board.done)
            board.left_s = max(0.0, rounds_s - (now - self._round_began))
        lines = frame(board, width, height, self._marks)
        painter = Painter(
            file=io.StringIO(), force_terminal=True, width=width, markup=False, highlight=False, emoji=False
        )
        with painter.capture() as captured:
            for line in lines[:-1]:
                painter.print(line, no_wrap=True)
            painter.print(lines[-1], no_wrap=True, end="")
        return captured.get(), [line.cell_len for line in lines]

    def _erase_codes(self) -> str:
        """Control codes for erasing the frame, including lines wrapped by a narrowed terminal."""
        if not self._widths:
            return ""
        width = self._width()
        rows = sum(max(1, -(-cells // width)) for cells in self._widths)
        self._widths = []
        return "\r" + f"\x1b[{rows - 1}A" * (rows > 1) + _CLEAR_BELOW

    def _take_pending(self) -> str:
        """Lines waiting to be written above the frame."""
        text = "".join(f"{line}\n" for line in self._pending_lines)
        self._pending_lines = []
        return text

    def _width(self) -> int:
        """The terminal's present width."""
        try:
            return terminal_size(self._stream)[0]
        except (OSError, ValueError):
            return 80

    def _write(self, text: str) -> None:
        """Write to the terminal, escaping unknown characters; if it is gone, the run continues without it."""
        encoding = self._stream.encoding or "ascii"
        try:
            self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self._stream.flush()
        except (OSError, ValueError) as error:
            self._is_open = False
            self._lose_terminal(error)
