"""Standing of every run of a sweep on disk, and whether the rest can work. Nothing is written.

A run that is there must have been made from the same options, clients, seed and data: the file may grow by
seeds and entries, but a result never passes for that of another configuration.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from fedge.config.config import Config
from fedge.config.option import ConfigError, Scalar
from fedge.data.prepared import DataSource, load_source
from fedge.engine.federation import Federation
from fedge.launch.preflight import check
from fedge.records.folder import short
from fedge.records.lock import is_locked
from fedge.records.manifest import read_manifest
from fedge.run.population import misfit
from fedge.run.prepare import clients_of_data, in_pieces
from fedge.run.resume import config_differences, open_resumption
from fedge.sweep.plan import PlannedRun, Sweep, placed
from hhar.windows.window_file import Windows

Action = Literal["new", "resume", "again", "skip"]

_CLIENTS = 9  # as of the federation that `fedge run` takes


@dataclass(frozen=True)
class RunStanding:
    """A run and its next action.

    Attributes:
        run: of the sweep.
        action: "new"; "resume", go on from a checkpoint; "again", start anew a run without checkpoint;
            "skip", it is complete.
        done_rounds: global rounds that need not be done.
        note: on its number of clients, in a line; empty for none.
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
        """The options with which it starts or goes on."""
        resume = {"resume": str(self.run.folder)} if self.action == "resume" else {}
        return {**self.run.run_config, **resume}


def standings(sweep: Sweep) -> list[RunStanding]:
    """Standing of every run, in the order of the sweep, after a check of those to carry out.

    Raises:
        ConfigError: a run cannot work, is going on elsewhere, or is there from another configuration.
    """
    sources = _Sources()
    found = []
    for planned in sweep.runs:
        with placed(planned.name):
            run = planned if planned.supernodes else sources.with_clients(planned)
            standing = _standing(run, sources)
            _check(standing, sources)
            found.append(replace(standing, note="" if standing.action == "skip" else sources.misfit(run)))
    return found


class _Sources:
    """Loads every window file once."""

    def __init__(self) -> None:
        self._loaded: dict[tuple[object, ...], tuple[Windows, DataSource]] = {}

    def load(self, config: Config, num_clients: int) -> tuple[Windows, DataSource]:
        """Windows, as of `load_source`."""
        data = config.data
        key = (data.path, data.path_args, data.synthetic_users, config.scenario, num_clients)
        if key not in self._loaded:
            self._loaded[key] = load_source(config, num_clients)
        return self._loaded[key]

    def with_clients(self, run: PlannedRun) -> PlannedRun:
        """A run with as many clients as there are users where the data say so, else nine."""
        return replace(run, supernodes=clients_of_data(run.config, _CLIENTS, self.load))

    def misfit(self, run: PlannedRun) -> str:
        """A line where users are dealt and its clients are not one user each; else nothing."""
        if in_pieces(run.config):  # several clients per user are asked for
            return ""
        windows, _ = self.load(run.config, run.supernodes)
        return misfit(run.config, windows, run.supernodes, "leave supernodes out") or ""


def _standing(run: PlannedRun, sources: _Sources) -> RunStanding:
    """How a run stands, or raise ConfigError if it is another one."""
    if not os.path.lexists(run.folder):
        return RunStanding(run, "new")
    if is_locked(run.folder):
        raise ConfigError(f"another process carries out {short(run.folder)}; wait or stop it")
    manifest = _manifest(run)
    _refuse_differences(run, list(_differences(run, manifest, sources)))
    planned = run.config.num_server_rounds
    if manifest.get("status") in ("completed", "partial"):
        done = manifest["config"]["num-server-rounds"]
        if done == planned or "stopped" in manifest:
            return RunStanding(run, "skip", done)
        if done > planned:
            _refuse_differences(run, [f"num-server-rounds is {planned}, was {done}"])
    else:
        done = 0
    try:
        return RunStanding(run, "resume", open_resumption(run.folder).checkpoint.global_round)
    except ConfigError:
        if done:
            _refuse_differences(
                run, [f"num-server-rounds is {planned}, was {done}, and its checkpoints were not kept"]
            )
        return RunStanding(run, "again")


def _manifest(run: PlannedRun) -> dict[str, Any]:
    """The manifest of a run that is there; nothing of one that came to no manifest."""
    try:
        return read_manifest(run.folder)
    except ConfigError:
        return {}


def _differences(run: PlannedRun, manifest: Mapping[str, Any], sources: _Sources) -> Iterator[str]:
    """Yield "name is X, was Y" for all that makes the run that is there another one."""
    if "config" not in manifest:
        return
    yield from config_differences(manifest["config"], run.config)
    if manifest.get("seed") != run.seed:
        yield f"seed is {run.seed}, was {manifest.get('seed')}"
    clients = manifest.get("federation", {}).get("num-supernodes")
    if clients != run.supernodes:
        yield f"supernodes is {run.supernodes}, was {clients}"
    before = manifest.get("data", {}).get("fingerprint")
    if before:
        now = sources.load(run.config, run.supernodes)[1]
        if now.fingerprint != before:
            yield f"the sha256 of {now.name} is {now.fingerprint[:12]}…, was {before[:12]}…"


def _refuse_differences(run: PlannedRun, differences: Sequence[str]) -> None:
    """Raise ConfigError if there are any."""
    if differences:
        raise ConfigError(
            f"{short(run.folder)} is there from another configuration: {'; '.join(differences)}; give the "
            f"sweep or the entry another name, or remove that folder"
        )


def _check(standing: RunStanding, sources: _Sources) -> None:
    """Raise ConfigError when a run to carry out cannot work."""
    if standing.action == "skip":
        return
    # the folder of a restarted run is removed first, and a new one's was checked
    run_config = {**standing.run_config, "run-name": ""}
    check(run_config, Federation(standing.run.supernodes), load=sources.load, is_sized=True)
