"""Clients' algorithm on the virtual clock: memories of devices, and the algorithm's leaf parts.

A job starts from the valid version of its device's memory. Its new version becomes valid when its reply is
accepted, and so in the order of virtual time; never if the job is lost, fails, or is too stale.

A leaf part that computes the leaf's model does so at each new version, from the result of the server's rule.
One that reads single replies needs a rule that works in rounds, and gets the replies of the round, weighted
by windows and share of steps. If a reply started from another model than the leaf's current one, which the
cloud may have changed meanwhile, its change is applied instead:

    state = the leaf's model + (trained − start)
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flwr.app import Message

from fedge.algorithm.leaf_part import LeafTurn, ReplyToLeaf
from fedge.config.registers.failing import own_errors
from fedge.devices.clients.results import Population
from fedge.devices.servers.arrivals import Arrival
from fedge.devices.servers.server import DeviceServer
from fedge.devices.servers.vectors import Version
from fedge.devices.work.jobs import Job
from fedge.exchange.algorithm import ReplyForm
from fedge.exchange.failure import Failure, rejection_failure, words_of
from fedge.exchange.train import TrainReply
from fedge.leaf.algorithm import LeafAlgorithm
from fedge.leaf.strategies.checks import refuse_impossible
from fedge.states.averaging import State
from fedge.states.files import state_bytes
from fedge.states.memory import KeptVersion, MemoryVersion

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class WaitingReply:
    """An accepted reply, kept until the next version of its leaf.

    Attributes:
        arrival: the arrival as the rule got it.
        extra: packed arrays beside the model.
    """

    arrival: Arrival
    extra: State


class ClockAlgorithms:
    """Leaf parts of the clients' algorithm.

    Attributes:
        leaves: leaf part of each leaf, in order.
        waiting: per leaf, the replies of its round, if its leaf part reads them.
    """

    def __init__(
        self,
        leaves: Sequence[LeafAlgorithm],
        population: Population,
        step_size: Callable[[int], float],
        seed: int,
    ) -> None:
        """Start without memories.

        Args:
            leaves: leaf part of each leaf, in order.
            population: clients and leaves of the run.
            step_size: global round 1, 2, … → its step size.
            seed: seed of the run.
        """
        self.leaves = list(leaves)
        self.waiting: list[list[WaitingReply]] = [[] for _ in self.leaves]
        self._population = population
        self._clients = [len(devices) for devices in population.devices_by_leaf()]
        self._step_size, self._seed = step_size, seed

    @property
    def form(self) -> ReplyForm:
        """Form of devices' messages, the same for all leaves."""
        return self.leaves[0].form

    def bytes_moved(self, model: Version) -> tuple[int, int]:
        """Bytes of a message to a device, and of its reply: the model's entries, and arrays beside it."""
        arrays = sum(np.dtype(kind).itemsize * math.prod(shape) for shape, kind in self.form.arrays.values())
        sent = sum(model.state[name].nbytes for name in self.form.entries)
        return model.nbytes + state_bytes(self.leaves[0].beside), sent + arrays

    def task(self, keeps: bool = True) -> dict[str, Any]:
        """Facts of `TrainTask` on devices' replies.

        Args:
            keeps: whether devices with a memory should make a new version of it.
        """
        return {"form": self.form, "keeps": keeps and self.form.keeps, "carries": self.leaves[0].carries}

    # --- messages to devices ------------------------------------------------------------------------

    def valid(self, device: int) -> KeptVersion | None:
        """The valid version of a device's memory, or None."""
        return self._leaf_of(device).kept.get(device)

    def prepare_job(self, message: Message, job: Job) -> None:
        """Add the leaf part's content, and the version of memory to start from, to a job's message."""
        counted = {} if job.kept is None else {job.device: job.kept}
        self._leaf_of(job.device).add_to_messages(
            [message], _node_by_device(message, job.device), keep=True, counted=counted
        )

    def prepare_probe(self, message: Message, device: int) -> None:
        """Add the same to a message after which the device makes no new version."""
        self._leaf_of(device).add_to_messages([message], _node_by_device(message, device))

    def prepare_evaluation(self, message: Message, client: int) -> None:
        """Add the valid version of its memory to a client's evaluation of its own models, seen or unseen."""
        unseen = client in self._population.unseen
        self._leaf_of(client).add_to_messages(
            [message], _node_by_device(message, client), evaluate=True, unseen=unseen
        )

    def asked_models(self, client: int) -> bool:
        """Whether a client should evaluate the models of its algorithm."""
        return bool(self.form.models) and (client not in self._population.unseen or self.form.unseen)

    # --- replies ------------------------------------------------------------------------------------

    def usable(self, job: Job, reply: TrainReply, server: DeviceServer, period: int) -> TrainReply | Failure:
        """A reply fit for the leaf part to combine, at least on its own; otherwise the failure.

        Args:
            job: job of the reply.
            reply: reply with all entries of the model.
            server: server of the leaf.
            period: evaluations so far, plus 1.
        """
        algorithm, leaf = self.leaves[job.server], server.version
        if not algorithm.reads_replies:
            return reply
        arrival = Arrival(
            job.device, 0, job.start.vector, leaf.layout.vector(reply.state), reply.mean_weight,
            leaf.layout.counters(reply.state),
        )  # fmt: skip
        waiting = WaitingReply(arrival, reply.extra)
        try:
            state = self._rebased(waiting, leaf).state
            turn = self._turn(job.server, server.number + 1, period)
            self._combine_replies(algorithm.copied(), turn, leaf, state, [waiting])
        except own_errors() as error:  # a user's part may raise anything
            return rejection_failure("cannot be combined", words_of(error))
        return reply

    def admit(self, job: Job, reply: TrainReply, arrival: Arrival) -> None:
        """Make an accepted reply's memory version valid; keep the reply if the leaf part reads any."""
        algorithm = self.leaves[job.server]
        algorithm.note_kept({job.device: reply})
        if algorithm.reads_replies:
            self.waiting[job.server].append(WaitingReply(arrival, reply.extra))

    def combine(self, leaf: int, previous: Version, server: DeviceServer, period: int) -> None:
        """Let a leaf part compute the leaf's model, after its rule has made a version.

        If this fails, although the part can combine each reply on its own, the leaf keeps its model, as in
        rounds.

        Args:
            leaf: number of the leaf.
            previous: the leaf's model before the version.
            server: server of the leaf.
            period: evaluations so far, plus 1; it determines the step size.
        """
        algorithm = self.leaves[leaf]
        if not algorithm.combines:
            return
        waiting, self.waiting[leaf] = sorted(self.waiting[leaf], key=_device_of), []
        updated = algorithm.copied()
        try:
            turn = self._turn(leaf, server.number, period)
            combined = self._combine_replies(updated, turn, previous, server.version.state, waiting)
        except own_errors() as error:  # as in `usable`
            logger.warning("leaf %d cannot combine its replies: %s", leaf, words_of(error))
            server.version = previous
            return
        self.leaves[leaf] = updated
        layout = server.version.layout
        server.change(layout.vector(combined), layout.counters(combined))

    def _combine_replies(
        self, algorithm: LeafAlgorithm, turn: LeafTurn, previous: Version, rule_state: State,
        waiting: Sequence[WaitingReply],
    ) -> State:  # fmt: skip
        """The leaf part's model from replies; also updates its memory.

        Raises:
            Exception: any error of the part, or FloatingPointError.
        """
        changes = [self._rebased(reply, previous) for reply in waiting]
        lr = self._step_size(turn.global_round)
        combined = algorithm.combined(previous.state, rule_state, changes, self._clients[turn.leaf], lr, turn)
        refuse_impossible(combined, previous.layout.variance_names)
        return combined

    def _turn(self, leaf: int, version: int, period: int) -> LeafTurn:
        """Context of a leaf for its new version, counted from 1."""
        return LeafTurn(leaf, period, version, self._seed, (version, leaf))

    def _rebased(self, reply: WaitingReply, leaf: Version) -> ReplyToLeaf:
        """A reply in terms of its change of the leaf's model."""
        arrival, vector = reply.arrival, reply.arrival.end
        if arrival.start is not leaf.vector:
            vector = (leaf.vector + arrival.delta).astype(vector.dtype)
        state = leaf.layout.state(vector, arrival.counters)
        return ReplyToLeaf(arrival.child, state, arrival.weight * arrival.share, reply.extra)

    def _leaf_of(self, client: int) -> LeafAlgorithm:
        return self.leaves[self._population.leaf_of[client]]

    # --- state beyond the process -------------------------------------------------------------------

    def kept_memories(self) -> dict[int, KeptVersion]:
        """Device → valid version of its memory, for devices with one."""
        return {device: kept for leaf in self.leaves for device, kept in leaf.kept.items()}

    def facts(self) -> list[Any]:
        """State of the leaves other than memories of their parts and waiting replies, as JSON."""
        return [leaf.facts() for leaf in self.leaves]

    def memories(self) -> dict[str, State]:
        """Memories of the leaf parts, by number of the leaf; parts without memory are left out."""
        return {str(number): leaf.memory for number, leaf in enumerate(self.leaves) if leaf.memory}

    def restore(self, memories: Mapping[str, State], facts: Sequence[Mapping[str, Any]]) -> None:
        """Restore the results of `memories`, whose arrays the leaves take over, and of `facts`."""
        for number, (leaf, leaf_facts) in enumerate(zip(self.leaves, facts, strict=True)):
            leaf.restore(memories.get(str(number), {}), leaf_facts)


def fill_missing_entries(reply: TrainReply, start: Version) -> TrainReply:
    """A reply with all entries of the model, where entries not sent are taken from the starting model."""
    if len(reply.state) == len(start.state):
        return reply
    return replace(reply, state={name: reply.state.get(name, array) for name, array in start.state.items()})


def _node_by_device(message: Message, device: int) -> dict[int, int]:
    return {device: message.metadata.dst_node_id}


def _device_of(reply: WaitingReply) -> int:
    return reply.arrival.child


def versions_in_use(jobs: Sequence[Job]) -> tuple[set[MemoryVersion], set[MemoryVersion]]:
    """(device, number) of the versions of memory read or made by jobs under way."""
    read = {(job.device, job.kept.leaf_round) for job in jobs if job.kept is not None}
    return read, {(job.device, job.attempt) for job in jobs}
