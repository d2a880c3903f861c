"""Ports of this machine that answer to the account alone that listens on them.

A SuperLink and a SuperNode listen on the loopback interface for processes of their own, without a password:
on Flower up to 1.34 in plaintext, on newer ones over TLS. Anybody who reaches such a port may have code
carried out. From other machines nobody does; from here another account of the same machine does not either:
servers of gRPC and of uvicorn in this process ask the system which account holds the other end of each
connection, and answer their own, and root's. SuperNodes' requests (Flower's Fleet API) are let through: they
show keys, and their answers are checked (`fedge.link.fleet_guard`).

    python -m fedge.link.own_account flower-superlink …

is Flower's program with such ports. The system is asked by ``/proc/net/tcp``: on Linux. Elsewhere nobody is
kept out, and a line says so.
"""

import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib.metadata import entry_points
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from fedge.link.fleet_guard import FleetGuard

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED, _NO_INODE = "01", "0"
_FLEET = ("/flwr.proto.Fleet/", "/flwr.proto.GrpcAdapter/")
_WORDS = "this port is for the account that opened it"


def can_tell() -> bool:
    """Whether this system tells which account holds a connection."""
    return _TABLES[0].is_file()


def accounts_of(address: str, port: int) -> set[int]:
    """User ids that hold connections of this machine from an address and port; empty if there are none.

    One that its holder has closed is none: the system gives it to root then.

    Args:
        address: of the end that is looked for, as 127.0.0.1.
        port: of that end.
    """
    wanted = set(_as_in_tables(address, port))
    found = set()
    for table in _TABLES:
        with suppress(OSError):
            for line in table.read_text().splitlines()[1:]:
                entries = line.split()
                if entries[1] in wanted and entries[3] == _ESTABLISHED:
                    found.add(int(entries[7]) if entries[9] != _NO_INODE else -1)
    return found


def is_own(address: str, port: int) -> bool:
    """Whether this account, or root, holds all connections from an address and port."""
    found = accounts_of(address, port)
    return bool(found) and found <= {os.geteuid(), 0}


def _as_in_tables(address: str, port: int) -> Iterator[str]:
    """Write an address and port as the system's tables do: words of 32 bits in the machine's byte order."""
    try:
        where = ip_address(address)
    except ValueError:
        return
    forms = [where]
    if isinstance(where, IPv4Address):  # sockets for both kinds of addresses have it mapped
        forms.append(IPv6Address(f"::ffff:{where}"))
    elif where.ipv4_mapped is not None:
        forms.append(where.ipv4_mapped)
    for form in forms:
        packed = form.packed
        words = [int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4)]
        yield f"{''.join(f'{word:08X}' for word in words)}:{port:04X}"


# --- gRPC ---------------------------------------------------------------------------------------------------


def keep_grpc_own(can_tell_whose: bool = True) -> None:
    """Let all servers of gRPC that this process makes from now on answer to its own account alone.

    Args:
        can_tell_whose: connections are; where the system does not tell, nodes' replies are looked at alone.
    """
    import grpc  # type: ignore[import-untyped]

    class OwnAccount(grpc.ServerInterceptor):
        """Checks the caller before all else."""

        def __init__(self) -> None:
            self._fleet = FleetGuard()

        def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
            """Give the method's handler, guarded."""
            handler = continuation(details)
            if handler is None:
                return handler
            if details.method.startswith(_FLEET):
                if handler.unary_unary is None or handler.request_deserializer is None:
                    return handler  # Flower's own refusal, which reads nothing
                guarded = self._fleet.around(details.method, handler.unary_unary)
                return grpc.unary_unary_rpc_method_handler(
                    guarded, handler.request_deserializer, handler.response_serializer
                )
            if not can_tell_whose:
                return handler
            kind = f"{_kind(handler.request_streaming)}_{_kind(handler.response_streaming)}"
            make = getattr(grpc, f"{kind}_rpc_method_handler")
            behaviour = partial(_answer_own, getattr(handler, kind))
            return make(behaviour, handler.request_deserializer, handler.response_serializer)

    made = grpc.server

    def server(*given: Any, interceptors: Any = None, **more: Any) -> Any:
        return made(*given, interceptors=[OwnAccount(), *(interceptors or ())], **more)

    grpc.server = server


def _kind(is_stream: bool) -> str:
    return "stream" if is_stream else "unary"


def _answer_own(behaviour: Callable[[Any, Any], Any], request: Any, context: Any) -> Any:
    """Answer a call, if it is from this account."""
    import grpc

    where, _, port = unquote(context.peer()).rpartition(":")
    address = where.partition(":")[2].strip("[]")
    if not (port.isdecimal() and is_own(address, int(port))):
        context.abort(grpc.StatusCode.PERMISSION_DENIED, _WORDS)
    return behaviour(request, context)


# --- uvicorn ------------------------------------------------------------------------------------------------


def keep_uvicorn_own() -> None:
    """Let all servers of uvicorn that this process starts from now on answer to its own account alone."""
    import uvicorn

    load = uvicorn.Config.load

    def guarded_load(config: Any) -> None:
        load(config)
        config.loaded_app = _for_own(config.loaded_app)

    uvicorn.Config.load = guarded_load  # type: ignore[assignment,method-assign]


def _for_own(app: Any) -> Any:
    """Put a guard before an ASGI app. SuperNodes come by a filter of this account's (`fleet_filter`)."""

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan" or (scope.get("client") and is_own(*scope["client"][:2])):
            await app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        head = [(b"content-type", b"text/plain"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 403, "headers": head})
        await send({"type": "http.response.body", "body": _WORDS.encode()})

    return guarded


# --- the program --------------------------------------------------------------------------------------------


def guarded_words(program: str) -> list[str]:
    """Words that start a program of Flower's with ports that answer to its own account alone."""
    safe = ["-P"] if sys.version_info >= (3, 11) else []  # the working directory holds no modules of ours
    return [sys.executable, *safe, "-m", __name__, program]


def main(words: list[str]) -> int:
    """Carry out a program of Flower's; returns its exit code."""
    program = words[0]
    keep_grpc_own(can_tell())
    if can_tell():
        with suppress(ImportError):  # older Flowers do not bring it
            keep_uvicorn_own()
    else:
        print(
            f"fedge: {socket.gethostname()} does not tell whose a connection is: other accounts of this "
            f"machine can reach what {program} listens on here", file=sys.stderr, flush=True,
        )  # fmt: skip
    (found,) = entry_points(group="console_scripts", name=program)
    sys.argv = list(words)
    return int(found.load()() or 0)


if __name__ == "__main__":
    from fedge.process.parent import follow_at_once

    follow_at_once()
    sys.exit(main(sys.argv[1:]))
