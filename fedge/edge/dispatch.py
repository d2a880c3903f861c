"""Dispatch of orders to all leaf servers at once, and collection of their valid answers.

Leaf servers of one process get their orders in one packet and answer in one (`fedge.edge.packets.bundles`);
each answer is checked separately. The cloud waits for an absent leaf server for `guard.start-timeout`, and
repeats the order when it returns. If it stays away, its clients have failed, and other leaves are unaffected
(contract C12). The same holds for an invalid answer (`fedge.edge.answers`), and for a failed order after the
first.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

from fedge.config.registers.option import shown
from fedge.edge.answers import AnswerRejected, Schema, failure_reason
from fedge.edge.packets import orders
from fedge.edge.packets.bundles import PARTS, bundled, unbundled
from fedge.edge.packets.plain_json import FactError, only, refusing
from fedge.edge.progress import Progress
from fedge.edge.remote_regions import RegionSpan
from fedge.exchange.engine import RunError
from fedge.exchange.failure import Failure
from fedge.link.frames import Packet
from fedge.link.gate import NUMBER, LeafAbsent, LeafGate, LeafGone, LeafRefused, OnNote
from fedge.process.endings.watchdog import refuse_stalled, stall_limit_s
from fedge.rounds.port import PortContext, RunFacts
from fedge.states.files import state_bytes
from fedge.timing.timeline import ExchangeTimes

logger = logging.getLogger(__name__)

_MOST_BEGINNINGS = 10  # starts of a run at one leaf server for one order
_STALL_SHARE = 0.9  # of the stall limit: a leaf server fails before the run counts as stalled
LEAF_GONE, LEAF_REJECTED = "leaf server gone", "leaf server rejected"
LEAF_FAILED = "leaf server failed"
_POLL_S = 0.25
_SHORT_ANSWER = (0, 2**20)  # bytes of the arrays, and of the head, of a short answer

_Read = TypeVar("_Read")


class LeafFailed(LeafGone):
    """Failed order, as reported by a leaf server. One line."""


@dataclass(frozen=True)
class Order:
    """An order to a leaf server, or to a region over the link of its first leaf.

    Attributes:
        packet: the order.
        clients: clients set to work by the order.
        span: leaf rounds of a region; None for a leaf server.
    """

    packet: Packet
    clients: Sequence[int]
    span: RegionSpan | None = None


class Dispatch:
    """Orders given through a gate."""

    def __init__(self, gate: LeafGate, facts: RunFacts, context: PortContext, schema: Schema) -> None:
        """Store the arguments; a leaf server learns of the run with its first order.

        Args:
            gate: gate to which leaf servers connect.
            facts: facts of the run, for leaf servers.
            context: parts from which the port is made.
            schema: schema of answers.
        """
        self._gate, self._facts, self._schema = gate, facts, schema
        self._leaves, self._transport = list(context.leaves), context.transport
        guard = context.task.config.guard
        self._patience_s, self._limit_s = guard.start_timeout, _STALL_SHARE * stall_limit_s(guard)
        # leaf servers that have executed an order of this process, or without which the run went on
        self._started: set[int] = set()
        self._informed: set[int] = set()  # leaf servers told of the run by this process
        self._pool = ThreadPoolExecutor(len(self._leaves), "leaf-order")

    def order(self, kind: str, facts: Mapping[str, Any], states: Mapping[str, Any]) -> Packet:
        """An order in the current global round."""
        run_facts = {"run": self._facts.run, "global_round": self._transport.book.global_round}
        return Packet(kind, {**facts, **run_facts}, states)

    def ask(
        self, leaf_orders: Mapping[int, Order], read: Callable[[int, Packet], _Read], phase: str = ""
    ) -> dict[int, _Read]:
        """Send orders to leaf servers, all at once; return the accepted answers, in order.

        Args:
            leaf_orders: leaf → its order.
            read: (leaf, answer) → content; raises AnswerRejected if the answer is impossible.
            phase: phase charged with the time, unless the exchange is itself a step.

        Raises:
            RunError: a leaf server failed to execute its first order, and not because of its clients.
        """
        transport = self._transport
        began = transport.lap(phase or "configure")
        sent = self._group_by_link(leaf_orders)
        progress = Progress(
            {link: [c for order in batch.values() for c in order.clients] for link, batch in sent.items()},
            {link: (s.first, s.last) for link, batch in sent.items() if (s := batch[link].span) is not None},
            {
                link: max(len(batch), len(s.leaves) if (s := batch[link].span) else 1)
                for link, batch in sent.items()
            },
        )
        running = {
            link: self._pool.submit(self._send, link, batch, progress.receiver(link))
            for link, batch in sent.items()
        }
        self._wait_for_all(running, progress)
        ended = transport.lap(phase or "wait")
        times = ExchangeTimes([(began, ended)])
        answers = {
            leaf: answer
            for link, future in running.items()
            for leaf, answer in self._answers_by_leaf(link, sent[link], future).items()
        }
        results: dict[int, _Read] = {}
        for leaf, answer in sorted(answers.items()):
            try:
                if not isinstance(answer, Packet):
                    raise answer
                results[leaf] = read(leaf, self._raise_for_failure(leaf, answer))
            except (LeafGone, AnswerRejected) as error:
                self._record_failure(leaf, leaf_orders[leaf], error)
                continue
            self._record_success(leaf, leaf_orders[leaf].span, answer, times, ended)
        if not phase:
            transport.book.exchanges.append(times)
        transport.lap(phase or "check")
        return results

    def _group_by_link(self, leaf_orders: Mapping[int, Order]) -> dict[int, dict[int, Order]]:
        """Leaf whose link is used → the orders sent over it, by leaf."""
        spans = {leaf: {leaf: order} for leaf, order in leaf_orders.items() if order.span is not None}
        processes = self._gate.processes(sorted(leaf_orders.keys() - spans.keys()), orders.SUBTREE)
        return spans | {leaves[0]: {leaf: leaf_orders[leaf] for leaf in leaves} for leaves in processes}

    def _answers_by_leaf(
        self, link: int, sent: Mapping[int, Order], future: "Future[Packet]"
    ) -> Mapping[int, "Packet | LeafGone | AnswerRejected"]:
        """Leaf → its answer in a packet received over a link, or the reason for its absence."""
        try:
            answer = future.result()
            if len(sent) == 1:
                return {link: answer}
            bundle = self._raise_for_failure(link, answer)
            with refusing(AnswerRejected):
                only(bundle.facts, {PARTS, NUMBER})
                parts = unbundled(bundle, sent)
                if parts.keys() != sent.keys():
                    raise FactError(PARTS, "not of all leaves of the process")
            return parts
        except (LeafGone, AnswerRejected) as error:
            return dict.fromkeys(sent, error)

    def _record_success(
        self, leaf: int, span: RegionSpan | None, answer: Packet, times: ExchangeTimes, ended: float
    ) -> None:
        """Record an accepted answer's times and, for a leaf server, its failures."""
        self._started |= _ordered_leaves(leaf, span)
        if span is not None:  # its failures are recorded round by round
            for index, _, _, book in chain.from_iterable(answer.facts["rounds"]):
                orders.add_calls(times, index, book, ended)
            return
        for client, failure in orders.failures_of(answer.facts["book"]).items():
            self._transport.note_failure(client, failure)
        orders.add_calls(times, leaf, answer.facts["book"], ended)

    def _record_failure(self, leaf: int, order: Order, error: Exception) -> None:
        """Record a failed order of a leaf server: its clients have failed."""
        kinds = {LeafFailed: LEAF_FAILED, LeafRefused: LEAF_REJECTED, AnswerRejected: LEAF_REJECTED}
        kind = kinds.get(type(error), LEAF_GONE)
        detail = f"leaf server {leaf}: {error}" if isinstance(error, AnswerRejected) else str(error)
        logger.warning("global round %d: %s: %s", self._transport.book.global_round, kind, detail)
        for client in order.clients:
            self._transport.note_failure(client, Failure(kind, detail))
        ordered = _ordered_leaves(leaf, order.span)
        self._started |= ordered
        if isinstance(error, LeafAbsent):  # waited for in vain, over whichever link of its process
            self._gate.mark_absent(ordered)

    def _wait_for_all(self, running: Mapping[int, "Future[Packet]"], progress: Progress) -> None:
        """Wait for all orders, and show progress."""
        pending = set(running.values())
        while pending:
            _, pending = wait(pending, _POLL_S)
            for link, future in running.items():
                if future.done():
                    progress.done(link)
            self._transport.clients.observe(progress.standing)
            refuse_stalled()

    def _send(self, link: int, sent: Mapping[int, Order], on_note: OnNote) -> Packet:
        """Send orders over one link, after a description of the run if the leaf server does not know it.

        Each process of the cloud describes the run: options may have changed with a resume, and the kernel.
        """
        packets = {leaf: order.packet for leaf, order in sent.items()}
        run = {"run": self._facts.run}
        packet = packets[link] if len(sent) == 1 else bundled(orders.BUNDLE, packets, run)
        limits = [self._most_bytes(leaf, order) for leaf, order in sent.items()]
        head, arrays = (sum(sizes) for sizes in zip(*limits, strict=True))
        last_progress = time.monotonic()

        def note(progress_note: Packet) -> bool:
            nonlocal last_progress
            if has_advanced := on_note(progress_note):
                last_progress = time.monotonic()
            return has_advanced

        def remaining_s() -> float:
            return max(0.0, last_progress + self._limit_s - time.monotonic())

        for _ in range(_MOST_BEGINNINGS):
            if link not in self._informed:  # its facts may be an ended cloud's, which had fewer
                begin = Packet(orders.BEGIN, self._begin_facts(link))
                self._raise_for_failure(
                    link, self._gate.ask(link, begin, self._patience_s, None, remaining_s(), _SHORT_ANSWER)
                )
                self._informed.add(link)
            keep = self._transport.shared.keep
            answer = self._gate.ask(link, packet, self._patience_s, note, remaining_s(), (arrays, head), keep)
            if answer.kind != orders.UNKNOWN:
                return answer
            self._informed.discard(link)
        raise LeafGone(
            f"leaf server {link} has forgotten the run {_MOST_BEGINNINGS} times in a row; restart it"
        )

    def _most_bytes(self, leaf: int, order: Order) -> tuple[int, int]:
        """Limits in bytes of the answer to an order; clients count once for every leaf round."""
        span, model = order.span, self._leaves[leaf].model
        if span is None:
            return self._schema.most_bytes(order.packet, model, len(order.clients))
        head, arrays = self._schema.most_bytes(order.packet, model, span.rounds * len(order.clients))
        return head, arrays + len(span.leaves) * state_bytes(model)

    def _begin_facts(self, leaf: int) -> dict[str, Any]:
        """Facts of the run for one leaf server, with descriptions only of its own clients' windows."""
        server, descriptions = self._leaves[leaf], self._facts.reports
        own_descriptions = {
            str(c): descriptions[c] for c in (*server.clients, *server.unseen_clients) if c in descriptions
        }
        facts = {**self._facts.begin, "run": self._facts.run, "leaf": leaf}
        return facts | ({"told": own_descriptions} if own_descriptions else {})

    def _raise_for_failure(self, leaf: int, answer: Packet) -> Packet:
        """An answer, unless it reports a failed order.

        Raises:
            RunError: the leaf server has not executed any order yet, so the run cannot begin.
            LeafFailed: it has executed earlier orders, or the run went on without it before.
        """
        if answer.kind == orders.DONE:
            return answer
        if answer.kind != orders.FAILED:
            raise LeafRefused(f"leaf server {leaf} answered {shown(answer.kind)}")
        reason = failure_reason(answer)
        if leaf in self._started:
            raise LeafFailed(f"leaf server {leaf} could not carry out an order: {reason}; its log has more")
        raise RunError(f"leaf server {leaf} cannot continue: {reason}; its log has more")

    def close(self) -> None:
        """Release the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _ordered_leaves(leaf: int, span: RegionSpan | None) -> set[int]:
    """Leaves set to work by an order to a leaf server, or to a region over its link."""
    return {leaf} if span is None else {member.index for member in span.leaves}
