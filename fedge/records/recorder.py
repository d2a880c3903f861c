"""The run folder (contract C9): everything a run leaves behind, written as the run goes, row by row.

Numbers are written with the fewest digits that give the same float back, so equal runs give equal bytes.
"""

import csv
import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from fedge.metrics.agreement import Agreement, agreement
from fedge.metrics.scores import Spread
from fedge.process.memory import ProcessMemory
from fedge.records.folder import write_manifest, write_whole
from fedge.records.message_log import MessageLog
from fedge.rounds.results import ClientResult, LeafResult, RoundResult
from fedge.states.averaging import State
from fedge.states.files import write_state
from fedge.timing.timeline import LANES, LEG_COLUMNS, RoundLanes, Timeline

GLOBAL_COLUMNS = (
    "global_round", "test_accuracy_mean", "test_accuracy_std", "test_accuracy_worst", "test_loss_mean",
    "macro_f1_mean", "train_loss_mean", "num_clusters", "cluster_labels", "gate_accepted", "gate_rejected",
    "clients_ok", "clients_failed", "uplink_bytes", "downlink_bytes", "seconds", "failures",
    "test_accuracy_p10", "test_accuracy_jain", "unseen_accuracy_mean", "unseen_accuracy_std",
    "unseen_accuracy_worst", "unseen_accuracy_p10", "unseen_accuracy_jain", "unseen_loss_mean",
    "unseen_macro_f1_mean", "cloud_uplink_bytes", "cloud_downlink_bytes", "churn", "ari", "nmi",
    "homogeneity", "completeness", "shared_accuracy_mean", "shared_accuracy_worst", "tuned_accuracy_mean",
    "tuned_accuracy_worst",
)  # fmt: skip
LEAF_COLUMNS = (
    "global_round", "leaf", "cluster", "val_accuracy_own", "val_accuracy_offered", "gate", "test_accuracy",
    "test_loss", "macro_f1", "num_clients", "train_samples", "kept_model", "unseen_accuracy", "unseen_loss",
    "unseen_macro_f1", "unseen_clients", "serves", "blend", "val_windows", "val_only_own", "val_only_offered",
    "val_standard_error", "val_p_value", "val_accuracy_before", "val_accuracy_personal",
)  # fmt: skip
CLIENT_COLUMNS = (
    "global_round", "client", "leaf", "train_samples", "train_loss", "test_samples", "test_accuracy",
    "macro_f1", "train_seconds", "test_loss", "unseen_client", "shared_accuracy", "tuned_accuracy",
)  # fmt: skip
TIMING_COLUMNS = (
    "global_round", "configure", "push", "wait", "check", "aggregate", "cluster", "gate", "record",
    "checkpoint", "other", "total", "report", "workers", 
    *(f"timeline_{part}" for part in LANES), *LEG_COLUMNS,
)  # fmt: skip
WORKER_COLUMNS = ("global_round", "worker", "id", "messages", *LANES, "idle_at_end")
MEMORY_COLUMNS = (
    "global_round", "role", "pid", "rss_mib", "fds", "uss_mib", "threads", "cuda_allocated_mib",
    "cuda_reserved_mib",
)  # fmt: skip

_FILES = {
    "metrics/global_rounds.csv": GLOBAL_COLUMNS,
    "metrics/leaf_rounds.csv": LEAF_COLUMNS,
    "metrics/clients.csv": CLIENT_COLUMNS,
    "timing.csv": TIMING_COLUMNS,
    "timing/workers.csv": WORKER_COLUMNS,
    "memory.csv": MEMORY_COLUMNS,
}


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
        self._tables: dict[str, Any] = {}
        self._manifest = dict(manifest or {})
        self._manifest_lock = threading.RLock()  # the watchdog and signal handlers write it, too
        self._ended = False
        with self._explained("tables"):
            for name, columns in (*_FILES.items(), ("clusters.jsonl", ())):
                self._open(name, columns, (offsets or {}).get(name, 0))
            self._flush()
            self._messages = MessageLog(folder, _seconds_so_far(folder))

    def _open(self, name: str, columns: Sequence[str], offset: int) -> None:
        """Open a table, new or behind its first `offset` bytes."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
        file = self._files[name] = path.open("r+", newline="", encoding="utf-8")
        file.truncate(offset)
        if columns and offset:
            _fit_columns(file, columns)
        file.seek(0, os.SEEK_END)
        if columns:
            self._tables[name] = csv.writer(file, lineterminator="\n")
            if not offset:
                self._tables[name].writerow(columns)

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
        timelines: RoundLanes | None = None,
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
        self._rows("metrics/global_rounds.csv", [global_row(result, sum(laps.values()))])
        self._rows("metrics/leaf_rounds.csv", [leaf_row(result.global_round, leaf) for leaf in result.leaves])
        self._rows("metrics/clients.csv", [_client_row(result.global_round, c) for c in result.clients])
        self._rows("memory.csv", [_memory_row(result.global_round, process) for process in memory])
        if result.cloud is not None:
            self._files["clusters.jsonl"].write(json.dumps(_cluster_entry(result)) + "\n")
        write_whole(self.folder / "metrics" / "confusion.json", _confusion_entry(result))

    def _write_times(
        self, global_round: int, laps: Mapping[str, float], timelines: RoundLanes | None
    ) -> None:
        """Append one global round to the tables of times."""
        row: dict[str, Any] = {"global_round": global_round, **laps, "total": sum(laps.values())}
        if timelines is not None:
            seconds = {
                f"timeline_{timeline}": s for timeline, s in zip(LANES, timelines.seconds, strict=True)
            }
            row |= {"workers": len(timelines.timelines), **seconds, **timelines.legs}
            self._rows(
                "timing/workers.csv",
                [_worker_row(global_round, timeline) for timeline in timelines.timelines],
            )
            self._messages.write(global_round, row["total"], timelines.messages)
        self._rows("timing.csv", [[row.get(column) for column in TIMING_COLUMNS]])

    def _flush(self) -> None:
        """Hand what is buffered to the system."""
        for file in self._files.values():
            file.flush()

    def _rows(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Append rows to a table."""
        for row in rows:
            self._tables[table].writerow([_cell(value) for value in row])

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


def _cell(value: Any) -> Any:
    """Return a value as it stands in a table: nothing for what was not measured."""
    if value is None or (isinstance(value, float) and value != value):
        return ""
    return repr(float(value)) if isinstance(value, float) else value


def _fit_columns(file: TextIO, columns: Sequence[str]) -> None:
    """Give a table that another version began the columns of this one; what it lacks is left empty."""
    file.seek(0)
    reader = csv.DictReader(file)
    if list(reader.fieldnames or ()) == list(columns):
        return
    rows = list(reader)
    file.seek(0)
    file.truncate()
    table = csv.DictWriter(file, columns, restval="", extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows(rows)


def global_row(result: RoundResult, seconds: float) -> list[Any]:
    """Return the row of global_rounds.csv; spreads are over clients, unseen ones over unseen clients."""
    seen = result.over_clients("test_accuracy")
    unseen = result.over_clients("test_accuracy", unseen_clients=True)
    decisions = [leaf.gate.decision for leaf in result.leaves]
    return [
        result.global_round,
        *_numbers(seen, "mean", "std", "worst"),
        *_numbers(result.over_clients("test_loss"), "mean"),
        *_numbers(result.over_clients("macro_f1"), "mean"),
        result.train_loss,
        len(set(result.labels)),
        " ".join(map(str, result.labels)),
        decisions.count("accepted"),
        decisions.count("rejected"),
        result.clients_ok,
        len(result.failures),
        result.uplink_bytes,
        result.downlink_bytes,
        seconds,
        "; ".join(f"{kind} {count}" for kind, count in result.failure_kinds.items()),
        *_numbers(seen, "p10", "jain"),
        *_numbers(unseen, "mean", "std", "worst", "p10", "jain"),
        *_numbers(result.over_clients("test_loss", unseen_clients=True), "mean"),
        *_numbers(result.over_clients("macro_f1", unseen_clients=True), "mean"),
        result.cloud_uplink_bytes,
        result.cloud_downlink_bytes,
        result.churn,
        *_numbers(
            None if result.truth is None else agreement(result.truth, result.labels),
            "ari", "nmi", "homogeneity", "completeness",
        ),
        *_numbers(result.over_clients("shared_accuracy"), "mean", "worst"),
        *_numbers(result.over_clients("tuned_accuracy"), "mean", "worst"),
    ]  # fmt: skip


def _numbers(found: Spread | Agreement | None, *names: str) -> list[float | None]:
    """Return numbers by name; nothing of each where nothing was measured."""
    return [None if found is None else getattr(found, name) for name in names]


def leaf_row(global_round: int, leaf: LeafResult) -> list[Any]:
    """Return the row of leaf_rounds.csv; `val_p_value` is that of McNemar's one-sided test."""
    decision, pair, personal = leaf.gate, leaf.gate.pair, leaf.personal
    return [
        global_round, leaf.leaf, leaf.cluster, decision.accuracy_own, decision.accuracy_offered,
        decision.decision, leaf.test_accuracy, leaf.test_loss, leaf.macro_f1, leaf.num_clients,
        leaf.train_samples, leaf.kept_model, leaf.unseen_accuracy, leaf.unseen_loss, leaf.unseen_macro_f1,
        leaf.unseen_clients, leaf.serves, decision.blend,
        *((pair.windows, pair.only_own, pair.only_offered) if pair else (None,) * 3),
        *((pair.standard_error, pair.p_value) if pair else (None,) * 2),
        *((personal.accuracy_before, personal.accuracy) if personal else (None,) * 2),
    ]  # fmt: skip


def _client_row(global_round: int, client: ClientResult) -> list[Any]:
    """Return the row of clients.csv."""
    return [
        global_round, client.client, client.leaf, client.train_samples, client.train_loss,
        client.test_samples, client.test_accuracy, client.macro_f1, client.train_seconds, client.test_loss,
        int(client.unseen_client), client.shared_accuracy, client.tuned_accuracy,
    ]  # fmt: skip


def _worker_row(global_round: int, timeline: Timeline) -> list[Any]:
    """Return the row of workers.csv; nanoseconds are enough."""
    seconds = [round(s, 9) for s in (*timeline.seconds, timeline.idle_at_end)]
    return [global_round, timeline.worker, timeline.id, timeline.messages, *seconds]


def _memory_row(global_round: int, process: ProcessMemory) -> list[Any]:
    """Return the row of memory.csv; a tenth of a MiB is enough."""
    p = process
    cells = [p.rss_mib, p.fds, p.uss_mib, p.threads, p.cuda_allocated_mib, p.cuda_reserved_mib]
    return [global_round, p.role, p.pid, *(round(c, 1) if isinstance(c, float) else c for c in cells)]


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
