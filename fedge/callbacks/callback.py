"""The base class of callbacks, and their view of a run."""

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
        folder: folder of the run.
        config: every option, flat, as ``{"train.lr": 0.05}``.
        seed: seed of the run.
        clients_per_leaf: in the order of the leaves, unseen clients included.
        num_rounds: planned global rounds.
        rounds_done: completed global rounds; above 0 for a resumed run.
        score: name of the task's first score, as in columns.
        higher_is_better: whether higher scores are better.
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
        leaf_round: counted over the run.
        replies: number of accepted replies; None before the leaf round.
        train_loss: client → mean training loss, for clients with an accepted reply.
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
        num_rounds: planned.
        numbers: its row of metrics/global_rounds.csv (docs/tables.md); empty before the round.
        leaves: its rows of metrics/leaf_rounds.csv, in order.
        clients: its rows of metrics/clients.csv, in order.
        on_clock: its row of devices/versions.csv in a run on the virtual clock; else empty.
    """

    global_round: int
    num_rounds: int
    numbers: Row
    leaves: Sequence[Row] = ()
    clients: Sequence[Row] = ()
    on_clock: Row = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class EndedRun:
    """The end of a run.

    Attributes:
        status: "completed", "partial" (clients failed on the way) or "failed".
        global_round: the last completed one.
        reason: a callback's reason for ending the run, or the cause of a failure; empty after all rounds.
    """

    status: str
    global_round: int
    reason: str


class Callback:
    """Base class of callbacks. Override any of the methods; a returned reason ends the run.

    All methods are called by the server, one after another, in the same order on either engine. Each may
    return a reason, in words, to end the run: it ends after the current global round, as completed, with the
    reason in manifest, terminal and report. An exception ends the run as failed; it can be resumed once the
    cause is fixed.

    A resumed run restores changed attributes made of numbers, strings, None, and lists and tables of these.
    For other state, define `state_dict()`, returning such a table, and `load_state_dict(table)`.

    On the virtual clock (docs/devices.md) a global round is the time from one evaluation to the next, and
    hooks for leaf rounds are not called.
    """

    def begin_run(self, run: Run) -> str | None:
        """Hook before the first global round, also of a resumed run."""

    def begin_round(self, round_: Round) -> str | None:
        """Hook at the start of a global round."""

    def begin_leaf_round(self, leaf_round: LeafRound) -> str | None:
        """Hook before the training of all leaves' clients."""

    def end_leaf_round(self, leaf_round: LeafRound) -> str | None:
        """Hook after a leaf round, once all leaves have combined their replies."""

    def end_round(self, round_: Round) -> str | None:
        """Hook after a finished global round.

        Where `evaluate.every` or `personal.*` leave steps to the last round, a returned reason has them
        carried out before this one is written.
        """

    def end_run(self, run: EndedRun) -> None:
        """Hook at the end of the run; not called if the process is killed."""
