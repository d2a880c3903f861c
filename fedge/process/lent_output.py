"""Standard output and error of this process, lent to a process started for it by another program.

The output of a program behind a daemon appears where the daemon's output goes. The descriptors themselves are
passed over a socket in a folder open to this user only, so a terminal remains a terminal.
"""

import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from fedge.config.registers.option import ConfigError

VARIABLE = "FEDGE_TERMINAL"  # environment variable: path of the socket
_DESCRIPTORS = (1, 2)
_WAIT_S = 10.0


@contextmanager
def lend_output(path: Path) -> Iterator[None]:
    """Context that passes descriptors 1 and 2 to this user's processes connecting to the socket `path`.

    Raises:
        ConfigError: the socket cannot be created, e.g. because its path is longer than the system allows.
    """
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(str(path))
            os.chmod(path, 0o600)
        except OSError as error:
            raise ConfigError(
                f"TMPDIR must be a folder with room for a socket and a path of at most 80 bytes, but "
                f"{path}: {error.strerror or error}; set TMPDIR=/tmp"
            ) from error
        listener.listen()

        def serve() -> None:
            with suppress(OSError):  # the listener was shut down
                while True:
                    connection, _ = listener.accept()
                    with connection, suppress(OSError):  # a client that hangs up does not affect the next
                        socket.send_fds(connection, [b"o"], list(_DESCRIPTORS))

        thread = threading.Thread(target=serve, name="lend-output", daemon=True)
        thread.start()
        try:
            yield
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            path.unlink(missing_ok=True)


def borrow_output(environment: Mapping[str, str] | None = None) -> bool:
    """Replace descriptors 1 and 2 by those lent by another process; returns whether one lends them.

    Either both are replaced or, if the lender sends anything else, none.
    """
    path = (os.environ if environment is None else environment).get(VARIABLE, "")
    if not path:
        return False
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_WAIT_S)
            connection.connect(path)
            _, received, _, _ = socket.recv_fds(connection, 1, len(_DESCRIPTORS))
    except OSError:  # the lender is gone, and so are its readers
        return False
    is_both = len(received) == len(_DESCRIPTORS)
    for descriptor, lent_descriptor in zip(_DESCRIPTORS, received, strict=False):
        if is_both:
            os.dup2(lent_descriptor, descriptor)
        os.close(lent_descriptor)
    return is_both
