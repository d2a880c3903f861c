"""Models kept beside the final ones: of chosen rounds, and the best by validation score.

Files are written before their round's checkpoint. A run resumed from an older checkpoint writes them again
with the same bytes, and always has the model shown as best in its tables.
"""

from collections.abc import Iterator
from pathlib import Path

from fedge.config.sections.guard import BEST, CheckpointConfig
from fedge.records.tables.round_tables import GLOBAL
from fedge.records.tables.rows import records_of
from fedge.rounds.measurements.results import RoundResult
from fedge.tasks.task import Score


class KeptModels:
    """Selection of the rounds whose models are kept, and their names."""

    def __init__(self, config: CheckpointConfig, folder: Path, score: Score) -> None:
        """Selection for one run.

        Args:
            config: the models to keep.
            folder: the run folder, whose table has the scores of earlier rounds.
            score: the task's first score.
        """
        self._config = config
        self._table = folder / GLOBAL.path
        self._score = score
        self._best: float | None = None  # merit; None before the first
        self._is_new = True  # nothing has been read yet

    def after(self, result: RoundResult) -> list[str]:
        """Names under which to keep the models of a round; empty for most rounds.

        The best round has the best mean validation score over clients; test windows are never used. Of equal
        rounds, the earliest is kept.
        """
        names = [str(result.global_round)] * (result.global_round in self._config.rounds)
        if self._config.keeps_best:
            if self._is_new:
                earlier = self._earlier_merits(result.global_round)
                self._best, self._is_new = max(earlier, default=None), False
            scores = result.over_clients("val_score")
            if scores is not None and (self._best is None or self._score.merit(scores.mean) > self._best):
                self._best = self._score.merit(scores.mean)
                names.append(BEST)
        return names

    def _earlier_merits(self, global_round: int) -> Iterator[float]:
        """Merits of the rounds before `global_round`, from the table."""
        with self._table.open(newline="", encoding="utf-8", errors="replace") as file:
            for row in records_of(file):
                cell = row.get(f"val_{self._score.name}_mean")
                if cell and int(row["global_round"]) < global_round:
                    yield self._score.merit(float(cell))
