"""Lines of a run: one per global round, a final table, remarks; plain text.

`Console` is for pipes, logs and CI; `fedge.console.live` has the console for terminals, with a live view.
"""

import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TextIO

from fedge.exchange.clients import ExchangeProgress
from fedge.metrics.scores import Spread
from fedge.process.escape import printable
from fedge.rounds.measurements.moment import VersionRow
from fedge.rounds.measurements.results import ClientResult, RoundResult
from hhar.quantity import quantity

logger = logging.getLogger(__name__)

_RECENT = 10  # rounds over which seconds per round are averaged


def escape_lines(text: str) -> str:
    """Lines with terminal control characters escaped, because a note may quote a file or a client."""
    return "\n".join(map(printable, text.split("\n")))


class Console:
    """Writer of one run's progress to a stream."""

    def __init__(self, stream: TextIO, num_rounds: int) -> None:
        """Console on `stream` for `num_rounds` global rounds."""
        self._stream = stream
        self._num_rounds = num_rounds
        self._seconds: deque[float] = deque(maxlen=_RECENT)
        self._has_ended = False  # set by `last_words`

    def say(self, text: str) -> None:
        """Write lines now, control characters escaped; without its terminal, the run continues."""
        if self._has_ended:
            return
        text = escape_lines(text)
        try:
            try:
                print(text, file=self._stream, flush=True)
            except UnicodeEncodeError as error:
                escaped = text.encode(error.encoding, "backslashreplace").decode(error.encoding)
                print(escaped, file=self._stream, flush=True)
        except Exception as error:  # a stream passed from Python may raise any exception
            self._lose_terminal(error)

    def _lose_terminal(self, error: Exception) -> None:
        """Continue without a terminal after a closed pipe, a full device, or a closed stream."""
        logger.warning("the terminal is gone: %s", error)
        self._stream = open(os.devnull, "w")  # noqa: SIM115

    def phase(self, text: str) -> None:
        """Show a phase of the run's preparation, until its first round."""

    def begin(self, leaves: Sequence[Sequence[int]], leaf_rounds: int, done: int) -> None:
        """Set the clients of every leaf, the leaf rounds per global round and the global rounds done."""

    def tick(self) -> None:
        """Redraw if it is time; called regularly."""

    def follow(self, standing: Callable[[], ExchangeProgress]) -> None:
        """Follow an exchange, as an `fedge.exchange.clients.Observer`."""

    def watch(self, words: Callable[[], str]) -> None:
        """Show the result of `words` during the run, e.g. the state of its virtual clock."""

    def round(self, result: RoundResult, seconds: float) -> None:
        """Write the line of one global round, which took `seconds` seconds."""
        left_s = self._left_s(result.global_round, seconds)
        self.say(round_line(result, self._num_rounds, seconds, left_s))

    def _left_s(self, done: int, seconds: float) -> float:
        """Seconds left after global round `done`, which took `seconds` seconds."""
        self._seconds.append(seconds)
        return sum(self._seconds) / len(self._seconds) * (self._num_rounds - done)

    def close(self, failed: bool = False) -> None:
        """End all but plain lines; `say` still works. If `failed`, the last state stays on the screen."""

    def last_words(self, lines: Sequence[str]) -> None:
        """Write lines from a signal handler, bypassing buffers and possibly held locks."""
        self._has_ended = True  # a round that ends meanwhile is recorded in the tables
        text = "".join(f"{escape_lines(line)}\n" for line in lines)
        with suppress(OSError, ValueError):  # the terminal is gone, or the stream has no descriptor
            os.write(self._stream.fileno(), text.encode("utf-8", "replace"))


def round_line(
    result: RoundResult, num_rounds: int, seconds: float, left_s: float | None, width: int | None = None
) -> str:
    """One global round in one line.

    Args:
        result: result of the round.
        num_rounds: planned global rounds.
        seconds: its duration, in seconds.
        left_s: seconds until the last round is done; None to omit them.
        width: maximum characters; the least important parts are dropped. None for no limit.
    """
    seen, unseen = (result.over_clients("test_score", unseen_clients) for unseen_clients in (False, True))
    label = result.learned.scores[0].label
    score = f"{label} {seen.mean:.3f} worst {seen.worst:.3f}" if seen else f"{label} -"
    if unseen:
        score += f"  unseen {unseen.mean:.3f}"
    clusters = f"clusters {len({leaf.cluster for leaf in result.leaves})}"
    parts = [
        f"round {result.global_round:>{len(str(num_rounds))}}/{num_rounds}",
        *(
            [score, clusters, _gates(result)]
            if result.moment is None
            else _evaluation_parts(result.moment, score, result)
        ),
        f"{seconds:.1f} s" + ("" if left_s is None else f"  left {minutes(left_s)}"),
    ]
    count = len(result.failures)
    failed = [f"FAILED {quantity(count, 'client')}"] if count else []
    while width is not None and len(parts) > 2 and len("  ".join(parts + failed)) > width:
        parts.pop()
    return "  ".join(parts + failed)


def _evaluation_parts(moment: VersionRow, score: str, result: RoundResult) -> list[str]:
    """Parts of an evaluation on the virtual clock: time, score, and clusters if there are several."""
    groups = len({leaf.cluster for leaf in result.leaves})
    return [moment.words(), score, *([f"clusters {groups}"] if groups > 1 else [])]


def _gates(result: RoundResult) -> str:
    """Decisions of the gates of a round."""
    gates = result.gates
    if not any(gate.serves_offer or gate.score_offered is not None for gate in gates):
        return "no offers"  # every leaf is alone in its cluster, or there was no cloud step
    decisions = [gate.decision for gate in gates]
    if set(decisions) == {"off"}:
        return "gate off"
    return f"gate {decisions.count('accepted')} taken {decisions.count('rejected')} kept"


def final_table(result: RoundResult) -> list[str]:
    """Lines of the final table: a row per leaf, then all clients; unseen clients are separate."""
    has_unseen = any(leaf.unseen_clients for leaf in result.leaves)
    first, *others = result.learned.scores
    score_headers = (first.label, "worst client", *(score.label for score in others))
    header = ("leaf", "cluster", "clients", "train windows", *score_headers)
    rows: list[Sequence[str]] = [(*header, "unseen clients", first.label) if has_unseen else header]
    for leaf in result.leaves:
        worst = _worst_client(result, leaf.leaf)
        unseen = (str(leaf.unseen_clients), _score(leaf.unseen_score)) if has_unseen else ()
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
    for scope, unseen_clients in (("", False), (" on users unseen in training", True)):
        num_clients = sum(
            leaf.unseen_clients if unseen_clients else leaf.num_clients for leaf in result.leaves
        )
        if spread := result.over_clients("test_score", unseen_clients):
            lines.append(f"{_count_text(spread.n, num_clients)}{scope}: {_spread_text(spread, first.label)}")
        for name, own_spread in result.over_own_models(unseen_clients).items():
            lines.append(
                f"{_count_text(own_spread.n, num_clients)}{scope}, own models ({name}): "
                f"{_spread_text(own_spread, first.label)}"
            )
    return lines


def _spread_text(spread: Spread, label: str) -> str:
    """A score over clients in words."""
    return f"test {label} {spread.mean:.4f} mean, {spread.std:.4f} std, {spread.worst:.4f} worst"


def _worst_client(result: RoundResult, leaf: int) -> ClientResult | None:
    """Known client of a leaf with the worst test score; None without any."""
    scored = [
        c for c in result.clients if c.leaf == leaf and not c.unseen_client and c.test_score is not None
    ]
    merit = result.learned.scores[0].merit
    return min(scored, key=lambda c: merit(c.test_score or 0.0), default=None)


def _score(value: float | None) -> str:
    """A score with four decimals, or a dash."""
    return "-" if value is None else f"{value:.4f}"


def minutes(seconds: float) -> str:
    """Seconds as m:ss, or h:mm:ss from an hour on."""
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


def _count_text(clients: int, total: int) -> str:
    """Words for the clients with a score, out of those present; others have no test windows, or failed."""
    if clients < total:
        return f"the {clients} evaluated of {total} clients"
    return "the one client" if clients == 1 else f"all {clients} clients"
