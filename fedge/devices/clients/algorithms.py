"""Clients' algorithm on the virtual clock: memories of devices, and the leaf parts.

A job goes on from the version of its device's memory that is valid at its beginning. Its own version becomes
the valid one when its reply is admitted, so in the order of virtual time; never for a job that is lost, has
failed or is too stale.

A leaf part that makes its leaf's model does so at each new version, from what the server's rule made. One
that reads single replies needs a rule in rounds, and gets those of the round, by their windows and their
share of the steps. A reply to another model than the leaf's, which the cloud may have changed meanwhile,
brings its change:

    state = the leaf's model + (trained − start)
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flwr.app import Message

from fedge.algorithm.leaf_part import Brought, LeafTurn
from fedge.config.registers.failing import OWN_ERRORS
from fedge.devices.clients.results import Population
from fedge.devices.servers.arrivals import Arrival
from fedge.devices.servers.server import DeviceServer
from fedge.devices.servers.vectors import Version
from fedge.devices.work.jobs import Job
from fedge.exchange.algorithm import ReplyForm
from fedge.exchange.failure import Failure, rejected, words_of
from fedge.exchange.train import TrainReply
from fedge.leaf.algorithm import LeafAlgorithm
from fedge.leaf.strategies.checks import refuse_impossible
from fedge.states.averaging import State
from fedge.states.files import state_bytes
from fedge.states.memory import Kept, MemoryVersion

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class WaitingReply:
    """An admitted reply until its leaf's next version.

    Attributes:
        arrival: as the rule got it.
        extra: arrays beside the model, packed.
    """

    arrival: Arrival
    extra: State


class ClockAlgorithms:
    """The leaves' sides of their clients' algorithm.

    Attributes:
        leaves: of each leaf, in order.
        waiting: per leaf the replies of its round, where its part reads them.
    """

    def __init__(
        self, leaves: Sequence[LeafAlgorithm], who: Population, step_size: Callable[[int], float], seed: int
    ) -> None:
        """Begin without memories.

        Args:
            leaves: of each leaf, in order.
            who: devices of the run.
            step_size: of a global round, 1, 2, …
            seed: of the run.
        """
        self.leaves = list(leaves)
        self.waiting: list[list[WaitingReply]] = [[] for _ in self.leaves]
        self._who = who
        self._clients = [len(devices) for devices in who.devices_by_leaf()]
        self._step_size, self._seed = step_size, seed

    @property
    def form(self) -> ReplyForm:
        """Form of devices' messages, the same at all leaves."""
        return self.leaves[0].form

    def bytes_moved(self, model: Version) -> tuple[int, int]:
        """Sizes in bytes of a message to a device, and of its reply: a model's entries, arrays beside it."""
        arrays = sum(np.dtype(kind).itemsize * math.prod(shape) for shape, kind in self.form.arrays.values())
        sent = sum(model.state[name].nbytes for name in self.form.entries)
        return model.nbytes + state_bytes(self.leaves[0].beside), sent + arrays

    def task(self, keeps: bool = True) -> dict[str, Any]:
        """Facts of `TrainTask` on devices' replies.

        Args:
            keeps: whether a new version of a memory is asked for, if devices have any.
        """
        return {"form": self.form, "keeps": keeps and self.form.keeps, "carries": self.leaves[0].carries}

    # --- what is said to devices --------------------------------------------------------------------

    def valid(self, device: int) -> Kept | None:
        """The valid version of a device's memory; None without one."""
        return self._of(device).kept.get(device)

    def tell(self, message: Message, job: Job) -> None:
        """Add to a job's message what its leaf part sends, and the version of memory to go on from."""
        counted = {} if job.kept is None else {job.device: job.kept}
        self._of(job.device).tell([message], _nodes(message, job.device), keep=True, counted=counted)

    def tell_beside(self, message: Message, device: int) -> None:
        """Add them to a message to a device that leaves no new version."""
        self._of(device).tell([message], _nodes(message, device))

    def tell_models(self, message: Message, client: int) -> None:
        """Add to an evaluation of a client's models, unseen or not, the valid version of its memory."""
        unseen = client in self._who.unseen
        self._of(client).tell([message], _nodes(message, client), evaluate=True, unseen=unseen)

    def asked_models(self, client: int) -> bool:
        """Whether a client is evaluated with models of its algorithm."""
        return bool(self.form.models) and (client not in self._who.unseen or self.form.unseen)

    # --- what comes back ----------------------------------------------------------------------------

    def usable(self, job: Job, reply: TrainReply, server: DeviceServer, period: int) -> TrainReply | Failure:
        """A reply that its leaf part can combine, at least alone; else why not.

        Args:
            job: of the reply.
            reply: with all entries of the model.
            server: the leaf's.
            period: evaluations so far, plus 1.
        """
        algorithm, leaf = self.leaves[job.server], server.version
        if not algorithm.reads_replies:
            return reply
        arrival = Arrival(
            job.device, 0, job.start.vector, leaf.layout.vector(reply.state), reply.mean_weight,
            leaf.layout.counters(reply.state),
        )  # fmt: skip
        one = WaitingReply(arrival, reply.extra)
        try:
            made = self._brought(one, leaf).state
            turn = self._turn(job.server, server.number + 1, period)
            self._combined(algorithm.copied(), turn, leaf, made, [one])
        except OWN_ERRORS as error:  # a part of the user's may raise anything
            return rejected("cannot be combined", words_of(error))
        return reply

    def admit(self, job: Job, reply: TrainReply, arrival: Arrival) -> None:
        """Let an admitted reply's version of memory be the valid one; keep what the leaf part reads."""
        algorithm = self.leaves[job.server]
        algorithm.note_kept({job.device: reply})
        if algorithm.reads_replies:
            self.waiting[job.server].append(WaitingReply(arrival, reply.extra))

    def combine(self, leaf: int, before: Version, server: DeviceServer, period: int) -> None:
        """Let a leaf part make the leaf's model, now that its rule has made a version.

        If it fails, although it combines each reply alone, the leaf keeps its model, as in rounds.

        Args:
            leaf: number of the leaf.
            before: its model before the version.
            server: its rule's.
            period: evaluations so far, plus 1; the leaf part is told its step size.
        """
        algorithm = self.leaves[leaf]
        if not algorithm.combines:
            return
        waiting, self.waiting[leaf] = sorted(self.waiting[leaf], key=_device), []
        after = algorithm.copied()
        try:
            turn = self._turn(leaf, server.number, period)
            found = self._combined(after, turn, before, server.version.state, waiting)
        except OWN_ERRORS as error:  # as in `usable`
            logger.warning("leaf %d cannot combine its replies: %s", leaf, words_of(error))
            server.version = before
            return
        self.leaves[leaf] = after
        layout = server.version.layout
        server.change(layout.vector(found), layout.counters(found))

    def _combined(
        self, algorithm: LeafAlgorithm, turn: LeafTurn, before: Version, made: State,
        waiting: Sequence[WaitingReply],
    ) -> State:  # fmt: skip
        """The leaf part's model of replies; its memory goes on.

        Raises:
            Exception: of the part, or FloatingPointError.
        """
        brought = [self._brought(one, before) for one in waiting]
        lr = self._step_size(turn.global_round)
        found = algorithm.combined(before.state, made, brought, self._clients[turn.leaf], lr, turn)
        refuse_impossible(found, before.layout.variance_names)
        return found

    def _turn(self, leaf: int, version: int, period: int) -> LeafTurn:
        """The turn of a leaf that makes this version, counted from 1."""
        return LeafTurn(leaf, period, version, self._seed, (version, leaf))

    def _brought(self, one: WaitingReply, leaf: Version) -> Brought:
        """A reply as its change of the leaf's model."""
        arrival, vector = one.arrival, one.arrival.end
        if arrival.start is not leaf.vector:
            vector = (leaf.vector + arrival.delta).astype(vector.dtype)
        state = leaf.layout.state(vector, arrival.counters)
        return Brought(arrival.child, state, arrival.weight * arrival.share, one.extra)

    def _of(self, client: int) -> LeafAlgorithm:
        return self.leaves[self._who.leaf_of[client]]

    # --- state beyond the process -------------------------------------------------------------------

    def kept_memories(self) -> dict[int, Kept]:
        """Device → the valid version of its memory, for devices with one."""
        return {device: kept for leaf in self.leaves for device, kept in leaf.kept.items()}

    def facts(self) -> list[Any]:
        """State of the leaves beside their parts' memories and waiting replies, as JSON."""
        return [leaf.facts() for leaf in self.leaves]

    def memories(self) -> dict[str, State]:
        """The leaf parts' memories by the numbers of their leaves; of parts without any none."""
        return {str(number): leaf.memory for number, leaf in enumerate(self.leaves) if leaf.memory}

    def restore(self, memories: Mapping[str, State], facts: Sequence[Mapping[str, Any]]) -> None:
        """Restore the result of `memories`, the arrays of which become the leaves' own, and of `facts`."""
        for number, (leaf, of_leaf) in enumerate(zip(self.leaves, facts, strict=True)):
            leaf.restore(memories.get(str(number), {}), of_leaf)


def filled(reply: TrainReply, start: Version) -> TrainReply:
    """A reply with all entries of the model: those that its device did not send are its start's."""
    if len(reply.state) == len(start.state):
        return reply
    return replace(reply, state={name: reply.state.get(name, own) for name, own in start.state.items()})


def _nodes(message: Message, device: int) -> dict[int, int]:
    return {device: message.metadata.dst_node_id}


def _device(one: WaitingReply) -> int:
    return one.arrival.child


def versions_in_use(jobs: Sequence[Job]) -> tuple[set[MemoryVersion], set[MemoryVersion]]:
    """(device, number) of versions of memory that jobs under way read, and of those that they make."""
    read = {(job.device, job.kept.leaf_round) for job in jobs if job.kept is not None}
    return read, {(job.device, job.attempt) for job in jobs}
