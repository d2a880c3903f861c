"""The cloud's port over leaf servers that answer what is written down here; whole runs: test_leaf_servers."""

import time
from contextlib import ExitStack

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg
from leaf_servers import Quiet, in_threads
from links import serving

from fedge.config.flat import from_run_config
from fedge.edge.dispatch import LEAF_FAILED, LEAF_GONE, LEAF_REJECTED
from fedge.edge.packets import orders
from fedge.edge.port import EdgeLeaves
from fedge.exchange.clients import Clients
from fedge.exchange.engine import RunError
from fedge.exchange.round_context import RoundContext
from fedge.leaf.leaf import Leaf
from fedge.link.certificates import CertificateRequest, make_certificates
from fedge.link.dial import Link
from fedge.link.frames import Packet
from fedge.link.gate import LeafGate
from fedge.rounds.evaluation import EvaluationRequest
from fedge.rounds.lines import own_models
from fedge.rounds.measurements.book import RoundBook
from fedge.rounds.port import PortContext, RunFacts
from fedge.rounds.task import RunTask
from fedge.rounds.transport import RoundServices, Transport
from fedge.states.state_files import SharedStates
from fedge.timing.laps import LapClock


def state(value):
    return {"w": np.array([value], np.float32)}


class Scripted(Quiet):
    """A leaf server that knows nothing of the run at first, and then adds ten to the model that it gets."""

    def __init__(self, leaf, fails=False):
        self.leaf, self.fails, self.asked, self.knows = leaf, fails, [], False

    def answer(self, packet, note):
        self.asked.append(packet)
        if packet.kind == orders.BEGIN:
            self.knows = True
            return Packet(orders.DONE)
        if not self.knows:
            return Packet(orders.UNKNOWN)
        if self.fails:
            return Packet(orders.FAILED, {"words": "OSError: no space left"})
        note({"kind": "train", "back": [2 * self.leaf], "failed": [], "asked": [2 * self.leaf]})
        clients = [2 * self.leaf, 2 * self.leaf + 1]
        book = RoundBook(
            1,
            dict.fromkeys(clients, 0.5),
            dict.fromkeys(clients, 1.0),
            dict.fromkeys(clients, 1),
            uplink_bytes=8,
            answered=2,
        )
        facts = {
            "counted": 2, "moved": True, "version": packet.facts["leaf_round"], "folds": [],
            "leaf": packet.facts["leaf"], "book": orders.packed_book(book, 0.0),
        }  # fmt: skip
        model = packet.states["model"]["w"] + np.float32(10)
        control = {"w": np.ones(1)}
        return Packet(orders.DONE, facts, {"model": {"w": model}, "control": control, "told": control})


@pytest.fixture
def port(tmp_path):
    """A function of leaf servers that gives leaves, transport and port."""
    with ExitStack() as stack:

        def make(*hosts, patience_s=10.0, there=2):
            make_certificates(tmp_path / "certs", CertificateRequest(leaves=2))
            gate = stack.enter_context(LeafGate("127.0.0.1:0", tmp_path / "certs", 2, Packet("welcome")))
            stack.enter_context(
                in_threads(gate.address, tmp_path / "certs", tmp_path, there, lambda _, leaf: hosts[leaf])
            )
            config = from_run_config({"guard.start-timeout": patience_s})
            leaves = [Leaf(i, {2 * i: 10, 2 * i + 1: 10}, state(i), ["w"], FedAvg(), 1) for i in range(2)]
            facilities = RoundServices(
                Clients(None, {}),
                lambda a, b: RoundContext(7, a, b, "", "", 0, 5.0),
                LapClock(),
                SharedStates(tmp_path, enabled=False),
            )
            transport = Transport(facilities, {}, retries=0)
            transport.begin_round(1)
            made = EdgeLeaves(
                gate, RunFacts("r", {"seed": 7}, 2), PortContext(RunTask(config, 7, {}, 2), leaves, transport)
            )
            stack.callback(made.close)
            return leaves, transport, made

        yield make


def test_leaf_servers_are_told_of_the_run_and_their_leaves_move(port):
    hosts = [Scripted(0), Scripted(1)]
    leaves, transport, made = port(*hosts)
    assert made.train(own_models(leaves), 5) == 4
    assert [float(leaf.model["w"][0]) for leaf in leaves] == [10, 11]
    assert [float(leaf.sent_control["w"][0]) for leaf in leaves] == [1, 1]
    assert [packet.kind for packet in hosts[1].asked] == [orders.BEGIN, orders.TRAIN]
    assert hosts[1].asked[0].facts["leaf"] == 1
    assert transport.book.uplink_bytes == 16


def test_an_order_names_the_control_variates_that_it_starts_from_and_those_of_checkpoints(port):
    """Two checkpoints are kept, and one more that may be half written: after rounds 1, 2 and 3 of four."""
    hosts = [Scripted(0), Scripted(1)]
    leaves, _, made = port(*hosts)
    for leaf_round in range(1, 5):
        made.train(own_models(leaves), leaf_round)
        assert made.facts() == {"versions": [(0, leaf_round), (1, leaf_round)]}
    made.train(own_models(leaves), 5)
    last = hosts[0].asked[-1].facts
    assert (last["version"], last["needed"]) == (4, [2, 3, 4])
    made.restore({"versions": [[0, 2], [1, 2]]})
    made.train(own_models(leaves), 6)
    assert (hosts[1].asked[-1].facts["version"], hosts[1].asked[-1].facts["needed"]) == (2, [2])


def test_a_leaf_server_that_is_away_keeps_its_model_and_its_clients_have_failed(port):
    leaves, transport, made = port(Scripted(0), patience_s=1.0, there=1)
    assert made.train(own_models(leaves), 5) == 2
    assert [float(leaf.model["w"][0]) for leaf in leaves] == [10, 1]
    assert transport.book.kept_model == {1: 1}
    assert {client: failure.kind for client, failure in transport.book.failures.items()} == {
        2: LEAF_GONE, 3: LEAF_GONE,
    }  # fmt: skip


def test_a_leaf_server_that_cannot_go_on_ends_the_run(port):
    leaves, _, made = port(Scripted(0), Scripted(1, fails=True))
    with pytest.raises(RunError, match="leaf server 1 cannot continue: OSError: no space left"):
        made.train(own_models(leaves), 1)


def test_one_that_could_go_on_once_and_cannot_later_costs_only_itself(port):
    host = Scripted(1)
    leaves, transport, made = port(Scripted(0), host)
    made.train(own_models(leaves), 1)
    host.fails = True
    assert made.train(own_models(leaves), 2) == 2
    assert [float(leaf.model["w"][0]) for leaf in leaves] == [20, 11]
    assert transport.book.kept_model == {1: 1}
    assert {failure.kind for failure in transport.book.failures.values()} == {LEAF_FAILED}


def test_one_that_comes_late_and_cannot_begin_costs_only_itself(port, tmp_path):
    """The run went on without it before, and does so again; one that is there from the start ends the run."""
    leaves, transport, made = port(Scripted(0), patience_s=0.3, there=1)
    assert made.train(own_models(leaves), 1) == 2
    transport.begin_round(2)
    gate = made._dispatch._gate
    with serving([Link(gate.address, tmp_path / "certs", 1)], [Scripted(1, fails=True)]):
        while len(gate.hellos()) < 2:
            time.sleep(0.01)
        assert made.train(own_models(leaves), 2) == 2
    assert {client: failure.kind for client, failure in transport.book.failures.items()} == {
        2: LEAF_FAILED, 3: LEAF_FAILED,
    }  # fmt: skip


class AnswersFor(Scripted):
    """A leaf server whose book or other rows speak of one more client."""

    def __init__(self, leaf, what, row):
        super().__init__(leaf)
        self.what, self.row = what, row

    def answer(self, packet, note):
        answer = super().answer(packet, note)
        if answer.kind == orders.DONE and packet.kind == orders.TRAIN:
            rows = answer.facts if self.what in answer.facts else answer.facts["book"]
            rows[self.what] = [*rows[self.what], self.row]
        return answer


@pytest.mark.parametrize(
    ("what", "row"),
    [
        ("train_loss", [0, 1e9]),
        ("train_seconds", [0, 1e9]),
        ("failures", [0, "train", "as leaf 1 says"]),
        ("folds", [1, "fold-1-1"]),
        ("train_loss", [99, 1.0]),
        ("train_loss", ["0", 1.0]),
        ("failures", []),
        ("failures", [[2]]),
        ("folds", 7),
    ],
)
def test_a_leaf_server_that_answers_for_clients_of_others_is_as_one_that_is_gone(port, what, row):
    leaves, transport, made = port(Scripted(0), AnswersFor(1, what, row))
    assert made.train(own_models(leaves), 5) == 2
    assert [float(leaf.model["w"][0]) for leaf in leaves] == [10, 1]
    assert transport.book.kept_model == {1: 1}
    assert sorted(transport.book.train_loss) == sorted(transport.book.train_seconds) == [0, 1]
    assert {client: failure.kind for client, failure in transport.book.failures.items()} == {
        2: LEAF_REJECTED, 3: LEAF_REJECTED,
    }  # fmt: skip


def test_a_leaf_server_that_never_knows_the_run_is_as_one_that_is_gone(port):
    class Forgetful(Scripted):
        def answer(self, packet, note):
            self.knows = False
            return super().answer(packet, note)

    hosts = [Scripted(0), Forgetful(1)]
    leaves, transport, made = port(*hosts)
    assert made.train(own_models(leaves), 5) == 2
    assert [float(leaf.model["w"][0]) for leaf in leaves] == [10, 1]
    assert sorted(transport.book.failures) == [2, 3]
    assert [packet.kind for packet in hosts[1].asked] == [orders.BEGIN, orders.TRAIN] * 10


def test_nobody_is_asked_where_there_is_nothing_to_ask(port):
    _, _, made = port(Scripted(0), Scripted(1))
    assert made.evaluate(EvaluationRequest({0: {}, 1: {}}, ("val",))) == {}


def test_control_variates_of_a_checkpoint_cannot_go_to_leaf_servers(port):
    _, _, made = port(Scripted(0), Scripted(1))
    with pytest.raises(RunError, match="resume without --leaves"):
        made.restore({})
