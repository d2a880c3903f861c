"""A leaf server in one run: executes orders of the cloud with its own clients.

It uses the same classes as leaf rounds within one process (`fedge.rounds`), for one leaf, so models have the
same bits. Between orders, only the clients' control variates are kept, on the leaf server's disk
(`fedge.edge.store`).
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedge.clustering.likeness.updates import Updates
from fedge.edge.order_checks import check_order
from fedge.edge.packets import orders
from fedge.edge.store import KeptStates
from fedge.exchange.clients import ExchangeProgress
from fedge.exchange.round_context import LEAF
from fedge.leaf.algorithm import ALGORITHM
from fedge.leaf.controls import Controls
from fedge.leaf.leaf import Leaf
from fedge.link.dial import Note
from fedge.link.frames import Packet
from fedge.rounds.evaluation import EvaluationRequest
from fedge.rounds.lines import TrainingLine
from fedge.rounds.measurements.book import RoundBook
from fedge.rounds.measurements.requests import ProbeRequest, Receiver, Requests
from fedge.rounds.port import PortContext
from fedge.rounds.routed_leaves import EnginePort
from fedge.rounds.task import RunTask
from fedge.rounds.transport import RoundServices, Transport
from fedge.states.averaging import State

_NOTE_S = 0.5  # seconds between progress notes


@dataclass(frozen=True)
class Site:
    """Parts of a leaf server for one run.

    Attributes:
        task: task of the run.
        make_leaf: creates the leaf, in its initial state, with a model.
        model: any model of the run.
        parameter_names: trainable entries of the model.
        facilities: facilities shared by leaf rounds.
        kept: state on disk.
        close: releases the clients.
    """

    task: RunTask
    make_leaf: Callable[[State], Leaf]
    model: State
    parameter_names: tuple[str, ...]
    facilities: RoundServices
    kept: KeptStates
    close: Callable[[], None]


class LeafExecutor:
    """A leaf server in one run."""

    def __init__(self, site: Site) -> None:
        """Start without control variates; the first order names its starting version."""
        self.site = site
        leaf, config = site.make_leaf(site.model), site.task.config
        leaf.keep_states(site.facilities.shared.keep)
        self.clients = [*leaf.clients, *leaf.unseen_clients]
        self._transport = Transport(site.facilities, leaf.train_samples, config.guard.retries)
        self._transport.timeout_s = config.guard.client_timeout
        self._port = EnginePort(PortContext(site.task, [leaf], self._transport))
        self._index, self._leaf = leaf.index, leaf
        self._controls: tuple[int, Controls] = (0, {})

    def carry_out(self, packet: Packet, note: Note) -> Packet:
        """Execute one order; the answer has its own record."""
        check_order(packet, self._leaf)
        self._transport.begin_round(int(packet.facts["global_round"]))
        self.site.facilities.clients.watch(_progress_observer(note))
        handlers = {orders.TRAIN: self._train, orders.PROBE: self._probe, orders.EVALUATE: self._evaluate}
        facts, states = handlers[packet.kind](packet)
        self._transport.finish_round()
        book = orders.packed_book(self._book, self.site.facilities.clock.now())
        return Packet(orders.DONE, {**facts, "book": book}, states)

    @property
    def _book(self) -> RoundBook:
        return self._transport.book

    def _train(self, packet: Packet) -> tuple[dict[str, Any], dict[str, State]]:
        """Let the leaf, or its fork, train for a leaf round."""
        facts, leaf_round = packet.facts, int(packet.facts["leaf_round"])
        leaf = self._restore_leaf(packet)
        start, book = leaf.model, self._book
        receiver = self._make_receiver(packet, start)
        fold_leaves = frozenset({self._index} if facts["alone"] else ())
        book.requests = Requests([receiver] if receiver else [], fold_leaves, facts["dispersion"])
        counted = self._port.train(TrainingLine(facts["line"], [leaf]), leaf_round)
        has_moved = leaf.model is not start
        version = int(facts["version"])
        if has_moved and facts["line"] == LEAF and leaf.control is not None:
            version = leaf_round
            self.site.kept.write_controls(version, leaf.client_controls)
            self._controls = version, leaf.client_controls
        states, leaf_facts = leaf.round_states()
        states |= {orders.MODEL: leaf.model} if has_moved else {}
        if receiver is not None:
            states |= orders.packed_summaries(receiver.updates.summaries())
        answer = {"counted": counted, "moved": has_moved, "version": version, "leaf": leaf_facts}
        if facts["dispersion"]:
            answer["dispersion"] = book.dispersion.get(self._index)
        return answer | {"folds": self._store_folds(leaf_round)}, states

    def _restore_leaf(self, packet: Packet) -> Leaf:
        """The leaf, or its fork, in the state given by an order."""
        facts, states = packet.facts, packet.states
        version = int(facts["version"])
        if self._controls[0] != version:
            self._controls = version, self.site.kept.read_controls(version)
        self.site.kept.forget_controls(keep=[*map(int, facts["needed"]), version])
        leaf = self.site.make_leaf(self.site.facilities.shared.keep(states[orders.MODEL]))
        leaf.client_controls = dict(self._controls[1])
        if facts["fork"]:
            leaf = leaf.fork(leaf.model, scaffold=True, without=facts["without"])
        leaf.put_round_states(states, facts["leaf"])
        if leaf.algorithm is not None:
            leaf.algorithm.forget(self.clients, facts["memories"])
        return leaf

    def _restore_algorithm(self, packet: Packet) -> None:
        """Restore the state of the clients' algorithm from an order, for probes and evaluations."""
        if self._leaf.algorithm is not None and ALGORITHM in packet.facts:
            memory = packet.states.get(ALGORITHM, self._leaf.algorithm.memory)
            self._leaf.algorithm.restore(memory, packet.facts[ALGORITHM])

    def _store_folds(self, leaf_round: int) -> list[list[Any]]:
        """Store leave-one-out models if the cloud requests them; returns (client, name) pairs."""
        folds = self._book.folds.get(self._index)
        if folds is None:
            return []
        names: dict[int, str] = {}
        for client, model in folds.items():
            names.setdefault(id(model), f"fold-{leaf_round}-{client}")
        self.site.kept.write_folds({names[id(model)]: model for model in folds.values()})
        return [[client, names[id(model)]] for client, model in folds.items()]

    def _probe(self, packet: Packet) -> tuple[dict[str, Any], dict[str, State]]:
        """Let the leaf train a model, for comparison only."""
        facts, start = packet.facts, packet.states[orders.MODEL]
        self._restore_algorithm(packet)
        receiver = self._make_receiver(packet, start)
        most_windows = int(facts.get("most_windows", 0))
        leaf_round = int(facts["leaf_round"])
        request = ProbeRequest([self._leaf], start, leaf_round, receiver, facts["line"], most_windows)
        probe = self._port.probe(request)
        has_moved = probe.models[0] is not probe.start
        states = {orders.MODEL: probe.models[0]} if has_moved else {}
        if receiver is not None:
            states |= orders.packed_summaries(receiver.updates.summaries())
        return {"moved": has_moved}, states

    def _make_receiver(self, packet: Packet, start: State) -> Receiver | None:
        """Receiver of updates relative to a start, if an order asks for them."""
        if not packet.facts["updates"]:
            return None
        updates = Updates(start, self.site.parameter_names, self._book.global_round)
        return Receiver(updates, {self._index: self._index})

    def _evaluate(self, packet: Packet) -> tuple[dict[str, Any], dict[str, State]]:
        """Let clients evaluate models."""
        facts = packet.facts
        self._restore_algorithm(packet)
        known, unseen = (self._load_models(packet, facts[group]) for group in ("known", "unseen"))
        request = EvaluationRequest(
            {self._index: known} if known else {}, facts["splits"], {self._index: unseen} if unseen else {}
        )
        return {"evaluated": orders.packed_evaluations(self._port.evaluate(request, facts["phase"]))}, {}

    def _load_models(self, packet: Packet, references: Mapping[str, list[str]]) -> dict[str, State]:
        """Role → model, from the order or stored here."""
        return {
            role: self.site.kept.fold(name) if place == orders.HERE else packet.states[name]
            for role, (place, name) in references.items()
        }


def _progress_observer(note: Note) -> Callable[[Callable[[], ExchangeProgress]], None]:
    """Observer of exchanges, sending progress notes to the cloud from time to time."""
    last_sent = time.monotonic()

    def observe(get_progress: Callable[[], ExchangeProgress]) -> None:
        nonlocal last_sent
        if time.monotonic() - last_sent > _NOTE_S:
            last_sent, progress = time.monotonic(), get_progress()
            clients = {"asked": progress.asked, "back": progress.back, "failed": progress.failed}
            note({"kind": progress.kind, **{state: sorted(numbers) for state, numbers in clients.items()}})

    return observe
