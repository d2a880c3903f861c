"""A stranger at a machine's ports: whatever Flower's services, HTTP and the link's own have, asked of each.

As a program, for an account of its own:  python strangers.py PORTS CA OTHERS, where PORTS are numbers with
commas, CA is the authority's certificate, which is no secret, and OTHERS a folder with stranger.crt and
stranger.key that another authority signed. It prints one JSON line per port: what answered, and which calls
told anything.
"""

import importlib
import json
import os
import pkgutil
import socket
import ssl
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import flwr.proto
import grpc
import psutil

from fedge.link.gate import METHOD, SERVICE

REFUSALS = {"UNIMPLEMENTED", "PERMISSION_DENIED", "UNAUTHENTICATED", "UNAVAILABLE"}
HERE = "127.0.0.1"
_WAIT_S = 3.0


def doors(processes):
    """(address, port) → words of the process, for every port of TCP or UDP that processes hold.

    Connections that they have dialled themselves are no doors; a UDP socket that is bound is one.
    """
    found = {}
    for process in processes:
        with suppress(psutil.Error):
            words = " ".join(process.cmdline())
            for one in process.net_connections("inet"):
                if one.laddr and (one.status == psutil.CONN_LISTEN or one.type == socket.SOCK_DGRAM):
                    found[one.laddr.ip, one.laddr.port] = words
    return found


def methods():
    """Every method of every service that this Flower knows, as gRPC calls it, and the link's."""
    found = [f"/{SERVICE}/{METHOD}"]
    for module in pkgutil.iter_modules(flwr.proto.__path__):
        if module.name.endswith("_pb2"):
            services = importlib.import_module(f"flwr.proto.{module.name}").DESCRIPTOR.services_by_name
            found += [
                f"/{service.full_name}/{method.name}"
                for service in services.values()
                for method in service.methods
            ]
    return found


def told_in_plaintext(port):
    """A port's answer to plain HTTP, if any: the first 200 bytes, as text."""
    with suppress(OSError), closing(socket.create_connection((HERE, port), _WAIT_S)) as one:
        one.settimeout(_WAIT_S)
        one.sendall(b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        return one.recv(200).decode("latin-1")
    return ""


def speaks_tls(port):
    """Whether a port shakes hands over TLS, with nobody's certificate looked at."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with suppress(OSError), closing(socket.create_connection((HERE, port), _WAIT_S)) as one:
        one.settimeout(_WAIT_S)
        with context.wrap_socket(one):
            return True
    return False


def ways(authority, others):
    """How a stranger may come: name → credentials of gRPC; None for plaintext."""
    root = Path(authority).read_bytes()
    pair = [(Path(others) / f"stranger.{kind}").read_bytes() for kind in ("key", "crt")]
    return {
        "plaintext": None,
        "no certificate": grpc.ssl_channel_credentials(root),
        "another's certificate": grpc.ssl_channel_credentials(root, *pair),
    }


def answers(port, credentials):
    """Answers of each method to an empty message: [(method, code, bytes)]; none without a handshake."""
    at = f"{HERE}:{port}"
    options = [("grpc.ssl_target_name_override", "localhost")] if credentials else []
    make = grpc.insecure_channel(at) if credentials is None else grpc.secure_channel(at, credentials, options)
    with make as channel:
        try:
            grpc.channel_ready_future(channel).result(_WAIT_S)
        except grpc.FutureTimeoutError:
            return []
        return [(method, *_answer(channel, method)) for method in methods()]


def _answer(channel, method):
    call = channel.stream_stream(method)(iter([b""]), timeout=_WAIT_S)
    size = 0
    try:
        for part in call:
            size += len(part)
    except grpc.RpcError as error:
        return error.code().name, size
    return call.code().name, size


def learnt(answered):
    """Methods that told something, and how: all but refusals; a handler that broke was reached, too."""
    return [one for one in answered if one[1] not in REFUSALS or one[2]]


def main(ports, authority, others):
    """Ask at each port and print what was learnt."""
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(partial(at, ways(authority, others)), map(int, ports.split(","))):
            print(json.dumps(found), flush=True)


def at(come, port):
    """Answers of one port to a stranger who comes in these ways."""
    answered = {way: answers(port, given) for way, given in come.items()}
    return {
        "port": port, "account": os.geteuid(), "tls": speaks_tls(port), "plain": told_in_plaintext(port),
        "calls": sum(map(len, answered.values())),
        "learnt": {way: told for way, given in answered.items() if (told := learnt(given))},
    }  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
