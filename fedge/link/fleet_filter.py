"""Filter for newer Flower's single port: it forwards SuperNodes' requests to the SuperLink, and nothing else.

On Flower 1.41 and 1.42, a SuperLink has one port for SuperNodes, for submitting apps, and for the apps
themselves; anyone who reaches it can have it run code. Here it listens on the loopback interface, and
SuperNodes connect to this filter: TLS with the leaf server's certificate, and ``POST /v1/fleet/…`` as the
only request. Requests are rewritten, so both ends agree on where one ends. Authentication remains the
SuperLink's task: it checks the signature of each request.
"""

import http.client
import re
import select
import socket
import ssl
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fedge.config.registers.option import ConfigError
from fedge.link.reach import host_and_port

_FLEET = re.compile(r"/v1/fleet/[a-z-]+")
_CHUNK_BYTES = 2**20
_TIMEOUT_S = 60.0
_HOP_BY_HOP = {
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "expect",
    "transfer-encoding", "upgrade", "host", "content-length", "forwarded",
}  # fmt: skip


class FleetFilter:
    """Filter, listening until closed; a context manager."""

    def __init__(
        self, name: str, address: str, certificate: tuple[Path, Path], target: tuple[int, Path]
    ) -> None:
        """Start listening.

        Args:
            name: name of the option for the address, for error messages.
            address: HOST:PORT on this machine.
            certificate: files of certificate and key to show to SuperNodes.
            target: port of the SuperLink on the loopback interface, and the authority of its certificate.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*certificate)
        port, authority = target

        class Handler(_Handler):
            superlink = port
            trusted = ssl.create_default_context(cafile=authority)

        try:
            self._server = _Server(host_and_port(name, address), Handler)
        except OSError as error:
            raise ConfigError(
                f"{name} must be a free address of this machine, but {address}: "
                f"{error.strerror or error}; change it"
            ) from error
        # handshakes run in each connection's thread, so a silent peer delays no other
        self._server.socket = tls.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        threading.Thread(target=self._server.serve_forever, name="fleet-filter", daemon=True).start()

    def __enter__(self) -> "FleetFilter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def port(self) -> int:
        """Port on which the filter listens."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening; open connections end with their request."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """HTTP server with one thread per SuperNode."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        if ":" in address[0]:  # an address of IP version 6
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def handle_error(self, *_: Any) -> None:
        """Print nothing: failed handshakes and disconnects are routine."""


class _Handler(BaseHTTPRequestHandler):
    """One connection of a SuperNode, with its own connection to the SuperLink."""

    protocol_version = "HTTP/1.1"
    timeout = _TIMEOUT_S
    superlink: int
    trusted: ssl.SSLContext

    def setup(self) -> None:
        """Perform the TLS handshake."""
        self.request.settimeout(_TIMEOUT_S)
        self.request.do_handshake()
        super().setup()
        self._upstream = http.client.HTTPSConnection(
            "127.0.0.1", self.superlink, timeout=_TIMEOUT_S, context=self.trusted
        )

    def finish(self) -> None:
        """Close the connection to the SuperLink."""
        with suppress(OSError):
            super().finish()
        self._upstream.close()

    def log_message(self, *_: Any) -> None:
        """Print nothing: a node polls several times per second."""

    def do_POST(self) -> None:
        """Forward a request of the Fleet API, and return its answer."""
        length = self.headers.get("Content-Length", "")
        if not _FLEET.fullmatch(self.path) or not length.isdecimal() or "Transfer-Encoding" in self.headers:
            self.close_connection = True
            self.send_error(403 if length else 411)
            return
        try:
            response = self._forward(int(length))
        except (OSError, http.client.HTTPException):
            self._upstream.close()
            self.close_connection = True
            self.send_error(502)
            return
        self._send_back(response)

    def _forward(self, length: int) -> http.client.HTTPResponse:
        """Send this request to the SuperLink in chunks; returns the response."""
        if self._upstream.sock is not None and _has_ended(self._upstream.sock):
            self._upstream.close()  # the next line opens it again
        self._upstream.putrequest("POST", self.path, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in _HOP_BY_HOP and not name.lower().startswith("x-forwarded"):
                self._upstream.putheader(name, value)
        self._upstream.putheader("Content-Length", str(length))
        self._upstream.endheaders()
        while length:
            chunk = self.rfile.read(min(length, _CHUNK_BYTES))
            if not chunk:
                raise ConnectionError("the SuperNode has gone")
            self._upstream.send(chunk)
            length -= len(chunk)
        return self._upstream.getresponse()

    def _send_back(self, response: http.client.HTTPResponse) -> None:
        """Send the SuperLink's answer back."""
        body = None if response.length is not None else response.read()
        self.send_response_only(response.status)
        for name, value in response.getheaders():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(response.length if body is None else len(body)))
        self.end_headers()
        if body is not None:
            self.wfile.write(body)
            return
        while chunk := response.read(_CHUNK_BYTES):
            self.wfile.write(chunk)
        if response.length:  # cut short by the SuperLink: the SuperNode must not wait for the rest
            self.close_connection = True


def _has_ended(connection: socket.socket) -> bool:
    """Whether the other end has closed an idle connection, as the SuperLink does after seconds of silence."""
    readable = select.poll()  # select takes no file numbers above 1023
    readable.register(connection, select.POLLIN)
    return bool(readable.poll(0))
