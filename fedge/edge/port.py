"""The cloud's side of leaf servers that are processes of their own: a `fedge.rounds.port.LeafPort`.

An order goes to all leaf servers at once; each lets its clients work and answers with its model. A leaf
server that is gone is waited for, as long as `guard.start-timeout` says, and asked again when it is back: it
starts from what the order says, so nothing is lost and nothing counts twice. One that stays away loses only
itself: its clients have failed, and its leaf keeps its model (contract C12).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Literal

from fedge.cloud.step import Probe
from fedge.clustering.updates import Updates
from fedge.edge import orders
from fedge.exchange.clients import Standing
from fedge.exchange.engine import RunError
from fedge.exchange.evaluate import EvaluateReply, SplitName
from fedge.exchange.failure import Failure
from fedge.exchange.round_context import LEAF
from fedge.leaf.leaf import Leaf
from fedge.link.frames import Packet
from fedge.link.gate import LeafGate, LeafGone
from fedge.process.watchdog import note_progress, refuse_stalled
from fedge.rounds.evaluation import Asked
from fedge.rounds.lines import TrainingLine
from fedge.rounds.port import Around, RunFacts
from fedge.states.averaging import State
from fedge.tasks.chosen import task_of
from fedge.timing.timeline import ExchangeTimes

logger = logging.getLogger(__name__)

_BY_CLIENT = ("train_loss", "train_seconds", "failures")  # rows of a leaf server's book
_MOST_BEGINNINGS = 10  # of a run at one leaf server for one order
LEAF_GONE = "leaf server gone"
_LOOK_S = 0.25


class EdgeLeaves:
    """Leaf servers behind a gate."""

    def __init__(self, gate: LeafGate, facts: RunFacts, around: Around) -> None:
        """Stand ready; leaf servers are told of the run when the first order finds them."""
        self._gate = gate
        self._facts = facts
        self._leaves = list(around.leaves)
        self._transport = around.transport
        self._held_out = around.task.held_out
        self._learned, self._outputs = task_of(around.task.config.train), around.task.classes
        self._patience_s = around.task.config.guard.start_timeout
        self._versions = dict.fromkeys(range(len(self._leaves)), 0)  # of client controls, per leaf
        self._in_checkpoints: list[dict[int, int]] = []
        self._pool = ThreadPoolExecutor(len(self._leaves), "leaf-order")

    # --- what is asked ------------------------------------------------------------------------------

    def train(self, training: TrainingLine, leaf_round: int) -> int:
        """Let leaf servers train a line for a leaf round."""
        book = self._transport.book
        asked = {leaf.index: self._train_order(leaf, training, leaf_round) for leaf in training.leaves}
        answers = self._all(asked, {leaf.index: leaf.clients for leaf in training.leaves})
        counted = 0
        for leaf in training.leaves:
            answer = answers.get(leaf.index)
            if answer is not None:
                counted += self._take_trained(leaf, training, answer)
            elif training.line == LEAF:
                book.kept_model[leaf.index] = book.kept_model.get(leaf.index, 0) + 1
        self._transport.lap("aggregate")
        return counted

    def _train_order(self, leaf: Leaf, training: TrainingLine, leaf_round: int) -> Packet:
        """Return the order of a leaf round to one leaf server."""
        states, facts = leaf.round_states()
        book, index = self._transport.book, leaf.index
        order = {
            "leaf_round": leaf_round,
            "line": training.line,
            "fork": leaf is not self._leaves[index],
            "without": sorted(set(self._leaves[index].clients) - set(leaf.clients)),
            "leaf": facts,
            "version": self._versions[index],
            "needed": sorted({versions[index] for versions in self._in_checkpoints}),
            "updates": training.line == LEAF and book.updates is not None,
            "alone": training.line == LEAF and index in book.alone,
        }
        return self._order(orders.TRAIN, order, {orders.MODEL: leaf.model, **states})

    def _take_trained(self, leaf: Leaf, training: TrainingLine, answer: Packet) -> int:
        """Move a leaf, or a fork, to what its server has made of it; return how many replies count."""
        facts, book, index = answer.facts, self._transport.book, leaf.index
        leaf.put_round_states(answer.states, facts["leaf"])
        if facts["moved"]:
            leaf.models.trained(LEAF, answer.states[orders.MODEL])
        leaf.keep_states(self._transport.shared.keep)
        self._versions[index] = int(facts["version"])
        told = facts["book"]
        if training.line != LEAF:
            told = {**told, "train_loss": []}
        orders.add_to_book(book, index, told)
        if training.line == LEAF and book.updates is not None:
            _take_summaries(book.updates, book.branch(leaf), answer)
        if facts["folds"]:
            there = {name: orders.KeptThere(name, leaf.model) for _, name in facts["folds"]}
            book.folds[index] = {int(client): there[name] for client, name in facts["folds"]}
        return int(facts["counted"])

    def probe(
        self, start: State, leaf_round: int, updates: Updates | None, line: Literal["leaf", "probe"] = LEAF
    ) -> Probe:
        """Let all leaf servers train one model for comparison only."""
        order = {"leaf_round": leaf_round, "line": line, "updates": updates is not None}
        packet = self._order(orders.PROBE, order, {orders.MODEL: start})
        asked = {leaf.index: packet for leaf in self._leaves}
        answers = self._all(asked, {leaf.index: leaf.clients for leaf in self._leaves}, phase="cluster")
        models: list[State] = []
        for leaf in self._leaves:
            answer = answers.get(leaf.index)
            moved = answer is not None and answer.facts["moved"]
            models.append(
                self._transport.shared.keep(answer.states[orders.MODEL]) if answer and moved else start
            )
            if answer is not None:
                orders.add_to_book(self._transport.book, leaf.index, answer.facts["book"])
                if updates is not None:
                    _take_summaries(updates, self._transport.book.branch(leaf), answer)
        return Probe(start, models, updates)

    def evaluate(self, asked: Asked, phase: str = "") -> dict[int, EvaluateReply]:
        """Let clients of all leaves evaluate models."""
        packets, who = {}, {}
        for leaf in self._leaves:
            known, unseen = asked.models.get(leaf.index, {}), asked.unseen_clients.get(leaf.index, {})
            who[leaf.index] = (*(leaf.clients if known else ()), *(leaf.unseen_clients if unseen else ()))
            if who[leaf.index]:
                packets[leaf.index] = self._evaluate_order(known, unseen, asked.splits, phase)
        found: dict[int, EvaluateReply] = {}
        for index, answer in self._all(packets, who, phase).items():
            orders.add_to_book(self._transport.book, index, answer.facts["book"])
            found |= orders.evaluations_of(answer.facts["evaluated"], self._learned, self._outputs)
        return dict(sorted(found.items()))

    def _evaluate_order(
        self, known: Mapping[str, State], unseen: Mapping[str, State], splits: Sequence[SplitName], phase: str
    ) -> Packet:
        """Return the order to evaluate models to one leaf server; what it keeps itself is named only."""
        states: dict[str, State] = {}

        def named(models: Mapping[str, State], who: str) -> dict[str, list[str]]:
            said = {}
            for role, model in models.items():
                if isinstance(model, orders.KeptThere):
                    said[role] = [orders.HERE, model.name]
                else:
                    states[f"{who}/{role}"] = model
                    said[role] = [orders.SENT, f"{who}/{role}"]
            return said

        order = {"known": named(known, "known"), "unseen": named(unseen, "unseen"), "phase": phase}
        return self._order(orders.EVALUATE, order | {"splits": list(splits)}, states)

    def windows(self, split: SplitName) -> dict[int, int]:
        """Return partition id → windows of a split."""
        return {client: held_out[split] for client, held_out in self._held_out.items()}

    # --- how it is asked ----------------------------------------------------------------------------

    def _order(self, kind: str, facts: dict[str, Any], states: Mapping[str, State]) -> Packet:
        where = {"run": self._facts.run, "global_round": self._transport.book.global_round}
        return Packet(kind, {**facts, **where}, states)

    def _all(
        self, packets: Mapping[int, Packet], clients: Mapping[int, Sequence[int]], phase: str = ""
    ) -> dict[int, Packet]:
        """Give orders to leaf servers, all at once; return the answers of those that gave one, in order.

        Args:
            packets: leaf → order.
            clients: leaf → its clients that are to work.
            phase: is charged with all of the time, where the exchange is no step of its own.

        Raises:
            RunError: a leaf server could not carry an order out, through no fault of its clients.
        """
        transport = self._transport
        began = transport.lap(phase or "configure")
        progress = _Progress(clients)
        running = {
            leaf: self._pool.submit(self._ask, leaf, packet, progress.noted(leaf))
            for leaf, packet in packets.items()
        }
        self._follow(running, progress)
        ended = transport.lap(phase or "wait")
        answers, times = {}, ExchangeTimes([(began, ended)])
        for leaf, future in sorted(running.items()):
            try:
                answer = self._checked(leaf, future.result())
                _refuse_others(leaf, answer, clients[leaf])
                answers[leaf] = answer
            except LeafGone as error:
                logger.warning("global round %d: %s", transport.book.global_round, error)
                for client in clients[leaf]:
                    transport.note_failure(client, Failure(LEAF_GONE, str(error)))
                continue
            told = answers[leaf].facts["book"]
            for client, failure in orders.failures_of(told).items():
                transport.note_failure(client, failure)
            orders.add_calls(times, leaf, told, ended)
        if not phase:
            transport.book.exchanges.append(times)
        transport.lap(phase or "check")
        return answers

    def _follow(self, running: Mapping[int, "Future[Packet]"], progress: "_Progress") -> None:
        """Wait until all have ended; whoever follows the run sees how far they are."""
        left = set(running.values())
        while left:
            _, left = wait(left, _LOOK_S)
            for leaf, future in running.items():
                if future.done():
                    progress.done(leaf)
            self._transport.clients.observe(progress.standing)
            refuse_stalled()

    def _ask(self, leaf: int, packet: Packet, on_note: Callable[[Packet], None]) -> Packet:
        """Give one leaf server an order; tell it of the run first if it knows nothing of it."""
        for _ in range(_MOST_BEGINNINGS):
            answer = self._gate.ask(leaf, packet, self._patience_s, on_note)
            if answer.kind != orders.UNKNOWN:
                return answer
            told = self._gate.ask(
                leaf, Packet(orders.BEGIN, self._begin_facts(leaf)), self._patience_s, on_note
            )
            self._checked(leaf, told)
        raise LeafGone(
            f"leaf server {leaf} was told of the run {_MOST_BEGINNINGS} times and knows nothing of it"
        )

    def _begin_facts(self, leaf: int) -> dict[str, Any]:
        """Return what one leaf server is told of the run: of windows what its own clients have said."""
        of, told = self._leaves[leaf], self._facts.told
        own = {str(c): told[c] for c in (*of.clients, *of.unseen_clients) if c in told}
        facts = {**self._facts.begin, "run": self._facts.run, "leaf": leaf}
        return facts | ({"told": own} if own else {})

    def _checked(self, leaf: int, answer: Packet) -> Packet:
        """Return an answer, unless it says that the order could not be carried out."""
        if answer.kind != orders.DONE:
            words = answer.facts.get("words", f"an answer of kind {answer.kind!r}")
            raise RunError(f"leaf server {leaf} cannot go on: {words}; its log has more")
        return answer

    # --- what survives ------------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        """Return what a run must know to go on, as JSON, when a checkpoint is written."""
        self._in_checkpoints = [*self._in_checkpoints, dict(self._versions)][-self._facts.checkpoints - 1 :]
        return {"versions": list(self._versions.items())}

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Go on with what `facts` gave."""
        if not facts.get("versions") and any(leaf.control is not None for leaf in self._leaves):
            raise RunError(
                "the clients' control variates of this run are in its checkpoint, not at leaf servers; go on "
                "without --leaves"
            )
        self._versions |= {int(leaf): int(version) for leaf, version in facts.get("versions", [])}
        self._in_checkpoints = [dict(self._versions)]

    def close(self) -> None:
        """Let the threads go."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class _Progress:
    """How far the clients of all leaf servers are, by what these tell."""

    def __init__(self, clients: Mapping[int, Sequence[int]]) -> None:
        self._clients = clients
        self._kind = ""
        self._back: dict[int, frozenset[int]] = {}
        self._failed: dict[int, frozenset[int]] = {}

    def noted(self, leaf: int) -> Callable[[Packet], None]:
        """Return what takes the notes of one leaf server."""

        def note(packet: Packet) -> None:
            back, failed = (frozenset(map(int, packet.facts[who])) for who in ("back", "failed"))
            if (back, failed) != (self._back.get(leaf), self._failed.get(leaf)):
                note_progress()
            self._kind = str(packet.facts["kind"])
            self._back[leaf], self._failed[leaf] = back, failed

        return note

    def done(self, leaf: int) -> None:
        """Take in that a leaf server has answered."""
        if self._back.get(leaf) != frozenset(self._clients[leaf]):
            self._back[leaf] = frozenset(self._clients[leaf])
            note_progress()

    def standing(self) -> Standing:
        """Return how it stands."""
        asked, back, failed = (
            frozenset(client for members in of.values() for client in members)
            for of in (self._clients, self._back, self._failed)
        )
        return Standing(self._kind, asked, back, failed - back)


def _refuse_others(leaf: int, answer: Packet, asked: Sequence[int]) -> None:
    """Raise LeafGone where an answer speaks of clients that the leaf server was not to ask."""
    try:
        book = answer.facts["book"]
        rows = [row for what in _BY_CLIENT for row in book[what]]
        rows += [row for what in ("evaluated", "folds") for row in answer.facts.get(what, ())]
        named = {row[0] for row in rows}
        others = sorted(named - set(asked))
    except (KeyError, TypeError, IndexError, AttributeError):
        raise LeafGone(f"leaf server {leaf} answered with rows that name no clients") from None
    if others:
        raise LeafGone(f"leaf server {leaf} answered for clients {others[:3]}, which it was not to ask")


def _take_summaries(updates: Updates, branch: int, answer: Packet) -> None:
    """Take in the summaries of clients' updates that an answer has, of a child of the cloud."""
    for client, summaries in sorted(orders.summaries_of(answer.states).items()):
        updates.take(client, branch, summaries)
