"""Preconditions of Ray: an answering cluster address, or a writable folder.

Flower shows a failure of Ray as pages of traceback, or waits. Called before a run on Flower's engine starts.
"""

import importlib.util
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from fedge.config.registers.option import ConfigError
from fedge.engine.loopback import ray_folder

_LEAST_FREE_BYTES = 100 * 2**20
_SOCKET_PATH_LIMIT = 107 if sys.platform.startswith("linux") else 103
# path below this folder (`session_folder`) of the longest socket of Ray 2
_SOCKET_TAIL = "/f4194304/s/session_2025-01-01_00-00-00_000000_4194304/sockets/plasma_store"
_CONNECT_S = 5.0
_HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # Ray uses gRPC


def refuse_ray_that_cannot_start(environment: Mapping[str, str] | None = None) -> None:
    """Raise ConfigError if Ray cannot start, as far as detectable without a start."""
    if importlib.util.find_spec("ray") is None:
        raise ConfigError(
            "Flower's engine needs Ray, but the package ray is not installed; pip install 'fedge[ray]', "
            "or use fedge run, which needs no Ray"
        )
    variables = os.environ if environment is None else environment
    address = variables.get("RAY_ADDRESS", "")
    if address not in ("", "local"):
        _refuse_silent_address(address, tls=variables.get("RAY_USE_TLS", "0") != "0")
    else:
        _refuse_bad_folder(*ray_folder(variables))


def _refuse_bad_folder(name: str, folder: Path) -> None:
    """Raise ConfigError for a folder, named by a variable, in which Ray cannot create its own."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise ConfigError(
            f"{name} must be a folder that Ray can write to, but {folder}: {error.strerror or error}; "
            f"set e.g. RAY_TMPDIR=/var/tmp, or use fedge run, which needs no Ray"
        ) from error
    if free < _LEAST_FREE_BYTES:
        raise ConfigError(
            f"{name} must have {_LEAST_FREE_BYTES >> 20} MiB free for Ray, but {folder} has {free >> 20}; "
            f"free some space, set RAY_TMPDIR to another folder, or use fedge run, which needs no Ray"
        )
    excess = len(os.fsencode(str(folder)) + _SOCKET_TAIL.encode()) - _SOCKET_PATH_LIMIT
    if excess > 0:
        raise ConfigError(
            f"{name} must be a short path, because Ray creates sockets below it, but {folder.parent} is "
            f"{excess} characters too long; set e.g. RAY_TMPDIR=/tmp"
        )


def _refuse_silent_address(address: str, tls: bool) -> None:
    """Raise ConfigError for a cluster address (host:port) at which Ray does not answer."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address == "auto":
        return
    hint = "unset RAY_ADDRESS to start Ray on this machine, or use fedge run, which needs no Ray"
    if not host or not port.isdecimal():
        raise ConfigError(f"RAY_ADDRESS must be host:port of a Ray cluster, but is {address!r}; {hint}")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S) as connection:
            if not tls:
                connection.sendall(_HTTP2_HELLO)
                if connection.recv(9)[3:4] != b"\x04":  # the first frame of an HTTP/2 server: SETTINGS
                    raise OSError("another program answers there")
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"RAY_ADDRESS must name a Ray cluster that answers, but {address!r}: {reason}; {hint}"
        ) from error
