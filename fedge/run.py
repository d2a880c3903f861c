"""One run from configuration to run folder, whatever engine drives the Grid. Called by engine entries."""

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TextIO

from flwr.serverapp import Grid

from fedge import memory
from fedge.arrays import to_record
from fedge.cloud import CloudAggregator
from fedge.config import Config, ConfigError, from_run_config, to_run_config
from fedge.console import Console
from fedge.data import DataShape, DataSource, forget_source, load_source, write_client_data
from fedge.exchange import Clients, RunError, find_clients
from fedge.leaf import Leaf
from fedge.logs import log_to, stop_logging_to
from fedge.messages import Errand
from fedge.model import build_model, parameter_names
from fedge.partition import Partition, partition
from fedge.quorum import num_training, refuse_missing_quorum
from fedge.recorder import Recorder, utc_now
from fedge.remarks import Remarks
from fedge.results import RoundResult
from fedge.rules import make_strategy
from fedge.run_folder import create_run_folder, remove_client_data
from fedge.seeding import Purpose, resolve_seed, torch_stream
from fedge.shared_states import SharedStates
from fedge.state_file import state_bytes
from fedge.strategy import HierarchicalStrategy
from fedge.timing import LapClock
from fedge.topology import clients_per_leaf
from fedge.training import get_state
from hhar.window_file import Windows

logger = logging.getLogger(__name__)

_SYNTHETIC = (
    "synthetic data: accuracies say nothing about people; set data.path to a window file for real ones"
)
IN_PROCESS = "inprocess"  # the engine whose clients live in this process
_PACKAGES = ("fedge", "flwr", "ray", "torch", "numpy", "scipy", "safetensors")


@dataclass(frozen=True)
class Outcome:
    """How a run ended: "completed", "partial" (a client failed on the way) or "failed", and where it lies."""

    status: str
    folder: Path | None
    reason: str = ""


def run(
    grid: Grid,
    run_config: Mapping[str, Any],
    engine: str,
    federation: Mapping[str, Any],
    open_terminal: Callable[[Path], TextIO],
) -> Outcome:
    """Carry out a run and leave its folder behind.

    What a user can cause ends in one line on the terminal, never in a traceback; run.log has the rest.

    Args:
        grid: connects to the clients.
        run_config: Flower's flat mapping.
        engine: name for the manifest.
        federation: what is known of it, for the manifest.
        open_terminal: (run.log) → stream for the progress lines.
    """
    try:
        config = from_run_config(run_config)
        seed, seed_source = resolve_seed(config.seed)
        folder = create_run_folder(config.runs_dir, config.run_name, seed)
    except ConfigError as error:
        print(f"fedge: {error}", file=sys.stderr, flush=True)
        return Outcome("failed", None, str(error))
    log_path = folder / "run.log"
    terminal = open_terminal(log_path)
    handler = log_to(log_path)
    console = Console(terminal, config.num_server_rounds)
    shared = SharedStates(folder, enabled=engine != IN_PROCESS)
    try:
        with Recorder(folder) as recorder:
            recorder.update_manifest(
                status="running",
                seed=seed,
                seed_source=seed_source,
                engine=engine,
                federation=dict(federation),
                config=to_run_config(config),
                versions=_versions(),
                started=utc_now(),
            )
            return _recorded(
                _Run(grid, config, seed, seed_source, recorder, console, shared), recorder, console
            )
    finally:
        shared.close()
        remove_client_data(folder / "data")
        stop_logging_to(handler)


def _recorded(work: "_Run", recorder: Recorder, console: Console) -> Outcome:
    """Carry out `work` and write how it ended into the manifest, whatever happens."""
    try:
        work.carry_out()
    except BaseException as error:
        reason = _reason(error)
        logger.error("the run failed", exc_info=error)
        recorder.update_manifest(status="failed", reason=reason, ended=utc_now())
        console.say(f"fedge: {reason}")
        console.say(f"run folder: {_short(recorder.folder)} (failed; see run.log)")
        if not isinstance(error, Exception):
            raise
        return Outcome("failed", recorder.folder, reason)
    status = "partial" if work.remarks.any_failed else "completed"
    recorder.update_manifest(status=status, remarks=work.remarks.lines(), ended=utc_now())
    for line in work.remarks.lines():
        console.say(f"note: {line}")
    console.say(f"run folder: {_short(recorder.folder)}")
    return Outcome(status, recorder.folder)


def _reason(error: BaseException) -> str:
    """Return why a run failed, in one line."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, (ConfigError, RunError)):
        return str(error)
    return f"{type(error).__name__}: {error}".replace("\n", " ")


def _short(folder: Path) -> str:
    """Return a folder relative to the working directory where that is shorter."""
    relative = os.path.relpath(folder)
    return relative if len(relative) < len(str(folder)) else str(folder)


def _versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that results depend on."""
    found = {"python": sys.version.split()[0]}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


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
        sizes = clients_per_leaf(self._config.hierarchy, len(clients))
        refuse_missing_quorum(self._config, sizes)
        windows, source = load_source(self._config, len(clients))
        dealt = partition(windows, self._config, sizes, self._seed)
        shape = write_client_data(self._recorder.folder / "data", windows, dealt, self._config.data.normalize)
        forget_source(windows)
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
                Leaf(
                    index,
                    samples,
                    state,
                    trainable,
                    make_strategy(config, num_training(config, size)),
                    config.scaffold.enabled,
                )
            )
            first += size
        self._prepare_sharing(clients, leaves)
        held_out = {
            client: {"val": len(val), "test": len(test)}
            for client, (_, val, test) in enumerate(dealt.clients)
        }
        cloud = CloudAggregator(config.cluster, trainable)
        strategy = HierarchicalStrategy(
            config, seed, clients, leaves, cloud, self._errand, self._on_round, self._clock, self._shared,
            held_out, shape.classes,
        )  # fmt: skip
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
            self._seed, global_round, leaf_round, str(folder / "data"), str(folder / "run.log"), os.getpid(),
            self._config.guard.client_timeout,
        )  # fmt: skip

    def _on_round(self, result: RoundResult, laps: dict[str, float]) -> None:
        """Record and print one global round; the time this takes counts as "record" of the next round."""
        self._recorder.write_round(result, laps, memory.measure())
        self.remarks.observe(result)
        self._console.round(result, sum(laps.values()))
        logger.info("global round %d done in %.3f s", result.global_round, sum(laps.values()))
        self._last = result
        self._clock.lap("record")
