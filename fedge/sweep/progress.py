"""Progress of a sweep: one line per ended run, and the time left."""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fedge.report.html.tables import seconds_text


@dataclass
class SweepPace:
    """Seconds per global round so far, by kind of run.

    Attributes:
        seconds: kind → (seconds, rounds) of the ended runs, including start-up.
    """

    seconds: dict[str, tuple[float, int]] = field(default_factory=dict)

    def observe(self, kind: str, seconds: float, rounds: int) -> None:
        """Add a run ended after `seconds` seconds and `rounds` rounds; ignored without any round."""
        if rounds:
            total_s, total = self.seconds.get(kind, (0.0, 0))
            self.seconds[kind] = (total_s + seconds, total + rounds)

    def expect(self, kind: str, rounds: int) -> float | None:
        """Expected seconds of a run, from runs of its kind, else from all; None if unknown."""
        measured = [self.seconds[kind]] if kind in self.seconds else list(self.seconds.values())
        if not measured:
            return None
        total_s, total = map(sum, zip(*measured, strict=True))
        return rounds * total_s / total


def seconds_left(
    pace: SweepPace,
    running: Mapping[str, tuple[str, int, float]],
    waiting: Iterable[tuple[str, int]],
    jobs: int,
) -> float | None:
    """Seconds until all runs have ended; None if unknown.

    Args:
        pace: pace so far.
        running: any name → (kind, rounds, seconds taken so far).
        waiting: (kind, rounds) of the other runs, in the order in which they will start.
        jobs: runs at a time.
    """
    ends = []
    for kind, rounds, taken_s in running.values():
        expected = pace.expect(kind, rounds)
        if expected is None:
            return None
        ends.append(max(expected - taken_s, 0.0))
    ends += [0.0] * (jobs - len(ends))
    heapq.heapify(ends)
    for kind, rounds in waiting:
        expected = pace.expect(kind, rounds)
        if expected is None:
            return None
        heapq.heapreplace(ends, ends[0] + expected)
    return max(ends, default=0.0)


def run_line(
    number: int, total: int, name: str, width: int, status: str, scores: Sequence[str], seconds: float,
    left_s: float | None,
) -> str:  # fmt: skip
    """Line about an ended run.

    Args:
        number, total: runs done, and in all.
        name: name of the run.
        width: width of the column of names.
        status: its status.
        scores: name of the score, its mean, and its worst.
        seconds: its duration in seconds.
        left_s: seconds until all runs are done; None if unknown.
    """
    score_name, mean, worst = scores
    score = f"{score_name} {mean}  worst {worst}"
    time_left = "" if left_s is None else f"  left {seconds_text(left_s)}"
    count = f"{number:>{len(str(total))}}/{total}"
    return f"{count}  {name:<{width}}  {status:<9}  {score}  {seconds_text(seconds)}{time_left}"
