"""Writer of the run folder (contract C9): all results of a run, written row by row.

The tables' columns are in `fedge.records.tables.catalog`.
"""

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from fedge.cloud.step import CloudStep
from fedge.clustering.cloud_part import entropies
from fedge.data.composition import Holding
from fedge.inference.card import Card
from fedge.process.durable import sync, write_bytes
from fedge.process.resources.memory import ProcessMemory
from fedge.process.resources.room import remedy
from fedge.records.folder import resume_command, write_json
from fedge.records.manifest import MANIFEST, write_manifest
from fedge.records.message_log import MessageLog
from fedge.records.outputs import CLUSTERS, CONFUSION, MODELS, checksums, kept_models, models_file
from fedge.records.private_file import PRIVATE, write_private
from fedge.records.tables.catalog import PARTITION, ROUND_TABLES
from fedge.records.tables.columns import Table
from fedge.records.tables.growing_file import GrowingFile, foreign_change_error, running_digest
from fedge.records.tables.model_tables import (
    CLIENT_MODELS,
    COMMON_TEST,
    MEMBERSHIPS,
    CommonRow,
    MembershipRow,
    ModelRow,
)
from fedge.records.tables.round_tables import CLIENTS, GLOBAL, LEAF, ClientRow, GlobalRow, LeafRow, tables_of
from fedge.records.tables.rows import records_of
from fedge.records.tables.server_table import SERVERS, ServerRow, path_text
from fedge.records.tables.timing_tables import MEMORY, TIMING, WORKERS, MemoryRow, WorkerRow, timing_row
from fedge.rounds.measurements.results import RoundResult
from fedge.states.averaging import State
from fedge.states.checkpoint import FOLDER, checkpoints
from fedge.states.files import write_state
from fedge.tasks.configured import CLASSIFICATION
from fedge.tasks.task import Task
from fedge.timing.timeline import TIMELINE_PARTS, RoundTimelines


class RecordError(OSError):
    """Failure to write the record of a run. One line."""


class Recorder:
    """Writer of one run folder; a context manager, closing all files at its end."""

    def __init__(
        self,
        folder: Path,
        offsets: Mapping[str, int] | None = None,
        manifest: Mapping[str, Any] | None = None,
        extra_tables: Sequence[Table] = (),
        task: Task = CLASSIFICATION,
    ) -> None:
        """Open the tables of `folder`, which `create_run_folder` has created.

        Args:
            folder: the run folder.
            offsets: for a resumed run, table → bytes to keep; later bytes are removed, and tables not listed
                start empty. None for a new run.
            manifest: for a resumed run, its entries so far.
            extra_tables: tables in addition to those of every run.
            task: the run's task, whose scores name columns.
        """
        self.folder = folder
        self._tables = tables_of(task)
        self._files: dict[str, GrowingFile] = {}
        self._manifest = dict(manifest or {})
        self._manifest_lock = threading.RLock()  # also written by the watchdog and signal handlers
        self._ended = False
        self._kept_checksums: dict[str, str] = {}  # file of kept models → its sha256
        with self._converting_errors("tables"):
            task_tables = (self._tables.rounds, self._tables.leaves, self._tables.clients)
            tables = {table.path: table for table in (*ROUND_TABLES, *task_tables, *extra_tables)}
            for name, table in {**tables, CLUSTERS: None}.items():
                if offsets is not None and name not in offsets:
                    _set_aside(folder / name)
                self._files[name] = GrowingFile(folder / name, table, (offsets or {}).get(name, 0))
            for file in self._files.values():
                file.flush()
            self._messages = MessageLog(folder, _load_round_seconds(folder))

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._messages.flush()
        for file in self._files.values():
            with suppress(OSError):  # on a full disk, buffered writes fail here
                file.close()

    @property
    def manifest(self) -> dict[str, Any]:
        """Entries of manifest.json."""
        return dict(self._manifest)

    @property
    def paths(self) -> list[Path]:
        """Paths of all tables."""
        return [file.path for file in self._files.values()]

    @property
    def unsynced(self) -> list[Path]:
        """Files changing every round, to be made durable: tables, matrices, and their folders."""
        confusion = [path for path in (self.folder / CONFUSION,) if path.exists()]
        return [*self.paths, *confusion, *sorted({path.parent for path in self.paths})]

    @property
    def refitted(self) -> bool:
        """Whether a table was converted to this version's columns; no checkpoint then fits until the next."""
        return any(file.refitted for file in self._files.values())

    def offsets(self) -> dict[str, int]:
        """Bytes of every table so far."""
        return {name: file.size for name, file in self._files.items()}

    def checksums(self) -> dict[str, str]:
        """SHA-256 of every table so far, of kept models, and of the newest confusion matrices."""
        digests = {name: file.sha256 for name, file in self._files.items()} | self._kept_checksums
        confusion = self.folder / CONFUSION
        return (
            {**digests, CONFUSION: running_digest(confusion).hexdigest()} if confusion.is_file() else digests
        )

    def begin(self, config: Mapping[str, Any], resume_words: str = "") -> None:
        """Record this process and the run's options, and then write the run's manifest.

        Args:
            config: options of the run.
            resume_words: further arguments of the command that resumes it.

        Raises:
            RecordError: the disk is full or gone.
        """
        with self._converting_errors(PRIVATE):
            write_private(self.folder, config, resume_words)
        self.update_manifest()

    def update_manifest(self, **entries: Any) -> None:
        """Add or replace entries of manifest.json, which is replaced atomically.

        Raises:
            RecordError: the disk is full or gone; the file is unchanged.
        """
        self._update_manifest(entries, durably=True)

    def _update_manifest(self, entries: Mapping[str, Any], durably: bool) -> None:
        with self._manifest_lock, self._converting_errors(MANIFEST):
            self._manifest.update(entries)
            write_manifest(self.folder, self._manifest, durably)

    def end(self, status: str, exit_code: int, durably: bool = True, **entries: Any) -> Mapping[str, Any]:
        """Record the run's end, only once, because later ends are consequences; returns the written manifest.

        All results of a successful run are on disk before its end is recorded.

        Args:
            status: "completed", "partial" or "failed".
            exit_code: exit code of the run.
            durably: whether to wait for the disk.
            entries: further entries of the manifest.

        Raises:
            RecordError: as `update_manifest`.
        """
        with self._manifest_lock:
            if not self._ended:
                ending = {"status": status, "exit_code": exit_code, **entries, "ended": utc_now()}
                if status != "failed":
                    ending["outputs"] = self._sync_outputs()
                self._update_manifest(ending, durably)
                self._ended = True
            return dict(self._manifest)

    def _sync_outputs(self) -> dict[str, str]:
        """Wait until all results are on disk; returns their checksums.

        Raises:
            RecordError: the disk is full or gone, or a result is no longer as this process wrote it.
        """
        with self._converting_errors("results"):
            for file in self._files.values():
                file.flush()
            for path in self.unsynced:
                sync(path)
            on_disk, written = checksums(self.folder), self.checksums()
            for name in on_disk.keys() & written.keys():
                if on_disk[name] != written[name]:
                    raise foreign_change_error(name)
            return on_disk

    @contextmanager
    def _converting_errors(self, content: str) -> Iterator[None]:
        """Convert an OSError to a RecordError."""
        try:
            yield
        except OSError as error:
            is_resumable = bool(checkpoints(self.folder / FOLDER))
            raise RecordError(
                f"cannot write {content} of {self.folder}: {error.strerror or error}; {remedy(error)}, then "
                + (resume_command(self.folder) if is_resumable else "start the run again")
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
            result: result of the round.
            laps: phase → seconds.
            memory: measurements, one per process.
            timelines: timelines of the workers; None if unknown.

        Raises:
            RecordError: the disk is full or gone; rows may be incomplete.
        """
        with self._converting_errors("metrics"):
            self._write_round(result, laps, memory)
            self._write_times(result.global_round, laps, timelines)
            for file in self._files.values():
                file.flush()

    def _write_round(
        self, result: RoundResult, laps: Mapping[str, float], memory: Sequence[ProcessMemory]
    ) -> None:
        """Append one global round to the buffers of the tables."""
        global_round = result.global_round
        self._files[GLOBAL.path].append_rows([GlobalRow(result, sum(laps.values()))])
        self._files[LEAF.path].append_rows([LeafRow(global_round, leaf) for leaf in result.leaves])
        self._files[SERVERS.path].append_rows(
            [ServerRow(global_round, server, result.tier_names) for server in result.servers]
        )
        self._files[CLIENTS.path].append_rows([ClientRow(global_round, client) for client in result.clients])
        if result.models:
            self._files[CLIENT_MODELS.path].append_rows(
                [ModelRow(global_round, model) for model in result.models]
            )
        if result.common:
            self._files[COMMON_TEST.path].append_rows(
                [CommonRow(global_round, model) for model in result.common]
            )
        self._files[MEMORY.path].append_rows([MemoryRow(global_round, process) for process in memory])
        if result.cloud is not None and MEMBERSHIPS.path in self._files:
            self._files[MEMBERSHIPS.path].append_rows(_membership_rows(result))
        if result.cloud is not None:
            self._files[CLUSTERS].append(json.dumps(_cluster_entry(global_round, result.cloud)) + "\n")
        for inner in result.inner_steps:
            server_fields = {"server": path_text(inner.path), "server_round": inner.number}
            self._files[CLUSTERS].append(
                json.dumps(_cluster_entry(global_round, inner.step) | server_fields) + "\n"
            )
        # made durable with the checkpoint, like the tables
        write_json(self.folder / CONFUSION, _confusion_entry(result), durably=False)

    def _write_times(
        self, global_round: int, laps: Mapping[str, float], timelines: RoundTimelines | None
    ) -> None:
        """Append one global round to the tables of times."""
        measurements: dict[str, Any] = {}
        if timelines is not None:
            seconds = zip(TIMELINE_PARTS, timelines.seconds, strict=True)
            measurements = {
                "workers": len(timelines.timelines),
                **{f"timeline_{part}": s for part, s in seconds},
            }
            measurements |= timelines.legs
            self._files[WORKERS.path].append_rows(
                [WorkerRow(global_round, timeline) for timeline in timelines.timelines]
            )
            self._messages.write(global_round, sum(laps.values()), timelines.messages)
        self._files[TIMING.path].append_rows([timing_row(global_round, laps, measurements)])

    def write_partition(self, holdings: Iterable[Holding]) -> None:
        """Write partition.csv.

        Raises:
            RecordError: the disk is full or gone.
        """
        with self._converting_errors(PARTITION.path):
            write_bytes(self.folder / PARTITION.path, PARTITION.text(holdings).encode())

    def write_models(
        self,
        models: Sequence[State],
        unseen_clients: Mapping[int, State] | None = None,
        card: Card | None = None,
        name: str = "",
    ) -> None:
        """Write all served leaf models to one file, by default checkpoints/final.safetensors.

        Args:
            models: each leaf's model served to its known clients, entries ``leaf-0/…``.
            unseen_clients: leaf → model for unseen clients, if it differs; entries ``unseen-0/…``.
            card: description of the models, stored in the file.
            name: name of models kept beside the final ones; empty for the final ones.
        """
        path = self.folder / models_file(name)
        path.parent.mkdir(exist_ok=True)
        states = {f"leaf-{leaf}/": model for leaf, model in enumerate(models)}
        states |= {f"unseen-{leaf}/": model for leaf, model in (unseen_clients or {}).items()}
        write_state(path, _JoinedStates(states), durably=True, metadata=card.metadata() if card else None)
        if name:
            with self._converting_errors(models_file(name)):
                self._kept_checksums[models_file(name)] = running_digest(path).hexdigest()

    def drop_later_models(self, listed: Mapping[str, str]) -> None:
        """Remove models kept beside the final ones if they are damaged or missing from the checkpoint's list.

        Later rounds are repeated, and write their models again.

        Args:
            listed: file in the folder → its sha256.
        """
        self._kept_checksums = dict(listed)
        with self._converting_errors("kept models"):
            files = [self.folder / models_file(name) for name in kept_models(self.folder)]
            unlisted = [path for path in files if path.relative_to(self.folder).as_posix() not in listed]
            for path in (*unlisted, *(self.folder / MODELS).parent.glob("models-*.part")):
                path.unlink()


class _JoinedStates(Mapping[str, np.ndarray]):
    """Several states as one, in the order of their prefixed names; entries are looked up lazily."""

    def __init__(self, states: Mapping[str, State]) -> None:
        self._entries = {prefix + name: (state, name) for prefix, state in states.items() for name in state}

    def __getitem__(self, name: str) -> np.ndarray:
        state, entry = self._entries[name]
        return state[entry]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def __len__(self) -> int:
        return len(self._entries)


def _set_aside(path: Path) -> None:
    """Rename a table about to start empty, if it has any content."""
    if path.is_file() and path.stat().st_size:
        path.replace(path.with_name(f"{path.name}.damaged"))


def _load_round_seconds(folder: Path) -> dict[int, float]:
    """Round → seconds, from timing.csv; unreadable rows are left out."""
    seconds = {}
    with (folder / "timing.csv").open(newline="", encoding="utf-8", errors="replace") as file:
        for row in records_of(file):
            with suppress(KeyError, TypeError, ValueError):
                seconds[int(row["global_round"])] = float(row["total"])
    return seconds


def _cluster_entry(number: int, cloud: CloudStep) -> dict[str, Any]:
    """Line of clusters.jsonl for a step of a global round."""
    return {
        "round": number,
        "signal": cloud.signal,
        "tau": cloud.tau,
        "labels": cloud.labels.tolist(),
        "similarity": None if cloud.similarity is None else cloud.similarity.tolist(),
        "common_start": cloud.common_start,
        "method": cloud.method,
        **cloud.facts,
        **({} if cloud.memberships is None else {"memberships": cloud.memberships.tolist()}),
    }


def _membership_rows(result: RoundResult) -> list[MembershipRow]:
    """Rows of memberships.csv; empty for hard clusters."""
    assert result.cloud is not None
    shares = result.cloud.memberships
    if shares is None:
        return []
    entropy = entropies(shares)
    return [
        MembershipRow(result.global_round, leaf, model, float(share), shares.shape[1], float(entropy[leaf]))
        for leaf, row in enumerate(shares)
        for model, share in enumerate(row)
    ]


def _confusion_entry(result: RoundResult) -> dict[str, Any]:
    """Content of confusion.json: the newest round's matrix per evaluated client."""
    return {
        "global_round": result.global_round,
        "clients": {c.client: c.confusion.tolist() for c in result.clients if c.confusion is not None},
    }


def utc_now() -> str:
    """Current time as ISO 8601 in UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
