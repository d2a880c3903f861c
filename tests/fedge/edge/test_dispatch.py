"""Orders to two leaf servers of one process, which answer what is written down here: each is judged alone."""

import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg
from leaf_servers import Quiet
from links import serving

from fedge.config.flat import from_run_config
from fedge.edge.answers import AnswerRejected, Schema
from fedge.edge.dispatch import LEAF_FAILED, LEAF_GONE, LEAF_REJECTED, Dispatch, Order
from fedge.edge.packets import orders
from fedge.edge.packets.bundles import bundled, unbundled
from fedge.edge.remote_regions import RegionSpan
from fedge.exchange.clients import Clients
from fedge.exchange.engine import RunError
from fedge.exchange.round_context import RoundContext
from fedge.leaf.leaf import Leaf
from fedge.link.admission import HELLO
from fedge.link.certificates import CertificateRequest, make_certificates
from fedge.link.dial import Link
from fedge.link.frames import Packet
from fedge.link.gate import LeafGate
from fedge.rounds.measurements.book import RoundBook
from fedge.rounds.port import PortContext, RunFacts
from fedge.rounds.task import RunTask
from fedge.rounds.transport import RoundServices, Transport
from fedge.states.state_files import SharedStates
from fedge.timing.laps import LapClock


class OfAProcess(Quiet):
    """One of several leaf servers of a process; `spoil` changes the parts of a bundle's answer."""

    def __init__(self, asked, spoil):
        self.asked, self.spoil = asked, spoil

    def hello(self):
        return Packet(HELLO, {orders.SUBTREE: "a process"})

    def answer(self, packet, note):
        """The models of the order, plus one."""
        if packet.kind == orders.BEGIN:
            return Packet(orders.DONE)
        self.asked.append(packet)

        def answered(order):
            model = {"w": order.states["model"]["w"] + np.float32(1)}
            return Packet(orders.DONE, {"book": orders.packed_book(RoundBook(1), 0.0)}, {orders.MODEL: model})

        if packet.kind != orders.BUNDLE:
            return answered(packet)
        parts = {leaf: answered(order) for leaf, order in unbundled(packet, [0, 1]).items()}
        answer = self.spoil(parts)
        return answer if isinstance(answer, Packet) else bundled(orders.DONE, parts, {})


@contextmanager
def dispatch(folder, spoil=lambda parts: None, patience_s=10.0):
    """Give what orders leaf servers 0 and 1 with a client each, the transport, and what they were asked.

    The links of their process are attributes of the first.
    """
    make_certificates(folder / "certs", CertificateRequest(leaves=2, paths=("0",)))
    config = from_run_config({"guard.start-timeout": patience_s})
    leaves = [Leaf(i, {i: 10}, {"w": np.zeros(1, np.float32)}, ["w"], FedAvg(), 0) for i in range(2)]
    facilities = RoundServices(
        Clients(None, {}),
        lambda a, b: RoundContext(7, a, b, "", "", 0, 5.0),
        LapClock(),
        SharedStates(folder, enabled=False),
    )
    transport, asked = Transport(facilities, {}, retries=0), []
    transport.begin_round(1)
    around = PortContext(RunTask(config, 7, {}, 2), leaves, transport)
    with LeafGate("127.0.0.1:0", folder / "certs", 2, Packet("welcome"), {"0": [0, 1]}) as gate:
        links = [Link(gate.address, folder / "certs", leaf, "0") for leaf in (0, 1)]
        with serving(links, [OfAProcess(asked, spoil) for _ in links]):
            while len(gate.hellos()) < 2:
                time.sleep(0.01)
            made = Dispatch(gate, RunFacts("r", {}, 2), around, Schema(around.task))
            made.links = links
            try:
                yield made, transport, asked
            finally:
                made.close()


def ask(made, model, leaves=(0, 1), read=lambda leaf, answer: float(answer.states["model"]["w"][0])):
    """Give each an order with a model, which is the same object for both."""
    given = {i: Order(made.order(orders.EVALUATE, {"leaf": i}, {"model": model}), [i]) for i in leaves}
    return made.ask(given, read)


def kinds(transport):
    return {client: failure.kind for client, failure in transport.book.failures.items()}


MODEL = {"w": np.array([5], np.float32)}


def test_leaf_servers_of_one_process_are_asked_once_and_a_model_comes_once(tmp_path):
    with dispatch(tmp_path) as (made, transport, asked):
        assert ask(made, MODEL) == {0: 6.0, 1: 6.0}
        assert [packet.kind for packet in asked] == [orders.BUNDLE]
        parts = unbundled(asked[0], [0, 1])
        assert parts[0].states["model"] is parts[1].states["model"]
        assert {part.facts["run"] for part in parts.values()} == {"r"}
        assert not transport.book.failures


def failed(parts):
    parts[1] = Packet(orders.FAILED, {"words": "OSError: no space left"})


def test_of_a_bundle_a_false_answer_and_a_failed_order_cost_one_leaf(tmp_path):
    spoilt = []
    with dispatch(tmp_path, lambda parts: failed(parts) if spoilt else None) as (made, transport, _):

        def read(leaf, answer):
            if leaf == 0:
                raise AnswerRejected("it cannot be")
            return float(answer.states["model"]["w"][0])

        assert ask(made, MODEL, read=read) == {1: 6.0}
        assert kinds(transport) == {0: LEAF_REJECTED}
        spoilt.append(True)
        assert ask(made, MODEL) == {0: 6.0}
        assert kinds(transport) == {0: LEAF_REJECTED, 1: LEAF_FAILED}


def test_a_leaf_server_whose_first_order_of_a_bundle_fails_ends_the_run(tmp_path):
    with (
        dispatch(tmp_path, failed) as (made, _, _),
        pytest.raises(RunError, match="leaf server 1 cannot continue: OSError: no space left"),
    ):
        ask(made, MODEL)


def renumbered(parts):
    parts[7] = parts.pop(1)


FALSE = {
    "a missing leaf": lambda parts: parts.pop(1) and None,
    "another leaf": renumbered,
    "no bundle": lambda parts: Packet(orders.DONE, {"book": {}}),
    "a further fact": lambda parts: bundled(orders.DONE, parts, {"more": 1}),
    "states of no leaf": lambda parts: Packet(
        orders.DONE, bundled(orders.DONE, parts, {}).facts, {"model": MODEL}
    ),
}


@pytest.mark.parametrize("lie", FALSE)
def test_a_bundle_that_cannot_be_costs_all_of_its_leaves(tmp_path, lie):
    with dispatch(tmp_path, FALSE[lie]) as (made, transport, _):
        assert ask(made, MODEL) == {}
        assert kinds(transport) == {0: LEAF_REJECTED, 1: LEAF_REJECTED}


def test_a_process_that_does_not_answer_costs_all_of_its_leaves(tmp_path):
    over = threading.Event()
    with dispatch(tmp_path, lambda parts: over.wait(20.0) and None, patience_s=1.0) as (made, transport, _):
        try:
            assert ask(made, MODEL) == {}
            assert kinds(transport) == {0: LEAF_GONE, 1: LEAF_GONE}
        finally:
            over.set()


@pytest.mark.parametrize("is_region", [False, True])
def test_a_process_that_is_gone_is_waited_for_once(tmp_path, is_region):
    """Over the link of its first leaf; the next orders do not wait again for the links of the others."""

    def leave(parts):
        for link in made.links:
            link.stop()

    with dispatch(tmp_path, leave, patience_s=0.5) as (made, transport, _):
        if is_region:
            for link in made.links:
                link.stop()
            region = SimpleNamespace(leaves=made._leaves)
            order = made.order(orders.REGION, {}, {"model": MODEL})
            assert made.ask({0: Order(order, [0, 1], RegionSpan(region, 1, 1))}, lambda *_: None) == {}
        else:
            assert ask(made, MODEL) == {}
        assert made._gate._absent_since.keys() == {0, 1}
        assert kinds(transport) == {0: LEAF_GONE, 1: LEAF_GONE}


def test_a_single_order_to_one_of_a_process_is_no_bundle(tmp_path):
    with dispatch(tmp_path) as (made, transport, asked):
        assert ask(made, MODEL, leaves=[1]) == {1: 6.0}
        assert [packet.kind for packet in asked] == [orders.EVALUATE]
        assert not transport.book.failures
