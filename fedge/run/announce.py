"""Progress of a run on the terminal and in run.log, and its rows in tables and trackers."""

import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from fedge.callbacks.calls import Stop
from fedge.clustering.deal_test.reach import small_leaf_warning
from fedge.clustering.registry import sent_quantities
from fedge.config.effects import effects_twice, options_without_effect
from fedge.config.registers.parts import CLIENT_SELECTIONS
from fedge.config.registers.traits import AFRESH
from fedge.config.topology import known_per_leaf, sizes_of_branches
from fedge.console.lines import Console, final_table
from fedge.console.tiers import tiers_between
from fedge.data.composition import class_gap
from fedge.exchange.engine import Engine
from fedge.exchange.hello import CPU
from fedge.exchange.leaving import quantities
from fedge.leaf.strategies.quorum import num_training
from fedge.native.library import BF16
from fedge.privacy import coverage
from fedge.privacy.account import Account
from fedge.process.endings import exits
from fedge.process.identity import process_number
from fedge.process.logs import refuse_failed_log
from fedge.process.resources.growth import GrowthWatch
from fedge.process.resources.memory import MemoryWatch, sort_processes, with_cuda
from fedge.records.folder import short
from fedge.records.recorder import Recorder
from fedge.rounds.measurements.results import RoundResult
from fedge.run.build import RunPlan
from fedge.run.preparation.data_facts import DataFacts
from fedge.run.preparation.resume import Resumption
from fedge.run.remarks import Remarks, changes_of
from fedge.timing.clocks import MachineClock
from fedge.timing.nodes import NodeBook
from fedge.timing.timeline import TimelineBook
from fedge.trackers.tracking import FINISH_S, Tracking
from fedge.training.gpu import FLOAT32, TF32
from fedge.training.kernels import AUTO, ROUNDED, TORCH, Kernel
from hhar.quantity import quantity

logger = logging.getLogger(__name__)

_MUCH_OF_A_LEAF = 0.4  # total variation; users with all activities reach .05, renamed classes .4
_LONGEST = 200  # characters of a note about the data, as reported by their owners
_SYNTHETIC = "synthetic data: scores say nothing about people; set data.path to a window file for real ones"


class Announcer:
    """Printer and recorder of one run, from its start to its final table.

    Attributes:
        remarks: remarks printed again at the end of the run.
        table: function returning the lines of the final table, up to the newest round.
    """

    def __init__(
        self, grid: Engine, plan: RunPlan, recorder: Recorder, console: Console, tracking: Tracking
    ) -> None:
        """Announcer of a run.

        Args:
            grid: the engine, which may know the workers its clients run on.
            plan: the run's plan; its clock is charged with "record" and "report".
            recorder, console, tracking: outputs.
        """
        self._grid = grid
        self._plan = plan
        self._recorder = recorder
        self._console = console
        self._tracking = tracking
        self._timelines = TimelineBook(process_number())
        self._nodes = NodeBook(process_number())
        self._memory = MemoryWatch()
        self._growth = GrowthWatch()
        self._account: Account | None = None
        self._sent: tuple[str, ...] = ()
        self.remarks = Remarks()
        self.table: Callable[[], Sequence[str]] = list

    def resumed(self, resumption: Resumption) -> None:
        """Print and log the point at which the run resumes."""
        for note in resumption.notes:
            self._console.say(f"note: {note}")
            logger.warning("%s", note)
        entry = self._recorder.manifest["resumed"][-1]
        global_round = resumption.checkpoint.global_round
        self._console.say(f"resuming {short(resumption.folder)} after global round {global_round}")
        logger.info("resuming after global round %d: %s", global_round, entry)
        if changed := entry.get("versions_changed"):
            versions = ", ".join(f"{name} was {before}, is {now}" for name, (before, now) in changed.items())
            self._console.say(f"note: the last bits may differ from here on: {versions}")
        for line in entry.get("code_changed", ()):
            self._console.say(f"note: {line}")
            logger.warning("%s", line)

    def data(self, facts: DataFacts, seed_source: str) -> None:
        """Print and record the data set: its size, split, clients and planted groups."""
        source, dealt, sizes, order = facts.source, facts.partition, facts.clients_per_leaf, facts.order
        self._recorder.update_manifest(
            data=facts.describe(),
            clients_per_leaf=sizes,
            unseen_clients=sorted(dealt.unseen_clients),
            scenario=dealt.scenario and dealt.scenario.describe(),
        )
        holdings = facts.holdings
        self._recorder.write_partition(holdings)
        config = self._plan.config
        above = tiers_between(config.hierarchy.shape, config.hierarchy.tier_names)
        self._console.say(
            f"Fedge: {quantity(config.num_server_rounds, 'global round')}, "
            f"{quantity(sum(sizes), 'client')} under {quantity(len(sizes), 'leaf')} "
            f"({','.join(map(str, sizes))}){above}, model {config.train.model}, "
            f"seed {self._plan.seed} (from {seed_source})"
        )
        self._console.say(
            f"data: {source.name}, {quantity(facts.windows, 'window')}, split by {dealt.split_kind}"
        )
        if unseen := len(dealt.unseen_clients):
            verb = "holds its" if unseen == 1 else "hold their"
            self._console.say(f"unseen clients: {quantity(unseen, 'client')} {verb} users out of training")
        self._note([order.line()] if order and not order.is_kept else [])
        self._note(facts.remarks)
        self._note(
            f"partition {client} is left out of the statistics for scaling (data.normalize): {reason}"
            for client, reason in facts.left_out.items()
        )
        self._print_undetectable_groups(known_per_leaf(sizes, config.partition.unseen_clients))
        self._warn_of_class_shares(class_gap(holdings))
        if dealt.scenario:
            self._console.say(dealt.scenario.line())
        notes = [_SYNTHETIC] if source.synthetic else []
        if "cast" in facts.about:
            notes.append(f"data were cast: {facts.about['cast'][:_LONGEST]}")
        for note in [*notes, *options_without_effect(config), *effects_twice(config)]:
            self._console.say(f"note: {note}")
            logger.warning("%s", note)
        if config.privacy.kind != "off":
            self._open_account(sizes)

    def devices(self, devices: Mapping[str, int], chosen: Mapping[str, str]) -> None:
        """Record the devices of clients, and print them unless all are CPUs.

        Args:
            devices: "cpu" or a GPU's name → number of clients.
            chosen: "name" of the device chosen by train.device auto, and "why"; empty if there was no choice.
        """
        if chosen:
            self._recorder.update_manifest(device=dict(chosen))
            device = "the CPU" if chosen["name"] == CPU else "the GPU"
            line = f"train.device auto: {device}, since {chosen['why']}"
            self._console.say(line)
            logger.info("%s", line)
        previous = self._recorder.manifest.get("devices", dict(devices))
        self._recorder.update_manifest(devices=dict(devices))
        words = _devices_in_words(devices)
        if previous and devices and set(previous) != set(devices):
            was = _devices_in_words(previous)
            self._console.say(
                f"note: results may differ from here on: clients computed on {was}, now on {words}"
            )
        if set(devices) - {CPU}:
            self._console.say(f"clients compute on {words}")
            logger.info("clients compute on %s", words)
        self._note(self._ineffective_gpu_options(devices))

    def _ineffective_gpu_options(self, devices: Mapping[str, int]) -> list[str]:
        """Notes on GPU options without effect on these devices, or with this number of threads."""
        train, threads = self._plan.config.train, self._recorder.manifest["federation"].get("workers", 1)
        if set(devices) == {CPU}:
            if train.precision in (FLOAT32, ROUNDED):  # whether ROUNDED has an effect depends on the kernel
                return []
            return [f"train.precision {train.precision} has no effect: clients compute on the CPU"]
        if CPU in devices and train.precision == TF32:
            return [f"train.precision {train.precision}: clients on the CPU compute in float32"]
        if devices and threads > self._gpus_of_process() and train.cuda_graph == "auto":
            return [
                f"train.cuda-graph: steps are not recorded as graphs, since {threads} threads of this "
                f"process share GPUs; with a thread per GPU (no --workers) they are, which is often faster"
            ]
        return []

    def _gpus_of_process(self) -> int:
        """Number of GPUs shared by the threads of this process; at least 1."""
        torch = sys.modules.get("torch")  # clients in this process have loaded it
        return max(1, torch.cuda.device_count()) if torch is not None else 1

    def kernel(self, kernel: Kernel) -> None:
        """Record the kernel of CPU steps; if PyTorch replaces the native step, print the reason.

        With train.kernel auto, the default, the reason is printed once and not repeated at the end.
        """
        before = self._recorder.manifest.get("kernel", {}).get("name", kernel.name)
        if before != kernel.name:
            self._console.say(
                f"note: the last bits may differ from here on: the kernel was {before}, is {kernel.name}"
            )
        self._recorder.update_manifest(kernel={"name": kernel.name, "why": kernel.reason})
        if kernel.differing_kernels:
            line = (
                f"train.kernel: all train with {kernel.name}, though there are others "
                f"({kernel.differing_kernels})"
            )
            self._note([f"{line}, so that bits agree"])
        if kernel.reason and self._plan.config.train.kernel == AUTO:
            logger.warning("train.kernel: PyTorch trains, since %s", kernel.reason)
            self._console.say(f"note: train.kernel: PyTorch trains, since {kernel.reason}")
        elif kernel.reason:
            self._note([f"train.kernel: PyTorch trains, since {kernel.reason}"])
        devices = self._recorder.manifest.get("devices") or {CPU: 0}
        if kernel.name == TORCH and CPU in devices and self._plan.config.train.precision == ROUNDED:
            cpus_only = len(devices) == 1
            effect = (
                " has no effect: PyTorch trains" if cpus_only else ": clients on the CPU compute in float32"
            )
            self._note([f"train.precision {ROUNDED}{effect}"])
        if kernel.name.endswith(BF16) and not kernel.name.endswith(f"amx{BF16}"):
            self._note(
                [f"train.precision {ROUNDED}: factors are rounded without a gain: this machine has no AMX"]
            )

    def _open_account(self, sizes: Sequence[int]) -> None:
        """Print and record the privacy guarantee, and open the privacy account."""
        config = self._plan.config
        known_clients = known_per_leaf(sizes, config.partition.unseen_clients)
        self._leaves = coverage.SentQuantities(quantities(), sent_quantities(config.cluster))
        afresh = CLIENT_SELECTIONS.has(config.hierarchy.selection, AFRESH)  # others count all clients
        drawn = [
            (num_training(config, count, leaf=leaf) if afresh else count, count)
            for leaf, count in enumerate(known_clients)
        ]
        account = Account(config.privacy, drawn)
        self._recorder.update_manifest(
            privacy={
                "promise": coverage.protection_of(config.privacy.kind),
                "not_covered": coverage.unprotected_quantities(config, self._leaves),
                "accountant": account.library,
                "noise_source": config.privacy.noise_source,
            }
        )
        line = coverage.at_start(config, account.library, self._leaves)
        self._console.say(f"note: {line}")
        logger.warning(line)
        self._account = account

    def _print_undetectable_groups(self, sizes: Sequence[int]) -> None:
        """Print the groups too small to detect with leaves of these sizes, if clustering tests deals."""
        config, cluster = self._plan.config, self._plan.config.cluster
        of_children = config.hierarchy.leaves_option
        if config.asynchrony.is_on:  # on the virtual clock, the cloud compares its children of any tier
            sizes, of_children = (
                sizes_of_branches(config.hierarchy, sizes),
                config.hierarchy.children_option(0),
            )
        line = small_leaf_warning(cluster.level, sizes, of_children) if cluster.deals else None
        if line is not None:
            self._note([line])

    def _warn_of_class_shares(self, gap: float) -> None:
        """Print a warning if class shares differ much between leaves, and clustering tests deals."""
        if self._plan.config.cluster.deals and gap > _MUCH_OF_A_LEAF:
            self._note([
                f"leaves hold other shares of the classes (total variation up to {gap:.2f}): the test of "
                "groups sees that; a split must serve people with the classes of all leaves, too, so groups "
                "are found less often"
            ])  # fmt: skip

    def track(self) -> None:
        """Send the manifest to the tracker before the first round."""
        self._tracking.start(self._recorder.manifest)

    def accounted(self, result: RoundResult) -> RoundResult:
        """A global round with the privacy spent so far, if privacy is accounted for."""
        if self._account is None:
            return result
        result = replace(result, epsilon_spent=self._account.spent(result.releases))
        self.remarks.on_privacy = coverage.spent_privacy_line(
            self._plan.config, result.epsilon_spent, result.releases, self._leaves
        )
        return result

    def round(self, result: RoundResult, laps: Mapping[str, float]) -> None:
        """Record and print one global round; the time spent here is charged to the next round.

        Args:
            result: result from `accounted`.
            laps: phase → its seconds.
        """
        remote, node_processes = self._grid.remote_processes(), self._nodes.round(result.exchanges)
        clocks = {machine: MachineClock(name=name) for machine, name in self._nodes.names.items()}
        processes = sort_processes([*self._memory.measure(), *remote.processes, *node_processes])
        worker_ids = [process.known_as for process in processes if process.role == "worker"]
        timelines = self._timelines.round(
            result.began, result.exchanges, self._grid.worker_ids or worker_ids,
            {**clocks, **remote.clocks},
        )  # fmt: skip
        if timelines is not None and timelines.cuda_mib:
            processes = with_cuda(processes, timelines.cuda_mib)
        self._recorder.write_round(result, laps, processes, timelines)
        self._plan.clock.lap("record")
        refuse_failed_log()
        self.remarks.observe(result)
        seconds = sum(laps.values())
        self._note(self._grid.new_remarks())
        self._note(self._growth.observe(result.global_round, processes))
        self._note(self._tracking.observe(result, seconds), repeat=False)
        for line in changes_of(result):
            logger.info("%s", line)
            self._console.say(f"note: {line}")
        self._console.round(result, seconds)
        logger.info("global round %d done in %.3f s", result.global_round, seconds)
        self.table = partial(final_table, result)
        self._plan.clock.lap("report")

    def stopped(self, stop: Stop) -> None:
        """Print and record that a callback has stopped the run."""
        planned = self._plan.config.num_server_rounds
        entry = {"by": stop.by, "after_round": stop.global_round, "reason": stop.reason}
        self._recorder.update_manifest(stopped=entry)
        self._note(
            [f"stopped after global round {stop.global_round} of {planned} by {stop.by}: {stop.reason}"]
        )

    def finish(self) -> None:
        """Report the run's status to the tracker, and print the final table."""
        status = "partial" if self.remarks.any_failed else "completed"
        self._note(self._tracking.finish(status, exits.BY_STATUS[status], FINISH_S), repeat=False)
        self._console.close()
        for line in self.table():
            self._console.say(line)

    def note(self, line: str) -> None:
        """Print a note, log it, and repeat it at the end of the run."""
        self._note([line])

    def _note(self, lines: Iterable[str], repeat: bool = True) -> None:
        """Print notes, log and record them, and `repeat` them at the end of the run."""
        for line in lines:
            logger.warning("%s", line)
            self._console.say(f"note: {line}")
            self.remarks.note(line, repeat)


def _devices_in_words(devices: Mapping[str, int]) -> str:
    """Devices of clients, in words.

    >>> _devices_in_words({"cpu": 9})
    'the CPU'
    >>> _devices_in_words({"NVIDIA T4": 2, "cpu": 1})
    'NVIDIA T4 (2 clients) and the CPU (1 client)'
    """
    names = {name: "the CPU" if name == CPU else name for name in devices}
    if len(names) == 1:
        return next(iter(names.values()))
    return " and ".join(
        f"{names[name]} ({count} client{'s' if count > 1 else ''})" for name, count in devices.items()
    )
