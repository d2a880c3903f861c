"""Leaf servers as an engine: their clients are there as soon as they are attached."""

import time

import numpy as np
import pytest
from leaf_servers import Quiet, in_threads

from fedge.edge import engine as edge_engine
from fedge.edge.engine import EdgeEngine
from fedge.exchange.engine import RunError
from fedge.exchange.finding import find_clients
from fedge.link.admission import HELLO
from fedge.link.certificates import CertificateRequest, make_certificates
from fedge.link.frames import Packet
from fedge.link.gate import OVER, LeafGate
from fedge.process.versions import versions


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


class Elsewhere(Silent):
    """A leaf server of another installation; `says` are facts of its hello."""

    def __init__(self, **says):
        super().__init__()
        self.says = says

    def hello(self):
        return Packet(HELLO, self.says)


def test_leaf_servers_whose_bits_may_differ_are_named_once(gate, tmp_path):
    """Also one that comes back as another; of owners, the kernels are not those of the leaf server."""
    other = {"versions": versions() | {"torch": "1.0"}, "kernels": "avx2 plain"}
    line = f"torch 1.0 (the cloud: {versions()['torch']})"
    hosts = [Elsewhere(**other), Elsewhere(versions=versions(), kernels="plain")]
    engine = EdgeEngine(gate, [2, 3])
    with in_threads(gate.address, tmp_path / "certs", tmp_path, 2, lambda _, leaf: hosts[leaf]):
        find_clients(engine, 10.0)
        (said,) = engine.new_remarks()
        assert said.startswith("the last bits of leaf server 0 may differ: it has ")
        assert line in said
        assert engine.new_remarks() == []
        engine._kernel = "native avx2"
        (said,) = engine.new_remarks()
        assert "leaf server 1 may differ: it cannot use the run's kernel avx2" in said
        hosts[1].says = other
        gate._streams[1].cut()
        while gate.hellos().get(1, Packet("")).facts.get("kernels") != "avx2 plain":
            time.sleep(0.01)
        (said,) = engine.new_remarks()
        assert "leaf server 1 may differ" in said
        assert line in said


# --- the end of a run: whatever a leaf server answers, it has ended -------------------------------------


class Last(Silent):
    """Answers that the run is over by something else; first come notes."""

    def __init__(self, answer, notes=0):
        super().__init__()
        self.last, self.notes = answer, notes

    def answer(self, packet, note):
        self.asked.append(packet.kind)
        for number in range(self.notes):
            note({"done": number})
        return self.last


ODD = {
    "failed": (Last(Packet("failed", {"words": "\x1b[2J" * 10**3})), "it answered 'failed': \\x1b[2J"),
    "of no kind": (Last(Packet("\x1b]0;x\x07" * 10**3)), "it answered "),
    "long": (Last(Packet("done", {"words": "x" * 10**6})), "its answer is refused: leaf server 0: the head"),
    "with arrays": (Last(Packet("done", {}, {"model": {"w": np.zeros(10**6)}})), "its answer is refused: "),
    "words of no text": (Last(Packet("failed", {"words": [{}] * 10**3})), "it answered 'failed'"),
    "after notes": (Last(Packet("done"), 1000), ""),
    "of no number": (Last(Packet("done", {"number": 3})), ""),
}


@pytest.mark.parametrize("name", ODD)
def test_whatever_is_answered_at_the_end_is_a_line_and_all_others_are_told(
    gate, tmp_path, name, caplog, monkeypatch
):
    monkeypatch.setattr(edge_engine, "_DISMISS_S", 2.0)
    (host, said), engine, honest = ODD[name], EdgeEngine(gate, [2, 3]), Silent()
    hosts = [host, honest]
    with in_threads(gate.address, tmp_path / "certs", tmp_path, 2, lambda _, leaf: hosts[leaf]):
        find_clients(engine, 10.0)
        caplog.clear()
        began = time.monotonic()
        engine.dismiss()
        assert time.monotonic() - began < 10.0
        lines = [line for line in caplog.messages if "the run is over" in line]
    assert honest.asked == [OVER]
    assert len(lines) == bool(said)
    assert all("leaf server 0" in line and said in line and len(line) < 1000 for line in lines)
    assert all(line.isprintable() for line in caplog.messages)


class Broken:
    """A gate that raises what no gate raises."""

    def __init__(self, gate):
        self.hellos, self.asked = gate.hellos, []

    def ask(self, leaf, *_, **__):
        self.asked.append(leaf)
        raise TypeError("\x1b[2J")


def test_whatever_is_raised_at_the_end_all_are_told(gate, tmp_path, caplog):
    engine, hosts = EdgeEngine(gate, [2, 3]), [Silent(), Silent()]
    with in_threads(gate.address, tmp_path / "certs", tmp_path, 2, lambda _, leaf: hosts[leaf]):
        find_clients(engine, 10.0)
        engine._gate = Broken(gate)
        engine.dismiss()
        assert sorted(engine._gate.asked) == [0, 1]
    assert [line for line in caplog.messages if "\\x1b[2J" in line and line.isprintable()]
