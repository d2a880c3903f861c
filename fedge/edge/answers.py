"""Validation of leaf servers' answers, in one place; an invalid answer counts as a failed leaf.

Like replies of clients (`fedge.exchange.schema`), an answer is checked completely before use. It has exactly
the requested facts, one row for each of the leaf's own clients, finite numbers in range, short printable
texts, and models and control variates with the leaf's entries, shapes and dtypes. Facts known to the cloud
are checked, too: how far counters and the drift of two-level SCAFFOLD can grow in one leaf round, how many
windows a client has, and how many replies a leaf needs to change its model.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedge.clustering.likeness.updates import Updates
from fedge.config.registers.option import shown
from fedge.edge.packets import orders
from fedge.edge.packets.memories import check_memories
from fedge.edge.packets.plain_json import (
    FactError,
    finite_number,
    mapping,
    only,
    refusing,
    rows,
    text,
    truth,
    values,
    whole_number,
)
from fedge.edge.packets.training_history import check_turns
from fedge.exchange import schema
from fedge.exchange.evaluate import EvaluateReply
from fedge.exchange.failure import MEMORY_LOST
from fedge.exchange.round_context import LEAF
from fedge.leaf.algorithm import ALGORITHM
from fedge.leaf.leaf import Leaf
from fedge.leaf.strategies.quorum import needed_replies
from fedge.link.frames import Packet
from fedge.link.gate import NUMBER
from fedge.process.escape import printable
from fedge.rounds.task import RunTask
from fedge.states.averaging import State
from fedge.states.files import state_bytes
from fedge.states.restore_checks import MOST
from fedge.tasks.configured import task_of
from fedge.tasks.task import Task
from fedge.timing.calls import LARGEST
from fedge.timing.timeline import WIDTH
from fedge.training.scaffold import drift_length
from fedge.training.schedule import local_training

_LONGEST = 200  # characters of the reason for a rejection
_LONGEST_KIND, _LONGEST_DETAIL = 100, 300  # characters of a client's failure
_TOLERANCE = 1e-9  # relative tolerance of floating-point sums
_HEAD_BYTES, _BYTES_PER_NUMBER = 2**20, 32  # size of an answer's head: fixed part, and per number in JSON
_BOOK_FACTS = {"train_loss", "train_seconds", "asked", "failures", "kept_model", "bytes", "answered", "calls"}


class AnswerRejected(ValueError):
    """Rejection of a leaf server's answer. One printable line."""

    def __init__(self, reason: str) -> None:
        super().__init__(printable(reason[:_LONGEST])[:_LONGEST])


@dataclass(frozen=True)
class Trained:
    """Training requested of a leaf server.

    Attributes:
        leaf: the cloud's copy of the leaf, or a fork of it, before the round.
        line: kind of line.
        leaf_round: number of the leaf round, counted over the run.
        version: version of the clients' control variates at the start.
        updates: receiver of summaries of updates; None if none were requested.
        alone: whether folds were requested.
        dispersion: whether the dispersion of clients' models was requested.
    """

    leaf: Leaf
    line: str
    leaf_round: int
    version: int
    updates: Updates | None = None
    alone: bool = False
    dispersion: bool = False


@dataclass(frozen=True)
class Schema:
    """Schema of answers, from the cloud's knowledge of a run.

    Attributes:
        run: task and configuration of the run.
        local_steps: steps of every client in a leaf round, instead of epochs; 0 for epochs.
    """

    run: RunTask
    local_steps: int = 0

    @property
    def task(self) -> Task:
        """Learning task of the run."""
        return task_of(self.run.config.train)

    def trained(self, answer: Packet, request: Trained, global_round: int) -> Packet:
        """A checked answer to an order to train; AnswerRejected unless it fits the order."""
        with refusing(AnswerRejected):
            leaf, facts = request.leaf, answer.facts
            names = {"counted", "moved", "version", "leaf", "folds", "book", NUMBER}
            only(facts, names | {"dispersion"} if request.dispersion else names)
            counted, moved = self.leaf_round(
                leaf, request.line, facts["counted"], facts["moved"], facts["book"]
            )
            book = facts["book"]
            if request.dispersion and (facts["dispersion"] is None) != (counted == 0):
                raise FactError("dispersion", f"{facts['dispersion']} of {counted} clients")
            if request.dispersion and counted:
                finite_number(facts["dispersion"], 0.0, 1.7e308, "dispersion")
            has_controls = moved and request.line == LEAF and leaf.control is not None
            version = request.leaf_round if has_controls else request.version
            whole_number(facts["version"], version, version, "version")
            self.check_kept(facts["leaf"], leaf, counted, moved, global_round)
            if leaf.turns is not None:
                this_round = (request.leaf_round, {row[0] for row in book["asked"]}, dict(book["train_loss"]))
                check_turns(facts["leaf"]["turns"], leaf.clients, leaf.turns, this_round)
            if leaf.algorithm is not None:
                new_round = request.leaf_round if moved and request.line == LEAF else None
                check_memories(facts["leaf"][ALGORITHM], leaf, new_round)
            leaf.refuse_other_strategy(answer.states, facts["leaf"])
            self._check_folds(facts["folds"], request)
            self._check_states(answer.states, request, moved)
        return answer

    def leaf_round(
        self, leaf: Leaf, line: str, counted_fact: Any, moved_fact: Any, book_fact: Any
    ) -> tuple[int, bool]:
        """Number of accepted replies of a leaf round, and whether its model changed; FactError if impossible.

        Args:
            leaf: the trained leaf.
            line: kind of line.
            counted_fact, moved_fact, book_fact: values reported by the leaf server.
        """
        form = None if leaf.algorithm is None else leaf.algorithm.form
        book = self._check_book(
            book_fact, leaf.clients, schema.smallest_allowed_loss(self.task.least_loss, form)
        )
        counted = whole_number(counted_fact, 0, len(leaf.clients), "counted")
        moved = truth(moved_fact, "moved")
        trained = {row[0] for row in book["train_seconds"]}
        losses = {row[0] for row in book["train_loss"]}
        if len(trained) != counted or losses != (trained if line == LEAF else set()):
            raise FactError("counted", f"{counted} clients, but {len(trained)} are named")
        asked = {row[0] for row in book["asked"]}
        if not trained <= asked if line == LEAF else asked:
            raise FactError("asked", "not the clients that trained")
        memory_lost = {row[0] for row in book["failures"] if row[1] == MEMORY_LOST}
        if trained & {row[0] for row in book["failures"]} - memory_lost:
            raise FactError("counted", "a client that has failed")
        if moved and counted < needed_replies(self.run.config, leaf.held_out):
            raise FactError("moved", f"with {counted} replies")
        return counted, moved

    def _check_states(self, states: Mapping[str, State], request: Trained, moved: bool) -> None:
        leaf = request.leaf
        current, _ = leaf.round_states()
        expected = {"control", "told", ALGORITHM} & current.keys() | ({orders.MODEL} if moved else set())
        strategies = {name for name in states if name.startswith(orders.STRATEGY)}
        summaries = {name for name in states if name.startswith(orders.SUMMARY)}
        if states.keys() - strategies - summaries != expected:
            raise FactError(
                "states", ", ".join(sorted((states.keys() - strategies - summaries) ^ expected)[:3])
            )
        for name in expected - {orders.MODEL}:
            check_like(states[name], current[name])
        if moved:
            self.check_model(states[orders.MODEL], leaf, leaf.model)
        self._check_summaries(states, leaf, request.updates)

    def check_model(self, model: State, leaf: Leaf, start: State, rounds: int = 1) -> None:
        """Raise unless a model, or a mean of models, can be reached from `start` in `rounds` leaf rounds."""
        schema.check_form(model, start)
        train, most_windows = self.run.config.train, max(leaf.train_samples.values(), default=0)
        task = schema.TrainTask(
            start, most_windows, train.local_epochs, train.batch_size, local_steps=self.local_steps
        )
        steps, windows = task.steps(most_windows), task.windows_trained(most_windows)
        if leaf.algorithm is not None:  # which may send any number
            steps, windows = schema.MOST_STEPS, schema.MOST_STEPS * train.batch_size
        schema.check_values(model, start, leaf.variances, rounds * steps, windows=rounds * windows)

    def _check_summaries(self, states: Mapping[str, State], leaf: Leaf, updates: Updates | None) -> None:
        """Raise unless summaries of updates have the expected form."""
        sizes = None if updates is None else updates.sizes()
        for name, state in states.items():
            if not name.startswith(orders.SUMMARY):
                continue
            client = name.removeprefix(orders.SUMMARY)
            sample_counts = {str(number): samples for number, samples in leaf.train_samples.items()}
            if sizes is None or client not in sample_counts:
                raise FactError("summaries", "one that was not requested")
            form = {str(kind): np.empty(size) for kind, size in enumerate(sizes)}
            check_like(state, form)
            windows = float(state[str(len(sizes) - 1)][0])
            if not 1 <= windows <= sample_counts[client] or windows != int(windows):
                raise FactError("summaries", f"of {windows:g} windows")

    def check_kept(self, value: Any, leaf: Leaf, counted: int, moved: bool, global_round: int) -> None:
        """Raise unless a leaf's state beside its model is possible after one leaf round."""
        facts = mapping(value, "leaf")
        optional = {"drift": leaf.drift, "turns": leaf.turns, ALGORITHM: leaf.algorithm}
        only(facts, {"norms", "strategy"} | {name for name, state in optional.items() if state is not None})
        norms = values(facts["norms"], "no list")
        for norm in values(norms, "norms", leaf.norms.norms.maxlen):
            finite_number(norm, 0.0, math.inf, "norms")
        if leaf.drift is not None:
            self._check_drift(facts["drift"], leaf, counted, moved, global_round)

    def _check_drift(self, value: Any, leaf: Leaf, counted: int, moved: bool, global_round: int) -> None:
        """Raise if Γ grew by more than one leaf round allows, or grew without accepted replies."""
        assert leaf.drift is not None
        length, previous = finite_number(value, 0.0, math.inf, "drift"), leaf.drift.length
        settings = local_training(self.run.config.train, global_round, self.local_steps)
        least, largest = (
            previous + drift_length([sum(settings.passes(windows))], [1.0], settings.lr, settings.momentum)
            for windows in (1, max(leaf.train_samples.values(), default=1))
        )
        has_grown = least * (1 - _TOLERANCE) <= length <= largest * (1 + _TOLERANCE)
        if not (has_grown and counted) and (moved or length != previous):
            raise FactError("drift", f"{length:.6g} after {previous:.6g}, of {counted} replies")

    def _check_folds(self, value: Any, request: Trained) -> None:
        """Raise unless the leave-one-out models are named as this leaf names them, for its own clients."""
        clients = request.leaf.clients
        names = {f"fold-{request.leaf_round}-{client}" for client in clients}
        pairs = rows(value, 2, len(clients) if request.alone else 0, "folds")
        _refuse_repeated_clients([client for client, _ in pairs], clients, "folds")
        if any(type(name) is not str or name not in names for _, name in pairs):
            raise FactError("folds", "not the names of this leaf round")

    def probed(self, answer: Packet, leaf: Leaf, start: State, updates: Updates | None) -> Packet:
        """A checked answer to an order to probe; AnswerRejected unless it fits the order."""
        with refusing(AnswerRejected):
            only(answer.facts, {"moved", "book", NUMBER})
            _refuse_training(self._check_book(answer.facts["book"], leaf.clients))
            expected = {orders.MODEL} if truth(answer.facts["moved"], "moved") else set()
            if {name for name in answer.states if not name.startswith(orders.SUMMARY)} != expected:
                raise FactError("states", "not the requested ones")
            if expected:
                self.check_model(answer.states[orders.MODEL], leaf, start)
            self._check_summaries(answer.states, leaf, updates)
        return answer

    def evaluated(
        self, answer: Packet, roles: Mapping[int, Collection[str]], splits: Sequence[str]
    ) -> dict[int, EvaluateReply]:
        """Clients' evaluations in an answer.

        Args:
            answer: a leaf server's answer.
            roles: client → roles of the models it evaluates, for each client asked.
            splits: splits on which clients evaluate.

        Raises:
            AnswerRejected: the answer does not fit the order.
        """
        replies: dict[int, EvaluateReply] = {}

        with refusing(AnswerRejected):
            only(answer.facts, {"evaluated", "book", NUMBER})
            if answer.states:
                raise FactError("states", "none were requested")
            book = self._check_book(answer.facts["book"], roles)
            _refuse_training(book)
            most = sum(len(client_roles) for client_roles in roles.values()) * len(splits)
            evaluations = rows(answer.facts["evaluated"], orders.EVALUATED, most, "evaluated")
            replies.update(orders.evaluations_of(evaluations, self.task, self.run.classes))
            if sum(map(len, replies.values())) != len(evaluations):
                raise FactError("evaluated", "one evaluation twice")
            missing = roles.keys() - {row[0] for row in book["failures"]}
            if not missing <= replies.keys() <= roles.keys():
                raise FactError("evaluated", "not by the clients that were asked")
            for client, reply in replies.items():
                windows = {split: self.run.held_out[client][split] for split in splits}
                schema.check_evaluate_reply(reply, roles[client], windows, self.run.classes, self.task)
        return replies

    def _check_book(
        self, record: Any, clients: Collection[int], least_loss: float = 0.0
    ) -> Mapping[str, Any]:
        """Check a leaf server's record of an order: rows only of `clients`, losses not below `least_loss`."""
        book, guard = mapping(record, "book"), self.run.config.guard
        only(book, _BOOK_FACTS)
        for name, width in (("train_loss", 2), ("train_seconds", 2), ("asked", 2), ("failures", 3)):
            _refuse_repeated_clients(
                [row[0] for row in rows(book[name], width, len(clients), name)], clients, name
            )
        for _, loss in book["train_loss"]:
            schema.check_loss(finite_number(loss, -math.inf, math.inf, "train_loss"), least_loss)
        for _, seconds in book["train_seconds"]:
            finite_number(seconds, 0.0, guard.client_timeout + schema.LATE_S, "train_seconds")
        for _, times in book["asked"]:
            whole_number(times, 1, 1, "asked")
        for _, kind, detail in book["failures"]:
            text(kind, _LONGEST_KIND, "failures")
            text(detail, _LONGEST_DETAIL, "failures")
        whole_number(book["kept_model"], 0, 1, "kept_model")
        for bytes_ in rows([values(book["bytes"], "no list")], 2, 1, "bytes")[0]:
            whole_number(bytes_, 0, MOST - 1, "bytes")
        trained = len({client for client, _ in book["train_seconds"]})
        whole_number(book["answered"], trained, len(clients), "answered")  # divides the bytes
        for row in rows(book["calls"], WIDTH, len(clients) * (1 + guard.retries), "calls"):
            for value in row:
                finite_number(value, -LARGEST, LARGEST, "calls")
        _refuse_other_clients([row[0] for row in book["calls"]], clients, "calls")
        return book

    def most_bytes(self, order: Packet, model: State, clients: int) -> tuple[int, int]:
        """Limits in bytes of an answer's head and of its arrays; larger answers are not read.

        Args:
            order: the order.
            model: any model of the run.
            clients: number of clients asked.
        """
        sent_bytes = sum(state_bytes(state) for state in order.states.values())
        models = len(order.states) + len(order.facts.get("known", ())) + len(order.facts.get("unseen", ()))
        sums = sum(zeros.size for zeros in self.task.form(self.run.classes).values())
        moments = 2 * (self.run.classes + 1) * self.run.classes
        per_client = 64 + 3 * (models + 1) * (16 + sums + moments)
        head = _HEAD_BYTES + _BYTES_PER_NUMBER * per_client * max(1, clients) + 2 * len(model) * 256
        arrays = 4 * sent_bytes + 16 * state_bytes(model) + clients * 2**17 + _HEAD_BYTES
        return head, arrays


def failure_reason(answer: Packet) -> str:
    """A leaf server's reason why an order failed: one printable line."""
    reason = answer.facts.get("words", "no reason given")
    return printable(reason[:_LONGEST] if isinstance(reason, str) else shown(reason))[:_LONGEST]


def check_note(
    packet: Packet, clients: Collection[int], rounds: tuple[int, int] | None = None
) -> tuple[str, frozenset[int], frozenset[int], int]:
    """Progress in a note: kind of work, clients with a reply, failed clients, a region's leaf round.

    Args:
        packet: the note.
        clients: clients in training.
        rounds: first and last leaf round of a region in its own process; None for a leaf server (0).

    Raises:
        AnswerRejected: the note is invalid, or names other clients.
    """
    parsed: list[Any] = []

    with refusing(AnswerRejected):
        only(packet.facts, {"kind", "asked", "back", "failed", NUMBER, *(["leaf_round"] if rounds else [])})
        text(packet.facts["kind"], _LONGEST_KIND, "kind")
        for name in ("asked", "back", "failed"):
            _refuse_repeated_clients(values(packet.facts[name], "no list"), clients, name)
            parsed.append(frozenset(packet.facts[name]))
        parsed.append(
            0 if rounds is None else whole_number(packet.facts["leaf_round"], *rounds, "leaf_round")
        )

    _, replied, failed, leaf_round = parsed
    return packet.facts["kind"], replied, failed, leaf_round


def check_like(state: State, like: State) -> None:
    """Raise unless a state has the same form as another, and all its numbers are finite."""
    schema.check_form(state, like)
    schema.check_sizes(state)


def _refuse_training(book: Mapping[str, Any]) -> None:
    """Raise if a record reports training although the order did not ask the leaf to train."""
    if any(book[name] for name in ("train_loss", "train_seconds", "asked", "kept_model", "answered")):
        raise FactError("book", "training that was not requested")


def _refuse_repeated_clients(entries: Sequence[Any], clients: Collection[int], name: str) -> None:
    """Raise unless all clients were asked, and each occurs once."""
    _refuse_other_clients(entries, clients, name)
    if len(set(entries)) != len(entries):
        raise FactError(name, "one client twice")


def _refuse_other_clients(entries: Sequence[Any], clients: Collection[int], name: str) -> None:
    unexpected = [entry for entry in entries if type(entry) not in (int, float) or entry not in clients]
    if unexpected:
        raise FactError(name, f"client {shown(unexpected[0])} was not to be asked")
