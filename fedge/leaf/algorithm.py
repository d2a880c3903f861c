"""State of a client's algorithm at a leaf: the leaf part, its memory, and which client memories are valid."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import Message

from fedge.algorithm.leaf_part import LeafContributions, LeafPart, LeafTurn, ReplyToLeaf
from fedge.config.registers.parts import ALGORITHMS
from fedge.exchange.algorithm import ReplyForm, add_algorithm
from fedge.exchange.train import TrainReply
from fedge.states.averaging import State, weighted_mean
from fedge.states.memory import (
    KeptVersion,
    LeafServerMemories,
    RemoteMemories,
    forget_memories,
    read_memory,
    version_from_facts,
    write_memory,
)
from fedge.states.named_states import (
    arrays_by_name,
    copy_if_view,
    first_difference,
    form_difference,
    form_of,
    packed,
    read_only,
    unpacked,
)
from fedge.states.restore_checks import finite

ALGORITHM = "algorithm"  # name of the leaf part's memory among a leaf's states


class LeafAlgorithm:
    """State of a client's algorithm at one leaf.

    Attributes:
        form: form of clients' messages.
        folder: folder of clients' memories; empty if clients keep none.
        memory: memory of the leaf part, packed.
        kept: client → valid version of its memory, for clients with one.
        carries: whether messages carry the memories, because clients do not see `folder`.
    """

    def __init__(
        self,
        part: LeafPart,
        form: ReplyForm,
        folder: str,
        model: State,
        parameters: Sequence[str],
        elsewhere: RemoteMemories | LeafServerMemories | None = None,
        carries: bool = False,
        name: str = "",
    ) -> None:
        """Start with the leaf part's initial memory; for further arguments see the attributes.

        Args:
            part: leaf part of the method.
            model: a model of the run.
            parameters: names of the trainable entries.
            elsewhere: set if clients keep their memories on their own machines.
            name: name of the algorithm, for errors in a user's code.
        """
        self._name = name
        self.carries = carries and form.keeps
        self._elsewhere = elsewhere if form.keeps else None
        self.form = form
        self.folder = folder if form.keeps else ""
        self.kept: dict[int, KeptVersion] = {}
        self._part = part
        self._parameters = tuple(parameters)
        self.memory: State = packed(part.start(read_only(model)), "memory of the leaf")

    def continue_with(self, part: LeafPart) -> None:
        """Continue with a new object of the same leaf part, as after a restart."""
        self._part = part

    def copied(self) -> LeafAlgorithm:
        """An independent copy; arrays are shared, because they are never written to."""
        other = copy.copy(self)
        other.kept = dict(self.kept)
        return other

    def add_to_messages(
        self,
        messages: Iterable[Message],
        nodes: Mapping[int, int],
        keep: bool = False,
        evaluate: bool = False,
        unseen: bool = False,
        counted: Mapping[int, KeptVersion] | None = None,
    ) -> None:
        """Add the leaf part's arrays and versions to messages.

        Args:
            messages: messages to clients of the leaf.
            nodes: client → its node.
            keep: whether clients store their new memory, which they do only for the leaf's own model.
            evaluate: whether these are evaluate messages, in which the leaf part sends nothing.
            unseen: whether they go to unseen clients.
            counted: client → version of its memory to start from; None for the valid ones.
        """
        counted = self.kept if counted is None else counted
        kept = {node: counted[client] for client, node in nodes.items() if client in counted}
        elsewhere = None
        if self._elsewhere is not None:
            needed = {node: self._elsewhere.needed(client) for client, node in nodes.items()}
            elsewhere = self._elsewhere.run, needed
        leaf_arrays = None if evaluate else self.beside
        keep = keep and self.form.keeps
        folder = "" if self.carries else self.folder
        carried = self._carried_memories(nodes, counted)
        add_algorithm(messages, folder, kept, leaf_arrays, keep, unseen, elsewhere, carried)

    @property
    def beside(self) -> State:
        """Arrays sent by the leaf part beside the model, packed.

        Raises:
            ConfigError: a user's leaf part fails, or changes the form of the arrays.
        """
        with ALGORITHMS.explaining_errors(self._name):
            sent = packed(self._part.send(unpacked(self.memory)), "what the leaf sends")
            expected = self.form.leaf_sends
            changed = "" if expected is None else form_difference(expected, form_of(sent))
            if changed:
                raise ValueError(f"what the leaf sends must keep its names, shapes and dtypes, but {changed}")
        return sent

    @property
    def combines(self) -> bool:
        """Whether the leaf part computes the leaf's model."""
        return self._part.combines()

    @property
    def reads_replies(self) -> bool:
        """Whether the leaf part reads single replies, or the means of their arrays."""
        return self.combines and self._part.reads_replies

    def combined(
        self,
        model: State,
        strategy_model: State,
        messages: Sequence[ReplyToLeaf],
        clients: int,
        lr: float,
        turn: LeafTurn,
    ) -> State:
        """The leaf's new model; updates the memory of the leaf part.

        Args:
            model: the leaf's model at the start of the round.
            strategy_model: the model from the leaf's strategy.
            messages: messages of clients with accepted replies, in order.
            clients: number of training clients of the leaf.
            lr: learning rate of the round.
            turn: the leaf and its round.

        Raises:
            ValueError: the leaf part changes the form of the model or of its memory.
            FloatingPointError: its memory is not finite.
        """
        weights = [message.weight for message in messages]
        means = weighted_mean([message.arrays for message in messages], weights) if messages else {}
        memory = unpacked(self.memory)
        start, new_model = read_only(model), strategy_model
        if isinstance(strategy_model, dict):  # an untrained entry may be the model's own array
            new_model = {
                name: start[name] if array is model[name] else array for name, array in strategy_model.items()
            }
        views = [
            replace(message, state=read_only(message.state), arrays=read_only(message.arrays))
            for message in messages
        ]
        leaf = LeafContributions(start, new_model, means, views, memory, self._parameters, clients, lr, turn)
        arrays = arrays_by_name(self._part.combine(leaf), "what combine returns")
        changed = first_difference(strategy_model, arrays)
        if changed:
            raise ValueError(f"combine must keep the model's names, shapes and dtypes, but {changed}")
        new_memory = packed(leaf.memory, "memory of the leaf")
        changed = first_difference(self.memory, new_memory)
        if changed:
            raise ValueError(f"the leaf's memory must keep its names, shapes and dtypes, but {changed}")
        self.memory = new_memory
        return {name: copy_if_view(arrays[name]) for name in strategy_model}

    def _carried_memories(
        self, nodes: Mapping[int, int], counted: Mapping[int, KeptVersion]
    ) -> dict[int, State] | None:
        """Node → memory of its client, read from its file; None if messages carry no memories."""
        if not self.carries:
            return None
        return {
            node: dict(read_memory(Path(self.folder), client, counted[client]))
            for client, node in nodes.items()
            if client in counted
        }

    def note_kept(self, replies: Mapping[int, TrainReply]) -> None:
        """Mark the memory versions of these replies as valid; memories carried in replies are saved."""
        for client, reply in replies.items():
            if reply.memory is not None:
                folder = Path(self.folder)
                self.kept[client] = write_memory(folder, client, reply.version, reply.memory)
        self.kept |= {client: reply.kept for client, reply in replies.items() if reply.kept is not None}

    def states(self) -> dict[str, State]:
        """The leaf part's memory by its name; empty without any."""
        return {ALGORITHM: self.memory} if self.memory else {}

    def needed(self, clients: Iterable[int]) -> dict[str, list[int]]:
        """Client → leaf rounds of the memory versions needed by checkpoints, if stored elsewhere; as JSON."""
        if self._elsewhere is None:
            return {}
        return {str(client): self._elsewhere.needed(client) for client in clients}

    def forget(self, clients: Iterable[int], needed: Mapping[str, Sequence[int]]) -> None:
        """Remove memory versions in this leaf's folder, if neither valid nor needed.

        Clients with memories on their own machines learn of it with the next messages.
        """
        if isinstance(self._elsewhere, LeafServerMemories):
            self._elsewhere.take(needed)
        for client in clients if self.folder else ():
            current = [self.kept[client].leaf_round] if client in self.kept else []
            forget_memories(Path(self.folder), client, {*current, *needed.get(str(client), ())})

    def facts(self) -> dict[str, Any]:
        """State other than the leaf part's memory, as JSON."""
        return {
            str(client): [kept.leaf_round, kept.checksum, kept.array_bytes]
            for client, kept in sorted(self.kept.items())
        }

    def restore(self, memory: State, facts: Mapping[str, Any]) -> None:
        """Restore a leaf part's memory and the result of `facts`.

        Raises:
            ValueError: they do not belong to this leaf.
        """
        changed = first_difference(self.memory, memory)
        if changed:
            raise ValueError(f"the leaf's memory must keep its names, shapes and dtypes, but {changed}")
        self.memory = finite(memory, "the memory of a leaf")
        self.kept = {int(client): version_from_facts(values) for client, values in facts.items()}


def replies_to_leaf(replies: Mapping[int, TrainReply]) -> list[ReplyToLeaf]:
    """Messages to the leaf part from accepted replies (client → reply), in the given order."""
    return [ReplyToLeaf(c, r.state, r.mean_weight, r.extra) for c, r in replies.items()]
