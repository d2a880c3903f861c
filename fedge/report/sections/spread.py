"""Spread of scores over clients and leaves, for seen and unseen users, as a measure of fairness.

Each client, or leaf, has equal weight.
"""

from collections.abc import Iterator
from typing import Any

import polars as pl

from fedge.metrics.scores import Spread, score_spread
from fedge.records.reading.reader import RunData
from fedge.report.html.page import Panel
from fedge.report.html.tables import table


def client_spread(run: RunData, column: str, unseen_clients: bool) -> Spread | None:
    """Spread of a column of clients.csv over clients in the last round; None without any value.

    Args:
        run: run with at least one round.
        column: column of the table.
        unseen_clients: whether to use unseen clients in place of training ones.
    """
    clients = run.unseen_clients if unseen_clients else run.known_clients
    return _spread_of(_last_round(run, clients)[column], _is_higher_better(run, column))


def leaf_spread(run: RunData, column: str) -> Spread | None:
    """Spread of a column of leaf_rounds.csv over leaves in the last round; None without any value."""
    return _spread_of(_last_round(run, run.leaves)[column], _is_higher_better(run, column))


def _is_higher_better(run: RunData, column: str) -> bool:
    """Direction of the score in a column."""
    matching = (
        score for score in run.scores if column in (score.name, f"test_{score.name}", f"unseen_{score.name}")
    )
    return next((score.higher_is_better for score in matching), True)


def spread_panel(run: RunData) -> Panel:
    """Spread of all scores over clients and leaves after the last round."""
    tails = dict.fromkeys(score.tail_label.split()[0] for score in run.scores)
    tail = f"{' or '.join(tails)} percentile"
    headers = ("over", "users", "score", "number", "mean", "std", "worst", tail, "Jain index")
    caption = (
        "After the last round. Leaves: scores pooled over the leaf's windows. Unseen: users "
        "held out of training, of "
        "whom no leaf has a window. By the percentile, a tenth do worse. Jain's index is 1 if all are served "
        "alike."
    )
    return Panel("Spread over clients and leaves", table(headers, _rows(run)), None, caption, True, True)


def _rows(run: RunData) -> Iterator[tuple[Any, ...]]:
    """Rows of the panel; empty if nothing was evaluated."""
    for number, score in enumerate(run.scores):
        seen, unseen = score.name if number else f"test_{score.name}", f"unseen_{score.name}"
        for over, users, spread in (
            ("clients", "seen", client_spread(run, seen, unseen_clients=False)),
            ("clients", "unseen", client_spread(run, seen, unseen_clients=True)),
            ("leaves", "seen", leaf_spread(run, seen)),
            ("leaves", "unseen", leaf_spread(run, unseen)),
        ):
            if spread:
                yield (
                    over,
                    users,
                    score.label,
                    spread.n,
                    spread.mean,
                    spread.std,
                    spread.worst,
                    spread.p10,
                    spread.jain,
                )


def _last_round(run: RunData, frame: pl.DataFrame) -> pl.DataFrame:
    """Rows of the run's last round."""
    return frame.filter(pl.col("global_round") == run.rounds["global_round"][-1])


def _spread_of(column: pl.Series, higher_is_better: bool) -> Spread | None:
    """Spread of the measured values; None without any."""
    values = column.drop_nulls().to_list()
    return score_spread(values, higher_is_better) if values else None
