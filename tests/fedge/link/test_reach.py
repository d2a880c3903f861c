"""Whether a server is there, and is the one that an authority vouches for: asked of real ones on loopback."""

import socket
import ssl
import threading
from contextlib import contextmanager, suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from own_authority import CLIENT, Issuer, write_all, write_pair

from fedge.config.registers.option import ConfigError
from fedge.link.certificates import CertificateRequest, make_certificates
from fedge.link.reach import (
    fault_of_listening,
    fault_of_reaching,
    free_port,
    host_and_port,
    refuse_other_authority,
)


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    """Two folders of certificates, of two authorities."""
    folders = [tmp_path_factory.mktemp(name) / "certs" for name in ("one", "two")]
    for folder in folders:
        make_certificates(folder, CertificateRequest())
    return folders


@contextmanager
def server(folder=None, host="127.0.0.1", answer=b"220 this is something else\r\n"):
    """Listen on loopback, with TLS where a folder of certificates is given; gives the address."""
    listener = socket.create_server((host, 0))

    def serve():
        with suppress(OSError):  # it is closed at the end
            raw, _ = listener.accept()
            with raw:
                if folder is None:
                    raw.sendall(answer)
                    raw.recv(2**16)
                    return
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(folder / "superlink.crt", folder / "superlink.key")
                context.wrap_socket(raw, server_side=True).close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"{host}:{listener.getsockname()[1]}"
    finally:
        listener.close()
        thread.join(10)


def test_a_server_of_the_authority_is_there(certs):
    with server(certs[0]) as address:
        assert refuse_other_authority("--superlink", address, certs[0] / "ca.crt")


def test_nobody_there_is_no_error(certs):
    assert not refuse_other_authority("--superlink", f"127.0.0.1:{free_port()}", certs[0] / "ca.crt")


def test_a_proxy_whose_server_is_not_up_is_no_error(certs):
    """It accepts, and closes without a byte; a leaf server then waits for its cloud."""
    with server(answer=b"") as address:
        assert not refuse_other_authority("--cloud", address, certs[0] / "ca.crt")


def test_why_a_server_is_not_reached(certs):
    with server(certs[0]) as address:
        assert fault_of_reaching("--superlink", address) == ""
    assert fault_of_reaching("--superlink", f"127.0.0.1:{free_port()}") == "Connection refused"
    assert "not known" in fault_of_reaching("--superlink", "no-such-host.invalid:9092")


def test_another_authority_is_refused(certs):
    with (
        server(certs[1]) as address,
        pytest.raises(ConfigError, match=r"--superlink must have a certificate for 127\.0\.0\.1"),
    ):
        refuse_other_authority("--superlink", address, certs[0] / "ca.crt")


def test_a_host_that_the_certificate_does_not_name_is_refused(tmp_path):
    make_certificates(tmp_path, CertificateRequest({"superlink": ("elsewhere.example",)}))
    telling = r"with --hosts ROLE=127\.0\.0\.2$"
    with server(tmp_path, "127.0.0.2") as address, pytest.raises(ConfigError, match=telling):
        refuse_other_authority("--superlink", address, tmp_path / "ca.crt")


@pytest.mark.parametrize(
    ("options", "step"),
    [
        ({"seconds": -1}, "renew it there, and correct the clock of the machine whose clock is wrong"),
        ({"uses": [CLIENT]}, "create it again there with fedge certs"),
        ({"hosts": ["a"]}, "create it again there with fedge certs"),
        (None, "copy ca.crt of its `fedge certs`"),
    ],
)
def test_the_step_fits_the_fault_of_a_server_s_certificate(tmp_path, certs, options, step):
    issuer = Issuer("root")
    write_all(tmp_path, issuer)
    write_pair(tmp_path, "superlink", issuer, **{"hosts": ["cloud"], **(options or {})})
    authority = (certs[0] if options is None else tmp_path) / "ca.crt"
    with server(tmp_path) as address, pytest.raises(ConfigError, match=rf"; {step}$"):
        refuse_other_authority("--cloud", address, authority, "cloud")


def test_a_server_without_tls_is_refused(certs):
    with server() as address, pytest.raises(ConfigError, match="must speak TLS"):
        refuse_other_authority("--superlink", address, certs[0] / "ca.crt")


def test_a_file_that_is_no_certificate_is_refused(certs, tmp_path):
    (tmp_path / "ca.crt").write_text("hello")
    with pytest.raises(
        ConfigError, match=r"ca\.crt must be a certificate, but: Unable to load PEM file\. \w+;"
    ):
        refuse_other_authority("--superlink", "127.0.0.1:1", tmp_path / "ca.crt")


NO_ADDRESSES = [
    "", "host", "host:", ":1", "host:0", "host:70000", "host:x", "::1:9092", "[::1]", "[]:1", "a b:1",
    "http://host:1", "host:1/path", "me@host:1", "host:1 ", "host:٣", "host:000001",
    "a..b:1", ".a:1", f"{'a' * 64}:1", "a\0b:1", "a\udcff:1",
]  # fmt: skip


@pytest.mark.parametrize("address", NO_ADDRESSES)
def test_what_is_no_address_is_refused(address):
    with pytest.raises(ConfigError, match=r"--superlink must be HOST:PORT, e\.g\. 10\.0\.0\.1:9092"):
        host_and_port("--superlink", address)


@given(st.text(max_size=70), st.integers(0, 70000))
@example("a.", 1)
def test_a_socket_takes_every_address_that_is_one(host, port):
    """Sockets raise other errors than OSError for some names; looked up as a number, nobody is asked."""
    try:
        found = host_and_port("x", f"{host}:{port}")
    except ConfigError:
        return
    with suppress(OSError):
        socket.getaddrinfo(*found, flags=socket.AI_NUMERICHOST)


def test_an_address_of_version_6_has_brackets():
    assert host_and_port("x", "[::1]:9092") == ("::1", 9092)


def test_port_0_is_for_listening_only():
    assert host_and_port("x", "127.0.0.1:0", least=0) == ("127.0.0.1", 0)


def test_why_this_machine_cannot_listen():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert fault_of_listening(address) == "Address already in use"
    assert fault_of_listening(address) == ""
    assert fault_of_listening("192.0.2.1:9") == "Cannot assign requested address"
    assert "known" in fault_of_listening("nowhere.invalid:9")


def test_one_address_of_a_name_is_enough_to_listen(monkeypatch):
    """A machine without IP version 6 often has localhost as both."""
    lookup = socket.getaddrinfo

    def both(host, port, **more):
        return [*lookup("192.0.2.1", port, **more), *lookup("127.0.0.1", port, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    assert fault_of_listening("localhost:0") == ""
