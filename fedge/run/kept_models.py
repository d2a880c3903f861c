"""Models of a run that stay beside the final ones: of chosen rounds, and the best by validation score.

Files are written before the checkpoint of their round, so a run that goes on from an older one writes them
again with the same bytes, and never lacks one that its tables say was best.
"""

from collections.abc import Iterator
from pathlib import Path

from fedge.config.sections.guard import BEST, CheckpointConfig
from fedge.records.round_tables import GLOBAL
from fedge.records.rows import records_of
from fedge.rounds.results import RoundResult
from fedge.tasks.task import Score


class KeptModels:
    """Says after which rounds models are to be kept, and by which name."""

    def __init__(self, config: CheckpointConfig, folder: Path, score: Score) -> None:
        """Watch a run.

        Args:
            config: which are wanted.
            folder: of the run, whose table says what was best before it went on.
            score: of its task, the first.
        """
        self._config = config
        self._table = folder / GLOBAL.path
        self._score = score
        self._best: float | None = None  # merit; None before the first
        self._is_new = True  # nothing was read yet

    def after(self, result: RoundResult) -> list[str]:
        """Names by which the models of a round are to be kept; none for most rounds.

        Models are judged by the mean over clients of their validation score, where a round has one: never
        by test windows. Of equals the first stays.
        """
        names = [str(result.global_round)] * (result.global_round in self._config.rounds)
        if self._config.keeps_best:
            if self._is_new:
                earlier = self._earlier(result.global_round)
                self._best, self._is_new = max(earlier, default=None), False
            seen = result.over_clients("val_score")
            if seen is not None and (self._best is None or self._score.merit(seen.mean) > self._best):
                self._best = self._score.merit(seen.mean)
                names.append(BEST)
        return names

    def _earlier(self, global_round: int) -> Iterator[float]:
        """Merits of the rounds before one, as the table has them."""
        with self._table.open(newline="", encoding="utf-8", errors="replace") as file:
            for row in records_of(file):
                cell = row.get(f"val_{self._score.name}_mean")
                if cell and int(row["global_round"]) < global_round:
                    yield self._score.merit(float(cell))
