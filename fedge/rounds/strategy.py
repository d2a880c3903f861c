"""HierarchicalStrategy: clients under leaf servers, which are under a cloud or under regions below it.

One global round (Liu et al. 2020, HierFAVG, for the two levels) is `HierarchicalStrategy.global_round`:

    leaf rounds   all leaves train at once, `leaf-rounds` times          fedge.rounds.training
    regions       average their children, `region-rounds` times          fedge.cloud.region
    cloud step    the cloud groups its children and makes offers         fedge.rounds.server_round
    gates         clients evaluate own and offered models, leaves decide fedge.rounds.gates
    fine-tuning   for a leaf's known clients                             fedge.rounds.served_models

The strategy holds the servers and the order of steps; it reaches leaf servers and their clients through
`fedge.rounds.port`. Flower's strategies handle one model and one exchange per round, so they are used within
each leaf (`fedge.leaf.strategies.rules`).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from fedge.cloud.aggregator import CloudAggregator, step_from_parent_models
from fedge.cloud.region import Region, all_regions, leaves_below
from fedge.config.registers.parts import RULES
from fedge.config.tree import Path, dotted
from fedge.exchange.engine import RunError
from fedge.leaf.leaf import Leaf
from fedge.leaf.moving import restore_places
from fedge.leaf.server import Server, set_update_bases
from fedge.rounds import lines
from fedge.rounds.evaluation import EvaluationRequest
from fedge.rounds.measurements.results import RoundResult
from fedge.rounds.measurements.server_rows import server_rows
from fedge.rounds.measurements.virtual_time import VirtualTime, bytes_between_servers
from fedge.rounds.mobility import mover_of
from fedge.rounds.port import PortContext, PortMaker, TrainsAhead
from fedge.rounds.routed_leaves import EnginePort
from fedge.rounds.served_models import LastSteps
from fedge.rounds.server_round import ServerRounds, ServerSeat
from fedge.rounds.task import RunTask
from fedge.rounds.transport import RoundServices, Transport
from fedge.serving import personal
from fedge.states.averaging import State
from fedge.states.memory import KeptVersion
from fedge.states.named_states import states_under
from fedge.states.restore_checks import checked_int, refuse_other_states, refuse_unequal_facts, state
from fedge.tasks.configured import task_of

logger = logging.getLogger(__name__)

RoundHook = Callable[[RoundResult, dict[str, float]], bool]
"""(result, laps) of a global round → whether the run is to end after it."""


class HierarchicalStrategy:
    """Holds the servers, and runs global rounds.

    Attributes:
        leaves: all leaves, in order.
        branches: children of the cloud, in order: the leaves, or the regions of a deeper tree.
    """

    def __init__(
        self,
        task: RunTask,
        branches: Sequence[Server],
        cloud: CloudAggregator,
        facilities: RoundServices,
        on_round: RoundHook,
        make_port: PortMaker = EnginePort,
        inner: Mapping[Path, CloudAggregator] | None = None,
    ) -> None:
        """Set up the servers.

        Args:
            task: task of the run.
            branches: children of the cloud, in order; every client, seen or unseen, belongs to exactly one.
            cloud: groups and averages its children's models.
            facilities: services shared by all rounds.
            on_round: called with every round's result and the seconds of its phases.
            make_port: makes the connection to leaf servers; by default they are in this process.
            inner: path → aggregator, for regions that group, apply a rule or give a choice.
        """
        config = task.config
        self.branches = list(branches)
        self.leaves = [leaf for branch in branches for leaf in leaves_below(branch)]
        self._regions = all_regions(self.branches)
        self._task = task
        self._config = config
        self._on_round = on_round
        samples = {c: count for leaf in self.leaves for c, count in leaf.train_samples.items()}
        self._transport = Transport(facilities, samples, config.guard.retries)
        self._port = make_port(PortContext(task, self.leaves, self._transport, self._regions))
        self._clouds = {(): cloud, **(inner or {})}
        region_at = {region.path: region for region in self._regions}
        self._server_rounds: dict[Path, ServerRounds] = {}
        for path, aggregator in self._clouds.items():
            region = region_at.get(path)
            seat = ServerSeat(path, region.below if region else self.branches, aggregator, task, region)
            self._server_rounds[path] = ServerRounds(seat, self._transport, self._port)
        self._root = self._server_rounds[()]
        parts = self.leaves, self._transport, self._port, self._leaf_round
        self._last_steps = LastSteps(task, *parts)
        self._time = None if facilities.pace is None else VirtualTime(facilities.pace, branches)
        self._releases = 0  # number of leaf rounds so far, over all lines
        self._mover = mover_of(config, task.seed, self.leaves)
        self._restored: int | None = None  # the last global round before this process started

    def summary(self) -> None:
        """Log the tree with its numbers of clients."""
        for leaf in self.leaves:
            logger.info(
                "leaf %d: clients %s, unseen clients %s, %d training windows",
                leaf.index, list(leaf.clients), list(leaf.unseen_clients), leaf.weight,
            )  # fmt: skip

    def start(self, initial: State, num_rounds: int, timeout_s: float) -> None:
        """Run up to global round `num_rounds`; the resulting models are in `leaves`.

        Args:
            initial: initial model of all leaves in a new run; a resumed run continues with its own models.
            num_rounds: total number of global rounds.
            timeout_s: seconds allowed to a client for one message.

        Raises:
            RunError: no client could train, or the engine stopped.
        """
        self.summary()
        self._transport.timeout_s = timeout_s
        keep = self._transport.shared.keep
        initial = keep(dict(initial))  # the cloud's own path differs, as after a resume
        for cloud in self._clouds.values():
            cloud.set_initial_model(initial)
        for branch in self.branches:
            if self._restored is None:
                branch.begin(initial)
            branch.set_correction(None)
            branch.keep_states(keep)
        for global_round in range((self._restored or 0) + 1, num_rounds + 1):
            result = self.global_round(global_round, num_rounds)
            self._transport.lap("report")
            if self._on_round(result, self._transport.finish_round()):
                break

    def global_round(self, global_round: int, num_rounds: int) -> RoundResult:
        """Run one global round: leaf rounds, cloud step, gates, fine-tuning.

        Args:
            global_round: 1, 2, …, `num_rounds`.
            num_rounds: total number of global rounds; fine-tuning may be for the last one only.
        """
        self._transport.begin_round(global_round)
        self._transport.hooks.begin_round(global_round)
        if self._mover is not None:
            arguments = global_round, self.leaves, self._clouds[()], self._transport.shared.keep
            self._transport.book.came_from = self._mover.move_clients(*arguments)
        if global_round == 1:
            for rounds in self._server_rounds.values():
                rounds.choose_first()
        self._train(global_round)
        traffic_before = deepcopy(self._transport.book.traffic)
        self._root.hold_if_due(global_round * self._config.hierarchy.leaf_rounds_per_global)
        self._transport.lap("cluster")
        # a callback may have ended the run during this round
        last = global_round if self._transport.hooks.is_ending else num_rounds
        evaluates = (  # evaluate served models when due, or if a decision needs it
            self._config.evaluate.is_due(global_round, last)
            or personal.is_due(self._config.personal, global_round, last)
            or not self._root.gates.is_predetermined(self._root.record)
        )
        request = self._let_gates_decide(
            evaluates, evaluates and self._trains_ahead(global_round, num_rounds)
        )
        if self._time is not None:
            self._time.aggregate(
                self.branches, bytes_between_servers(self._transport.book.traffic, traffic_before)
            )
        self._last_steps.carry_out(global_round, last, None if evaluates else request)
        return self._result(global_round)

    @property
    def may_end_late(self) -> bool:
        """Whether the latest global round gets further steps if the run ends with it (`end_late`)."""
        return self._last_steps.may_follow

    def end_late(self) -> tuple[RoundResult, dict[str, float]]:
        """Evaluate and fine-tune after the latest global round, which was not planned as the last.

        Returns:
            The round's updated result, and the additional seconds by phase.
        """
        self._last_steps.carry_out_late(self._root)
        return self._result(self._transport.book.global_round), self._transport.finish_round()

    def _result(self, global_round: int) -> RoundResult:
        """The rows of a global round."""
        truth = None if self._task.truth is None else self._task.truth(global_round)
        book, time = self._transport.book, self._time
        return replace(
            book.result(self.leaves, truth, task_of(self._config.train)),
            servers=server_rows(book, self.branches),
            releases=self._releases,
            tier_names=self._config.hierarchy.tier_names,
            virtual_s=None if time is None else time.now_s,
            joules=None if time is None else time.joules,
        )

    def _train(self, global_round: int) -> None:
        """Let leaves train their models, and the lines beside them.

        Raises:
            RunError: no client could train.
        """
        per_global = self._config.hierarchy.leaf_rounds_per_global
        hooks, book = self._transport.hooks, self._transport.book
        for leaf_round in range((global_round - 1) * per_global + 1, global_round * per_global + 1):
            for rounds in self._server_rounds.values():
                rounds.begin_if_due(leaf_round)
            hooks.begin_leaf_round(global_round, leaf_round)
            # first, so all lines train with the same control variates
            for training in lines.extra_lines(self.leaves):
                self._leaf_round(training, leaf_round)
                lines.assign_fork_models(training, self.leaves)
            counted = self._leaf_round(lines.own_models(self.leaves), leaf_round)
            if counted == 0:
                client, failure = min(book.failures.items())
                raise RunError(
                    f"no client could train in global round {global_round}; client {client}: {failure}"
                )
            book.requests.receivers.clear()  # later leaf rounds start from different models
            hooks.end_leaf_round(global_round, leaf_round, counted, book.train_loss, book.failures)
            self._combine(leaf_round)

    def _combine(self, leaf_round: int) -> None:
        """Let regions whose round ends combine their children.

        Raises:
            FloatingPointError: a mean is not finite.
        """
        for region in self._regions:  # lowest tier first
            rounds = self._server_rounds.get(region.path)
            if leaf_round % self._config.hierarchy.leaf_rounds_of(len(region.path)):
                continue
            book = self._transport.book
            traffic_before = deepcopy(book.traffic)
            if rounds is not None:
                rounds.combine(leaf_round)
            else:
                if not self._port.has_combined(region):
                    region.combine(book.global_round, self._transport.shared.keep)
                book.note_region(region)
            step_from_parent_models(self._regions, self._clouds)
            if self._time is not None:
                self._time.aggregate(region.below, bytes_between_servers(book.traffic, traffic_before))

    def _leaf_round(self, training: lines.TrainingLine, leaf_round: int) -> int:
        """Let leaves, or their forks, train for a leaf round; return the number of accepted replies."""
        book = self._transport.book
        book.trained, book.asked_clients, book.answered = set(), 0, 0
        uplink_before, downlink_before = book.uplink_bytes, book.downlink_bytes
        counted = self._port.train(training, leaf_round)
        if self._time is not None and book.trained:
            up_bytes, down_bytes = book.uplink_bytes - uplink_before, book.downlink_bytes - downlink_before
            self._time.train(book.trained, up_bytes / book.answered, down_bytes / book.asked_clients)
        self._releases += 1
        return counted

    def _trains_ahead(self, global_round: int, num_rounds: int) -> bool:
        """Whether clients may train for the next round in the exchange for evaluating this round's models.

        The evaluations must not affect the training, nothing may need the round's results before it starts,
        and the round's row must not be delayed for long. After a client has failed, the two are requested
        one after the other.
        """
        config, book = self._config, self._transport.book
        return (
            global_round < num_rounds
            and isinstance(self._port, TrainsAhead)
            and self._transport.has_trained_soon
            and self._transport.can_hold_replies(self.leaves[0].model)
            and not config.callbacks
            and all(leaf.algorithm is None for leaf in self.leaves)  # a memory, or models to evaluate
            and not RULES.is_own(config.leaf.strategy)
            and self._mover is None  # places of clients are known only when the next round begins
            and not personal.is_due(config.personal, global_round, num_rounds)
            and not book.failures
            and self._root.gates.is_predetermined(self._root.record)
            and not lines.has_extra_lines(self.leaves)
        )

    def _let_gates_decide(self, evaluates: bool, trains_ahead: bool) -> EvaluationRequest:
        """Let clients evaluate the gates' candidates, let every gate decide, and apply the decisions.

        Args:
            evaluates: whether clients evaluate; if not, decisions do not depend on it.
            trains_ahead: whether clients train for the next global round in the same exchange.

        Returns:
            The gates' candidate models.
        """
        book, root = self._transport.book, self._root
        request = root.gates.evaluation_request(root.record)
        leaf_request = request.of_leaves(self.branches)
        if evaluates and not trains_ahead:
            book.evaluated = self._port.evaluate(leaf_request)
        root.gates.decide(root.record, request, book.evaluated)
        step_from_parent_models(self._regions, self._clouds)
        root.begin_new_drifts()
        for region in self._regions:
            region.depart()
        if root.record.step:
            set_update_bases(self.branches)
        if trains_ahead:
            assert isinstance(self._port, TrainsAhead)
            first = book.global_round * self._config.hierarchy.leaf_rounds_per_global + 1
            book.evaluated = self._port.evaluate_and_train(leaf_request, lines.own_models(self.leaves), first)
            root.gates.decide_again(root.record, book.evaluated)
        self._transport.lap("gate")
        return leaf_request

    # --- state beyond the process ---------------------------------------------------------------------

    def unseen_models(self) -> dict[int, State]:
        """Leaf → model for unseen clients, if it differs from that of known clients."""
        models = {leaf.index: leaf.models for leaf in self.leaves}
        return {i: m.unseen for i, m in models.items() if m.unseen is not None and m.unseen is not m.served}

    def states(self) -> dict[str, State]:
        """States from which the next global round starts: ``<path>/<kind>``, ``cloud/<kind>``."""
        servers: list[Leaf | Region] = [*self.leaves, *self._regions]
        result = {
            f"{dotted(server.path)}/{kind}": s for server in servers for kind, s in server.states().items()
        }
        for rounds in self._server_rounds.values():
            result |= {rounds.prefix + kind: state for kind, state in rounds.states().items()}
        return result

    def client_controls(self) -> dict[int, State]:
        """Partition id → SCAFFOLD's c_i if not zero, in order."""
        return {c: leaf.client_controls[c] for leaf in self.leaves for c in sorted(leaf.client_controls)}

    def kept_memories(self) -> dict[int, KeptVersion]:
        """Partition id → the valid version of its memory, for clients with one."""
        return {c: kept for leaf in self.leaves if leaf.algorithm for c, kept in leaf.algorithm.kept.items()}

    def restore_client_controls(self, controls: Mapping[int, State]) -> None:
        """Restore the c_i of clients; the arrays become the leaves' own.

        Raises:
            ValueError: a client does not train here, or its c_i differs in entries from its leaf's c.
        """
        for leaf in self.leaves:
            leaf.client_controls = {c: controls[c] for c in leaf.clients if c in controls}
            for client, control in leaf.client_controls.items():
                state(control, leaf.control or {}, f"the control variate of client {client}")
        if strangers := controls.keys() - {c for leaf in self.leaves for c in leaf.clients}:
            raise ValueError(f"there is a control variate of client {min(strangers)}, which no leaf has")

    def facts(self) -> dict[str, Any]:
        """Other state for the next global round, as JSON."""
        return {**self._facts(), "port": self._port.facts()}

    def _facts(self) -> dict[str, Any]:
        """The same without the state of leaf servers, which record every call."""
        inner = {dotted(path): rounds.facts() for path, rounds in self._server_rounds.items() if path}
        return {
            **self._root.facts(),
            "leaves": [leaf.facts() for leaf in self.leaves],
            **({"inner": inner} if inner else {}),
            **({"regions": [region.facts() for region in self._regions]} if self._regions else {}),
            **({} if self._mover is None else {"places": [list(leaf.clients) for leaf in self.leaves]}),
            "releases": self._releases,
            **({} if self._time is None else {"virtual_time": self._time.facts()}),
        }

    def restore(self, global_round: int, states: Mapping[str, State], facts: Mapping[str, Any]) -> None:
        """Continue after `global_round` from the result of `states` and `facts`.

        Raises:
            ValueError: they do not belong to this run's.
        """
        if self._mover is not None:
            restore_places(self.leaves, facts["places"])
        for leaf, server_facts in zip(self.leaves, facts["leaves"], strict=True):
            leaf.restore(states_under(f"{dotted(leaf.path)}/", states), server_facts)
        for region, server_facts in zip(self._regions, facts.get("regions", ()), strict=True):
            region.restore(states_under(f"{dotted(region.path)}/", states), server_facts)
        for path, rounds in self._server_rounds.items():
            server_facts = facts["inner"][dotted(path)] if path else facts
            rounds.restore(states_under(rounds.prefix, states), server_facts)
        self._releases = checked_int(facts["releases"], "the number of releases")
        self._port.restore(facts["port"])
        if self._time is not None:
            self._time.restore(facts["virtual_time"])
        refuse_unequal_facts({name: fact for name, fact in facts.items() if name != "port"}, self._facts())
        refuse_other_states(states, self.states())
        self._restored = global_round
