"""Checkpoints of a run: its state after a global round, written and restored.

A checkpoint contains all states from which the next round starts (leaf models, control variates of leaves and
clients, states of server optimisers), cluster labels, the state of the remarks and the final table, and the
sizes of the tables. It does not contain random streams, which follow from seed and round, or the clients'
optimisers, which are new in every leaf round.

A checkpoint is written while the clients work on the next exchange, and is on disk before the next row.
States are replaced, never modified, so older ones stay intact. The files of a round change in the same order
as if the server had waited.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedge.callbacks.calls import Callbacks
from fedge.config.sections.guard import CheckpointConfig
from fedge.data.own_windows import WindowsReport
from fedge.process.background_jobs import BackgroundJob
from fedge.records.recorder import Recorder
from fedge.rounds.strategy import HierarchicalStrategy
from fedge.run.remarks import Remarks
from fedge.states.averaging import State
from fedge.states.checkpoint import (
    FOLDER,
    IN_USE,
    Checkpoint,
    Groups,
    prune,
    refusing_impossible_values,
    write_checkpoint,
)
from fedge.states.memory import MemoryKeeper, RemoteMemories

_LEAVES, _CLIENTS = "leaves", "clients"  # groups of states


class Snapshots:
    """Writer of one run's checkpoints."""

    def __init__(
        self,
        config: CheckpointConfig,
        num_rounds: int,
        recorder: Recorder,
        strategy: HierarchicalStrategy,
        remarks: Remarks,
        callbacks: Callbacks,
        behind: BackgroundJob,
        memories: MemoryKeeper | RemoteMemories | None = None,
        reports: Mapping[int, WindowsReport] | None = None,
    ) -> None:
        """Writer for the parts of a run.

        Args:
            config: when to write a checkpoint, and how many to keep.
            num_rounds: last global round, which always has a checkpoint unless checkpoints are off.
            recorder, strategy, remarks: parts of the run.
            callbacks: the run's callbacks.
            memories: files of clients' memories; None if clients keep none.
            reports: partition id → the owner's description of its windows; None if the server dealt them.
            behind: background writer; its errors become a CheckpointError (disk full or gone).
        """
        self._config = config
        self._num_rounds = num_rounds
        self._recorder = recorder
        self._strategy = strategy
        self._remarks = remarks
        self._callbacks = callbacks
        self._behind = behind
        self._memories = memories
        owners = {str(client): report.to_text() for client, report in (reports or {}).items()}
        self._owner_reports: dict[str, Any] = {"told": owners} if owners else {}

    def after(self, global_round: int, table: Callable[[], Sequence[str]], is_last: bool = False) -> None:
        """Start writing the checkpoint of a global round if one is due, and removing old ones.

        Args:
            global_round: 0 before the first.
            table: function returning the lines of the final table, in case this is the last round.
            is_last: whether this round is the last, although others were planned.
        """
        if self._memories is not None:
            self._memories.sweep(self._strategy.kept_memories())
        every = self._config.every
        if every and (global_round % every == 0 or global_round == self._num_rounds or is_last):
            self.write(global_round, table)

    def write(self, global_round: int, table: Callable[[], Sequence[str]]) -> None:
        """Start writing the checkpoint of a global round and removing old ones; arguments as for `after`."""
        facts = {
            "strategy": self._strategy.facts(),
            "remarks": self._remarks.facts(),
            "callbacks": self._callbacks.facts(),
            "table": list(table()),
            **self._owner_reports,
        }
        pinned = [] if self._memories is None else self._memories.pin(self._strategy.kept_memories())
        groups = {
            _LEAVES: self._strategy.states(),
            _CLIENTS: {str(client): control for client, control in self._strategy.client_controls().items()},
        }
        run, facts_json = self._recorder.manifest, json.dumps(facts)  # both may change during the write
        self._behind.begin(partial(self._write, global_round, groups, run, facts_json, pinned))

    def _write(
        self, global_round: int, groups: Groups, run: Mapping[str, Any], facts: str, pinned: Sequence[Path]
    ) -> None:
        """Write a checkpoint; the tables and these states stay unchanged meanwhile."""
        about_tables = {
            "run": run,
            "offsets": self._recorder.offsets(),
            "sha256": self._recorder.checksums(),
        }
        parent = self._recorder.folder / FOLDER
        all_facts = about_tables | json.loads(facts)
        write_checkpoint(parent, global_round, groups, all_facts, beside=[*self._recorder.unsynced, *pinned])
        prune(parent, self._config.keep)


def restore_run(checkpoint: Checkpoint, strategy: HierarchicalStrategy, remarks: Remarks) -> list[str]:
    """Restore a run from a checkpoint; returns the lines of its final table at the time."""
    with refusing_impossible_values(checkpoint.folder, IN_USE):
        states = {name: _copy(state) for name, state in checkpoint.groups[_LEAVES].items()}
        strategy.restore(checkpoint.global_round, states, checkpoint.facts["strategy"])
        remarks.restore(checkpoint.facts["remarks"])
        clients = checkpoint.groups.get(_CLIENTS, {})
        strategy.restore_client_controls({int(client): _copy(control) for client, control in clients.items()})
        return list(map(str, checkpoint.facts["table"]))


def _copy(state: State) -> State:
    """A state copied to memory, independent of the checkpoint's file."""
    return {name: np.array(array) for name, array in state.items()}
