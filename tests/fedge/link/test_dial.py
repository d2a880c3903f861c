"""A leaf server that dials where nobody is; what it says to a cloud that is there: test_gate."""

import re
import socket
import threading
import time

import pytest
from own_authority import Issuer, write_all

from fedge.config.registers.option import ConfigError
from fedge.link.certificates import CertificateRequest, make_certificates
from fedge.link.dial import Link, Refused
from fedge.link.frames import Packet
from fedge.link.gate import LeafGate


class Nothing:
    """A leaf server that is asked nothing."""

    def hello(self):
        return Packet("hello")

    def welcome(self, packet):
        """Nothing is said."""

    def answer(self, packet, note):
        return Packet("answer")


class SlowToWelcome(LeafGate):
    """A cloud that lets the first stream hang, as one does whose connection goes while it is opened."""

    streams = 0

    def _attach(self, chunks, context):
        self.streams += 1
        if self.streams == 1:
            ended = threading.Event()
            context.add_callback(ended.set)
            ended.wait(20)
            return
        yield from super()._attach(chunks, context)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls") / "certs"
    make_certificates(folder, CertificateRequest(leaves=1))
    return folder


@pytest.fixture
def nobody():
    """An address that is taken and answers nothing."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def test_a_cloud_that_never_comes_is_given_up(certificates, nobody):
    with pytest.raises(Refused, match=r"no contact to the cloud at 127.0.0.1:\d+ for more than 0\.3 s"):
        Link(nobody, certificates, 0).serve(Nothing(), lost_s=0.3)


def test_a_leaf_server_that_dials_in_vain_can_be_stopped(certificates, nobody):
    link = Link(nobody, certificates, 0)
    thread = threading.Thread(target=link.serve, args=(Nothing(), 60.0))
    thread.start()
    link.stop()
    thread.join(5)
    assert not thread.is_alive()


def test_a_stream_that_is_not_welcomed_is_given_up_and_the_cloud_dialled_anew(certificates, monkeypatch):
    monkeypatch.setattr("fedge.link.dial._WELCOME_S", 0.3)
    said = []
    with SlowToWelcome("127.0.0.1:0", certificates, 1, Packet("welcome")) as gate:
        link = Link(gate.address, certificates, 0, say=said.append)
        thread = threading.Thread(target=link.serve, args=(Nothing(), 20.0))
        thread.start()
        assert gate.ask(0, Packet("over"), 10.0).kind == "answer"
        thread.join(10)
        assert (thread.is_alive(), gate.streams) == (False, 2)
        assert said == [f"no contact to the cloud at {gate.address} (no welcome within 0.3 s); trying again"]


def test_a_listener_that_never_answers_is_said_once(certificates, monkeypatch):
    """It accepts connections and is silent, as a stopped process is: gRPC reports no error."""
    monkeypatch.setattr("fedge.link.dial._WELCOME_S", 0.2)
    said = []
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Refused, match=r"for more than 0\.4 s"):
            Link(address, certificates, 0, say=said.append).serve(Nothing(), 0.4)
    assert said == [f"no contact to the cloud at {address} (no welcome within 0.2 s); trying again"]


def test_a_leaf_without_a_certificate_is_refused(certificates):
    with pytest.raises(
        ConfigError, match=r"leaf-9\.crt must exist for TLS, but does not; fedge certs creates one"
    ):
        Link("127.0.0.1:1", certificates, 9)


@pytest.mark.parametrize(
    ("name", "telling"),
    [
        ("leaf-0", r"leaf-0\.crt must be valid today, but expired on \S+; renew it with fedge certs"),
        ("cloud", "certificate has expired"),
    ],
)
def test_a_certificate_that_expires_while_both_live_is_named_at_the_next_connection(tmp_path, name, telling):
    short = {"seconds": 2}
    write_all(tmp_path, Issuer("root"), **({"cloud": short} if name == "cloud" else {"leaf": short}))
    said = []
    with LeafGate("127.0.0.1:0", tmp_path, 1, Packet("welcome")) as gate:
        link = Link(gate.address, tmp_path, 0, say=said.append)
        time.sleep(3.1)
        with pytest.raises(Refused, match="check that it is started" if name == "cloud" else telling):
            link.serve(Nothing(), 0.5)
    assert re.fullmatch(rf"no contact to the cloud at \S+ \([^ ]*{telling}\); trying again", said[-1]), said
