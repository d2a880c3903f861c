"""Site of a leaf server for one run: clients in this process, their windows, and the leaf to train.

It partitions its own copy of the data set exactly as the cloud does, and keeps its clients' parts.
"""

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from fedge.config.config import Config
from fedge.config.flat import from_run_config, to_run_config
from fedge.config.registers.option import ConfigError
from fedge.config.topology import clients_per_leaf, leaf_of_clients
from fedge.data.partition import Partition
from fedge.data.prepared import DataShape, forget_source, write_client_data, write_frozen
from fedge.edge.order_execution import Site
from fedge.edge.store import KeptStates
from fedge.exchange.algorithm import ReplyForm
from fedge.exchange.clients import Clients
from fedge.exchange.engine import Engine
from fedge.leaf.leaf import Leaf
from fedge.records.folder import remove_client_data
from fedge.rounds.task import RunTask
from fedge.rounds.transport import RoundServices
from fedge.run.build import (
    RunPlan,
    algorithm_maker,
    frozen_of,
    make_leaves,
    network_of,
    prepare_sharing,
    round_contexts,
    start_of,
    windows_of_splits,
)
from fedge.run.own_files import refuse_delays, with_own_files
from fedge.run.preparation.foreign_parts import refuse_code_of_cloud
from fedge.run.preparation.prepare import deal_data
from fedge.states.averaging import State
from fedge.states.state_files import SharedStates
from fedge.timing.laps import LapClock
from fedge.training.networks.models import parameter_names, variance_names


class KnownClients(Engine, Protocol):
    """Engine whose clients are known in advance."""

    @property
    def node_of(self) -> Mapping[int, int]:
        """Partition id → node id."""


RUN = "run-"  # prefix of a run's folder name; 16 hexadecimal digits follow
MakeEngine = Callable[[Mapping[str, Any], int, Sequence[int]], AbstractContextManager[KnownClients]]
"""(run configuration, number of clients of the run, clients of this leaf) → engine of this leaf's clients."""


@dataclass(frozen=True)
class SiteDeal:
    """Windows of a run's clients, dealt and written on this machine.

    Attributes:
        partition: windows of all clients.
        clients_per_leaf: number of clients of each leaf, in order.
        shape: sizes of the windows.
        form: form of the algorithm's messages; None if the options determine it.
        folder: folder of the written windows.
    """

    partition: Partition
    clients_per_leaf: Sequence[int]
    shape: DataShape
    form: ReplyForm | None
    folder: Path


class SharedDeal:
    """One partition of the data for all leaves of a process, removed when the last leaf releases it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._deals: dict[str, tuple[SiteDeal, int]] = {}  # run → its partition, and its holders

    def take(self, run: str, make: Callable[[], SiteDeal]) -> SiteDeal:
        """The deal of a run, made at the first call; concurrent callers wait for it."""
        with self._lock:
            dealt, holders = self._deals[run] if run in self._deals else (make(), 0)
            self._deals[run] = dealt, holders + 1
            return dealt

    def release(self, run: str) -> None:
        """Release the deal of a run; its windows are removed at the last release."""
        with self._lock:
            dealt, holders = self._deals.pop(run)
            if holders > 1:
                self._deals[run] = dealt, holders - 1
            else:
                remove_client_data(dealt.folder)


def open_site(
    folder: Path,
    leaf: int,
    make_engine: MakeEngine,
    facts: Mapping[str, Any],
    *,
    trust_code: bool = False,
    data: str = "",
    dealing: SharedDeal | None = None,
) -> Site:
    """Site of a leaf server for a run.

    Args:
        folder: the leaf server's folder; each run has a folder in it.
        leaf: number of the leaf.
        make_engine: factory of the engine driving the leaf's clients.
        facts: the run's facts, sent by the cloud.
        trust_code: whether to trust the code named by the run's options.
        data: window file to read if the options name one; empty to read none.
        dealing: partition shared by the leaves of a process; None for one of this leaf only.

    Raises:
        ConfigError: the run does not fit this leaf server: other data, another leaf, or code or a file not
            allowed here.
    """
    config, run = without_start(from_run_config(facts["config"])), str(facts["run"])
    refuse_other_leaf(leaf, facts)
    refuse_code_of_cloud(config, folder, trust_code, facts.get("parts", {}), run)
    _refuse_data_elsewhere(config, facts)
    plan, dealing = site_plan(folder, facts), dealing or SharedDeal()
    dealt = dealing.take(run, lambda: _deal_to_site(plan, config, facts, data))
    try:
        members = clients_of_leaf(dealt.clients_per_leaf, leaf)
        context = make_engine(to_run_config(config), int(facts["clients"]), members)
        engine = context.__enter__()
    except BaseException:
        dealing.release(run)
        raise
    # clients are threads of this process: large models go to files, as in a run of one process
    shared = SharedStates(plan.folder, in_one_process=True)
    plan = replace(plan, form=dealt.form, data_folder=dealt.folder, shared=shared)

    unreleased = [run]

    def close() -> None:
        context.__exit__(None, None, None)
        plan.shared.close()
        while unreleased:
            dealing.release(unreleased.pop())

    clients = Clients(engine, engine.node_of, engine.node_of.values())
    return site_of(plan, leaf, dealt.partition, dealt.shape, clients, close)


def _refuse_data_elsewhere(config: Config, facts: Mapping[str, Any]) -> None:
    """Raise ConfigError if a run needs a file of the cloud, or clients with their own windows."""
    refuse_delays(config)
    if facts.get("scale") is not None:
        raise ConfigError("its clients own no windows; start the cloud without --owners, or it with --nodes")


def _deal_to_site(plan: RunPlan, config: Config, facts: Mapping[str, Any], data: str) -> SiteDeal:
    """Partition the data as the cloud does, and write the windows of all clients.

    Raises:
        ConfigError: the data differ from the cloud's.
    """
    deal = deal_data(with_own_files(config, data), int(facts["seed"]), int(facts["clients"]), None)
    if deal.source.fingerprint != facts["fingerprint"]:
        raise ConfigError(
            f"data.path must be the cloud's data, but the data here ({deal.source.name}) have another "
            f"fingerprint; copy the cloud's file to this machine, and name it with fedge leaf --data"
        )
    plan = replace(plan, form=deal.form)
    shape = write_client_data(plan.data_folder, deal.windows, deal.partition, config.data.normalize)
    write_frozen(plan.data_folder, frozen_of(plan, shape))
    forget_source(deal.windows)
    return SiteDeal(deal.partition, deal.clients_per_leaf, shape, deal.form, plan.data_folder)


def refuse_other_leaf(leaf: int, facts: Mapping[str, Any]) -> None:
    """Raise ConfigError if the cloud expects another leaf here."""
    if facts["leaf"] != leaf:
        raise ConfigError(f"this is leaf server {leaf}, but the cloud expects {facts['leaf']} here")


def site_plan(folder: Path, facts: Mapping[str, Any]) -> RunPlan:
    """Plan of a run's parts at a leaf server, with a folder for the run."""
    run_folder = folder / f"{RUN}{hashlib.sha256(str(facts['run']).encode()).hexdigest()[:16]}"
    run_folder.mkdir(parents=True, exist_ok=True)
    config, seed = without_start(from_run_config(facts["config"])), int(facts["seed"])
    steps = int(facts.get("local_steps", 0))
    return RunPlan(
        config, seed, run_folder, run_folder / "data", SharedStates(run_folder, enabled=False), LapClock(),
        local_steps=steps, kernel=str(facts.get("kernel", "")),
    )  # fmt: skip


def without_start(config: Config) -> Config:
    """Options without `train.start`: the cloud sends initial weights, so no file here is opened for them."""
    return replace(config, train=replace(config.train, start=""))


def clients_of_leaf(sizes: Sequence[int], leaf: int) -> list[int]:
    """Partition ids of a leaf's clients, if leaves have `sizes` clients in order."""
    return [client for client, leaf_of_client in enumerate(leaf_of_clients(sizes)) if leaf_of_client == leaf]


def site_of(
    plan: RunPlan, leaf: int, dealt: Partition, shape: DataShape, clients: Clients, close: Callable[[], None]
) -> Site:
    """Site built from its parts.

    Args:
        plan: the run's plan.
        leaf: number of the leaf.
        dealt: windows of the leaf's clients; others are not read.
        shape: sizes of their windows.
        clients: the leaf's clients.
        close: called to release them.
    """
    config, network = plan.config, network_of(plan, shape)
    (model, _), trainable = start_of(plan, network), tuple(parameter_names(network))
    variances = variance_names(network, shape.input_shape, shape.tokens)
    sizes = clients_per_leaf(config.hierarchy, len(dealt.clients))

    def make_leaf(start: State) -> Leaf:
        leaves = make_leaves(config, dealt, sizes, start, trainable, variances, algorithm_maker(plan))
        return leaves[leaf]

    prepare_sharing(plan, clients, [make_leaf(model)])
    model = plan.shared.keep(model)
    facilities = RoundServices(clients, round_contexts(plan), plan.clock, plan.shared)
    return Site(
        RunTask(config, plan.seed, windows_of_splits(dealt), shape.classes),
        make_leaf,
        model,
        trainable,
        facilities,
        KeptStates(plan.folder),
        close,
    )
