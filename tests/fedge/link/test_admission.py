"""Entrance of a gate: a certificate by path speaks for the leaves below it, and for no others."""

import threading

import pytest

from fedge.link.admission import HELLO, MOST_SILENT, Entrance
from fedge.link.certificates import CertificateRequest, make_certificates, revoke
from fedge.link.dial import Link, Refused
from fedge.link.frames import Packet
from fedge.link.gate import WELCOME, LeafGate, LeafGone

OVER = {"0": [0, 1], "1": [2], "1.0": [2]}


@pytest.fixture
def certificates(tmp_path):
    make_certificates(tmp_path / "certs", CertificateRequest(leaves=3, paths=("0", "1", "1.0", "2")))
    return tmp_path / "certs"


@pytest.fixture
def gate(certificates):
    with LeafGate("127.0.0.1:0", certificates, 3, Packet(WELCOME, {"seed": 7}), OVER) as made:
        yield made


class Named:
    """Answers every question with its own name."""

    def __init__(self, name):
        self.name = name

    def hello(self):
        return Packet(HELLO)

    def welcome(self, packet):
        assert packet.facts == {"seed": 7}

    def answer(self, packet, note):
        return Packet(self.name)


@pytest.fixture
def attached(gate, certificates):
    """A function that lets a link live in a thread; gives what it failed by."""
    started = []

    def attach(leaf, path="", name="here"):
        link, failures = Link(gate.address, certificates, leaf, path), []

        def serve():
            try:
                link.serve(Named(name), 30.0)
            except Refused as error:
                failures.append(str(error))

        thread = threading.Thread(target=serve)
        thread.start()
        started.append((link, thread))
        return thread, failures

    yield attach
    for link, thread in started:
        link.stop()
        thread.join(10)
        assert not thread.is_alive()


def test_one_certificate_speaks_for_all_leaves_below_its_path(gate, attached):
    attached(0, "0", "first")
    attached(1, "0", "second")
    attached(2, "1.0", "third")
    assert [gate.ask(leaf, Packet("who"), 20.0).kind for leaf in range(3)] == ["first", "second", "third"]


def test_a_leaf_s_own_certificate_is_as_good(gate, attached):
    """The newer one takes the place, as with two processes of one leaf."""
    attached(2, "1", "by path")
    assert gate.ask(2, Packet("who"), 20.0).kind == "by path"
    attached(2, "", "by leaf")
    for _ in range(100):
        if (found := gate.ask(2, Packet("who"), 20.0).kind) == "by leaf":
            break
    assert found == "by leaf"


@pytest.mark.parametrize(
    ("leaf", "path", "why"), [(2, "0", "leaf 2 is not below server-0"), (0, "1", "leaf 0 is not")]
)
def test_who_speaks_for_a_leaf_that_is_not_below_does_not_get_in(gate, attached, leaf, path, why):
    thread, failures = attached(leaf, path)
    thread.join(20)
    assert why in failures[0]
    assert gate.hellos() == {}
    with pytest.raises(LeafGone):
        gate.ask(leaf, Packet("who"), 0.2)


def test_a_path_that_the_tree_has_not_does_not_get_in(attached):
    thread, failures = attached(0, "2")
    thread.join(20)
    assert "no leaf server of this run: server-2" in failures[0]


def test_a_revoked_path_does_not_get_in(certificates, attached, tmp_path):
    kept = {f.name: f.read_bytes() for f in certificates.glob("server-0.*")}
    revoke(certificates, ["server-0"])
    for name, content in kept.items():
        (certificates / name).write_bytes(content)
    thread, failures = attached(0, "0")
    thread.join(20)
    assert "the certificate of server-0 was revoked" in failures[0]


def test_rooms_for_streams_that_say_nothing_grow_with_the_leaves_below(certificates):
    """Three leaves and servers over two, one and one of them."""
    assert Entrance(certificates, 3, OVER).most_streams == MOST_SILENT * (3 + 2 + 1 + 1)
    assert Entrance(certificates, 3, OVER).below("server-0") == [0, 1]
    assert Entrance(certificates, 3, OVER).below("leaf-2") == [2]
