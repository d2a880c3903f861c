"""The steps of one run: clients, data, leaves, global rounds, final models."""

from fedge.client.controls import all_controls
from fedge.console.lines import Console
from fedge.data.partition import Partition
from fedge.data.prepared import DataShape, forget_source, write_client_data
from fedge.exchange.clients import Clients, find_clients
from fedge.exchange.engine import Engine
from fedge.process.reaper import remove_at_end
from fedge.process.watchdog import note_progress
from fedge.records.folder import data_folders, remove_client_data
from fedge.records.recorder import Recorder
from fedge.rounds.results import RoundResult
from fedge.rounds.strategy import HierarchicalStrategy
from fedge.run.announce import Announcer
from fedge.run.build import Plan, build_strategy
from fedge.run.opening import Opened
from fedge.run.prepare import Prepared, deal_data
from fedge.run.snapshot import Snapshots, go_on
from fedge.states.checkpoint import FOLDER, prune


class Steps:
    """The steps of one run, in their order."""

    def __init__(
        self,
        grid: Engine,
        plan: Plan,
        prepared: Prepared,
        opened: Opened,
        recorder: Recorder,
        console: Console,
        announcer: Announcer,
    ) -> None:
        """Get ready.

        Args:
            grid: connects to the clients.
            plan: what the parts of the run are made from.
            prepared: may hold the data.
            opened: may hold the run that goes on.
            recorder: of the run.
            console: is told which step takes time.
            announcer: is told all else.
        """
        self._grid = grid
        self._plan = plan
        self._prepared = prepared
        self._opened = opened
        self._recorder = recorder
        self._console = console
        self._announcer = announcer
        self._snapshots: Snapshots | None = None

    def carry_out(self) -> None:
        """Clients → data → leaves → global rounds → final models; the copy of the client windows stays."""
        plan, config = self._plan, self._plan.config
        self._clear_away()
        clients = self._find_clients()
        dealt, sizes, shape = self._deal(len(clients))
        self._announcer.track()
        strategy, initial = build_strategy(plan, clients, dealt, sizes, shape, self._on_round)
        done = self._prepare_checkpoints(strategy)
        self._console.begin([leaf.clients for leaf in strategy.leaves], config.hierarchy.leaf_rounds, done)
        plan.clock.finish()
        strategy.start(self._grid.grid, initial, config.num_server_rounds, config.guard.client_timeout)
        self._recorder.write_models(
            [leaf.models.served for leaf in strategy.leaves], strategy.unseen_models()
        )
        self._announcer.finish()

    def _clear_away(self) -> None:
        """Say where the run goes on, if it does, and remove what the last attempt left unfinished."""
        found = self._opened.resumption
        if found is None:
            return
        self._announcer.resumed(found)
        for abandoned in data_folders(found.folder):
            remove_client_data(abandoned)
        folder, keep = self._plan.folder / FOLDER, self._plan.config.checkpoint.keep
        prune(folder, keep, after=found.checkpoint.global_round)

    def _find_clients(self) -> Clients:
        """Wait until all clients are there."""
        self._console.phase("waiting for clients")
        limit_s, probe = self._plan.config.guard.start_timeout, self._plan.shared.probe
        clients = find_clients(self._grid, limit_s, probe, self._console.tick)
        clients.watch(self._console.follow)
        note_progress()
        return clients

    def _deal(self, num_clients: int) -> tuple[Partition, list[int], DataShape]:
        """Write every client's windows; when this returns, those in memory are gone.

        Returns:
            Who gets which windows, the number of clients of each leaf, the sizes of a window.
        """
        plan = self._plan
        self._console.phase("preparing data")
        held = self._prepared.deal
        deal = (
            held.take() if held else deal_data(plan.config, plan.seed, num_clients, self._opened.resumption)
        )
        remove_at_end(plan.data_folder)
        shape = write_client_data(plan.data_folder, deal.windows, deal.partition, plan.config.data.normalize)
        forget_source(deal.windows)
        note_progress()
        self._announcer.deal(deal, self._prepared.seed_source)
        return deal.partition, deal.clients_per_leaf, shape

    def _prepare_checkpoints(self, strategy: HierarchicalStrategy) -> int:
        """Go on from a checkpoint, or write the first; returns the global rounds that are done."""
        plan, remarks = self._plan, self._announcer.remarks
        self._snapshots = Snapshots(
            plan.config.checkpoint,
            plan.config.num_server_rounds,
            self._recorder,
            strategy,
            remarks,
            lambda: all_controls(plan.data_folder, strategy.accepted, self._grid.contexts),
        )
        found = self._opened.take_resumption()
        if found is None:
            self._snapshots.after(0, list)
            return 0
        lines = go_on(found.checkpoint, strategy, remarks, plan.data_folder)
        self._announcer.table = lambda: lines
        if self._recorder.refitted:
            self._snapshots.write(found.checkpoint.global_round, self._announcer.table)
        return found.checkpoint.global_round

    def _on_round(self, result: RoundResult, laps: dict[str, float]) -> None:
        """Announce and keep one global round; the time this takes counts for the next round."""
        note_progress()
        self._announcer.round(result, laps)
        assert self._snapshots is not None
        self._snapshots.after(result.global_round, self._announcer.table)
        self._plan.clock.lap("checkpoint")
