"""The leaf's side of a client's algorithm: its leaf part with its memory, and the valid client memories."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import Message

from fedge.algorithm.leaf_part import Brought, LeafContributions, LeafPart, LeafTurn
from fedge.config.registers.parts import ALGORITHMS
from fedge.exchange.algorithm import ReplyForm, tell_algorithm
from fedge.exchange.train import TrainReply
from fedge.states.averaging import State, weighted_mean
from fedge.states.memory import (
    Kept,
    MemoriesBehind,
    MemoriesElsewhere,
    forget_memories,
    kept_of,
    read_memory,
    write_memory,
)
from fedge.states.named import (
    arrays_by_name,
    form_difference,
    form_of,
    of_its_own,
    other_form,
    packed,
    read_only,
    unpacked,
)
from fedge.states.restored import finite

ALGORITHM = "algorithm"  # names the leaf part's memory among a leaf's states


class LeafAlgorithm:
    """State of a client's algorithm at one leaf.

    Attributes:
        form: of clients' messages.
        folder: where clients of this run keep their memories; empty where they keep none.
        memory: of the leaf part, packed.
        kept: client → the valid version of its memory, for clients with one.
        carries: whether messages carry memories to and from `folder`, which clients do not see.
    """

    def __init__(
        self,
        part: LeafPart,
        form: ReplyForm,
        folder: str,
        model: State,
        parameters: Sequence[str],
        elsewhere: MemoriesElsewhere | MemoriesBehind | None = None,
        carries: bool = False,
        name: str = "",
    ) -> None:
        """Start with the leaf part's initial memory; further arguments as the attributes.

        Args:
            part: of the method.
            model: of the run's kind.
            parameters: names of the trainable entries.
            elsewhere: where clients keep memories on machines of their own.
            name: of the algorithm, for errors of a user's own.
        """
        self._name = name
        self.carries = carries and form.keeps
        self._elsewhere = elsewhere if form.keeps else None
        self.form = form
        self.folder = folder if form.keeps else ""
        self.kept: dict[int, Kept] = {}
        self._part = part
        self._parameters = tuple(parameters)
        self.memory: State = packed(part.start(read_only(model)), "memory of the leaf")

    def go_on_with(self, part: LeafPart) -> None:
        """Go on with another object of the same leaf part, as after a stop."""
        self._part = part

    def copied(self) -> LeafAlgorithm:
        """One of which nothing comes back; arrays are shared, for nobody writes to them."""
        other = copy.copy(self)
        other.kept = dict(self.kept)
        return other

    def tell(
        self,
        messages: Iterable[Message],
        nodes: Mapping[int, int],
        keep: bool = False,
        evaluate: bool = False,
        unseen: bool = False,
        counted: Mapping[int, Kept] | None = None,
    ) -> None:
        """Add the leaf part's arrays and versions to messages.

        Args:
            messages: to clients of the leaf.
            nodes: client → its node.
            keep: they are to keep their memory: only the line of the leaf's own model has an effect.
            evaluate: they are evaluate messages, in which the leaf part sends nothing.
            unseen: the clients have trained nothing.
            counted: client → the version of its memory to go on from; None for the valid ones.
        """
        counted = self.kept if counted is None else counted
        kept = {node: counted[client] for client, node in nodes.items() if client in counted}
        elsewhere = None
        if self._elsewhere is not None:
            needed = {node: self._elsewhere.needed(client) for client, node in nodes.items()}
            elsewhere = self._elsewhere.run, needed
        beside = None if evaluate else self.beside
        keep = keep and self.form.keeps
        seen = "" if self.carries else self.folder
        carried = self._carried(nodes, counted)
        tell_algorithm(messages, seen, kept, beside, keep, unseen, elsewhere, carried)

    @property
    def beside(self) -> State:
        """Arrays sent by the leaf part beside the model, packed.

        Raises:
            ConfigError: the user's leaf part fails, or changes their form.
        """
        with ALGORITHMS.carried_out(self._name):
            sent = packed(self._part.send(unpacked(self.memory)), "what the leaf sends")
            wanted = self.form.leaf_sends
            changed = "" if wanted is None else form_difference(wanted, form_of(sent))
            if changed:
                raise ValueError(f"what the leaf sends must keep its names, shapes and dtypes, but {changed}")
        return sent

    @property
    def combines(self) -> bool:
        """Whether the leaf part makes the leaf's model itself."""
        return self._part.combines()

    @property
    def reads_replies(self) -> bool:
        """Whether it makes the model of single replies, or of means of their arrays."""
        return self.combines and self._part.reads_replies

    def combined(
        self,
        model: State,
        made: State,
        brought: Sequence[Brought],
        clients: int,
        lr: float,
        turn: LeafTurn,
    ) -> State:
        """The leaf's new model; the memory of the leaf part goes on.

        Args:
            model: with which the round began.
            made: by the leaf's strategy.
            brought: by the clients with accepted replies, in order.
            clients: training clients of the leaf.
            lr: step size of the round.
            turn: the leaf and its round.

        Raises:
            ValueError: the leaf part changes a form.
            FloatingPointError: its memory is not finite.
        """
        weights = [one.weight for one in brought]
        means = weighted_mean([one.arrays for one in brought], weights) if brought else {}
        memory = unpacked(self.memory)
        lent, whole = read_only(model), made
        if isinstance(made, dict):  # an entry that nobody trained may be the model's own array
            whole = {name: lent[name] if array is model[name] else array for name, array in made.items()}
        seen = [replace(one, state=read_only(one.state), arrays=read_only(one.arrays)) for one in brought]
        leaf = LeafContributions(lent, whole, means, seen, memory, self._parameters, clients, lr, turn)
        found = arrays_by_name(self._part.combine(leaf), "what combine returns")
        changed = other_form(made, found)
        if changed:
            raise ValueError(f"combine must keep the model's names, shapes and dtypes, but {changed}")
        after = packed(leaf.memory, "memory of the leaf")
        changed = other_form(self.memory, after)
        if changed:
            raise ValueError(f"the leaf's memory must keep its names, shapes and dtypes, but {changed}")
        self.memory = after
        return {name: of_its_own(found[name]) for name in made}

    def _carried(self, nodes: Mapping[int, int], counted: Mapping[int, Kept]) -> dict[int, State] | None:
        """Node → memory of its client, from its file; None where messages carry none."""
        if not self.carries:
            return None
        return {
            node: dict(read_memory(Path(self.folder), client, counted[client]))
            for client, node in nodes.items()
            if client in counted
        }

    def note_kept(self, replies: Mapping[int, TrainReply]) -> None:
        """Take in which versions of memories count from now on; those carried by replies go into files."""
        for client, reply in replies.items():
            if reply.memory is not None:
                folder = Path(self.folder)
                self.kept[client] = write_memory(folder, client, reply.version, reply.memory)
        self.kept |= {client: reply.kept for client, reply in replies.items() if reply.kept is not None}

    def states(self) -> dict[str, State]:
        """The leaf part's memory by its name; empty without any."""
        return {ALGORITHM: self.memory} if self.memory else {}

    def needed(self, clients: Iterable[int]) -> dict[str, list[int]]:
        """Client → leaf rounds of versions needed by checkpoints, for memories elsewhere; as JSON."""
        if self._elsewhere is None:
            return {}
        return {str(client): self._elsewhere.needed(client) for client in clients}

    def forget(self, clients: Iterable[int], needed: Mapping[str, Sequence[int]]) -> None:
        """Remove clients' versions in this leaf's folder that are neither valid nor needed.

        Clients with memories on their own machines are told with the next messages.
        """
        if isinstance(self._elsewhere, MemoriesBehind):
            self._elsewhere.take(needed)
        for client in clients if self.folder else ():
            now = [self.kept[client].leaf_round] if client in self.kept else []
            forget_memories(Path(self.folder), client, {*now, *needed.get(str(client), ())})

    def facts(self) -> dict[str, Any]:
        """Further state beside the leaf part's memory, as JSON."""
        return {
            str(client): [kept.leaf_round, kept.checksum, kept.array_bytes]
            for client, kept in sorted(self.kept.items())
        }

    def restore(self, memory: State, facts: Mapping[str, Any]) -> None:
        """Restore a leaf part's memory and the result of `facts`.

        Raises:
            ValueError: they are none of this leaf's.
        """
        changed = other_form(self.memory, memory)
        if changed:
            raise ValueError(f"the leaf's memory must keep its names, shapes and dtypes, but {changed}")
        self.memory = finite(memory, "the memory of a leaf")
        self.kept = {int(client): kept_of(values) for client, values in facts.items()}


def brought_by(replies: Mapping[int, TrainReply]) -> list[Brought]:
    """Messages of clients to the leaf part, from client → accepted reply, in the order given."""
    return [Brought(c, r.state, r.mean_weight, r.extra) for c, r in replies.items()]
