"""One run from configuration to run folder, whatever engine drives the Grid."""

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from torch import nn

from fedge.client.controls import all_controls
from fedge.cloud.aggregator import CloudAggregator
from fedge.cloud.offers import blends_of
from fedge.cloud.step import CloudSetting
from fedge.config.choices import BY_TEST
from fedge.config.option import ConfigError
from fedge.config.sections import Config, from_run_config, to_run_config
from fedge.config.topology import clients_per_leaf, known_per_leaf
from fedge.console.lines import Console, final_table
from fedge.console.terminal import open_console
from fedge.data.composition import holdings
from fedge.data.partition import Partition, partition
from fedge.data.prepared import DataShape, DataSource, forget_source, load_source, write_client_data
from fedge.exchange.clients import Clients, find_clients
from fedge.exchange.engine import Engine
from fedge.exchange.round_context import RoundContext
from fedge.leaf.leaf import Leaf
from fedge.leaf.quorum import num_training, refuse_missing_quorum
from fedge.leaf.rules import make_strategy
from fedge.process import exits
from fedge.process.growth import GrowthWatch
from fedge.process.identity import this_process
from fedge.process.logs import log_to, refuse_failed_log, stop_logging_to
from fedge.process.memory import MemoryWatch, with_cuda
from fedge.process.versions import versions
from fedge.process.watchdog import note_progress, stall_limit_s, watching
from fedge.records.folder import (
    client_data_folder,
    create_run_folder,
    data_folders,
    find_run,
    point_latest,
    remove_client_data,
    short,
)
from fedge.records.lock import RunLock
from fedge.records.manifest import read_manifest
from fedge.records.recorder import Recorder, RecordError, utc_now
from fedge.report.at_end import report_at_end
from fedge.rounds.results import RoundResult
from fedge.rounds.strategy import HierarchicalStrategy
from fedge.run.ending import Ending, Outcome
from fedge.run.remarks import Remarks, changes_of
from fedge.run.resume import Resumption, find_resumption, refuse_other_data
from fedge.run.snapshot import Snapshots, go_on
from fedge.seeding import Purpose, resolve_seed, torch_stream
from fedge.serving.roles import models_beside
from fedge.states.checkpoint import FOLDER, prune
from fedge.states.files import state_bytes
from fedge.states.records import to_record
from fedge.states.shared import SharedStates
from fedge.timing.laps import LapClock
from fedge.timing.timeline import TimelineBook
from fedge.trackers.tracking import FINISH_FAILED_S, FINISH_S, Tracking
from fedge.training.local import get_state
from fedge.training.models import build_model, layer_names, parameter_names
from hhar.windows.window_file import Windows

logger = logging.getLogger(__name__)

_SYNTHETIC = (
    "synthetic data: accuracies say nothing about people; set data.path to a window file for real ones"
)
IN_PROCESS = "inprocess"  # the engine whose clients live in this process


def run(
    grid: Engine,
    run_config: Mapping[str, Any],
    engine: str,
    federation: Mapping[str, Any],
    open_terminal: Callable[[Path], TextIO],
    owns_process: bool = False,
) -> Outcome:
    """Carry out a run and leave its folder behind.

    What a user can cause ends in one line on the terminal, never in a traceback; run.log has the rest.

    Args:
        grid: connects to the clients.
        run_config: Flower's flat mapping.
        engine: name for the manifest.
        federation: what is known of it, for the manifest.
        open_terminal: (run.log) → stream for the progress lines.
        owns_process: the process ends with the run, and is ended if the run hangs.
    """
    try:
        config = from_run_config(run_config)
        seed, seed_source = resolve_seed(config.seed)
        folder, lock, resumption = _open_folder(config, seed)
    except ConfigError as error:
        print(f"fedge: {error}", file=sys.stderr, flush=True)
        return Outcome("failed", None, str(error), exits.FAILED)
    log_path = folder / "run.log"
    terminal = open_terminal(log_path)
    handler = log_to(log_path)
    console = open_console(terminal, config.num_server_rounds)
    shared = SharedStates(folder, enabled=engine != IN_PROCESS)
    tracking = Tracking(config.tracker, folder)

    def clean_up() -> None:
        shared.close()
        for attempt in data_folders(folder):
            remove_client_data(attempt)

    try:
        if resumption is not None and resumption.is_complete(config.num_server_rounds):
            return _nothing_to_do(resumption, config, console)
        manifest = _manifest(config, seed, seed_source, engine, federation, resumption)
        data_folder = client_data_folder(folder, len(manifest.get("resumed", [])))
        offsets = resumption.checkpoint.facts["offsets"] if resumption else None
        with Recorder(folder, offsets, manifest) as recorder:
            recorder.update_manifest(process=this_process())
            ending = Ending(recorder, console, clean_up, owns_process)
            with (
                exits.ending_on_signal(ending.interrupt),
                watching(stall_limit_s(config.guard), log_path, ending.give_up, config.guard.start_timeout),
            ):
                work = _Run(
                    grid, config, seed, seed_source, recorder, console, shared, tracking, data_folder,
                    resumption,
                )  # fmt: skip
                del resumption  # its files stay mapped as long as somebody holds it
                return ending.around(work.carry_out, work.remarks)
    except RecordError as error:
        console.close(failed=True)
        console.say(f"fedge: {error}")
        return Outcome("failed", folder, str(error), exits.FAILED)
    finally:
        clean_up()
        _end_tracking(tracking, folder)
        report = report_at_end(folder) if config.report else None
        if report:
            console.say(f"report: {short(report)}")
        stop_logging_to(handler)
        lock.close()


def _end_tracking(tracking: Tracking, folder: Path) -> None:
    """Tell the tracker how a run ended that has not told it itself."""
    try:
        exit_code = read_manifest(folder)["exit_code"]
    except ConfigError:
        exit_code = exits.FAILED
    tracking.finish("failed", exit_code, FINISH_FAILED_S)


def _nothing_to_do(resumption: Resumption, config: Config, console: Console) -> Outcome:
    """Say that a run is complete."""
    done = config.num_server_rounds
    console.say(
        f"{short(resumption.folder)} is complete: {done} of {done} global rounds; raise num-server-rounds to "
        f"go on"
    )
    status = resumption.manifest["status"]
    return Outcome(status, resumption.folder, exit_code=exits.BY_STATUS[status])


def _open_folder(config: Config, seed: int) -> tuple[Path, RunLock, Resumption | None]:
    """Return the run's folder, new or that of the run to go on with, locked.

    Raises:
        ConfigError: it cannot be made, is in use, or the run cannot go on.
    """
    if not config.resume:
        folder = create_run_folder(config.runs_dir, config.run_name, seed)
        return folder, RunLock(folder), None
    folder = find_run(config.resume, config.runs_dir, "resume")
    lock = RunLock(folder)
    try:
        resumption = find_resumption(config, seed)
    except BaseException:
        lock.close()
        raise
    point_latest(folder)
    return folder, lock, resumption


def _manifest(
    config: Config,
    seed: int,
    seed_source: str,
    engine: str,
    federation: Mapping[str, Any],
    resumption: Resumption | None,
) -> dict[str, Any]:
    """Return the manifest's entries at the start."""
    if resumption is not None:
        return resumption.manifest_to_go_on(config, engine, versions(), utc_now())
    return {
        "status": "running",
        "seed": seed,
        "seed_source": seed_source,
        "engine": engine,
        "federation": dict(federation),
        "config": to_run_config(config),
        "versions": versions(),
        "started": utc_now(),
    }


class _Run:
    """The steps of one run; lives as long as it."""

    def __init__(
        self,
        grid: Engine,
        config: Config,
        seed: int,
        seed_source: str,
        recorder: Recorder,
        console: Console,
        shared: SharedStates,
        tracking: Tracking,
        data_folder: Path,
        resumption: Resumption | None = None,
    ) -> None:
        self._grid = grid
        self._config = config
        self._seed = seed
        self._seed_source = seed_source
        self._recorder = recorder
        self._console = console
        self._shared = shared
        self._tracking = tracking
        self._resumption = resumption
        self._data_folder = data_folder
        self._clock = LapClock()
        self._timelines = TimelineBook(os.getpid())
        self._memory = MemoryWatch()
        self._growth = GrowthWatch()
        self._table: Callable[[], Sequence[str]] = list  # gives the lines of the final table
        self._snapshots: Snapshots | None = None
        self.remarks = Remarks()

    def carry_out(self) -> None:
        """Clients → data → leaves → global rounds → final models; the copy of the client windows stays."""
        self._say_resumed()
        self._console.phase("waiting for clients")
        clients = find_clients(
            self._grid, self._config.guard.start_timeout, self._shared.probe, self._console.tick
        )
        clients.watch(self._console.follow)
        note_progress()
        self._console.phase("preparing data")
        sizes = clients_per_leaf(self._config.hierarchy, len(clients))
        refuse_missing_quorum(self._config, known_per_leaf(sizes, self._config.partition.unseen_clients))
        dealt, shape = self._deal(sizes)
        self._tracking.start(self._recorder.manifest)
        strategy, initial = self._strategy(clients, sizes, dealt, shape)
        done = self._prepare_checkpoints(strategy)
        self._console.begin(
            [leaf.clients for leaf in strategy.leaves], self._config.hierarchy.leaf_rounds, done
        )
        self._clock.finish()
        strategy.start(
            self._grid.grid, initial, self._config.num_server_rounds, self._config.guard.client_timeout
        )
        self._recorder.write_models(
            [leaf.models.served for leaf in strategy.leaves], strategy.unseen_models()
        )
        status = "partial" if self.remarks.any_failed else "completed"
        self._note(self._tracking.finish(status, exits.BY_STATUS[status], FINISH_S))
        self._console.close()
        for line in self._table():
            self._console.say(line)

    def _deal(self, sizes: list[int]) -> tuple[Partition, DataShape]:
        """Load the windows and write every client's; when this returns, those in memory are gone."""
        windows, source = load_source(self._config, sum(sizes))
        dealt = partition(windows, self._config, sizes, self._seed)
        if self._resumption is not None:
            refuse_other_data(self._resumption, source.fingerprint, sizes)
        shape = write_client_data(self._data_folder, windows, dealt, self._config.data.normalize)
        forget_source(windows)
        note_progress()
        self._introduce(windows, source, dealt, sizes)
        return dealt, shape

    def _say_resumed(self) -> None:
        """Say and log where the run goes on, and clear away what the last attempt left unfinished."""
        found = self._resumption
        if found is None:
            return
        for note in found.notes:
            self._console.say(f"note: {note}")
            logger.warning("%s", note)
        entry = self._recorder.manifest["resumed"][-1]
        done = found.checkpoint.global_round
        self._console.say(f"resuming {short(found.folder)} after global round {done}")
        logger.info("resuming after global round %d: %s", done, entry)
        if changed := entry.get("versions_changed"):
            versions = ", ".join(f"{name} was {before}, is {now}" for name, (before, now) in changed.items())
            self._console.say(f"note: the last bits may differ from here on: {versions}")
        for abandoned in data_folders(found.folder):
            remove_client_data(abandoned)
        prune(self._recorder.folder / FOLDER, self._config.checkpoint.keep, after=done)

    def _prepare_checkpoints(self, strategy: HierarchicalStrategy) -> int:
        """Go on from a checkpoint, or write the first; returns the global rounds that are done."""
        contexts = self._grid.contexts
        self._snapshots = Snapshots(
            self._config.checkpoint,
            self._config.num_server_rounds,
            self._recorder,
            strategy,
            self.remarks,
            lambda: all_controls(self._data_folder, strategy.accepted, contexts),
        )
        if self._resumption is None:
            self._snapshots.after(0, list)
            return 0
        checkpoint = self._resumption.checkpoint
        lines = go_on(checkpoint, strategy, self.remarks, self._data_folder)
        self._table = lambda: lines
        self._resumption = None  # its files stay mapped as long as somebody holds it
        return checkpoint.global_round

    def _introduce(self, windows: Windows, source: DataSource, dealt: Partition, sizes: list[int]) -> None:
        """Say and record what is run on."""
        self._recorder.update_manifest(
            data={
                **asdict(source),
                "windows": len(windows.y),
                "classes": list(windows.classes),
                "channels": list(windows.channels),
                "split": dealt.split_kind,
                "clients": [
                    dict(zip(("train", "val", "test"), map(len, parts), strict=True))
                    for parts in dealt.clients
                ],
            },
            clients_per_leaf=sizes,
            unseen_clients=sorted(dealt.unseen_clients),
            scenario=dealt.scenario and dealt.scenario.describe(),
        )
        self._recorder.write_partition(holdings(windows, dealt, sizes))
        config, leaves = self._config, ",".join(map(str, sizes))
        self._console.say(
            f"Fedge: {config.num_server_rounds} global rounds, {sum(sizes)} clients under {len(sizes)} "
            f"leaves ({leaves}), model {config.train.model}, seed {self._seed} (from {self._seed_source})"
        )
        self._console.say(f"data: {source.name}, {len(windows.y)} windows, split by {dealt.split_kind}")
        if dealt.unseen_clients:
            self._console.say(
                f"unseen clients: {len(dealt.unseen_clients)} clients hold their users out of training"
            )
        if dealt.scenario:
            groups = " ".join(map(str, dealt.scenario.groups))
            self._console.say(f"scenario: {dealt.scenario.kind}, planted groups of the leaves {groups}")
        if source.synthetic:
            self._console.say(f"note: {_SYNTHETIC}")
            logger.warning(_SYNTHETIC)

    def _strategy(
        self, clients: Clients, sizes: list[int], dealt: Partition, shape: DataShape
    ) -> tuple[HierarchicalStrategy, Any]:
        """Return the strategy with its leaves, and the initial model as a record."""
        config, seed = self._config, self._seed
        model = self._network(shape)
        state, trainable = get_state(model), parameter_names(model)
        leaves, first = [], 0
        for index, size in enumerate(sizes):
            members = range(first, first + size)
            unseen_clients = [client for client in members if client in dealt.unseen_clients]
            samples = {c: len(dealt.clients[c][0]) for c in members if c not in dealt.unseen_clients}
            rule = make_strategy(config, num_training(config, len(samples)))
            levels = config.scaffold.levels if config.scaffold.enabled else 0
            leaves.append(Leaf(index, samples, state, trainable, rule, levels, unseen_clients))
            first += size
        self._prepare_sharing(clients, leaves)
        held_out = {
            client: {"val": len(val), "test": len(test)}
            for client, (_, val, test) in enumerate(dealt.clients)
        }
        groups = None if dealt.scenario is None else dealt.scenario.groups
        truth = None if groups is None else np.array(groups, dtype=np.int64)
        cloud = CloudAggregator(
            config.cluster, CloudSetting(tuple(trainable), seed, truth, self._shared.keep),
            lambda number: get_state(self._network(shape, number)) if number else state,
        )  # fmt: skip
        strategy = HierarchicalStrategy(
            config, seed, clients, leaves, cloud, self._round_context, self._on_round, self._clock,
            self._shared,
            held_out, shape.classes, groups, layer_names(model, config.personal.kept),
        )  # fmt: skip
        return strategy, to_record(state)

    def _network(self, shape: DataShape, number: int = 0) -> nn.Module:
        """Return a network with initial weights: number 0 for all leaves, others where there are several."""
        generator = torch_stream(self._seed, Purpose.MODEL, *([number] if number else []))
        try:
            return build_model(
                self._config.train.model, shape.channels, shape.samples, shape.classes, generator
            )
        except ValueError as error:
            raise ConfigError(f"train.model: {error}") from error

    def _prepare_sharing(self, clients: Clients, leaves: Sequence[Leaf]) -> None:
        """Decide whether large states go through files.

        Control variates are two per leaf; with SCAFFOLD on two levels also its correction, and twice the sum
        of control and correction.
        """
        if not clients.any_shares:
            self._shared.close()
            return
        model_bytes = state_bytes(leaves[0].model)
        control_bytes = sum(state_bytes(leaf.control) for leaf in leaves if leaf.control is not None)
        models = _models_at_once(self._config, len(clients), len(leaves))
        controls = 2 if self._config.scaffold.levels == 1 else 5
        round_bytes = models * model_bytes + controls * control_bytes
        self._shared.prepare(self._config.transfer.share_above_mb * 1e6, model_bytes, round_bytes)

    def _round_context(self, global_round: int, leaf_round: int) -> RoundContext:
        """Return what clients must know in a leaf round."""
        folder = self._recorder.folder
        return RoundContext(
            seed=self._seed,
            global_round=global_round,
            leaf_round=leaf_round,
            data_folder=str(self._data_folder),
            log_path=str(folder / "run.log"),
            server_pid=os.getpid(),
            timeout_s=self._config.guard.client_timeout,
        )

    def _on_round(self, result: RoundResult, laps: dict[str, float]) -> None:
        """Record, print and keep one global round; the time this takes counts for the next round."""
        note_progress()
        processes = self._memory.measure()
        of_workers = [process.pid for process in processes if process.role == "worker"]
        timelines = self._timelines.round(result.began, result.exchanges, self._grid.worker_ids or of_workers)
        if timelines is not None and timelines.cuda_mib:
            processes = with_cuda(processes, timelines.cuda_mib)
        self._recorder.write_round(result, laps, processes, timelines)
        self._clock.lap("record")
        refuse_failed_log()
        self.remarks.observe(result)
        seconds = sum(laps.values())
        self._note(self._growth.observe(result.global_round, processes))
        self._note(self._tracking.observe(result, seconds))
        for line in changes_of(result):
            logger.info("%s", line)
            self._console.say(f"note: {line}")
        self._console.round(result, seconds)
        logger.info("global round %d done in %.3f s", result.global_round, seconds)
        self._table = partial(final_table, result)
        self._clock.lap("report")
        assert self._snapshots is not None
        self._snapshots.after(result.global_round, self._table)
        self._clock.lap("checkpoint")

    def _note(self, lines: Sequence[str]) -> None:
        """Say what a reader of the results should know: now, in the log, and again at the end."""
        for line in lines:
            logger.warning("%s", line)
            self._console.say(f"note: {line}")
            self.remarks.note(line)


def _models_at_once(config: Config, clients: int, leaves: int) -> int:
    """Return how many models the files of a round hold at most.

    Every client's, every leaf's start, its own, the offered ones and what else it may serve; a trial of new
    groups adds four per leaf, a probe one, SCAFFOLD on two levels the start of its drift. The cloud's own
    models are there twice while they follow the leaves.
    """
    cluster = config.cluster
    per_leaf = 2 + len(blends_of(cluster.blend)) + models_beside(config)
    per_leaf += 4 * (cluster.count == BY_TEST) + bool(cluster.probe_every) + (config.scaffold.levels > 1)
    own = cluster.fixed_count or 0 if cluster.enabled and cluster.method == "ifca" else 0
    return clients + per_leaf * leaves + 2 * own
