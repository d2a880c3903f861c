"""Forms of the three tables of global rounds, once per task, whose columns are named by the task's scores."""

from dataclasses import dataclass
from functools import lru_cache

from fedge.config.registers.option import ConfigError
from fedge.records.tables.columns import Table
from fedge.records.tables.device_tables import growing_tables
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
    "refuse_repeated_columns",
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


def refuse_repeated_columns(task: Task) -> None:
    """Raise ConfigError if a score of a task would repeat a column, such as `leaf`, of a run's table."""
    tables = tables_of(task)
    for table in (tables.rounds, tables.leaves, tables.clients, growing_tables(task.scores[0])[0]):
        repeated = next((name for name in table.names if table.names.count(name) > 1), None)
        if repeated is not None:
            raise ConfigError(
                f"scores of train.task and train.metrics ({', '.join(score.name for score in task.scores)}) "
                f"must have columns of their own, but {table.path} has {repeated} twice; rename a Score"
            )


_USUAL = round_tables(CLASSIFICATION.scores, CLASSIFICATION.loss_unit)
GLOBAL, LEAF, CLIENTS = _USUAL.rounds, _USUAL.leaves, _USUAL.clients  # of classification
