"""Lines of a run: one per global round, a final table, remarks; plain text.

`Console` is for pipes, logs and CI. `fedge.console.live` has the one for terminals, which shows more in
between.
"""

import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TextIO

from fedge.exchange.clients import Standing
from fedge.rounds.moment import VersionRow
from fedge.rounds.results import ClientResult, RoundResult

logger = logging.getLogger(__name__)

_RECENT = 10  # rounds over which seconds per round are averaged


class Console:
    """Writes the progress of one run to a stream."""

    def __init__(self, stream: TextIO, num_rounds: int) -> None:
        """Write to `stream`; `num_rounds` global rounds are to come."""
        self._stream = stream
        self._num_rounds = num_rounds
        self._seconds: deque[float] = deque(maxlen=_RECENT)
        self._has_ended = False  # the last words are said

    def say(self, text: str) -> None:
        """Write a line now; without a terminal, the run goes on unseen."""
        if self._has_ended:
            return
        try:
            try:
                print(text, file=self._stream, flush=True)
            except UnicodeEncodeError as error:
                escaped = text.encode(error.encoding, "backslashreplace").decode(error.encoding)
                print(escaped, file=self._stream, flush=True)
        except (OSError, ValueError) as error:
            self._lose_terminal(error)

    def _lose_terminal(self, error: Exception) -> None:
        """Go on without a terminal: a closed pipe, a full device, a stream that was closed."""
        logger.warning("the terminal is gone: %s", error)
        self._stream = open(os.devnull, "w")  # noqa: SIM115

    def phase(self, text: str) -> None:
        """Note the run's preparations, until its first round."""

    def begin(self, leaves: Sequence[Sequence[int]], leaf_rounds: int, done: int) -> None:
        """Note the clients of every leaf, the leaf rounds per global round and the global rounds done."""

    def tick(self) -> None:
        """Take the chance to show that time goes by."""

    def follow(self, standing: Callable[[], Standing]) -> None:
        """Follow an exchange, as an `fedge.exchange.clients.Observer`."""

    def watch(self, words: Callable[[], str]) -> None:
        """Show the result of `words` while the run goes on: how far its virtual clock is."""

    def round(self, result: RoundResult, seconds: float) -> None:
        """Write the line of one global round, which took so many seconds."""
        left_s = self._left_s(result.global_round, seconds)
        self.say(round_line(result, self._num_rounds, seconds, left_s))

    def _left_s(self, done: int, seconds: float) -> float:
        """The seconds that are left after global round `done`, which took `seconds`."""
        self._seconds.append(seconds)
        return sum(self._seconds) / len(self._seconds) * (self._num_rounds - done)

    def close(self, failed: bool = False) -> None:
        """End all but plain lines; `say` goes on. The last state stays on the screen if it `failed`."""

    def last_words(self, lines: Sequence[str]) -> None:
        """Write lines from a signal handler: past all buffers and locks, which may be held right now."""
        self._has_ended = True  # a round ending meanwhile is in its tables
        text = "".join(f"{line}\n" for line in lines)
        with suppress(OSError, ValueError):  # no terminal any more, or a stream without a descriptor
            os.write(self._stream.fileno(), text.encode("utf-8", "replace"))


def round_line(
    result: RoundResult, num_rounds: int, seconds: float, left_s: float | None, width: int | None = None
) -> str:
    """One global round in one line.

    Args:
        result: of the round.
        num_rounds: global rounds in all.
        seconds: that it took.
        left_s: seconds until the last round is done; None leaves this out.
        width: characters that it may have; the least important parts are left out for it.
    """
    seen, unseen = (result.over_clients("test_score", unseen_clients) for unseen_clients in (False, True))
    said = result.learned.scores[0].said
    score = f"{said} {seen.mean:.3f} worst {seen.worst:.3f}" if seen else f"{said} -"
    if unseen:
        score += f"  unseen {unseen.mean:.3f}"
    clusters = f"clusters {len({leaf.cluster for leaf in result.leaves})}"
    parts = [
        f"round {result.global_round:>{len(str(num_rounds))}}/{num_rounds}",
        *([score, clusters, _gates(result)] if result.moment is None else _at(result.moment, score, result)),
        f"{seconds:.1f} s" + ("" if left_s is None else f"  left {minutes(left_s)}"),
    ]
    count = len(result.failures)
    failed = [f"FAILED {count} client{'s' * (count > 1)}"] if count else []
    while width is not None and len(parts) > 2 and len("  ".join(parts + failed)) > width:
        parts.pop()
    return "  ".join(parts + failed)


def _at(moment: VersionRow, score: str, result: RoundResult) -> list[str]:
    """Parts of an evaluation on the virtual clock: when it was, how good; groups where leaves form some."""
    groups = len({leaf.cluster for leaf in result.leaves})
    return [moment.words(), score, *([f"clusters {groups}"] if groups > 1 else [])]


def _gates(result: RoundResult) -> str:
    """Decisions of the gates of a round."""
    decisions = [leaf.gate.decision for leaf in result.leaves]
    if set(decisions) == {"off"}:
        return "gate off"
    return f"gate {decisions.count('accepted')} taken {decisions.count('rejected')} kept"


def final_table(result: RoundResult) -> list[str]:
    """The lines of the final table: a row per leaf, then all clients; unseen clients stand apart."""
    any_unseen_clients = any(leaf.unseen_clients for leaf in result.leaves)
    first, *others = result.learned.scores
    said = (first.said, "worst client", *(score.said for score in others))
    header = ("leaf", "cluster", "clients", "train windows", *said)
    rows: list[Sequence[str]] = [(*header, "unseen clients", first.said) if any_unseen_clients else header]
    for leaf in result.leaves:
        worst = _worst_client(result, leaf.leaf)
        unseen = (str(leaf.unseen_clients), _score(leaf.unseen_score)) if any_unseen_clients else ()
        rows.append(
            (
                str(leaf.leaf),
                str(leaf.cluster),
                str(leaf.num_clients),
                str(leaf.train_samples),
                _score(leaf.test_score),
                f"{_score(worst.test_score)} (client {worst.client})" if worst else "-",
                *(_score(leaf.further.get(score.name)) for score in others),
                *unseen,
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    for who, unseen_clients in (("clients", False), ("clients on users unseen in training", True)):
        if found := result.over_clients("test_score", unseen_clients):
            lines.append(
                f"all {found.n} {who}: test {first.said} {found.mean:.4f} mean, {found.std:.4f} std, "
                f"{found.worst:.4f} worst"
            )
    return lines


def _worst_client(result: RoundResult, leaf: int) -> ClientResult | None:
    """The known client of a leaf with the worst test score, or None without any."""
    own = [c for c in result.clients if c.leaf == leaf and not c.unseen_client and c.test_score is not None]
    merit = result.learned.scores[0].merit
    return min(own, key=lambda c: merit(c.test_score or 0.0), default=None)


def _score(value: float | None) -> str:
    """A score with four digits, or a dash."""
    return "-" if value is None else f"{value:.4f}"


def minutes(seconds: float) -> str:
    """Seconds as m:ss, or h:mm:ss from an hour on."""
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
