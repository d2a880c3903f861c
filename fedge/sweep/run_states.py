"""State on disk of every run of a sweep, and checks of the runs left to do. Nothing is written.

An existing run must have the same options, clients, seed and files: seeds and entries may be added to a
sweep, but a result is never used for another configuration.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from fedge.config.config import Config
from fedge.config.registers.option import ConfigError, Scalar
from fedge.data.prepared import DataSource, load_source
from fedge.engine.federation import Federation
from fedge.launch.preflight import check
from fedge.records.folder import short
from fedge.records.lock import is_locked, was_locked
from fedge.records.manifest import read_manifest
from fedge.run.preparation.parts import changed_parts, described_parts
from fedge.run.preparation.population import user_count_remark
from fedge.run.preparation.prepare import clients_of_data, splits_users
from fedge.run.preparation.resume import CHANGEABLE, ENDING, config_differences, open_resumption
from fedge.run.preparation.starts import described_start
from fedge.run.preparation.traces import described_traces
from fedge.sweep.plan import PlannedRun, Sweep, prefix_errors
from hhar.windows.window_file import Windows

Action = Literal["new", "resume", "again", "skip"]

_CLIENTS = 9  # the default of `fedge run`


@dataclass(frozen=True)
class RunStanding:
    """A run and its next action.

    Attributes:
        run: run of the sweep.
        action: "new"; "resume" from a checkpoint; "again" to restart a run without a checkpoint; "skip" a
            complete run.
        done_rounds: global rounds already done.
        note: remark on its number of clients, or on the code of a complete run, in one line; empty without.
    """

    run: PlannedRun
    action: Action
    done_rounds: int = 0
    note: str = ""

    @property
    def rounds_left(self) -> int:
        """Global rounds to do."""
        return self.run.config.num_server_rounds - self.done_rounds

    @property
    def run_config(self) -> dict[str, Scalar]:
        """Options with which it starts or resumes."""
        resume = {"resume": str(self.run.folder)} if self.action == "resume" else {}
        return {**self.run.run_config, **resume}


def standings(sweep: Sweep) -> list[RunStanding]:
    """Standing of every run, in the order of the sweep, after a check of the runs to carry out.

    Raises:
        ConfigError: a run cannot work, is carried out by another process, or exists with another
            configuration.
    """
    sources = _SourceCache()
    run_standings = []
    for planned in sweep.runs:
        with prefix_errors(planned.name):
            run = planned if planned.supernodes else sources.with_clients(planned)
            standing = _find_standing(run, sources)
            _check_run(standing, sources)
            is_done = standing.action == "skip"
            run_standings.append(
                replace(standing, note=_code_remark(run) if is_done else sources.user_remark(run))
            )
    return run_standings


class _SourceCache:
    """Cache through which every window file is loaded once."""

    def __init__(self) -> None:
        self._loaded: dict[tuple[object, ...], tuple[Windows, DataSource]] = {}

    def load(self, config: Config, num_clients: int) -> tuple[Windows, DataSource]:
        """Windows, as in `load_source`."""
        data = config.data
        key = (data.path, data.path_args, data.synthetic_users, config.scenario, num_clients)
        if key not in self._loaded:
            self._loaded[key] = load_source(config, num_clients)
        return self._loaded[key]

    def with_clients(self, run: PlannedRun) -> PlannedRun:
        """A run with one client per user if the data imply a number, else nine."""
        return replace(run, supernodes=clients_of_data(run.config, _CLIENTS, self.load))

    def user_remark(self, run: PlannedRun) -> str:
        """Remark if users are partitioned but a client is not exactly one user; else empty."""
        if splits_users(run.config):  # several clients per user are intended
            return ""
        windows, _ = self.load(run.config, run.supernodes)
        return user_count_remark(run.config, windows, run.supernodes, "omit supernodes") or ""


def _find_standing(run: PlannedRun, sources: _SourceCache) -> RunStanding:
    """Standing of a run; ConfigError if an existing run differs."""
    if not os.path.lexists(run.folder):
        return RunStanding(run, "new")
    if is_locked(run.folder):
        raise ConfigError(f"another process carries out {short(run.folder)}; wait for it, or stop it")
    manifest = _existing_manifest(run)
    _refuse_differences(run, list(_differences(run, manifest, sources)))
    planned = run.config.num_server_rounds
    if manifest.get("status") in ("completed", "partial"):
        done_rounds = manifest["config"]["num-server-rounds"]
        if done_rounds == planned or (
            "stopped" in manifest and manifest["stopped"]["after_round"] <= planned
        ):
            return RunStanding(run, "skip", done_rounds)
        if done_rounds > planned:
            _refuse_differences(run, [f"num-server-rounds is {planned}, was {done_rounds}"])
    else:
        done_rounds = 0
    try:
        return RunStanding(run, "resume", open_resumption(run.folder).checkpoint.global_round)
    except ConfigError:
        if done_rounds:
            _refuse_differences(
                run, [f"num-server-rounds is {planned}, was {done_rounds}, and its checkpoints were not kept"]
            )
        if not manifest:
            _refuse_foreign(run.folder)
        return RunStanding(run, "again")


def _refuse_foreign(folder: Path) -> None:
    """Raise ConfigError if no run began in `folder`, because a restart would delete its contents."""
    if folder.is_symlink() or not folder.is_dir():
        fault = "is a link" if folder.is_symlink() else "is a file"
    else:
        names = sorted(path.name for path in folder.iterdir())
        if not names or was_locked(folder):
            return
        fault = f"holds {names[0]} and no manifest of a run"
    raise ConfigError(
        f"{short(folder)} must be the folder of a run, or not exist, but {fault}; move it, or give the sweep "
        f"or the entry another name"
    )


def _existing_manifest(run: PlannedRun) -> dict[str, Any]:
    """Manifest of an existing run; empty if it has none."""
    try:
        return read_manifest(run.folder)
    except ConfigError:
        return {}


def _differences(run: PlannedRun, manifest: Mapping[str, Any], sources: _SourceCache) -> Iterator[str]:
    """Text "name is X, was Y" for everything in which an existing run differs."""
    if "config" not in manifest:
        return
    yield from config_differences(manifest["config"], run.config, CHANGEABLE - ENDING)
    if manifest.get("seed") != run.seed:
        yield f"seed is {run.seed}, was {manifest.get('seed')}"
    clients = manifest.get("federation", {}).get("num-supernodes")
    if clients != run.supernodes:
        yield f"supernodes is {run.supernodes}, was {clients}"
    before, now = dict(manifest.get("traces", {})), described_traces(run.config)
    if "start" in manifest or run.config.train.start:
        before["train.start"], now["train.start"] = (
            manifest.get("start", ""),
            described_start(run.config.train),
        )
    if "fingerprint" in manifest.get("data", {}):
        source = sources.load(run.config, run.supernodes)[1]
        before[source.name], now[source.name] = manifest["data"]["fingerprint"], source.fingerprint
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            yield f"the sha256 of {name} is {_digest(now.get(name))}, was {_digest(before.get(name))}"


def _digest(sha256: str | None) -> str:
    """Beginning of a file's sha256; "nothing" without a file."""
    return f"{sha256[:12]}…" if sha256 else "nothing"


def _code_remark(run: PlannedRun) -> str:
    """Remark on custom code changed since a complete run; empty if unchanged."""
    try:
        changed = changed_parts(_existing_manifest(run).get("parts", {}), described_parts(run.config))
    except ConfigError:  # a complete run does not need its code
        return ""
    step = "complete runs are not repeated: remove their folders, or give the sweep another name"
    return f"{'; '.join(changed)}; {step}" if changed else ""


def _refuse_differences(run: PlannedRun, differences: Sequence[str]) -> None:
    """Raise ConfigError if there are differences."""
    if differences:
        raise ConfigError(
            f"{short(run.folder)} exists with another configuration: {'; '.join(differences)}; give the "
            f"sweep or the entry another name, or remove that folder"
        )


def _check_run(standing: RunStanding, sources: _SourceCache) -> None:
    """Raise ConfigError if a run to carry out cannot work."""
    if standing.action == "skip":
        return
    # a restarted run's folder is removed first, and a new run's folder was checked
    run_config = {**standing.run_config, "run-name": ""}
    check(run_config, Federation(standing.run.supernodes), load=sources.load, is_sized=True)
