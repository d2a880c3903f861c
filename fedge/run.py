"""One run from configuration to run folder, whatever engine drives the Grid. Called by engine entries."""

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, TextIO

from flwr.serverapp import Grid

from fedge import exits, memory
from fedge.arrays import to_record
from fedge.cloud import CloudAggregator
from fedge.config import Config, ConfigError, from_run_config, to_run_config
from fedge.console import Console
from fedge.data import DataShape, DataSource, forget_source, load_source, write_client_data
from fedge.exchange import Clients, RunError, find_clients
from fedge.leaf import Leaf, make_strategy
from fedge.leaf_sizes import refuse_small_leaves
from fedge.logs import log_to, refuse_failed_log, stop_logging_to
from fedge.messages import Errand
from fedge.model import build_model, parameter_names
from fedge.partition import Partition, partition
from fedge.process_id import this_process
from fedge.recorder import Recorder, utc_now
from fedge.remarks import Remarks
from fedge.results import RoundResult
from fedge.run_folder import create_run_folder, remove_client_data
from fedge.seeding import Purpose, resolve_seed, torch_stream
from fedge.shared_states import SharedStates
from fedge.state_file import state_bytes
from fedge.strategy import HierarchicalStrategy
from fedge.timing import LapClock
from fedge.topology import clients_per_leaf
from fedge.training import get_state
from fedge.watchdog import StallError, note_progress, stall_limit_s, watching
from hhar.window_file import Windows

logger = logging.getLogger(__name__)

_SYNTHETIC = (
    "synthetic data: accuracies say nothing about people; set data.path to a window file for real ones"
)
IN_PROCESS = "inprocess"  # the engine whose clients live in this process
_PACKAGES = ("fedge", "flwr", "ray", "torch", "numpy", "scipy", "safetensors")


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        status: "completed", "partial" (a client failed on the way) or "failed".
        folder: the run folder; None when the run was refused.
        reason: why it failed, in one line.
        exit_code: of `fedge.exits`; it tells a stalled or interrupted run from others that failed.
    """

    status: str
    folder: Path | None
    reason: str = ""
    exit_code: int = exits.COMPLETED


def run(
    grid: Grid,
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
        folder = create_run_folder(config.runs_dir, config.run_name, seed)
    except ConfigError as error:
        print(f"fedge: {error}", file=sys.stderr, flush=True)
        return Outcome("failed", None, str(error), exits.FAILED)
    log_path = folder / "run.log"
    terminal = open_terminal(log_path)
    handler = log_to(log_path)
    console = Console(terminal, config.num_server_rounds)
    shared = SharedStates(folder, enabled=engine != IN_PROCESS)

    def clean_up() -> None:
        shared.close()
        remove_client_data(folder / "data")

    try:
        with Recorder(folder) as recorder:
            ending = _Ending(recorder, console, clean_up, owns_process)
            recorder.update_manifest(
                status="running",
                process=this_process(),
                seed=seed,
                seed_source=seed_source,
                engine=engine,
                federation=dict(federation),
                config=to_run_config(config),
                versions=_versions(),
                started=utc_now(),
            )
            with (
                exits.ending_on_signal(ending.interrupt),
                watching(stall_limit_s(config.guard), log_path, ending.give_up, config.guard.start_timeout),
            ):
                work = _Run(grid, config, seed, seed_source, recorder, console, shared)
                return _recorded(work, ending)
    finally:
        clean_up()
        stop_logging_to(handler)


class _Ending:
    """Writes how the run ended, into the manifest and on the terminal; the first end counts."""

    def __init__(
        self, recorder: Recorder, console: Console, clean_up: Callable[[], None], owns_process: bool
    ) -> None:
        self._recorder = recorder
        self._console = console
        self._clean_up = clean_up
        self._owns_process = owns_process

    def fail(self, exit_code: int, reason: str) -> Outcome:
        """End as failed."""
        try:
            outcome = self._write("failed", exit_code, reason=reason)
        except OSError:  # a full disk: what is removed at the end anyway makes room
            self._clean_up()
            try:
                outcome = self._write("failed", exit_code, reason=reason)
            except OSError as error:
                self._say(f"fedge: {self._recorder.folder}/manifest.json: {error.strerror}")
                outcome = Outcome("failed", self._recorder.folder, reason, exit_code)
        self._say(f"fedge: {outcome.reason}")
        self._say(f"run folder: {_short(self._recorder.folder)} (failed; see run.log)")
        return outcome

    def succeed(self, remarks: Remarks) -> Outcome:
        """End as completed or, if clients failed on the way, partial."""
        status = "partial" if remarks.any_failed else "completed"
        outcome = self._write(status, exits.BY_STATUS[status], remarks=remarks.lines())
        for line in remarks.lines():
            self._console.say(f"note: {line}")
        self._console.say(f"run folder: {_short(self._recorder.folder)}")
        return outcome

    def interrupt(self, signum: int) -> None:
        """End by a signal, from its handler: only what can be written in no time."""
        interrupted = exits.Interrupted(signum)
        self._recorder.end("failed", interrupted.exit_code, reason=interrupted.reason)

    def give_up(self, reason: str) -> None:
        """End a run that hangs, from another thread; the process ends too, if it is the run's own."""
        self.fail(exits.STALLED, reason)
        self._clean_up()
        if self._owns_process:
            exits.leave_now(exits.STALLED)

    def _write(self, status: str, exit_code: int, **entries: Any) -> Outcome:
        """Write an end and return the one that counts."""
        if self._owns_process:
            stalled = exit_code == exits.STALLED
            exits.leave_within(exits.LEAVE_STALLED_S if stalled else exits.LEAVE_S, exit_code)
        written = self._recorder.end(status, exit_code, **entries)
        reason = str(written.get("reason", ""))
        return Outcome(written["status"], self._recorder.folder, reason, written["exit_code"])

    def _say(self, text: str) -> None:
        """Write a line on a terminal that may be gone."""
        with suppress(OSError, ValueError):
            self._console.say(text)


def _recorded(work: "_Run", ending: _Ending) -> Outcome:
    """Carry out `work` and write how it ended into the manifest, whatever happens."""
    try:
        work.carry_out()
        return ending.succeed(work.remarks)
    except BaseException as error:
        logger.error("the run failed", exc_info=error)
        outcome = ending.fail(_exit_code(error), _reason(error))
        if not isinstance(error, Exception):
            raise
        return outcome


def _exit_code(error: BaseException) -> int:
    """Return the exit code of a run that an exception ended."""
    interrupted = exits.interrupted_by(error)
    if interrupted:
        return interrupted.exit_code
    return exits.STALLED if isinstance(error, StallError) else exits.FAILED


def _reason(error: BaseException) -> str:
    """Return why a run failed, in one line."""
    interrupted = exits.interrupted_by(error)
    if interrupted:
        return interrupted.reason
    if isinstance(error, (ConfigError, RunError, StallError)):
        return str(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return (
            f"the run folder could not be written ({where}{error.strerror or error}); make room, or choose "
            f"another runs-dir"
        ).replace("\n", " ")
    return f"{type(error).__name__}: {error}".replace("\n", " ")


def _short(folder: Path) -> str:
    """Return a folder relative to the working directory where that is shorter."""
    relative = os.path.relpath(folder)
    return relative if len(relative) < len(str(folder)) else str(folder)


def _versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that results depend on."""
    installed = {d.metadata["Name"].lower(): d.version for d in distributions() if d.metadata["Name"]}
    found = {package: installed[package] for package in _PACKAGES if package in installed}
    return {"python": sys.version.split()[0], **found}


class _Run:
    """The steps of one run; lives as long as it."""

    def __init__(
        self,
        grid: Grid,
        config: Config,
        seed: int,
        seed_source: str,
        recorder: Recorder,
        console: Console,
        shared: SharedStates,
    ) -> None:
        self._grid = grid
        self._config = config
        self._seed = seed
        self._seed_source = seed_source
        self._recorder = recorder
        self._console = console
        self._shared = shared
        self._clock = LapClock()
        self._last: RoundResult | None = None
        self.remarks = Remarks()

    def carry_out(self) -> None:
        """Clients → data → leaves → global rounds → final models."""
        clients = find_clients(self._grid, self._config.guard.start_timeout, self._shared.probe)
        note_progress()
        sizes = clients_per_leaf(self._config.hierarchy, len(clients))
        refuse_small_leaves(self._config, sizes)
        windows, source = load_source(self._config, len(clients))
        dealt = partition(windows, self._config, sizes, self._seed)
        shape = write_client_data(self._recorder.folder / "data", windows, dealt, self._config.data.normalize)
        forget_source()
        note_progress()
        self._introduce(windows, source, dealt, sizes)
        strategy, initial = self._strategy(clients, sizes, dealt, shape)
        self._clock.finish()
        strategy.start(
            self._grid, initial, self._config.num_server_rounds, timeout=self._config.guard.client_timeout
        )
        self._recorder.write_models([leaf.model for leaf in strategy.leaves])
        assert self._last is not None
        self._console.final_table(self._last)

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
        )
        config, leaves = self._config, ",".join(map(str, sizes))
        self._console.say(
            f"Fedge: {config.num_server_rounds} global rounds, {sum(sizes)} clients under {len(sizes)} "
            f"leaves ({leaves}), model {config.train.model}, seed {self._seed} (from {self._seed_source})"
        )
        self._console.say(f"data: {source.name}, {len(windows.y)} windows, split by {dealt.split_kind}")
        if source.synthetic:
            self._console.say(f"note: {_SYNTHETIC}")
            logger.warning(_SYNTHETIC)

    def _strategy(
        self, clients: Clients, sizes: list[int], dealt: Partition, shape: DataShape
    ) -> tuple[HierarchicalStrategy, Any]:
        """Return the strategy with its leaves, and the initial model as a record."""
        config, seed = self._config, self._seed
        generator = torch_stream(seed, Purpose.MODEL)
        try:
            model = build_model(config.train.model, shape.channels, shape.samples, shape.classes, generator)
        except ValueError as error:
            raise ConfigError(f"train.model: {error}") from error
        state, trainable = get_state(model), parameter_names(model)
        leaves, first = [], 0
        for index, size in enumerate(sizes):
            samples = {client: len(dealt.clients[client][0]) for client in range(first, first + size)}
            leaves.append(
                Leaf(index, samples, state, trainable, make_strategy(config.leaf), config.scaffold.enabled)
            )
            first += size
        self._prepare_sharing(clients, leaves)
        cloud = CloudAggregator(config.cluster, trainable)
        strategy = HierarchicalStrategy(
            config, seed, clients, leaves, cloud, self._errand, self._on_round, self._clock, self._shared
        )
        return strategy, to_record(state)

    def _prepare_sharing(self, clients: Clients, leaves: Sequence[Leaf]) -> None:
        """Decide whether large states go through files.

        In a round, every client holds one model there, every leaf three (its start, its own and the offered
        one) and two control variates.
        """
        if not clients.any_shares:
            self._shared.close()
            return
        model_bytes = state_bytes(leaves[0].model)
        control_bytes = sum(state_bytes(leaf.control) for leaf in leaves if leaf.control is not None)
        round_bytes = (len(clients) + 3 * len(leaves)) * model_bytes + 2 * control_bytes
        self._shared.prepare(self._config.transfer.share_above_mb * 1e6, model_bytes, round_bytes)

    def _errand(self, global_round: int, leaf_round: int) -> Errand:
        """Return what clients must know in a leaf round."""
        folder = self._recorder.folder
        return Errand(
            self._seed, global_round, leaf_round, str(folder / "data"), str(folder / "run.log"), os.getpid()
        )

    def _on_round(self, result: RoundResult, laps: dict[str, float]) -> None:
        """Record and print one global round; the time this takes counts as "record" of the next round."""
        note_progress()
        self._recorder.write_round(result, laps, memory.measure())
        refuse_failed_log()
        self.remarks.observe(result)
        self._console.round(result, sum(laps.values()))
        logger.info("global round %d done in %.3f s", result.global_round, sum(laps.values()))
        self._last = result
        self._clock.lap("record")
