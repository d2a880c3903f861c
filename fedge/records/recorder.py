"""The run folder (contract C9): everything a run leaves behind, written as the run goes, row by row.

What the tables hold is in `fedge.records.catalog`.
"""

import csv
import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from fedge.data.composition import Holding
from fedge.process.memory import ProcessMemory
from fedge.records.catalog import (
    CLIENTS,
    GLOBAL,
    LEAF,
    MEMORY,
    PARTITION,
    ROUND_TABLES,
    TIMING,
    WORKERS,
    ClientRow,
    GlobalRow,
    LeafRow,
    MemoryRow,
    WorkerRow,
    timing_row,
)
from fedge.records.columns import Table
from fedge.records.folder import write_whole
from fedge.records.manifest import write_manifest
from fedge.records.message_log import MessageLog
from fedge.rounds.results import RoundResult
from fedge.states.averaging import State
from fedge.states.files import write_state
from fedge.timing.timeline import TIMELINE_PARTS, RoundTimelines

_CLUSTERS = "clusters.jsonl"


class RecordError(OSError):
    """A run's record cannot be written. One line."""


class Recorder:
    """Writes one run folder. Use as a context manager: files are closed whatever happens."""

    def __init__(
        self,
        folder: Path,
        offsets: Mapping[str, int] | None = None,
        manifest: Mapping[str, Any] | None = None,
    ) -> None:
        """Open the tables of `folder`, which `create_run_folder` has made.

        Args:
            folder: of the run.
            offsets: of a run that goes on, table → bytes that stay; what was written after them goes.
            manifest: of a run that goes on, its entries so far.
        """
        self.folder = folder
        self._files: dict[str, TextIO] = {}
        self._manifest = dict(manifest or {})
        self._manifest_lock = threading.RLock()  # the watchdog and signal handlers write it, too
        self._ended = False
        with self._explained("tables"):
            for table in ROUND_TABLES:
                self._open(table.path, table, (offsets or {}).get(table.path, 0))
            self._open(_CLUSTERS, None, (offsets or {}).get(_CLUSTERS, 0))
            self._flush()
            self._messages = MessageLog(folder, _seconds_so_far(folder))

    def _open(self, name: str, table: Table | None, offset: int) -> None:
        """Open a file, new or behind its first `offset` bytes; `table` is what it holds, if it is one."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
        file = self._files[name] = path.open("r+", newline="", encoding="utf-8")
        file.truncate(offset)
        if table and offset:
            table.fit(file)
        file.seek(0, os.SEEK_END)
        if table and not offset:
            table.write_header(file)

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._messages.flush()
        for file in self._files.values():
            with suppress(OSError):  # on a full disk, what could not be written before cannot be now
                file.close()

    @property
    def manifest(self) -> dict[str, Any]:
        """The entries of manifest.json."""
        return dict(self._manifest)

    @property
    def paths(self) -> list[Path]:
        """All tables."""
        return [self.folder / name for name in self._files]

    def offsets(self) -> dict[str, int]:
        """Return the bytes of every table so far."""
        return {name: os.fstat(file.fileno()).st_size for name, file in self._files.items()}

    def update_manifest(self, **entries: Any) -> None:
        """Add or replace entries of manifest.json, which is replaced as a whole.

        Raises:
            RecordError: the disk is full or gone; the file is as it was.
        """
        with self._manifest_lock, self._explained("manifest.json"):
            self._manifest.update(entries)
            write_manifest(self.folder, self._manifest)

    def end(self, status: str, exit_code: int, **entries: Any) -> Mapping[str, Any]:
        """Write how the run ended, once: what comes later is a consequence. Returns what is written.

        Raises:
            RecordError: as `update_manifest`.
        """
        with self._manifest_lock:
            if not self._ended:
                self.update_manifest(status=status, exit_code=exit_code, **entries, ended=utc_now())
                self._ended = True
            return dict(self._manifest)

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Turn an OSError into a RecordError."""
        try:
            yield
        except OSError as error:
            raise RecordError(
                f"cannot write {what} of {self.folder}: {error.strerror or error}; make room, then "
                f"fedge resume {self.folder}"
            ) from error

    def write_round(
        self,
        result: RoundResult,
        laps: Mapping[str, float],
        memory: Sequence[ProcessMemory],
        timelines: RoundTimelines | None = None,
    ) -> None:
        """Append one global round to every table.

        Args:
            result: of the round.
            laps: phase → seconds.
            memory: a process each.
            timelines: what the workers did meanwhile; None where that is not known.

        Raises:
            RecordError: the disk is full or gone. Rows may be there in part.
        """
        with self._explained("metrics"):
            self._write_round(result, laps, memory)
            self._write_times(result.global_round, laps, timelines)
            self._flush()

    def _write_round(
        self, result: RoundResult, laps: Mapping[str, float], memory: Sequence[ProcessMemory]
    ) -> None:
        """Append one global round to the buffers of the tables."""
        number = result.global_round
        self._rows(GLOBAL, [GlobalRow(result, sum(laps.values()))])
        self._rows(LEAF, [LeafRow(number, leaf) for leaf in result.leaves])
        self._rows(CLIENTS, [ClientRow(number, client) for client in result.clients])
        self._rows(MEMORY, [MemoryRow(number, process) for process in memory])
        if result.cloud is not None:
            self._files[_CLUSTERS].write(json.dumps(_cluster_entry(result)) + "\n")
        write_whole(self.folder / "metrics" / "confusion.json", _confusion_entry(result))

    def _write_times(
        self, global_round: int, laps: Mapping[str, float], timelines: RoundTimelines | None
    ) -> None:
        """Append one global round to the tables of times."""
        more: dict[str, Any] = {}
        if timelines is not None:
            seconds = zip(TIMELINE_PARTS, timelines.seconds, strict=True)
            more = {"workers": len(timelines.timelines), **{f"timeline_{part}": s for part, s in seconds}}
            more |= timelines.legs
            self._rows(WORKERS, [WorkerRow(global_round, timeline) for timeline in timelines.timelines])
            self._messages.write(global_round, sum(laps.values()), timelines.messages)
        self._rows(TIMING, [timing_row(global_round, laps, more)])

    def _flush(self) -> None:
        """Hand what is buffered to the system."""
        for file in self._files.values():
            file.flush()

    def _rows(self, table: Table, rows: Sequence[Any]) -> None:
        """Append row objects to a table."""
        table.write(self._files[table.path], rows)

    def write_partition(self, holdings: Iterable[Holding]) -> None:
        """Write partition.csv.

        Raises:
            RecordError: the disk is full or gone.
        """
        with self._explained(PARTITION.path):
            (self.folder / PARTITION.path).write_text(PARTITION.text(holdings), encoding="utf-8")

    def write_models(
        self, models: Sequence[State], unseen_clients: Mapping[int, State] | None = None
    ) -> None:
        """Write checkpoints/final.safetensors: every served leaf model, entries named ``leaf-0/…``.

        Args:
            models: per leaf what it serves the clients that it knows.
            unseen_clients: leaf → what it serves others, where that is another one; ``unseen-0/…``.
        """
        path = self.folder / "checkpoints" / "final.safetensors"
        path.parent.mkdir(exist_ok=True)
        named = {f"leaf-{leaf}/": model for leaf, model in enumerate(models)}
        named |= {f"unseen-{leaf}/": model for leaf, model in (unseen_clients or {}).items()}
        write_state(path, _Joined(named))


class _Joined(Mapping[str, np.ndarray]):
    """Several states as one, in the order of their prefixed names; entries are looked up when asked for."""

    def __init__(self, states: Mapping[str, State]) -> None:
        self._entries = {prefix + name: (state, name) for prefix, state in states.items() for name in state}

    def __getitem__(self, name: str) -> np.ndarray:
        state, inner = self._entries[name]
        return state[inner]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def __len__(self) -> int:
        return len(self._entries)


def _seconds_so_far(folder: Path) -> dict[int, float]:
    """Return round → seconds of the rounds that timing.csv has; rows that cannot be read are left out."""
    found = {}
    with (folder / "timing.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            with suppress(KeyError, TypeError, ValueError):
                found[int(row["global_round"])] = float(row["total"])
    return found


def _cluster_entry(result: RoundResult) -> dict[str, Any]:
    """Return the line of clusters.jsonl."""
    assert result.cloud is not None
    cloud = result.cloud
    return {
        "round": result.global_round,
        "signal": cloud.signal,
        "tau": cloud.tau,
        "labels": cloud.labels.tolist(),
        "similarity": None if cloud.similarity is None else cloud.similarity.tolist(),
        "common_start": cloud.common_start,
        "method": cloud.method,
        **cloud.facts,
    }


def _confusion_entry(result: RoundResult) -> dict[str, Any]:
    """Return the content of confusion.json: the newest round's matrix per client that was evaluated."""
    return {
        "global_round": result.global_round,
        "clients": {c.client: c.confusion.tolist() for c in result.clients if c.confusion is not None},
    }


def utc_now() -> str:
    """Return the time as ISO 8601 in UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
