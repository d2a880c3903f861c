"""Folder of a run, opened and locked: a new one, or the folder of the run to resume."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedge.config.flat import to_run_config
from fedge.config.registers.trust import record_parts
from fedge.process.versions import versions
from fedge.records.folder import create_run_folder, find_run, update_latest_link
from fedge.records.lock import RunLock
from fedge.records.private_file import without_places
from fedge.records.recorder import utc_now
from fedge.run.preparation.parts import changed_parts, described_parts, own_parts
from fedge.run.preparation.prepare import Prepared
from fedge.run.preparation.resume import Resumption, find_resumption, is_unchanged
from fedge.run.preparation.starts import described_start
from fedge.run.preparation.traces import described_traces
from fedge.tasks.configured import task_entry


@dataclass
class OpenedRun:
    """A run folder in use.

    Attributes:
        folder: its path.
        lock: the lock on it.
        resumption: the run to resume; None for a new run, and after `take_resumption`.
    """

    folder: Path
    lock: RunLock
    resumption: Resumption | None = None

    @property
    def offsets(self) -> Mapping[str, int] | None:
        """Table → bytes to keep, for a run to resume; None for a new run."""
        return None if self.resumption is None else self.resumption.offsets

    def take_resumption(self) -> Resumption | None:
        """Hand over the resumption; its files stay mapped while a reference to it exists."""
        resumption, self.resumption = self.resumption, None
        return resumption


def open_folder(prepared: Prepared) -> OpenedRun:
    """The run folder, new or of the run to resume, locked.

    Custom code of this run is recorded as trusted.

    Raises:
        ConfigError: the folder cannot be created or is in use, or the run cannot be resumed.
    """
    config = prepared.config
    record_parts(own_parts(config))
    if not config.resume:
        folder = create_run_folder(config.runs_dir, config.run_name, prepared.seed)
        return OpenedRun(folder, RunLock(folder))
    folder = find_run(config.resume, config.runs_dir, "resume")
    lock = RunLock(folder)
    try:
        resumption = prepared.resumption.take() if prepared.resumption else None
        if resumption is None or not is_unchanged(resumption):  # the run may have continued before the lock
            resumption = find_resumption(config, prepared.seed)
    except BaseException:
        lock.close()
        raise
    update_latest_link(folder)
    return OpenedRun(folder, lock, resumption)


def first_manifest(
    prepared: Prepared, opened: OpenedRun, engine: str, federation: Mapping[str, Any]
) -> dict[str, Any]:
    """Entries of the manifest at the start.

    Args:
        prepared: configuration and seed of the run.
        opened: the run folder.
        engine: name of the clients' engine.
        federation: facts of the federation.
    """
    config = prepared.config
    if opened.resumption is not None:
        manifest = opened.resumption.resumed_manifest(config, engine, versions(), utc_now())
        if changed := changed_parts(manifest.get("parts", {}), described_parts(config)):
            manifest["resumed"][-1]["code_changed"] = changed
        return manifest
    return {
        "status": "running",
        "seed": prepared.seed,
        "seed_source": prepared.seed_source,
        "engine": engine,
        "federation": dict(federation),
        "config": without_places(to_run_config(config)),
        "versions": versions(),
        "parts": described_parts(config),
        "task": task_entry(config.train),
        **({"start": start} if (start := described_start(config.train)) else {}),
        **({"traces": traces} if (traces := described_traces(config)) else {}),
        "started": utc_now(),
    }
