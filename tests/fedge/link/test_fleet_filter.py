"""The filter before a SuperLink with one port for all, with real TLS and a made-up SuperLink behind it."""

import http.client
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from fedge.config.registers.option import ConfigError
from fedge.link.certificates import CertificateRequest, make_certificates
from fedge.link.fleet_filter import FleetFilter
from fedge.link.reach import fault_of_listening, free_port, is_listening


class SuperLink(BaseHTTPRequestHandler):
    """Answers with what it was sent, and notes the request; it closes silent connections, as uvicorn does."""

    protocol_version = "HTTP/1.1"
    timeout = 0.5
    asked: ClassVar[list] = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append((self.path, dict(self.headers.items())))
        self.send_response(200)
        self.close_connection = self.path.endswith("/half")
        self.send_header("Content-Length", str(len(body) * (2 if self.close_connection else 1)))
        self.send_header("X-Node", self.headers["X-Signature"])
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certs")
    make_certificates(folder, CertificateRequest(leaves=1))
    return folder


@pytest.fixture(scope="module")
def port(certs):
    """Where the filter listens, before a SuperLink of its own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), SuperLink)
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = certs / "leaf-0-server.crt", certs / "leaf-0-server.key"
    shown.load_cert_chain(*pair)
    server.socket = shown.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    here, beyond = f"127.0.0.1:{free_port()}", (server.server_port, certs / "ca.crt")
    with FleetFilter("--nodes", here, pair, beyond) as fleet:
        yield fleet.port
    server.shutdown()
    server.server_close()


@pytest.fixture
def node(certs, port):
    """A SuperNode's connection."""
    context = ssl.create_default_context(cafile=certs / "ca.crt")
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
    SuperLink.asked.clear()
    yield connection
    connection.close()


@pytest.mark.skipif(fault_of_listening("[::1]:0") != "", reason="this machine has no IP version 6")
@pytest.mark.parametrize("host", ["[::1]", "[::]", "127.0.0.1", "localhost"])
def test_it_listens_at_addresses_of_both_versions(certs, host):
    pair = certs / "leaf-0-server.crt", certs / "leaf-0-server.key"
    place = f"{host}:{free_port()}"
    with FleetFilter("--nodes", place, pair, (1, certs / "ca.crt")):
        assert is_listening("--nodes", place)
        assert fault_of_listening(place) == "Address already in use"


def test_what_nodes_ask_is_passed_on_with_their_signature_and_so_is_the_answer(node):
    """Many requests over one connection, of any size."""
    for body in (b"", b"hello", bytes(3 * 2**20)):
        headers = {"X-Signature": "abc", "X-Forwarded-For": "1.2.3.4", "Upgrade": "h2c"}
        node.request("POST", "/v1/fleet/pull-messages", body, headers)
        answer = node.getresponse()
        assert (answer.status, answer.getheader("X-Node"), answer.read()) == (200, "abc", body)
    path, headers = SuperLink.asked[-1]
    assert path == "/v1/fleet/pull-messages"
    assert not {"X-Forwarded-For", "Upgrade"} & headers.keys()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/control/start-run"),
        ("POST", "/v1/runtime/pull-task-input"),
        ("POST", "/v1/fleet/../control/start-run"),
        ("POST", "/v1/fleet/%2e%2e/control/start-run"),
        ("POST", "//v1/control/start-run"),
        ("POST", "/v1/fleet/pull-messages?x=1"),
        ("POST", "https://127.0.0.1/v1/fleet/pull-messages"),
        ("GET", "/health"),
        ("PUT", "/v1/fleet/pull-messages"),
    ],
)
def test_anything_else_does_not_reach_the_superlink(node, method, path):
    node.request(method, path, b"x")
    assert node.getresponse().status in (403, 501)
    assert SuperLink.asked == []


def test_two_ways_of_saying_how_long_a_request_is_are_none(node):
    """The one that is read first might hide a request in the other."""
    node.putrequest("POST", "/v1/fleet/pull-messages")
    node.putheader("Content-Length", "5")
    node.putheader("Transfer-Encoding", "chunked")
    node.endheaders(b"0\r\n\r\n")
    assert node.getresponse().status == 403
    assert SuperLink.asked == []


def test_an_answer_that_breaks_off_ends_the_connection(node):
    """A node that waited for the rest would wait for ever."""
    node.request("POST", "/v1/fleet/half", b"four", {"X-Signature": "abc"})
    with pytest.raises(http.client.IncompleteRead):
        node.getresponse().read()
    node.close()
    node.request("POST", "/v1/fleet/x", b"there", {"X-Signature": "abc"})
    assert node.getresponse().read() == b"there"


def test_who_speaks_no_tls_keeps_nobody_waiting(node, port):
    plain = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    plain.connect()  # and says nothing
    node.request("POST", "/v1/fleet/x", b"there", {"X-Signature": "abc"})
    assert node.getresponse().read() == b"there"
    plain.close()


def test_a_port_that_is_taken_is_refused(certs, port):
    pair = certs / "leaf-0-server.crt", certs / "leaf-0-server.key"
    with pytest.raises(ConfigError, match="--nodes must be a free address of this machine"):
        FleetFilter("--nodes", "192.0.2.1:1", pair, (port, certs / "ca.crt"))


def test_a_superlink_that_has_gone_is_no_end_of_the_filter(certs):
    pair = certs / "leaf-0-server.crt", certs / "leaf-0-server.key"
    with FleetFilter("--nodes", f"127.0.0.1:{free_port()}", pair, (1, certs / "ca.crt")) as fleet:
        context = ssl.create_default_context(cafile=certs / "ca.crt")
        for _ in range(2):
            node = http.client.HTTPSConnection("127.0.0.1", fleet.port, timeout=10, context=context)
            node.request("POST", "/v1/fleet/x", b"")
            assert node.getresponse().status == 502
            node.close()


def test_a_pause_longer_than_the_superlink_keeps_connections_costs_no_request(node):
    """A heartbeat every 30 s was answered with 502, since uvicorn closes connections after 5 s."""
    for pause_s in (0, 0, 1.5):
        time.sleep(pause_s)
        node.request("POST", "/v1/fleet/send-node-heartbeat", body=b"alive")
        response = node.getresponse()
        assert (response.status, response.read()) == (200, b"alive")
