"""Ports of this machine that serve only the account that opened them.

A SuperLink and a SuperNode listen on the loopback interface for their own processes, without a password: in
plaintext on Flower 1.25, over TLS on newer versions. Anyone who reaches such a port can have code run.
Other machines cannot reach it. To keep out other accounts of this machine, gRPC and uvicorn servers in this
process ask the system for the account at the other end of each connection, and serve only their own and root.
SuperNodes' requests (Flower's Fleet API) are exempt: they are authenticated by keys, and their replies are
checked (`fedge.link.fleet_guard`).

    python -m fedge.link.own_account flower-superlink …

runs Flower's program with such ports. The accounts are read from ``/proc/net/tcp``, so this works only on
Linux; elsewhere no account is kept out, and a warning says so.
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
from fedge.link.untimed_replies import send_untimed
from fedge.process.endings.channels import exit_despite_channels
from fedge.process.python import python_words

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED, _NO_INODE = "01", "0"
_FLEET = ("/flwr.proto.Fleet/", "/flwr.proto.GrpcAdapter/")
_REFUSAL = "this port is for the account that opened it"


def can_see_accounts() -> bool:
    """Whether this system reports the account of a connection."""
    return _TABLES[0].is_file()


def accounts_of(address: str, port: int) -> set[int]:
    """User ids holding connections of this machine from an address and port; empty without a connection.

    A connection closed by its holder counts as −1, because the system then attributes it to root.

    Args:
        address: address of the other end, e.g. 127.0.0.1.
        port: port of the other end.
    """
    keys = set(_table_keys(address, port))
    accounts = set()
    for table in _TABLES:
        with suppress(OSError):
            for line in table.read_text().splitlines()[1:]:
                entries = line.split()
                if entries[1] in keys and entries[3] == _ESTABLISHED:
                    accounts.add(int(entries[7]) if entries[9] != _NO_INODE else -1)
    return accounts


def is_own(address: str, port: int) -> bool:
    """Whether this account or root holds all connections from an address and port."""
    accounts = accounts_of(address, port)
    return bool(accounts) and accounts <= {os.geteuid(), 0}


def _table_keys(address: str, port: int) -> Iterator[str]:
    """An address and port in the system tables' form: 32-bit words in the machine's byte order."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return
    forms = [parsed]
    if isinstance(parsed, IPv4Address):  # dual-stack sockets are listed with the mapped address
        forms.append(IPv6Address(f"::ffff:{parsed}"))
    elif parsed.ipv4_mapped is not None:
        forms.append(parsed.ipv4_mapped)
    for form in forms:
        packed = form.packed
        words = [int.from_bytes(packed[i : i + 4], sys.byteorder) for i in range(0, len(packed), 4)]
        yield f"{''.join(f'{word:08X}' for word in words)}:{port:04X}"


# --- gRPC ---------------------------------------------------------------------------------------------------


def keep_grpc_own(reports_accounts: bool = True) -> None:
    """Make all gRPC servers created from now on in this process serve only its own account.

    Args:
        reports_accounts: whether the system reports accounts; if not, only nodes' replies are checked.
    """
    import grpc  # type: ignore[import-untyped]

    class OwnAccount(grpc.ServerInterceptor):
        """Interceptor to check the caller before anything else."""

        def __init__(self) -> None:
            self._fleet = FleetGuard()

        def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
            """Handler of the method, with the check added."""
            handler = continuation(details)
            if handler is None:
                return handler
            if details.method.startswith(_FLEET):
                if handler.unary_unary is None or handler.request_deserializer is None:
                    return handler  # Flower's own refusal, which needs no check
                guarded = self._fleet.wrap(details.method, handler.unary_unary)
                return grpc.unary_unary_rpc_method_handler(
                    guarded, handler.request_deserializer, handler.response_serializer
                )
            if not reports_accounts:
                return handler
            kind = f"{_cardinality(handler.request_streaming)}_{_cardinality(handler.response_streaming)}"
            make = getattr(grpc, f"{kind}_rpc_method_handler")
            behaviour = partial(_answer_own_account, getattr(handler, kind))
            return make(behaviour, handler.request_deserializer, handler.response_serializer)

    original = grpc.server

    def server(*args: Any, interceptors: Any = None, **kwargs: Any) -> Any:
        return original(*args, interceptors=[OwnAccount(), *(interceptors or ())], **kwargs)

    grpc.server = server


def _cardinality(is_stream: bool) -> str:
    return "stream" if is_stream else "unary"


def _answer_own_account(behaviour: Callable[[Any, Any], Any], request: Any, context: Any) -> Any:
    """Answer a call from this account; abort others."""
    import grpc

    host, _, port = unquote(context.peer()).rpartition(":")
    address = host.partition(":")[2].strip("[]")
    if not (port.isdecimal() and is_own(address, int(port))):
        context.abort(grpc.StatusCode.PERMISSION_DENIED, _REFUSAL)
    return behaviour(request, context)


# --- uvicorn ------------------------------------------------------------------------------------------------


def keep_uvicorn_own() -> None:
    """Make all uvicorn servers started from now on in this process serve only its own account."""
    import uvicorn

    load = uvicorn.Config.load

    def guarded_load(config: Any) -> None:
        load(config)
        config.loaded_app = _guard_app(config.loaded_app)

    uvicorn.Config.load = guarded_load  # type: ignore[assignment,method-assign]


def _guard_app(app: Any) -> Any:
    """Wrap an ASGI app in the account check. SuperNodes arrive through this account's `fleet_filter`."""

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan" or (scope.get("client") and is_own(*scope["client"][:2])):
            await app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        head = [(b"content-type", b"text/plain"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 403, "headers": head})
        await send({"type": "http.response.body", "body": _REFUSAL.encode()})

    return guarded


# --- the program --------------------------------------------------------------------------------------------


def guarded_command(program: str) -> list[str]:
    """Command starting a program of Flower with ports for its own account only."""
    return python_words("-m", __name__, program)


def main(words: list[str]) -> int:
    """Run a program of Flower; returns its exit code."""
    program = words[0]
    exit_despite_channels()
    keep_grpc_own(can_see_accounts())
    if can_see_accounts():
        with suppress(ImportError):  # not a dependency of older Flower versions
            keep_uvicorn_own()
    else:
        print(
            f"fedge: {socket.gethostname()} does not report a connection's account: other accounts of this "
            f"machine can reach the ports of {program}", file=sys.stderr, flush=True,
        )  # fmt: skip
    if program == "flower-supernode":
        send_untimed()
    (entry_point,) = entry_points(group="console_scripts", name=program)
    sys.argv = list(words)
    return int(entry_point.load()() or 0)


if __name__ == "__main__":
    from fedge.process.endings.parent import die_with_parent

    die_with_parent()
    sys.exit(main(sys.argv[1:]))
