"""Messages between a client and one of its processes: JSON over a socket, each preceded by its length."""

import json
import socket
from typing import Any

_LENGTH_BYTES = 8


class ClosedError(ConnectionError):
    """The other end is closed."""


def send_message(connection: socket.socket, message: dict[str, Any]) -> None:
    """Send a message.

    Raises:
        ClosedError: the other end is closed.
    """
    text = json.dumps(message).encode()
    try:
        connection.sendall(len(text).to_bytes(_LENGTH_BYTES, "little") + text)
    except OSError as error:
        raise ClosedError(str(error)) from error


def receive(connection: socket.socket) -> dict[str, Any]:
    """Wait for a message.

    Raises:
        ClosedError: the other end is closed.
    """
    length = int.from_bytes(_receive_exactly(connection, _LENGTH_BYTES), "little")
    message: dict[str, Any] = json.loads(_receive_exactly(connection, length))
    return message


def _receive_exactly(connection: socket.socket, count: int) -> bytes:
    """Receive `count` bytes."""
    received = bytearray()
    while len(received) < count:
        try:
            piece = connection.recv(count - len(received))
        except OSError as error:
            raise ClosedError(str(error)) from error
        if not piece:
            raise ClosedError("the other end is closed")
        received += piece
    return bytes(received)
