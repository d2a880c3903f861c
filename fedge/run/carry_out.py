"""Steps of one run: clients, data, leaves, global rounds, final models."""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from fedge.callbacks.callback import EndedRun, Run
from fedge.callbacks.calls import CallbackError, Callbacks
from fedge.compression.configured import upload_sizes
from fedge.config.config import Config
from fedge.config.flat import to_run_config
from fedge.config.registers.register import search_folders
from fedge.config.topology import configured_clients
from fedge.console.lines import Console
from fedge.data.own_windows import WindowsReport
from fedge.data.partition import Partition
from fedge.data.prepared import DataShape, forget_source, write_client_data, write_frozen
from fedge.exchange.algorithm import ReplyForm
from fedge.exchange.clients import Clients
from fedge.exchange.engine import Engine
from fedge.exchange.finding import find_clients
from fedge.exchange.hello import Question
from fedge.exchange.node_registry import Quorum
from fedge.inference.card import Card
from fedge.leaf.strategies.rules import note_of_uncalled
from fedge.process.collection import rare_garbage_collection
from fedge.process.endings.reaper import remove_at_end
from fedge.process.endings.watchdog import note_progress
from fedge.records.folder import data_folders, remove_client_data
from fedge.records.recorder import Recorder
from fedge.rounds.measurements.results import RoundResult
from fedge.rounds.port import LeafEngine, PortMaker, RunFacts
from fedge.rounds.routed_leaves import EnginePort
from fedge.rounds.strategy import HierarchicalStrategy
from fedge.run.announce import Announcer
from fedge.run.build import RunPlan, build_strategy, frozen_of, remarks_on_kept
from fedge.run.kept_models import KeptModels
from fedge.run.kernel import kernel_of_run, offers_of
from fedge.run.logits import logits_remark
from fedge.run.model_card import card_of, with_served
from fedge.run.preparation.algorithms import form_of_algorithm
from fedge.run.preparation.common_test import refuse_other_common_test
from fedge.run.preparation.data_facts import data_of_owners, facts_of_deal
from fedge.run.preparation.parts import code_of_parts
from fedge.run.preparation.prepare import Deal, Prepared, deal_data
from fedge.run.preparation.resume import Resumption
from fedge.run.preparation.run_folder import OpenedRun
from fedge.run.preparation.starts import refuse_start_missing_at_owners
from fedge.run.snapshot import Snapshots, restore_run
from fedge.states.averaging import State
from fedge.states.checkpoint import FOLDER, IN_USE, prune, refusing_impossible_values
from fedge.states.memory import FOLDER as MEMORIES
from fedge.states.memory import MemoryKeeper, RemoteMemories
from fedge.tasks.configured import task_of
from fedge.training.kernels import TORCH
from fedge.training.schedule import local_steps
from hhar.quantity import quantity

_MOST_NAMED = 10  # clients named in one line


class Steps:
    """The steps of one run, in order."""

    def __init__(
        self,
        grid: Engine,
        plan: RunPlan,
        prepared: Prepared,
        opened: OpenedRun,
        recorder: Recorder,
        console: Console,
        announcer: Announcer,
    ) -> None:
        """Steps of a run.

        Args:
            grid: the engine, connected to the clients.
            plan: plan of the run's parts.
            prepared: prepared inputs, with the data if they are loaded.
            opened: the run folder, with the run to resume, if any.
            recorder: recorder of the run.
            console: shows the step in progress.
            announcer: prints and records events.
        """
        self._grid = grid
        self._plan = plan
        self._prepared = prepared
        self._opened = opened
        self._recorder = recorder
        self._console = console
        self._announcer = announcer
        self._snapshots: Snapshots | None = None
        self._strategy: HierarchicalStrategy | None = None
        self._kept: KeptModels
        self._callbacks: Callbacks | None = None
        self._fingerprint = ""  # fingerprint of the data
        self._card: Card | None = None  # description stored with the models
        self._frozen: Mapping[str, np.ndarray] = {}  # frozen entries of all models
        self._owner_reports: Mapping[int, WindowsReport] | None = (
            None  # descriptions by clients with their own windows
        )
        self._global_round = 0  # last finished global round

    def carry_out(self) -> None:
        """Find clients, partition the data, train all global rounds, and write the final models."""
        try:
            self._carry_out()
        except BaseException as error:
            with suppress(CallbackError):
                self._end_callbacks("failed", str(error))
            raise

    def _carry_out(self) -> None:
        """Clean up after an earlier attempt, find the clients, partition the data, and train."""
        self._clean_up_last_attempt()
        clients = self._find_clients()
        dealt, sizes, shape = self._deal(clients)
        excluded = dealt.unseen_clients | clients.unknown
        train = (len(parts[0]) for i, parts in enumerate(dealt.clients) if i not in excluded)
        self._plan = replace(self._plan, local_steps=local_steps(self._plan.config.train, train))
        self._announcer.devices(clients.devices, self._prepared.device)
        offers = offers_of(clients.kernels, "client")
        offers += offers_of(self._grid.remote_processes().kernels, "worker")
        previous = self._recorder.manifest.get("kernel", {}).get("name", "")
        kernel = kernel_of_run(self._plan, shape, clients.devices, offers, previous)
        sends_kernel = self._plan.config.train.kernel != TORCH
        self._plan = replace(self._plan, kernel=kernel.name if sends_kernel else "")
        self._announcer.kernel(kernel)
        if remark := logits_remark(self._plan, shape):
            self._announcer.note(remark)
        self._announcer.track()
        self._learn(clients, dealt, sizes, shape)

    def _learn(self, clients: Clients, dealt: Partition, sizes: list[int], shape: DataShape) -> None:
        """Train all global rounds, and write their results."""
        plan, config = self._plan, self._plan.config
        callbacks = self._callbacks = Callbacks(config)
        self._kept = self._kept_models()
        strategy, *initial = build_strategy(
            plan, clients, dealt, sizes, shape, self._on_round, callbacks, self._port_maker(clients)
        )
        self._strategy = strategy
        members = [len(leaf.clients) for leaf in strategy.leaves]
        for note in remarks_on_kept(plan, initial[0], strategy.leaves[0].parameter_names, members):
            self._announcer.note(note)
        if uncalled := note_of_uncalled(config):
            self._announcer.note(uncalled)
        if config.uplink.is_on:
            leaf = strategy.leaves[0]
            sizes_up = upload_sizes(config.uplink, initial[0], leaf.parameter_names, leaf.sending is not None)
            self._recorder.update_manifest(uplink=sizes_up)
        completed = self._global_round = self._prepare_checkpoints(strategy)
        self._console.begin(
            [leaf.clients for leaf in strategy.leaves], config.hierarchy.leaf_rounds_per_global, completed
        )
        last_round = self._begin_callbacks(callbacks, sizes)
        for line in self._grid.new_remarks():
            self._announcer.note(line)
        plan.clock.finish()
        with plan.background, rare_garbage_collection(len(dealt.clients)):
            # drop this reference: the model is in memory, while all others may be in files
            strategy.start(initial.pop(), last_round, config.guard.client_timeout)
        self._write_models()
        self._finish(callbacks)

    def _begin_callbacks(self, callbacks: Callbacks, sizes: list[int]) -> int:
        """Call the callbacks' `begin_run`; returns the last global round to train."""
        config, completed = self._plan.config, self._global_round
        # a killed run may have been stopped by a callback before
        last_round = completed if callbacks.stop else config.num_server_rounds
        run_config, score = MappingProxyType(to_run_config(config)), task_of(config.train).scores[0]
        callbacks.begin_run(
            Run(
                self._plan.folder,
                run_config,
                self._plan.seed,
                tuple(sizes),
                config.num_server_rounds,
                completed,
                score.name,
                score.higher_is_better,
            )
        )
        return last_round

    def _finish(self, callbacks: Callbacks) -> None:
        """Announce how the run ended."""
        if callbacks.stop:
            self._announcer.stopped(callbacks.stop)
        status = "partial" if self._announcer.remarks.any_failed else "completed"
        self._end_callbacks(status, callbacks.stop.reason if callbacks.stop else "")
        self._announcer.finish()

    def _port_maker(self, clients: Clients) -> PortMaker:
        """Factory of the port to the leaf servers: parts of this process, or separate processes."""
        if not isinstance(self._grid, LeafEngine):
            return EnginePort
        manifest, config, scale = self._recorder.manifest, self._plan.config, self._plan.owners_scale
        reports = clients.reports or {}
        facts = RunFacts(
            f"{self._plan.folder.name} {manifest['started']}",
            {
                "config": to_run_config(config),
                "parts": code_of_parts(config),
                "seed": self._plan.seed,
                "clients": len(clients),
                "fingerprint": self._fingerprint,
                "local_steps": self._plan.local_steps,
                **({"kernel": self._plan.kernel} if self._plan.kernel else {}),
                "scale": None if scale is None else [list(scale.mean), list(scale.std)],
            },
            config.checkpoint.keep,
            {client: report.to_text() for client, report in reports.items()},
        )
        return partial(self._grid.make_port, facts)

    def _kept_models(self) -> KeptModels:
        """Selection of the rounds whose models are kept."""
        config, resumption = self._plan.config, self._opened.resumption
        self._recorder.drop_later_models({} if resumption is None else resumption.kept)
        return KeptModels(config.checkpoint, self._plan.folder, task_of(config.train).scores[0])

    def _write_models(self, name: str = "") -> None:
        """Write every leaf's served model and the card describing the models."""
        strategy = self._strategy
        assert strategy is not None
        leaves, unseen = strategy.leaves, strategy.unseen_models()
        assert self._card is not None
        card = with_served(self._card, leaves, unseen)
        served = [self._with_frozen(leaf.models.served) for leaf in leaves]
        self._recorder.write_models(
            served, {leaf: self._with_frozen(model) for leaf, model in unseen.items()}, card, name
        )

    def _with_frozen(self, model: State) -> State:
        """A model together with its frozen entries."""
        return {**self._frozen, **model} if self._frozen else model

    def _end_callbacks(self, status: str, reason: str) -> None:
        """Call the callbacks' `end_run`, if there are any callbacks yet."""
        if self._callbacks is not None:
            self._callbacks.end_run(EndedRun(status, self._global_round, reason))

    def _clean_up_last_attempt(self) -> None:
        """Print the round from which a run resumes, and remove unfinished files of the last attempt."""
        resumption = self._opened.resumption
        if resumption is None:
            return
        self._announcer.resumed(resumption)
        for abandoned in data_folders(resumption.folder):
            remove_client_data(abandoned)
        folder, keep = self._plan.folder / FOLDER, self._plan.config.checkpoint.keep
        prune(folder, keep, after=resumption.checkpoint.global_round)

    def _find_clients(self) -> Clients:
        """Wait for the clients, as many as `guard.start-clients` requires."""
        self._console.phase("waiting for clients")
        limit_s = self._plan.config.guard.start_timeout
        code = () if self._grid.nodes_come_back else tuple(search_folders())
        question = Question(
            self._plan.shared.challenge, self._plan.seed, code=code, parts=code_of_parts(self._plan.config)
        )
        clients = find_clients(
            self._grid,
            limit_s,
            question,
            self._console.tick,
            expected=_number_of_clients(self._plan.config, self._opened.resumption, self._recorder.manifest),
            quorum=_quorum(self._grid, self._plan.config, self._opened.resumption),
        )
        self._note_missing(clients)
        clients.watch(self._console.follow)
        clients.wait_for_gone(self._plan.config.guard.return_timeout)
        note_progress()
        return clients

    def _note_missing(self, clients: Clients) -> None:
        """Note the missing clients, if the run begins without some."""
        if not clients.away:
            return
        if isinstance(self._grid, LeafEngine):
            self._grid.mark_absent(clients.away)
        ids = ", ".join(map(str, clients.away[:_MOST_NAMED])) + ", …" * (len(clients.away) > _MOST_NAMED)
        later, unknown = "may join later", sorted(clients.unknown)
        if unknown == sorted(clients.away):
            later = "never take part: their windows are unknown"
        elif unknown:
            unknown_ids = ", ".join(map(str, unknown[:_MOST_NAMED]))
            later += f", except partition {unknown_ids}, whose windows are unknown"
        verb = "is" if len(clients.away) == 1 else "are"
        self._announcer.note(
            f"{len(clients.away)} of {quantity(len(clients), 'client')} {verb} missing "
            f"(partition {ids}); the run begins without them, as guard.start-clients allows; "
            f"they {later}{clients.refused}"
        )

    def _deal(self, clients: Clients) -> tuple[Partition, list[int], DataShape]:
        """Write every client's windows, unless clients own them; windows in memory are freed.

        Returns:
            Windows of each client, number of clients of each leaf, sizes of a window.
        """
        plan, num_clients = self._plan, len(clients)
        if clients.reports is not None:
            self._owner_reports = clients.reports
            return self._use_descriptions(clients.reports, len(clients))
        self._console.phase("preparing data")
        prepared_deal = self._prepared.deal
        deal = (
            prepared_deal.take()
            if prepared_deal
            else deal_data(plan.config, plan.seed, num_clients, self._opened.resumption)
        )
        remove_at_end(plan.data_folder)
        self._note_deal(deal)
        self._fingerprint = deal.source.fingerprint
        shape = write_client_data(plan.data_folder, deal.windows, deal.partition, plan.config.data.normalize)
        self._frozen = write_frozen(plan.data_folder, frozen_of(plan, shape))
        handed_out = self._grid.hand_out(plan.data_folder)
        self._plan = replace(plan, handed_out=handed_out, form=deal.form)
        if isinstance(self._grid, LeafEngine):
            self._plan = replace(self._plan, memories=self._remote_memories(deal.form))
            refuse_start_missing_at_owners(plan.config)
        facts = facts_of_deal(plan.config, deal)
        self._card = card_of(plan.config, facts, shape)
        forget_source(deal.windows)
        note_progress()
        self._announcer.data(facts, self._prepared.seed_source)
        self._plan = replace(self._plan, taught=facts.taught)
        return deal.partition, deal.clients_per_leaf, shape

    def _use_descriptions(
        self, reports: Mapping[int, WindowsReport], num_clients: int
    ) -> tuple[Partition, list[int], DataShape]:
        """Use the owners' descriptions of their windows, by partition id; returns the same as `_deal`."""
        plan = self._plan
        data = data_of_owners(plan.config, plan.seed, reports, self._opened.resumption, num_clients)
        form = form_of_algorithm(plan.config, data.shape, None)
        refuse_start_missing_at_owners(plan.config)
        refuse_other_common_test(
            plan.config, data.shape, data.facts.classes, data.facts.channels, owners=True
        )
        self._plan = replace(plan, owners_scale=data.scale, form=form, memories=self._remote_memories(form))
        self._frozen = frozen_of(plan, data.shape)
        self._card = card_of(plan.config, data.facts, data.shape)
        note_progress()
        self._announcer.data(data.facts, self._prepared.seed_source)
        self._plan = replace(self._plan, taught=data.facts.taught)
        return data.facts.partition, data.facts.clients_per_leaf, data.shape

    def _remote_memories(self, form: ReplyForm | None) -> RemoteMemories | None:
        """Memories of clients on other machines; None if clients keep none."""
        if form is None or not form.keeps:
            return None
        run = f"{self._plan.folder.name} {self._recorder.manifest['started']}"
        name = hashlib.sha256(run.encode()).hexdigest()[:16]
        return RemoteMemories(name, self._plan.config.checkpoint.keep)

    def _note_deal(self, deal: Deal) -> None:
        """Keep facts about the windows for use after these are freed."""

    def _prepare_checkpoints(self, strategy: HierarchicalStrategy) -> int:
        """Restore the checkpoint to resume, or write the first; returns the number of global rounds done."""
        plan, remarks, callbacks = self._plan, self._announcer.remarks, self._callbacks
        assert callbacks is not None
        memories = keeper_of_memories(plan)
        self._snapshots = Snapshots(
            plan.config.checkpoint,
            plan.config.num_server_rounds,
            self._recorder,
            strategy,
            remarks,
            callbacks,
            plan.background,
            memories,
            self._owner_reports,
        )
        resumption = self._opened.take_resumption()
        if resumption is None:
            if memories is not None:
                memories.begin({})
            self._snapshots.after(0, list)
            plan.background.finish()  # the leaves are about to get their first models
            return 0
        lines = restore_run(resumption.checkpoint, strategy, remarks)
        if memories is not None:
            memories.begin(strategy.kept_memories())
        with refusing_impossible_values(resumption.checkpoint.folder, IN_USE):
            callbacks.restore(resumption.checkpoint.facts.get("callbacks", {}))
        self._announcer.table = lambda: lines
        if self._recorder.refitted:
            self._snapshots.write(resumption.checkpoint.global_round, self._announcer.table)
            plan.background.finish()
        return resumption.checkpoint.global_round

    def _on_round(self, result: RoundResult, laps: dict[str, float]) -> bool:
        """Announce and checkpoint one global round; the time spent here is charged to the next round.

        Returns:
            Whether the run is to end after it.
        """
        note_progress()
        self._plan.background.finish()  # a round without an exchange has not yet waited for it
        self._plan.clock.lap("checkpoint")
        assert self._snapshots is not None
        assert self._callbacks is not None
        assert self._strategy is not None
        callbacks, accounted = self._callbacks, self._announcer.accounted
        result, is_open = accounted(result), self._strategy.may_end_late
        if is_open:
            result, laps = decide_round(self._strategy, callbacks, accounted, result, laps)
        self._announcer.round(result, laps)
        self._global_round = result.global_round
        if not is_open:
            callbacks.end_round(result, sum(laps.values()))
        is_last = callbacks.is_ending
        self._plan.clock.lap("report")
        for name in self._kept.after(result):
            self._write_models(name)
        self._snapshots.after(result.global_round, self._announcer.table, is_last)
        if isinstance(self._grid, LeafEngine):  # leaf servers forget older models at the next order
            self._plan.background.finish()
        self._plan.clock.lap("checkpoint")
        return is_last


def decide_round(
    strategy: HierarchicalStrategy,
    callbacks: Callbacks,
    accounted: Callable[[RoundResult], RoundResult],
    result: RoundResult,
    laps: dict[str, float],
) -> tuple[RoundResult, dict[str, float]]:
    """A round's result and laps after its callbacks' decision, including the extra steps of a last round.

    Args:
        strategy: strategy of the round.
        callbacks: callbacks to call.
        accounted: function to add the privacy spent.
        result: result without the steps special to a last round.
        laps: phase → its seconds.
    """
    callbacks.end_round(result, sum(laps.values()))
    if not callbacks.is_ending:
        return result, laps
    late_result, late_laps = strategy.end_late()
    return accounted(late_result), {phase: seconds + late_laps[phase] for phase, seconds in laps.items()}


def keeper_of_memories(plan: RunPlan) -> MemoryKeeper | RemoteMemories | None:
    """Keeper of the versions of clients' memories; None if clients keep none."""
    if isinstance(plan.memories, RemoteMemories):
        return plan.memories
    if plan.form is None or not plan.form.keeps:
        return None
    return MemoryKeeper(plan.folder / MEMORIES, plan.config.checkpoint.keep)


def _quorum(grid: Engine, config: Config, resumption: Resumption | None) -> Quorum:
    """Number of clients required at the start; a simulation requires all."""
    may_be_late = isinstance(grid, LeafEngine) or grid.nodes_come_back
    reports = None if resumption is None else resumption.reports
    return Quorum(config.guard.start_clients, may_be_late and not config.asynchrony.is_on, reports)


def _number_of_clients(config: Config, resumption: Resumption | None, manifest: Mapping[str, Any]) -> int:
    """Number of clients from options, federation, or the run to resume; 0 to use what most nodes report."""
    if isinstance(config.clients, int):
        return config.clients
    if simulated := int(manifest["federation"].get("num-supernodes", 0)):
        return simulated
    return sum(resumption.run["clients_per_leaf"]) if resumption else configured_clients(config.hierarchy)
