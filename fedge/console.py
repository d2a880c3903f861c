"""What a person sees of a run: one line per global round, a final table, remarks; plain text."""

from collections.abc import Sequence
from typing import TextIO

from fedge.results import RoundResult


class Console:
    """Writes the progress of one run to a stream."""

    def __init__(self, stream: TextIO, num_rounds: int) -> None:
        """Write to `stream`; `num_rounds` global rounds are to come."""
        self._stream = stream
        self._num_rounds = num_rounds
        self._seconds: list[float] = []

    def say(self, text: str) -> None:
        """Write a line now."""
        print(text, file=self._stream, flush=True)

    def round(self, result: RoundResult, seconds: float) -> None:
        """Write the line of one global round."""
        self._seconds.append(seconds)
        recent = self._seconds[-10:]
        left_s = sum(recent) / len(recent) * (self._num_rounds - result.global_round)
        self.say(round_line(result, self._num_rounds, seconds, left_s))

    def final_table(self, result: RoundResult) -> None:
        """Write the table of the served models after the last round."""
        for line in final_table(result):
            self.say(line)


def round_line(result: RoundResult, num_rounds: int, seconds: float, left_s: float) -> str:
    """Return one global round in one line."""
    width = len(str(num_rounds))
    accuracies = result.accuracies
    score = (
        f"accuracy {accuracies.mean():.3f} worst {accuracies.min():.3f}" if accuracies.size else "accuracy -"
    )
    decisions = [leaf.gate.decision for leaf in result.leaves]
    gates = f"gate {decisions.count('accepted')} taken {decisions.count('rejected')} kept"
    if set(decisions) == {"off"}:
        gates = "gate off"
    clusters = len({leaf.cluster for leaf in result.leaves})
    failed = f"  FAILED {len(result.failures)} clients" if result.failures else ""
    return (
        f"round {result.global_round:>{width}}/{num_rounds}  {score}  clusters {clusters}  {gates}  "
        f"{seconds:.1f} s  left {_minutes(left_s)}{failed}"
    )


def final_table(result: RoundResult) -> list[str]:
    """Return the lines of the final table: a row per leaf, then all clients."""
    rows: list[Sequence[str]] = [
        ("leaf", "cluster", "clients", "train windows", "accuracy", "worst client", "macro-F1")
    ]
    for leaf in result.leaves:
        own = [c for c in result.clients if c.leaf == leaf.leaf and c.test_accuracy is not None]
        worst = min(own, key=lambda c: c.test_accuracy or 0.0, default=None)
        rows.append(
            (
                str(leaf.leaf),
                str(leaf.cluster),
                str(leaf.num_clients),
                str(leaf.train_samples),
                _score(leaf.test_accuracy),
                f"{_score(worst.test_accuracy)} (client {worst.client})" if worst else "-",
                _score(leaf.macro_f1),
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    accuracies = result.accuracies
    if accuracies.size:
        lines.append(
            f"all {accuracies.size} clients: test accuracy {accuracies.mean():.4f} mean, "
            f"{accuracies.std():.4f} std, {accuracies.min():.4f} worst"
        )
    return lines


def _score(value: float | None) -> str:
    """Return an accuracy with four digits, or a dash."""
    return "-" if value is None else f"{value:.4f}"


def _minutes(seconds: float) -> str:
    """Return seconds as m:ss."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
