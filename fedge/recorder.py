"""The run folder (contract C9): everything a run leaves behind, written as the run goes, row by row.

Numbers are written with the fewest digits that give the same float back, so equal runs give equal bytes.
"""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from fedge.aggregation import State
from fedge.memory import ProcessMemory
from fedge.results import ClientResult, LeafResult, RoundResult
from fedge.state_file import write_state
from fedge.timing import PHASES

GLOBAL_COLUMNS = (
    "global_round", "test_accuracy_mean", "test_accuracy_std", "test_accuracy_worst", "test_loss_mean",
    "macro_f1_mean", "train_loss_mean", "num_clusters", "cluster_labels", "gate_accepted", "gate_rejected",
    "clients_ok", "clients_failed", "uplink_bytes", "downlink_bytes", "seconds",
)  # fmt: skip
LEAF_COLUMNS = (
    "global_round", "leaf", "cluster", "val_accuracy_own", "val_accuracy_offered", "gate", "test_accuracy",
    "test_loss", "macro_f1", "num_clients", "train_samples",
)  # fmt: skip
CLIENT_COLUMNS = (
    "global_round", "client", "leaf", "train_samples", "train_loss", "test_samples", "test_accuracy",
    "test_loss", "macro_f1", "train_seconds",
)  # fmt: skip
TIMING_COLUMNS = ("global_round", *PHASES, "total")
MEMORY_COLUMNS = ("global_round", "role", "pid", "rss_mib")

_FILES = {
    "metrics/global_rounds.csv": GLOBAL_COLUMNS,
    "metrics/leaf_rounds.csv": LEAF_COLUMNS,
    "metrics/clients.csv": CLIENT_COLUMNS,
    "timing.csv": TIMING_COLUMNS,
    "memory.csv": MEMORY_COLUMNS,
}


class Recorder:
    """Writes one run folder. Use as a context manager: files are closed whatever happens."""

    def __init__(self, folder: Path) -> None:
        """Open the tables of `folder`, which `create_run_folder` has made."""
        self.folder = folder
        self._files: dict[str, TextIO] = {}
        self._tables: dict[str, Any] = {}
        for name, columns in _FILES.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            self._files[name] = path.open("w", newline="", encoding="utf-8")
            self._tables[name] = csv.writer(self._files[name], lineterminator="\n")
            self._tables[name].writerow(columns)
        self._files["clusters.jsonl"] = (folder / "clusters.jsonl").open("w", encoding="utf-8")
        self._manifest: dict[str, Any] = {}

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def update_manifest(self, **entries: Any) -> None:
        """Add or replace entries of manifest.json, which is replaced as a whole."""
        self._manifest.update(entries)
        self._replace("manifest.json", json.dumps(self._manifest, indent=2))

    def _replace(self, name: str, text: str) -> None:
        """Write a small file as a whole: whoever reads it sees the old or the new one."""
        temporary = self.folder / f"{name}.tmp"
        temporary.write_text(text + "\n", encoding="utf-8")
        temporary.replace(self.folder / name)

    def write_round(
        self, result: RoundResult, laps: Mapping[str, float], memory: Sequence[ProcessMemory]
    ) -> None:
        """Append one global round to every table."""
        seconds = sum(laps.values())
        self._rows("metrics/global_rounds.csv", [_global_row(result, seconds)])
        self._rows(
            "metrics/leaf_rounds.csv", [_leaf_row(result.global_round, leaf) for leaf in result.leaves]
        )
        self._rows("metrics/clients.csv", [_client_row(result.global_round, c) for c in result.clients])
        self._rows("timing.csv", [[result.global_round, *(laps[p] for p in PHASES), seconds]])
        self._rows("memory.csv", [[result.global_round, m.role, m.pid, round(m.rss_mib, 1)] for m in memory])
        if result.cloud is not None:
            self._files["clusters.jsonl"].write(json.dumps(_cluster_entry(result)) + "\n")
        self._replace("metrics/confusion.json", json.dumps(_confusion_entry(result)))
        for file in self._files.values():
            file.flush()

    def _rows(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Append rows to a table."""
        for row in rows:
            self._tables[table].writerow([_cell(value) for value in row])

    def write_models(self, models: Sequence[State]) -> None:
        """Write checkpoints/final.safetensors: every served leaf model, entries named ``leaf-0/…``."""
        path = self.folder / "checkpoints" / "final.safetensors"
        path.parent.mkdir(exist_ok=True)
        write_state(path, _Joined({f"leaf-{leaf}/": model for leaf, model in enumerate(models)}))


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


def _global_row(result: RoundResult, seconds: float) -> list[Any]:
    """Return the row of global_rounds.csv; accuracy mean, std (population) and worst are over clients."""
    accuracies = result.accuracies
    decisions = [leaf.gate.decision for leaf in result.leaves]
    labels = [leaf.cluster for leaf in result.leaves]
    return [
        result.global_round,
        float(accuracies.mean()) if accuracies.size else None,
        float(accuracies.std()) if accuracies.size else None,
        float(accuracies.min()) if accuracies.size else None,
        result.client_mean("test_loss"),
        result.client_mean("macro_f1"),
        result.train_loss,
        len(set(labels)),
        " ".join(map(str, labels)),
        decisions.count("accepted"),
        decisions.count("rejected"),
        result.clients_ok,
        len(result.failures),
        result.uplink_bytes,
        result.downlink_bytes,
        seconds,
    ]


def _leaf_row(global_round: int, leaf: LeafResult) -> list[Any]:
    """Return the row of leaf_rounds.csv."""
    decision = leaf.gate
    return [
        global_round, leaf.leaf, leaf.cluster, decision.accuracy_own, decision.accuracy_offered,
        decision.decision, leaf.test_accuracy, leaf.test_loss, leaf.macro_f1, leaf.num_clients,
        leaf.train_samples,
    ]  # fmt: skip


def _client_row(global_round: int, client: ClientResult) -> list[Any]:
    """Return the row of clients.csv."""
    return [
        global_round, client.client, client.leaf, client.train_samples, client.train_loss,
        client.test_samples, client.test_accuracy, client.test_loss, client.macro_f1, client.train_seconds,
    ]  # fmt: skip


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
