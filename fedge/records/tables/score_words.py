"""Names and meanings of the columns of global rounds, for the scores of a task."""

from collections.abc import Callable, Sequence
from typing import Any

from fedge.records.tables.columns import at
from fedge.tasks.task import Score

TEST_LOSS = "test loss"
VAL_LOSS = "validation loss"


class ScoreWords:
    """Names and meanings of columns for a task's scores."""

    def __init__(self, scores: Sequence[Score], loss_unit: str) -> None:
        """Names for scores, the first of which is the main one, and for the unit of the loss."""
        first, *self.further = scores
        self.name, self.unit, self.nat = first.name, first.unit, loss_unit
        self.higher_is_better = first.higher_is_better
        self.test = f"test {first.label}"
        self.val = f"validation {first.label}"
        self.shared = f"test {first.label} before fine-tuning"
        self.tuned = f"test {first.label} after fine-tuning, served or not"
        self.said = first.label
        if not first.higher_is_better:
            self.test += ", of which less is better"


def further_score_meaning(score: Score) -> str:
    """Meaning of a further score, in words."""
    return f"{score.label} on test windows"


def further_score_reader(path: str, name: str) -> Callable[[Any], Any]:
    """Reader of a further score."""
    look_up = at(path)
    return lambda row: look_up(row).get(name)
