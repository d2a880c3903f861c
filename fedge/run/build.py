"""Parts of a run, constructed from its configuration: model, leaves, cloud, strategy, shared files."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from torch import nn

from fedge.algorithm.configured import leaf_part_of
from fedge.cloud.aggregator import CloudAggregator
from fedge.cloud.offers import blends_of
from fedge.cloud.region import all_regions, servers_over
from fedge.cloud.rule import RuleMaker
from fedge.cloud.settings import CloudSetting
from fedge.clustering.likeness.updates import even_windows
from fedge.clustering.registry import NEEDS, cloud_model_count, method_named
from fedge.compression.configured import uplink_of_servers
from fedge.compression.sending import Sending
from fedge.compression.uplink import Uplink
from fedge.config.common_test import OF_CLIENTS
from fedge.config.config import Config
from fedge.config.registers.choices import BY_TEST
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import CLIENT_SELECTIONS
from fedge.config.sections.cluster import ClusterConfig
from fedge.config.tree import Path as TreePath
from fedge.data.partition import Partition
from fedge.data.prepared import DataShape
from fedge.data.scaling import Scale
from fedge.exchange.algorithm import ReplyForm
from fedge.exchange.clients import Clients
from fedge.exchange.round_context import RoundContext
from fedge.leaf.algorithm import LeafAlgorithm
from fedge.leaf.leaf import Leaf
from fedge.leaf.selection import reads_turns
from fedge.leaf.server import Server
from fedge.leaf.strategies.quorum import needed_leaves, num_training
from fedge.leaf.strategies.rules import make_cloud_rule, make_strategy
from fedge.leaf.training_history import Turns
from fedge.privacy.marks import Mark
from fedge.process.background_jobs import BackgroundJob
from fedge.process.identity import process_name
from fedge.process.resources.machine import fits_in_memory
from fedge.rounds.hooks import Hooks
from fedge.rounds.measurements.common_test import CommonTest
from fedge.rounds.measurements.virtual_time import Speeds
from fedge.rounds.port import PortMaker
from fedge.rounds.routed_leaves import EnginePort
from fedge.rounds.strategy import HierarchicalStrategy, RoundHook
from fedge.rounds.task import RunTask
from fedge.rounds.transport import RoundServices
from fedge.run.preparation.common_test import parts_of_clients, parts_of_file
from fedge.run.preparation.groupings import unaffected_signal_note
from fedge.serving.roles import extra_model_count
from fedge.states.averaging import State
from fedge.states.files import state_bytes
from fedge.states.memory import FOLDER as MEMORIES
from fedge.states.memory import LeafServerMemories, RemoteMemories
from fedge.states.state_files import SharedStates
from fedge.timing.laps import LapClock
from fedge.training.networks.frozen import frozen_names, split_frozen
from fedge.training.networks.models import layer_names, parameter_names, variance_names
from fedge.training.networks.start import drawn_network, first_state

_NOBODY = Hooks()
Truth = Callable[[int], Sequence[int]]
AlgorithmMaker = Callable[[State, Sequence[str]], "LeafAlgorithm | None"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunPlan:
    """Inputs for constructing the parts of a run.

    Attributes:
        config: the run's configuration.
        seed: the run's seed.
        folder: the run folder.
        data_folder: folder of the clients' windows.
        shared: store of large states in files.
        clock: clock charged throughout a round.
        handed_out: location of the windows for clients on other machines; empty if they read
            `data_folder`.
        owners_scale: scale of windows owned by clients; None if the server has the windows.
        options: the run's options as JSON, for clients started with others; empty otherwise.
        background: writes checkpoints while clients are training.
        form: form of the algorithm's messages; None if the options determine it.
        memories: memories of clients on other machines; None if they are in the run folder.
        local_steps: steps of every client in a leaf round, instead of epochs; 0 for epochs.
        kernel: kernel of all clients' steps, as sent to them; empty if the options determine it.
        taught: (clients, C) training windows of each class; None if they were not counted.
    """

    config: Config
    seed: int
    folder: Path
    data_folder: Path
    shared: SharedStates
    clock: LapClock
    handed_out: str = ""
    owners_scale: Scale | None = None
    options: str = ""
    background: BackgroundJob = field(default_factory=BackgroundJob)
    form: ReplyForm | None = None
    memories: RemoteMemories | LeafServerMemories | None = None
    local_steps: int = 0
    kernel: str = ""
    taught: np.ndarray | None = None


def build_strategy(
    plan: RunPlan,
    clients: Clients,
    dealt: Partition,
    clients_per_leaf: Sequence[int],
    shape: DataShape,
    on_round: RoundHook,
    hooks: Hooks = _NOBODY,
    make_port: PortMaker = EnginePort,
) -> tuple[HierarchicalStrategy, State]:
    """The strategy with its leaves and its cloud, and the initial model.

    Args:
        plan: the run's plan.
        clients: the run's clients.
        dealt: windows of each client.
        clients_per_leaf: number of clients of each leaf, in order.
        shape: sizes from which the model is built.
        on_round: called with every round's result and laps.
        hooks: receive events of a round.
        make_port: factory of the port to the leaf servers.

    Raises:
        ConfigError: the model does not fit the windows.
    """
    config = plan.config
    model = network_of(plan, shape)
    state, frozen = start_of(plan, model)
    trainable, variances = parameter_names(model), variance_names(model, shape.input_shape, shape.tokens)
    leaves = make_leaves(config, dealt, clients_per_leaf, state, trainable, variances, algorithm_maker(plan))
    at_clients = len(clients) if make_port is EnginePort else 0  # other models stay at their leaf servers
    prepare_sharing(plan, clients, leaves, config.transfer.spills_by_memory, at_clients)
    own_layers = [name for name in layer_names(model, config.personal.kept) if name in state]
    branches = servers_over(config, leaves, own_layers)
    uplink = uplink_of_servers(config.uplink, trainable)
    if uplink is not None and len(branches) > 1:  # a single server has no cloud above it
        _set_uplinks(branches, uplink, plan.seed)
    truth = None if dealt.scenario is None else dealt.scenario.groups_in
    cloud_at = partial(_build_aggregator, plan, shape, state, trainable, variances, truth)
    inner = {
        region.path: cloud_at(region.path, region.leaves)
        for region in all_regions(branches)
        if len(region.path) in config.meeting_tiers
    }
    common = common_test(plan, shape, dealt, frozen)
    task = RunTask(config, plan.seed, windows_of_splits(dealt), shape.classes, truth, own_layers, common)
    facilities = RoundServices(
        clients, round_contexts(plan), plan.clock, plan.shared, hooks, plan.background, state_bytes(frozen),
        _device_speeds(with_local_steps(config, plan.local_steps), plan.seed, leaves),
    )  # fmt: skip
    strategy = HierarchicalStrategy(
        task, branches, cloud_at((), leaves), facilities, on_round, make_port, inner
    )
    return strategy, state


def _build_aggregator(
    plan: RunPlan,
    shape: DataShape,
    state: State,
    trainable: Sequence[str],
    variances: Sequence[str],
    truth: Truth | None,
    path: TreePath,
    below: Sequence[Leaf],
) -> CloudAggregator:
    """The part of a server that groups its children and combines their models: the cloud, or a region.

    Raises:
        ConfigError: its method would use a client's noise twice.
    """
    config = plan.config
    cluster, (asks_all, num_windows) = config.cluster_at(len(path)), required_evidence(config, below)
    if asks_all:
        _refuse_noise_used_twice(config.privacy.kind, cluster, num_windows)
    setting = CloudSetting(
        tuple(trainable), plan.seed, truth_lookup(config, truth, path, below), plan.shared.keep,
        asks_all, num_windows, cloud_rule(config, trainable, variances, len(path)), plan.taught,
        tuple(variances),
    )  # fmt: skip

    def candidate(number: int) -> State:
        return start_of(plan, network_of(plan, shape, number))[0] if number else state

    return CloudAggregator(cluster, setting, candidate)


def with_local_steps(config: Config, steps: int) -> Config:
    """Configuration with another `train.local-steps`."""
    return replace(config, train=replace(config.train, local_steps=steps))


def _device_speeds(config: Config, seed: int, leaves: Sequence[Leaf]) -> Speeds | None:
    """Speeds of clients as devices; None if rounds are not timed by devices."""
    if not config.devices.time_rounds:
        return None
    from fedge.devices.pace import pace_of  # slow import, rarely needed

    window_counts = {client: count for leaf in leaves for client, count in leaf.train_samples.items()}
    all_clients = sorted({*window_counts, *(client for leaf in leaves for client in leaf.unseen_clients)})
    return pace_of(config, seed, np.array([window_counts.get(client, 0) for client in all_clients], np.int64))


def common_test(plan: RunPlan, shape: DataShape, dealt: Partition, frozen: State) -> CommonTest | None:
    """Evaluation on the common test set; None if `evaluate.common` is empty.

    Args:
        plan: the run's plan.
        shape: sizes from which the model is built.
        dealt: windows of each client.
        frozen: frozen entries, which exchanged models lack.
    """
    config = plan.config
    if not config.evaluate.common:
        return None
    parts = (
        parts_of_clients(plan.data_folder, len(dealt.clients), dealt.unseen_clients)
        if config.evaluate.common == OF_CLIENTS
        else parts_of_file(config, shape)
    )
    return CommonTest(config.train, network_of(plan, shape), parts, frozen, plan.kernel)


def truth_lookup(config: Config, truth: Truth | None, path: TreePath, leaves: Sequence[Leaf]) -> Truth | None:
    """Function: round of a server → true group of each of its leaves; None if groups are unknown.

    Args:
        config: configuration, of which the section `hierarchy` is read.
        truth: global round → true group of each leaf of the run.
        path: path of the server.
        leaves: leaves below the server, in order.
    """
    if truth is None or not path:
        return truth
    rounds = config.hierarchy.leaf_rounds_per_global // config.hierarchy.leaf_rounds_of(len(path))

    def below(number: int) -> Sequence[int]:
        groups = truth((number - 1) // rounds + 1)
        return [groups[leaf.index] for leaf in leaves]

    return below


def cloud_rule(
    config: Config, trainable: Sequence[str], variances: Sequence[str], tier: int = 0
) -> RuleMaker | None:
    """Factory of the rule combining models at a tier of servers; None for their weighted mean.

    Args:
        config: configuration, of which the section `cloud` is read.
        trainable: trainable entries of a model.
        variances: its non-negative entries.
        tier: 0 for the root.
    """
    if not config.has_rule_at(tier):
        return None
    needed = needed_leaves(config.cloud)
    return RuleMaker(lambda: make_cloud_rule(config.cloud), needed, tuple(trainable), tuple(variances))


def network_of(plan: RunPlan, shape: DataShape, number: int = 0) -> nn.Module:
    """A network with initial weights: number 0 for all leaves, others for further cluster models."""
    try:
        return drawn_network(
            plan.config.train, plan.seed, shape.input_shape, shape.classes, shape.y_shape,
            tokens=shape.tokens, number=number,
        )  # fmt: skip
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"train.model: {error}") from error


def start_of(plan: RunPlan, network: nn.Module) -> tuple[State, State]:
    """A run's initial model as exchanged, and its frozen entries, from a network of `network_of`."""
    train = plan.config.train
    return split_frozen(first_state(network, train), frozen_names(network, train))


def frozen_of(plan: RunPlan, shape: DataShape) -> State:
    """Frozen entries of a run's models, which no message carries."""
    return {} if plan.config.train.exchange == "all" else start_of(plan, network_of(plan, shape))[1]


def windows_of_splits(dealt: Partition) -> dict[int, dict[str, int]]:
    """Partition id → split → number of windows."""
    return {
        client: {"train": len(train), "val": len(val), "test": len(test)}
        for client, (train, val, test) in enumerate(dealt.clients)
    }


def make_leaves(
    config: Config,
    dealt: Partition,
    sizes: Sequence[int],
    state: State,
    trainable: Sequence[str],
    variances: Sequence[str],
    make_algorithm: AlgorithmMaker = lambda state, trainable: None,
) -> list[Leaf]:
    """All leaves, each with its training clients, weighted by training windows, and its unseen clients."""
    leaves, first = [], 0
    parts, unseen = dealt.clients, dealt.unseen_clients
    levels = config.scaffold.levels if config.scaffold.enabled else 0
    for index, size in enumerate(sizes):
        members = range(first, first + size)
        samples = {client: len(parts[client][0]) for client in members if client not in unseen}
        rule = make_strategy(config, num_training(config, len(samples), leaf=index))
        unseen_here = [client for client in members if client in unseen]
        algorithm = make_algorithm(state, trainable)
        leaves.append(Leaf(index, samples, state, trainable, rule, levels, unseen_here, variances, algorithm))
        leaves[-1].turns = Turns() if reads_turns(config.hierarchy.selection) else None
        first += size
    return leaves


def algorithm_maker(plan: RunPlan) -> AlgorithmMaker:
    """Factory of the state of the clients' algorithm at a leaf; gives None for algorithms without state."""
    form = plan.form
    if form is None:
        return lambda state, trainable: None

    def make(state: State, trainable: Sequence[str]) -> LeafAlgorithm:
        folder, part = str(plan.folder / MEMORIES), leaf_part_of(plan.config.train)
        if plan.memories is not None:
            folder = ""
        hands_out_data = bool(plan.handed_out)
        name = plan.config.train.algorithm
        return LeafAlgorithm(part, form, folder, state, trainable, plan.memories, hands_out_data, name)

    return make


def remarks_on_kept(plan: RunPlan, state: State, names: Sequence[str], clients: Sequence[int]) -> list[str]:
    """Notes on scores and groups depending on entries of the model kept by clients; empty if none do.

    Args:
        plan: the run's plan, with the form of clients' messages.
        state: any model of the run.
        names: trainable entries of the model, in layer order.
        clients: training clients per leaf.
    """
    form = plan.form
    if form is None or form.plain or leaf_part_of(plan.config.train).combines():  # a leaf may create them
        return []
    notes = [unaffected_signal_note(plan.config, state, names, clients, form.entries)]
    if form.own:
        entries = ", ".join(form.own[:2]) + ", …" * (len(form.own) > 2)
        advice = (
            "client_models.csv scores the clients' own models"
            if form.models
            else "give the clients' own models by models(client) to have them scored (docs/own-method.md)"
        )
        notes.append(
            f"clients under train.algorithm {plan.config.train.algorithm} train {entries} but do not send "
            f"it: leaf models are scored, and gates and groups decide, with these entries untrained; {advice}"
        )
    return [note for note in notes if note]


def required_evidence(config: Config, leaves: Sequence[Leaf]) -> tuple[bool, int]:
    """Whether all clients must send updates for comparing leaves, and on how many windows each.

    They need not if all train in the first leaf round, on about equally many windows.
    """
    num_windows = even_windows([count for leaf in leaves for count in leaf.train_samples.values()])
    is_partial = CLIENT_SELECTIONS.is_own(config.hierarchy.selection) or any(
        num_training(config, len(leaf.clients), leaf=leaf.index) < len(leaf.clients) for leaf in leaves
    )
    return is_partial or num_windows > 0, num_windows


def _refuse_noise_used_twice(kind: str, cluster: ClusterConfig, num_windows: int) -> None:
    """Raise ConfigError if a method asks all clients for a second update, which noise must protect.

    It would have the same noise as the first one, so the difference of both would have none.

    Args:
        kind: kind of privacy.
        cluster: options of the cloud, or of a region.
        num_windows: number of windows, from `required_evidence`.
    """
    is_noised = any(message.mark(kind) is Mark.NOISED for message in NEEDS["updates"].sent.values())
    if is_noised and cluster.enabled and "updates" in method_named(cluster).needs(cluster):
        reason = "their numbers of windows differ" if num_windows else "some of them do not"
        raise ConfigError(
            f"privacy.kind {kind} with cluster.method {cluster.method} needs all clients to train in the "
            f"first leaf round, on about equally many windows, because a further update would have the noise "
            f"of the first, but {reason}; use another cluster.method, or let all train on as many"
        )


def _set_uplinks(servers: Sequence[Server], uplink: Uplink, seed: int) -> None:
    """Compress the uplink of servers and of all servers below them."""
    for server in servers:
        server.sending = Sending(uplink, seed, server.path, server.model)
        _set_uplinks(server.below, uplink, seed)


def round_contexts(plan: RunPlan) -> Callable[[int, int], RoundContext]:
    """Function: (global round, leaf round) → context for clients."""

    server, scale, steps = process_name(), plan.owners_scale, plan.local_steps
    in_files = scale is None and not plan.handed_out

    def round_context(global_round: int, leaf_round: int) -> RoundContext:
        return RoundContext(
            seed=plan.seed,
            global_round=global_round,
            leaf_round=leaf_round,
            data_folder=str(plan.data_folder) if in_files else "",
            log_path=str(plan.folder / "run.log") if in_files else "",
            windows=plan.handed_out,
            server=server,
            timeout_s=plan.config.guard.client_timeout,
            mean=() if scale is None else scale.mean,
            std=() if scale is None else scale.std,
            options=plan.options,
            local_steps=steps,
            kernel=plan.kernel,
        )

    return round_context


def prepare_sharing(
    plan: RunPlan,
    clients: Clients,
    leaves: Sequence[Leaf],
    by_memory: bool = False,
    at_clients: int | None = None,
) -> None:
    """Decide whether large states are stored in files.

    There are two control variates per leaf and one per client, plus one replacing another. SCAFFOLD on two
    levels adds its correction, and twice the sum of control and correction. Control variates live as long
    as the run, so they are always stored in files.

    Clients on other machines see no file of the server; the server then uses files only for its own states.

    Args:
        plan: the run's plan.
        clients: the run's clients.
        leaves: leaves at this server.
        by_memory: whether models may stay in free memory, if only this process uses the files.
        at_clients: clients whose models are stored here; all by default.
    """
    if not clients.any_shares:
        plan.shared.disable_sharing()
    config = plan.config
    model_bytes = state_bytes(leaves[0].model)
    control_bytes = sum(state_bytes(leaf.control) for leaf in leaves if leaf.control is not None)
    senders = len(clients) if at_clients is None else at_clients
    models = _models_at_once(config, senders, len(leaves))
    controls = 2 if config.scaffold.levels == 1 else 5
    own_controls = (senders + 1) * control_bytes // len(leaves) if senders else 0
    round_bytes = models * model_bytes + controls * control_bytes + own_controls
    limit_bytes = config.transfer.share_above_mb * 1e6
    if plan.shared.in_one_process:
        limit_bytes = config.transfer.spill_above_bytes
        if by_memory and not control_bytes and model_bytes > limit_bytes and fits_in_memory(round_bytes):
            logger.info("a round's models need %.0f MB; they stay in memory", round_bytes / 1e6)
            limit_bytes = math.inf
    plan.shared.prepare(limit_bytes, model_bytes, round_bytes)
    if plan.shared.folder is not None and not clients.any_shares:
        clients.keep_replies(plan.shared.keep)


def _models_at_once(config: Config, clients: int, leaves: int) -> int:
    """Largest number of models in the files of a round at one time.

    Counted are every client's model and, per leaf, its starting model, its own, the offered and the other
    served models. A trial of new groups adds four per leaf, a probe one, SCAFFOLD on two levels the start of
    its drift. The cloud's own models count twice while they follow the leaves.
    """
    cluster = config.cluster
    per_leaf = 2 + len(blends_of(cluster.blend)) + extra_model_count(config)
    per_leaf += 4 * (cluster.count == BY_TEST) + bool(cluster.probe_every) + (config.scaffold.levels > 1)
    per_leaf += 2 * (not config.cloud.is_mean)  # the rule's model and its moments
    return clients + per_leaf * leaves + 2 * cloud_model_count(cluster)
