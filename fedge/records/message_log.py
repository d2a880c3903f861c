"""``timing/messages-000012.csv``: times of every message of a round, for three rounds of a run.

All messages of all rounds would be too large (1,000 clients × 1,000 rounds), so only the first, the slowest
and the newest round are kept, one file each. The newest is written at most every 5 s, and at the run's end.
"""

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from fedge.records.tables.columns import INT
from fedge.records.tables.timing_tables import MESSAGES, MessageRows
from fedge.timing.timeline import MessageTimes

FOLDER = "timing"
_EVERY_S = 5.0
_FORMAT = ",".join("%d" if column.kind == INT else "%.6f" for column in MESSAGES.columns) + "\n"


class MessageLog:
    """Message files of one run."""

    def __init__(self, folder: Path, seconds: Mapping[int, float]) -> None:
        """Log continuing after earlier rounds.

        Args:
            folder: the run folder.
            seconds: round → its seconds, so far; files of other rounds are removed.
        """
        self._folder = folder / FOLDER
        self._seconds: dict[int, float] = {}  # for rounds with a file
        for path in message_files(folder):
            global_round = round_of(path)
            if global_round in seconds:
                self._seconds[global_round] = seconds[global_round]
            else:
                path.unlink()
        self._last_write = -np.inf
        self._pending: tuple[int, float, MessageTimes] | None = None

    def write(self, global_round: int, seconds: float, messages: MessageTimes) -> None:
        """Add a round that took `seconds` seconds.

        Raises:
            OSError: the disk is full or gone.
        """
        self._pending = (global_round, seconds, messages)
        is_slowest = seconds > max(self._seconds.values(), default=-np.inf)
        if is_slowest or time.monotonic() - self._last_write >= _EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Write the newest round, if not yet written."""
        if self._pending is None:
            return
        global_round, seconds, messages = self._pending
        self._pending = None
        path = self._folder / f"messages-{global_round:06d}.csv"
        temporary = path.with_name(f"{path.name}.tmp")
        try:
            temporary.write_text(_format_table(global_round, messages), encoding="utf-8")
            temporary.replace(path)
        finally:
            with suppress(OSError):  # a full disk has already raised an error
                temporary.unlink(missing_ok=True)
        self._last_write = time.monotonic()
        self._seconds[global_round] = seconds
        self._remove_other_files()

    def _remove_other_files(self) -> None:
        """Remove all files except those of the first, the slowest and the newest round."""
        slowest = max(self._seconds, key=lambda r: (self._seconds[r], -r))
        for global_round in self._seconds.keys() - {min(self._seconds), slowest, max(self._seconds)}:
            del self._seconds[global_round]
            with suppress(FileNotFoundError):
                (self._folder / f"messages-{global_round:06d}.csv").unlink()


def message_files(folder: Path) -> list[Path]:
    """Message files of a run folder, by round."""
    return sorted(folder.glob(f"{FOLDER}/messages-*.csv"), key=round_of)


def round_of(path: Path) -> int:
    """Round of a message file; 0 for any other file."""
    match = re.fullmatch(r"messages-(\d+)\.csv", path.name)
    return int(match[1]) if match else 0


def _format_table(global_round: int, messages: MessageTimes) -> str:
    """Content of a round's file; times in seconds since the start of the round."""
    numbers = np.column_stack(MESSAGES.row(MessageRows(global_round, messages)))
    return ",".join(MESSAGES.names) + "\n" + "".join(_FORMAT % tuple(row) for row in numbers.tolist())
