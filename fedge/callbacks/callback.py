"""The callback protocol, and a callback's view of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

Row = Mapping[str, Any]
"""Column → value of one row of a table of the run folder; None where nothing was measured."""


@dataclass(frozen=True)
class Run:
    """Facts of a run at its beginning.

    Attributes:
        folder: of the run.
        config: every option, flat, as ``{"train.lr": 0.05}``.
        seed: in force.
        clients_per_leaf: in the order of the leaves, unseen clients included.
        num_rounds: global rounds that are planned.
        rounds_done: global rounds that were done before; above 0 for a run that goes on.
        score: name of the task's first score, as columns have it.
        higher_is_better: which direction of it is better.
    """

    folder: Path
    config: Row
    seed: int
    clients_per_leaf: Sequence[int]
    num_rounds: int
    rounds_done: int
    score: str = "accuracy"
    higher_is_better: bool = True


@dataclass(frozen=True)
class LeafRound:
    """A leaf round, in which all leaves train at once.

    Attributes:
        global_round: 1, 2, …
        leaf_round: counted through the run.
        replies: that counted; None before it.
        train_loss: client → mean loss of its training, of those whose reply counted.
        failures: client → its first failure in this global round.
    """

    global_round: int
    leaf_round: int
    replies: int | None = None
    train_loss: Mapping[int, float] | None = None
    failures: Mapping[int, str] | None = None


@dataclass(frozen=True)
class Round:
    """A global round.

    Attributes:
        global_round: 1, 2, …
        num_rounds: that are planned.
        numbers: its row of metrics/global_rounds.csv (docs/tables.md); empty before it.
        leaves: its rows of metrics/leaf_rounds.csv, in order.
        clients: its rows of metrics/clients.csv, in order.
        on_clock: its row of devices/versions.csv, of a run on the virtual clock; empty elsewhere.
    """

    global_round: int
    num_rounds: int
    numbers: Row
    leaves: Sequence[Row] = ()
    clients: Sequence[Row] = ()
    on_clock: Row = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class EndedRun:
    """How a run has ended.

    Attributes:
        status: "completed", "partial" (clients failed on the way) or "failed".
        global_round: the last one that was done.
        reason: why a callback has ended it, or why it failed; empty for one that did all rounds.
    """

    status: str
    global_round: int
    reason: str


class Callback:
    """Base class of callbacks. Override the methods that you need; a returned reason ends the run.

    All methods are called by the server, one after another, on either engine in the same order. Each may
    return the reason, in words, why the run is to end: it ends after the present global round, as completed,
    with that reason in its manifest, on its terminal and in its report. An exception ends the run
    as failed; once the cause is mended, it can be resumed.

    A resumed run restores attributes that have changed since the object was made, as far
    as they are numbers, strings, None, and lists and tables of these. An object that keeps something else
    has `state_dict()`, which returns such a table, and `load_state_dict(table)`.

    On the virtual clock (docs/devices.md) a global round is the time from one evaluation to the next, and
    there are no leaf rounds to be told of.
    """

    def begin_run(self, run: Run) -> str | None:
        """Take note that the first global round is about to begin, or the first one after a stop."""

    def begin_round(self, round_: Round) -> str | None:
        """Take note that a global round begins."""

    def begin_leaf_round(self, leaf_round: LeafRound) -> str | None:
        """Take note that all leaves' clients are about to train."""

    def end_leaf_round(self, leaf_round: LeafRound) -> str | None:
        """Handle the end of a leaf round, once all leaves have combined their replies."""

    def end_round(self, round_: Round) -> str | None:
        """Take note of a global round that is over and measured."""

    def end_run(self, run: EndedRun) -> None:
        """Take note that the run is over; not called where its process is ended at once."""
