"""A process by path is told which leaves it is; a cloud that names none that can be is refused."""

import threading

import pytest

from fedge.link import gate as gate_module
from fedge.link.certificates import CertificateRequest, make_certificates
from fedge.link.dial import Refused
from fedge.link.frames import Packet
from fedge.link.gate import BELOW, WELCOME, LeafGate
from fedge.link.leaves_below import SubtreeQuery


@pytest.fixture
def certificates(tmp_path):
    make_certificates(tmp_path / "certs", CertificateRequest(leaves=4, paths=("0", "1")))
    return tmp_path / "certs"


def gate_over(certificates, over):
    return LeafGate("127.0.0.1:0", certificates, 4, Packet(WELCOME), over)


def test_leaves_below_are_told(certificates):
    with gate_over(certificates, {"0": [0], "1": [3, 1, 2]}) as gate:
        assert SubtreeQuery(gate.address, certificates, "1").leaves(20.0) == [1, 2, 3]
        assert SubtreeQuery(gate.address, certificates, "0").leaves(20.0) == [0]
        assert gate.hellos() == {}


@pytest.mark.parametrize("told", [[], [0, 0], [-1], [True], ["1"], "1", list(range(1001)), [10**6]], ids=repr)
def test_leaves_that_cannot_be_are_refused(certificates, monkeypatch, told):
    chunks_of = gate_module.chunks_of

    def lying(packet):
        return chunks_of(Packet(WELCOME, {BELOW: told}) if packet.kind == WELCOME else packet)

    monkeypatch.setattr(gate_module, "chunks_of", lying)
    with (
        gate_over(certificates, {"1": [1]}) as gate,
        pytest.raises(Refused, match="must name 1 to 1000") as why,
    ):
        SubtreeQuery(gate.address, certificates, "1").leaves(20.0)
    assert len(str(why.value)) < 400


def test_a_cloud_that_stays_away_is_given_up_and_asking_can_be_stopped(certificates):
    with gate_over(certificates, {"1": [1]}) as gate:
        address = gate.address
    with pytest.raises(Refused, match="no contact to the cloud"):
        SubtreeQuery(address, certificates, "1").leaves(0.3)
    below, found = SubtreeQuery(address, certificates, "1"), []
    thread = threading.Thread(target=lambda: found.append(below.leaves(60.0)))
    thread.start()
    below.stop()
    thread.join(10)
    assert found == [[]]
