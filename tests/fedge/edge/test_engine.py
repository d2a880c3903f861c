"""Leaf servers as an engine: their clients are there as soon as they are attached."""

import pytest
from leaf_servers import Quiet, in_threads

from fedge.edge.engine import EdgeEngine, kernels_told
from fedge.exchange.engine import RunError
from fedge.exchange.finding import find_clients
from fedge.link.certificates import CertificateRequest, make_certificates
from fedge.link.entrance import HELLO
from fedge.link.frames import Packet
from fedge.link.gate import OVER, LeafGate


class Silent(Quiet):
    def __init__(self):
        self.asked = []

    def hello(self):
        return Packet(HELLO, {"kernels": "avx2 plain"})

    def answer(self, packet, note):
        self.asked.append(packet.kind)
        return Packet("done")


@pytest.fixture
def gate(tmp_path):
    make_certificates(tmp_path / "certs", CertificateRequest(leaves=2))
    with LeafGate("127.0.0.1:0", tmp_path / "certs", 2, Packet("welcome")) as made:
        yield made


def test_all_clients_of_attached_leaf_servers_are_there(gate, tmp_path):
    engine = EdgeEngine(gate, [2, 3])
    assert list(engine.get_node_ids()) == []
    hosts = [Silent(), Silent()]
    with in_threads(gate.address, tmp_path / "certs", tmp_path, 2, lambda _, leaf: hosts[leaf]):
        clients = find_clients(engine, 10.0)
        assert len(clients) == 5
        assert clients.kernels == {("avx2", "plain"): 5}
        engine.dismiss()
    assert [host.asked for host in hosts] == [[OVER], [OVER]]


def test_a_leaf_server_that_does_not_come_is_missed(gate, tmp_path):
    with (
        in_threads(gate.address, tmp_path / "certs", tmp_path, 1, lambda *_: Silent()),
        pytest.raises(RunError, match="2 of 5 clients"),
    ):
        find_clients(EdgeEngine(gate, [2, 3]), 1.5)


@pytest.mark.parametrize(
    ("facts", "kernels"),
    [
        ({"kernels": "amx avx2"}, ("amx", "avx2")), ({"kernels": ""}, ()), ({}, None), ({"kernels": 3}, None),
        ({"kernels": "\x1b]0;x"}, ("\\x1b]0;x",)),
    ],
    ids=str,
)  # fmt: skip
def test_kernels_of_a_leaf_server(facts, kernels):
    assert kernels_told(Packet(HELLO, facts)) == kernels
    assert kernels_told(None) is None
