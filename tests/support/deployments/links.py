"""Links of leaf servers, at work in threads of this process, and a network that loses a connection."""

import socket
import threading
from contextlib import contextmanager, suppress


class Network:
    """Between a server and those who dial it; connections can stop to carry anything, without an end.

    Attributes:
        address: HOST:PORT to dial in place of the server's.
    """

    def __init__(self, address):
        self._host, _, self._port = address.rpartition(":")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._sockets, self._lost = [], set()
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(self):
        """Let all present connections carry nothing any more; new ones work."""
        self._lost.update(self._sockets)

    def close(self):
        """End everything."""
        for one in [self._listener, *self._sockets]:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection((self._host, int(self._port)))
                self._sockets += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, source, target):
        with suppress(OSError):
            while chunk := source.recv(2**16):
                if source not in self._lost:
                    target.sendall(chunk)
            target.shutdown(socket.SHUT_WR)


@contextmanager
def serving(links, answering, timeout_s=20.0):
    """Let links live in threads; all have ended at the end."""
    threads = [
        threading.Thread(target=link.serve, args=(each, timeout_s))
        for link, each in zip(links, answering, strict=True)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for link in links:
            link.stop()
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
