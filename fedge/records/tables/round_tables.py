"""Forms of the three tables of global rounds, once per task, whose columns are named by the task's scores."""

from dataclasses import dataclass
from functools import lru_cache

from fedge.records.tables.columns import Table
from fedge.records.tables.global_table import GlobalRow, global_table
from fedge.records.tables.member_tables import ClientRow, LeafRow, client_table, leaf_table
from fedge.records.tables.score_words import ScoreWords
from fedge.tasks.configured import CLASSIFICATION
from fedge.tasks.task import Score, Task

__all__ = [
    "CLIENTS",
    "GLOBAL",
    "LEAF",
    "ClientRow",
    "GlobalRow",
    "LeafRow",
    "RoundTables",
    "round_tables",
    "tables_of",
]


@dataclass(frozen=True)
class RoundTables:
    """Tables of global rounds with columns named by a task's scores.

    Attributes:
        rounds, leaves, clients: tables of global rounds, of leaves, of clients.
    """

    rounds: Table
    leaves: Table
    clients: Table


def tables_of(task: Task) -> RoundTables:
    """Tables of global rounds for a task."""
    return round_tables(tuple(task.scores), task.loss_unit)


@lru_cache(maxsize=8)
def round_tables(scores: tuple[Score, ...], loss_unit: str) -> RoundTables:
    """Tables of global rounds for a task's scores, the first of which is the main one.

    Args:
        scores: scores of the task, at least one.
        loss_unit: unit of its loss.
    """
    words = ScoreWords(scores, loss_unit)
    return RoundTables(global_table(words), leaf_table(words), client_table(words))


_USUAL = round_tables(CLASSIFICATION.scores, CLASSIFICATION.loss_unit)
GLOBAL, LEAF, CLIENTS = _USUAL.rounds, _USUAL.leaves, _USUAL.clients  # of classification
