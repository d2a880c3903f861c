"""Steps of a run on the virtual or the real clock, by `fedge.devices`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from fedge.callbacks.calls import Callbacks, Stop
from fedge.config.clock_tiers import clock_of_tiers, has_servers_above_leaves
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import CLOUD_RULES, SELECTIONS, SERVER_RULES
from fedge.config.registers.register import Register
from fedge.config.registers.traits import ROUNDS, TELLS_CLASSES
from fedge.data.own_windows import WindowsReport
from fedge.data.partition import Partition
from fedge.data.prepared import DataShape
from fedge.devices.clients.access import ClientAccess, Waiting
from fedge.devices.clients.algorithms import ClockAlgorithms, versions_in_use
from fedge.devices.clients.evaluation import ClockEvaluation
from fedge.devices.clients.lookahead import LookAhead
from fedge.devices.clients.mapped_files import ArraySpill
from fedge.devices.clients.probing import DeviceProbe
from fedge.devices.clients.results import Population
from fedge.devices.limits import Limits
from fedge.devices.periods import moment
from fedge.devices.population.availability import presence_of
from fedge.devices.population.duration import duration_of
from fedge.devices.population.fleet import fleet_of
from fedge.devices.predictions import (
    jobs_expected,
    refuse_absent_devices,
    refuse_impossible_times,
    refuse_unknown_power,
    unchanged_model_advice,
)
from fedge.devices.procedure import Procedure
from fedge.devices.servers.model_facts import ModelFacts
from fedge.devices.servers.private_buffer import private_sum
from fedge.devices.servers.server import DeviceServer
from fedge.devices.servers.vectors import Version, version_of
from fedge.devices.snapshot import restore, snapshot
from fedge.devices.tiers.groups import ClockGroups
from fedge.devices.tiers.parent import cloud_arguments
from fedge.devices.tiers.servers_above import ServerPlace, ServersAbove, servers_above
from fedge.devices.timeline.real_arrivals import RealClock
from fedge.devices.world import JobRow, Listeners, World
from fedge.exchange.clients import Clients
from fedge.exchange.engine import LookAheadEngine
from fedge.process.endings.watchdog import note_progress
from fedge.records.device_recorder import DeviceRecorder
from fedge.rounds.measurements.moment import VersionRow
from fedge.rounds.measurements.results import RoundResult
from fedge.run.build import (
    RunPlan,
    algorithm_maker,
    network_of,
    remarks_on_kept,
    round_contexts,
    start_of,
    with_local_steps,
)
from fedge.run.carry_out import Steps, keeper_of_memories
from fedge.run.model_card import Members, with_served
from fedge.run.preparation.prepare import Deal
from fedge.states.averaging import State
from fedge.states.checkpoint import FOLDER, IN_USE, prune, refusing_impossible_values, write_checkpoint
from fedge.states.memory import MemoryKeeper, RemoteMemories
from fedge.training.networks.models import parameter_names, variance_names
from fedge.training.schedule import local_training
from hhar.quantity import quantity

_GIVEN_AWAY = (
    "{option} {name}: the server sees each client's model, knows the client's class shares "
    '(shares="told") or estimates them, and generates windows from both; see docs/devices.md'
)


_BUSY = 0.95  # share of virtual time
_BEHIND = (
    "the rule kept its servers busy {share:.0f} % of the virtual time, and {jobs} arrivals are still queued: "
    "servers do not keep up; raise the rule's buffer"
)


class AsynchronousSteps(Steps):
    """The steps of one run on a clock, in order."""

    _spent: Counter[str]
    _running: tuple[Procedure, Population]
    _owners: np.ndarray
    _shares: np.ndarray
    _expected: int | None = None  # number of jobs, if known
    _memories: MemoryKeeper | RemoteMemories | None = None

    def _use_descriptions(
        self, reports: Mapping[int, WindowsReport], num_clients: int
    ) -> tuple[Partition, list[int], DataShape]:
        """Use the owners' descriptions of their windows; each owner is one device and one user.

        Raises:
            ConfigError: a rule needs class shares, which owners do not report.
        """
        for register, name in self._rules():
            if register.has(name, TELLS_CLASSES):
                raise ConfigError(
                    f"{register.option} {name} needs the class shares of clients, which owners "
                    f"of their data do not send; use another rule"
                )
        result = super()._use_descriptions(reports, num_clients)
        self._owners = np.arange(len(reports))
        self._shares = np.full((len(reports), result[2].classes), 1 / result[2].classes)
        return result

    def _rules(self) -> list[tuple[Register, str]]:
        """Registers and names of the rules of leaves, and of the servers above them."""
        config = self._plan.config
        names = {tier.cloud_rule for tier in clock_of_tiers(config)}
        of_servers = [
            (CLOUD_RULES, name) for name in sorted(names) if has_servers_above_leaves(config.hierarchy)
        ]
        return [(SERVER_RULES, config.asynchrony.rule), *of_servers]

    def _note_deal(self, deal: Deal) -> None:
        """Keep each client's user and class shares."""
        self._owners = owners_of(deal)
        self._shares = _class_shares(deal)
        if (line := shared_windows(deal)) is not None:
            self._announcer.note(line)

    def _learn(self, clients: Clients, dealt: Partition, sizes: list[int], shape: DataShape) -> None:
        """Run the clock to its end, and write the results."""
        config = self._plan.config
        devices = population(dealt, sizes)
        callbacks = self._callbacks = Callbacks(config)
        self._spent = Counter()
        procedure = self._build_procedure(clients, dealt, devices, shape)
        self._running, self._kept = (procedure, devices), self._kept_models()
        completed = self._global_round = self._restore_or_begin(procedure)
        self._print_settings(devices)
        leaves = [devices.devices_of(leaf) for leaf in range(devices.leaves)]
        self._console.begin(leaves, 1, completed)
        self._console.watch(lambda: moment(procedure).words())
        last_round = self._begin_callbacks(callbacks, sizes)
        self._plan.clock.finish()
        if completed < last_round:
            callbacks.begin_round(completed + 1)
        procedure.run_until(last_round)
        sweep_memories(self._memories, procedure, is_over=True)
        self._print_limits(procedure)
        if (remark := unchanged_model_advice(procedure)) is not None:
            self._announcer.note(remark)
        assert isinstance(self._recorder, DeviceRecorder)
        self._write_models()
        ledger, now_us = procedure.ledger, procedure.clock.now_us
        self._recorder.write_totals(
            ledger.devices(now_us, devices.leaf_of, devices.windows, procedure.unrecorded_us),
            sorted(ledger.staleness.items()),
        )
        self._finish(callbacks)

    def _write_models(self, name: str = "") -> None:
        """Write every leaf's model and the card describing the models."""
        procedure, devices = self._running
        assert self._card is not None
        card = with_served(self._card, [_members(devices, leaf) for leaf in range(devices.leaves)], ())
        models = [self._with_frozen(top.version.state) for top in procedure.tops]
        self._recorder.write_models(models, card=card, name=name)

    def _build_procedure(
        self, clients: Clients, dealt: Partition, devices: Population, shape: DataShape
    ) -> Procedure:
        """The event loop of the run, before its first event."""
        plan, engine = self._plan, self._grid
        config = with_local_steps(plan.config, plan.local_steps)
        network = network_of(plan, shape)
        variances = variance_names(network, shape.input_shape, shape.tokens)
        trainable = parameter_names(network)
        assert isinstance(engine, LookAheadEngine), "engines without look-ahead are refused earlier"
        initial = version_of(start_of(plan, network)[0], variances)
        algorithms = algorithms_of(plan, devices, initial.state, trainable)
        model_store = self._model_store(engine, initial)
        initial = Version(initial.layout, model_store.vector(initial.vector), initial.counters)
        waiting = Waiting(engine, config.guard.client_timeout, plan.clock, self._console.tick)
        access = ClientAccess(waiting, clients, config, round_contexts(plan), variances, algorithms)
        val, test = ({c: len(splits[split]) for c, splits in enumerate(dealt.clients)} for split in (1, 2))
        fleet = fleet_of(config.devices, self._owners, plan.seed)
        refuse_impossible_times(fleet, devices, config, initial.nbytes)
        refuse_unknown_power(fleet, config)
        new_presence = partial(presence_of, config.devices, len(devices.leaf_of), plan.seed)
        presence = new_presence()
        refuse_absent_devices(devices, config, presence)
        world = World(
            config, plan.seed, devices, fleet, presence,
            LookAhead(access, devices.windows),
            ClockEvaluation(access, test, shape.classes, val),
            frozenset(devices.windows) if config.asynchrony.is_real else self._traced(devices), plan.clock,
            Listeners(
                lambda *rows: self._on_evaluation(procedure, *rows), lambda row: self._write_job(devices, row)
            ),
            SELECTIONS.load(config.devices.selection), config.devices.arguments("selection"),
            duration_of(config.devices.duration, config.devices.arguments("duration")), model_store.give_back,
            DeviceProbe(access, initial, trainable),
        )  # fmt: skip
        is_known = world.duration is None and not (config.asynchrony.is_real or config.asynchrony.replay)
        if is_known and not SERVER_RULES.has(config.asynchrony.rule, ROUNDS):
            self._expected = jobs_expected(fleet, devices, config, initial.nbytes, new_presence())
        facts = self._model_facts(initial, shape)
        servers = self._leaf_servers(initial, devices, facts)
        groups = None
        if has_servers_above_leaves(config.hierarchy):
            groups = ClockGroups(config, trainable, plan.seed, devices.truth)
        members = [len(devices.devices_of(leaf)) for leaf in range(devices.leaves)]
        for note in remarks_on_kept(plan, initial.state, trainable, members):
            self._announcer.note(note)
        for server in servers:
            server.store_vector = model_store.vector
        above = self._servers_above_leaves(devices, servers, facts, groups)
        procedure = Procedure(world, servers, above, groups, algorithms)
        for server in above.servers if above is not None else ():
            server.store_vector = model_store.vector
        if config.asynchrony.is_real:
            procedure.clock = RealClock(partial(arrivals_of, procedure))
        return procedure

    def _leaf_servers(self, initial: Version, devices: Population, facts: ModelFacts) -> list[DeviceServer]:
        """A server for each leaf, with the initial model."""
        asynchrony, seed = self._plan.config.asynchrony, self._plan.seed
        rule, arguments = SERVER_RULES.load(asynchrony.rule), asynchrony.arguments("rule")
        form = self._plan.form
        sent = None if form is None or form.sent is None else initial.layout.places(form.sent)
        return [
            DeviceServer(
                initial, rule, arguments, len(devices.devices_of(leaf)), replace(facts, server=leaf),
                private_sum(self._plan.config.privacy, seed, leaf, len(devices.leaf_of), sent),
                f"{SERVER_RULES.option} {asynchrony.rule}",
            )
            for leaf in range(devices.leaves)
        ]  # fmt: skip

    def _model_store(self, engine: LookAheadEngine, initial: Version) -> ArraySpill:
        """Store of large models in files; used only if server and clients are one process."""
        plan, config = self._plan, self._plan.config
        model_store = ArraySpill(plan.shared)
        if plan.shared.in_one_process:
            at_once = 3 * config.asynchrony.concurrency + 64  # versions, results, and rules' state
            above = config.transfer.spill_above_bytes
            plan.shared.prepare(above, initial.nbytes, at_once * initial.nbytes)
            engine.store_replies_with(model_store.reply)
        return model_store

    def _model_facts(self, initial: Version, shape: DataShape) -> ModelFacts:
        """Facts of the model for use by rules."""
        return ModelFacts(
            lambda: network_of(self._plan, shape),
            initial,
            shape.input_shape,
            self._shares,
            self._plan.seed,
            0,
            self._frozen,
        )

    def _servers_above_leaves(
        self,
        devices: Population,
        leaves: Sequence[DeviceServer],
        facts: ModelFacts,
        groups: ClockGroups | None,
    ) -> ServersAbove | None:
        """The servers above the leaves; None for a single leaf."""
        windows = np.zeros((devices.leaves, len(devices.leaf_of)))
        for device, count in devices.windows.items():
            windows[devices.leaf_of[device], device] = count

        def make(place: ServerPlace) -> DeviceServer:
            rule = CLOUD_RULES.load(place.options.cloud_rule)
            arguments = cloud_arguments(rule, place.options.arguments("cloud_rule"))
            child_windows = np.array([windows[list(members)].sum(0) for members in place.leaves])
            shares = child_windows @ facts.shares / child_windows.sum(1)[:, None]
            stream = devices.leaves + place.stream
            server_facts = replace(facts, shares=shares, server=stream)
            description = f"{CLOUD_RULES.option} {place.options.cloud_rule}"
            return DeviceServer(
                facts.version, rule, arguments, len(child_windows), server_facts, rule_label=description
            )

        labels = None if groups is None else groups.labels.tolist()
        return servers_above(self._plan.config, leaves, windows.sum(1).tolist(), make, labels)

    def _print_settings(self, devices: Population) -> None:
        """Print the clock's settings, and note facts rules learn about clients besides models."""
        config = self._plan.config
        for register, name in self._rules():
            if register.has(name, TELLS_CLASSES):
                self._announcer.note(_GIVEN_AWAY.format(option=register.option, name=name))
        seconds = config.num_server_rounds * config.asynchrony.evaluate_every_s
        self._console.say(
            f"{config.asynchrony.clock} clock: {config.asynchrony.rule}, {config.asynchrony.concurrency} of "
            f"{quantity(len(devices.windows), 'device')} at work, {seconds:g} {config.asynchrony.clock} s, a "
            f"global round every {config.asynchrony.evaluate_every_s:g}"
            + ("" if self._expected is None else f"; jobs: about {self._expected}")
        )

    def _print_limits(self, procedure: Procedure) -> None:
        """Print and record how this process spent its real time, and note whether a server fell behind."""
        if not self._spent:
            return
        assert isinstance(self._grid, LookAheadEngine)
        workers = max(1, self._grid.num_workers())
        limits = Limits(dict(self._spent), workers, self._plan.config.asynchrony.concurrency)
        self._recorder.update_manifest(limits=limits.facts())
        self._console.say(limits.line())
        row = moment(procedure)
        if row.server_busy > _BUSY:
            self._announcer.note(_BEHIND.format(share=100 * row.server_busy, jobs=row.in_line))

    # --- checkpoints --------------------------------------------------------------------------------

    def _restore_or_begin(self, procedure: Procedure) -> int:
        """Restore the checkpoint to resume, or schedule the first events and write one.

        Returns:
            Number of evaluations done.
        """
        resumption, self._memories = self._opened.take_resumption(), keeper_of_memories(self._plan)
        if resumption is None:
            if self._memories is not None:
                self._memories.begin({})
            procedure.begin()
            self._write_checkpoint_if_due(procedure, ())
            return 0
        assert self._callbacks is not None
        with refusing_impossible_values(resumption.checkpoint.folder, IN_USE):
            self._callbacks.restore(resumption.checkpoint.facts.get("callbacks", {}))
            restore(procedure, resumption.checkpoint.groups, resumption.checkpoint.facts["procedure"])
            if procedure.evaluated != resumption.checkpoint.global_round:
                raise ValueError(f"evaluations must be as many as rounds, but are {procedure.evaluated}")
            self._announcer.remarks.restore(resumption.checkpoint.facts["remarks"])
            lines = list(map(str, resumption.checkpoint.facts["table"]))
        if self._memories is not None and procedure.algorithms is not None:
            self._memories.begin(procedure.algorithms.kept_memories())
        self._announcer.table = lambda: lines
        if self._recorder.refitted:
            self._write_checkpoint_if_due(procedure, lines)
        return procedure.evaluated

    def _write_checkpoint_if_due(self, procedure: Procedure, table: Sequence[str]) -> None:
        """Write a checkpoint if one is due, and remove old ones."""
        checkpoint, completed = self._plan.config.checkpoint, procedure.evaluated
        assert self._callbacks is not None
        is_last = completed == self._plan.config.num_server_rounds or self._callbacks.stop is not None
        if not checkpoint.every or not (completed % checkpoint.every == 0 or is_last):
            return
        groups, procedure_facts = snapshot(procedure)
        pinned = pin_memories(self._memories, procedure)
        facts = {
            "run": self._recorder.manifest,
            "offsets": self._recorder.offsets(),
            "sha256": self._recorder.checksums(),
            "procedure": procedure_facts,
            "remarks": self._announcer.remarks.facts(),
            "callbacks": self._callbacks.facts(),
            "table": list(table),
        }
        parent = self._recorder.folder / FOLDER
        write_checkpoint(parent, completed, groups, facts, beside=[*self._recorder.unsynced, *pinned])
        prune(parent, checkpoint.keep)

    # --- events -------------------------------------------------------------------------------

    def _on_evaluation(
        self, procedure: Procedure, result: RoundResult, row: VersionRow, laps: dict[str, float]
    ) -> bool:
        """Announce and checkpoint an evaluation; returns True to end the run after it."""
        note_progress()
        callbacks = self._callbacks
        assert isinstance(self._recorder, DeviceRecorder)
        assert callbacks is not None
        self._recorder.write_version(row)
        self._spent.update(laps)
        result = self._announcer.accounted(result)
        self._announcer.round(result, laps)
        self._global_round = result.global_round
        callbacks.end_round(result, sum(laps.values()), row)
        if procedure.ending and callbacks.stop is None:
            callbacks.stop = Stop("asynchrony", result.global_round, procedure.ending)
        is_last = callbacks.stop is not None
        self._plan.clock.lap("report")
        for name in self._kept.after(result):
            self._write_models(name)
        sweep_memories(self._memories, procedure)
        self._write_checkpoint_if_due(procedure, self._announcer.table())
        self._plan.clock.lap("checkpoint")
        if not is_last and self._global_round < self._plan.config.num_server_rounds:
            callbacks.begin_round(self._global_round + 1)
        return is_last

    def _traced(self, devices: Population) -> frozenset[int]:
        """Devices whose jobs are written to a table."""
        return traced_devices(sorted(devices.windows), self._plan.config.devices.traced)

    def _write_job(self, devices: Population, row: JobRow) -> None:
        """Write a traced device's job; on the real clock, also log every job's arrival."""
        assert isinstance(self._recorder, DeviceRecorder)
        if not self._plan.config.asynchrony.is_real:
            self._recorder.write_job(row)
            return
        self._recorder.write_arrival(row)
        if row.job.device in self._traced(devices):
            self._recorder.write_job(row)


def arrivals_of(procedure: Procedure, timeout_s: float) -> list[tuple[int, int]]:
    """Device and job number of each reply that has arrived; waits up to `timeout_s` seconds for the first."""
    arrived = procedure.world.look_ahead.arrived(timeout_s)
    return [(procedure.jobs[number].device, number) for number in sorted(arrived)]


def algorithms_of(
    plan: RunPlan, devices: Population, model: State, trainable: Sequence[str]
) -> ClockAlgorithms | None:
    """State of the clients' algorithm at each leaf; None if the options are the whole algorithm.

    Args:
        plan: plan of the run.
        devices: devices of the run.
        model: any model of the run.
        trainable: trainable entries of the model.
    """
    make, train = algorithm_maker(plan), plan.config.train
    algorithms = [make(model, trainable) for _ in range(devices.leaves)]
    leaves = [leaf for leaf in algorithms if leaf is not None]
    if not leaves:
        return None
    return ClockAlgorithms(leaves, devices, lambda period: local_training(train, period).lr, plan.seed)


def pin_memories(keeper: MemoryKeeper | RemoteMemories | None, procedure: Procedure) -> list[Path]:
    """Keep the versions of memories needed by a checkpoint; returns their files."""
    if keeper is None or procedure.algorithms is None:
        return []
    versions_read, _ = versions_in_use(procedure.pending_jobs)
    return keeper.pin(procedure.algorithms.kept_memories(), versions_read)


def sweep_memories(
    keeper: MemoryKeeper | RemoteMemories | None, procedure: Procedure, is_over: bool = False
) -> None:
    """Remove versions of memories needed neither by a checkpoint nor by a running job.

    When the run is over, results of running jobs are not used.
    """
    if keeper is not None and procedure.algorithms is not None:
        versions_read, versions_made = versions_in_use(procedure.pending_jobs)
        keeper.sweep(
            procedure.algorithms.kept_memories(), versions_read if is_over else versions_read | versions_made
        )


def population(dealt: Partition, sizes: Sequence[int]) -> Population:
    """Population of the clients dealt to leaves of these sizes."""
    leaf_of = dict(enumerate(np.repeat(np.arange(len(sizes)), sizes).tolist()))
    windows = {
        client: len(train)
        for client, (train, _, _) in enumerate(dealt.clients)
        if client not in dealt.unseen_clients
    }
    truth = None if dealt.scenario is None else dealt.scenario.groups
    return Population(leaf_of, windows, dealt.unseen_clients, len(sizes), truth)


def owners_of(deal: Deal) -> np.ndarray:
    """Number of each client's user, (K,) int64: the user of its first window, in any split."""
    users = np.unique(deal.windows.user, return_inverse=True)[1]
    return np.array([
        users[next(part[0] for part in parts if len(part))] for parts in deal.partition.clients
    ], dtype=np.int64)  # fmt: skip


def shared_windows(deal: Deal) -> str | None:
    """Remark on training windows shared by several devices; None if all differ.

    Devices take windows of their neighbours if users have fewer than `devices.least-windows`.
    """
    parts = [train for train, _, _ in deal.partition.clients if len(train)]
    total, different = sum(map(len, parts)), len(np.unique(np.concatenate(parts))) if parts else 0
    if total == different:
        return None
    return (
        f"devices share training windows: they hold {total} in total, of which {different} differ, so each "
        f"counts {total / different:.1f} times (devices.least-windows, clients)"
    )


def _class_shares(deal: Deal) -> np.ndarray:
    """Class shares of each client's training windows, (K, classes) float64."""
    y, classes, planted = deal.windows.labels, len(deal.windows.classes), deal.partition.scenario
    shares = np.zeros((len(deal.partition.clients), classes))
    for client, (train, _, _) in enumerate(deal.partition.clients):
        labels = planted.change_of(client).labels if planted else None
        own_labels = y[train] if labels is None else labels[y[train]]
        shares[client] = np.bincount(own_labels, minlength=classes) / max(1, len(own_labels))
    return shares


def traced_devices(devices: Sequence[int], count: int) -> frozenset[int]:
    """`count` devices, evenly spaced among all.

    >>> sorted(traced_devices(range(10, 20), 3))
    [10, 13, 16]
    """
    count = min(count, len(devices))
    return frozenset(devices[number * len(devices) // count] for number in range(count))


def _members(devices: Population, leaf: int) -> Members:
    """Clients of a leaf, as its model's card lists them."""
    clients = devices.devices_of(leaf)
    unseen = [client for client in sorted(devices.unseen) if devices.leaf_of[client] == leaf]
    return Members(leaf, clients, unseen, sum(devices.windows[client] for client in clients))
