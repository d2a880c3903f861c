"""Ports that answer to their own account alone: another account is one that this test makes of itself."""

import json
import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest

from fedge.link import own_account
from fedge.link.own_account import accounts_of, can_see_accounts, is_own, keep_grpc_own

pytestmark = pytest.mark.skipif(
    not can_see_accounts(), reason="the system does not tell whose a connection is"
)
NOBODY = 65534


def connected(family=socket.AF_INET, to="127.0.0.1"):
    """(listener, the dialling end, the other end) of a connection of this process."""
    listener = socket.create_server(("127.0.0.1", 0))
    dialling = socket.socket(family)
    dialling.connect((to, listener.getsockname()[1]))
    accepted, where = listener.accept()
    return listener, dialling, accepted, where


@pytest.mark.parametrize(
    ("family", "to"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::ffff:127.0.0.1")]
)
def test_the_account_of_a_connection_is_known_whichever_kind_of_socket_it_has(family, to):
    listener, dialling, accepted, where = connected(family, to)
    assert accounts_of(*where) == {os.geteuid()}
    assert is_own(*where)
    for each in (listener, dialling, accepted):
        each.close()


def test_a_connection_that_its_holder_has_closed_is_nobody_s():
    """The system gives such a one to root, so that who has sent a request and gone would pass for root."""
    listener, dialling, accepted, where = connected()
    dialling.close()
    assert not is_own(*where)
    for each in (listener, accepted):
        each.close()


def test_what_is_no_connection_of_this_machine_is_nobody_s():
    for address, port in (("192.0.2.1", 5), ("127.0.0.1", 1), ("somewhere", 1), ("", 0)):
        assert not is_own(address, port)


def as_nobody(ask):
    """Result of `ask` as JSON, from a process of another account."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            os.write(writing, json.dumps(ask()).encode())
        except BaseException as error:
            os.write(writing, json.dumps(repr(error)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        said = told.read()
    os.waitpid(pid, 0)
    return json.loads(said)


only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another account")


@only_root
def test_another_account_s_connection_is_its_own():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()

        def ask():
            with socket.create_connection(address) as dialled:
                return [*dialled.getsockname(), dialled.recv(1).decode()]

        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(as_nobody, ask)
            accepted, where = listener.accept()
            assert accounts_of(*where) == {NOBODY}
            assert not is_own(*where)
            accepted.sendall(b".")
            assert asked.result() == [*where, "."]
            accepted.close()


_SERVER = """
import grpc, sys
from concurrent.futures import ThreadPoolExecutor
from fedge.link.own_account import keep_grpc_own
keep_grpc_own()

class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        kinds = {"one": grpc.unary_unary_rpc_method_handler, "many": grpc.stream_stream_rpc_method_handler}
        name = details.method.rpartition("/")[2]
        if name not in kinds:
            return None
        return kinds[name]((lambda request, _: request) if name == "one" else (lambda given, _: iter(given)))

server = grpc.server(ThreadPoolExecutor(4), handlers=[Echo()])
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
sys.stdin.read()
"""

_ASK = """
import grpc, json, os, sys
port, account = sys.argv[1:]

def ask():
    said, options = {}, [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        for method in ("/a.B/one", "/a.B/many", "/flwr.proto.Fleet/one"):
            try:
                if method.endswith("many"):
                    found = list(channel.stream_stream(method)(iter([b"x"]), timeout=20))
                else:
                    found = [channel.unary_unary(method)(b"x", timeout=20)]
                said[method] = [part.decode() for part in found]
            except grpc.RpcError as error:
                said[method] = error.code().name
    return json.dumps(said)

ask()  # another account may see none of the modules that calls load
if int(account):
    os.setgroups([])
    os.setresgid(*[int(account)] * 3)
    os.setresuid(*[int(account)] * 3)
print(ask())
"""


@contextmanager
def serving():
    """Let a server of gRPC live in a process of its own; gives its port."""
    import subprocess

    process = subprocess.Popen([sys.executable, "-c", _SERVER], stdin=-1, stdout=-1, text=True)
    try:
        yield process.stdout.readline().strip()
    finally:
        process.communicate("")


def asked(port, account=0):
    """Method → what an account is answered."""
    import subprocess

    done = subprocess.run([sys.executable, "-c", _ASK, port, str(account)], capture_output=True, text=True)
    return json.loads(done.stdout)


def test_a_server_of_grpc_answers_its_own_account_and_strangers_only_where_nodes_ask():
    with serving() as port:
        assert asked(port) == {"/a.B/one": ["x"], "/a.B/many": ["x"], "/flwr.proto.Fleet/one": ["x"]}
        if os.geteuid() == 0:
            assert asked(port, NOBODY) == {
                "/a.B/one": "PERMISSION_DENIED", "/a.B/many": "PERMISSION_DENIED",
                "/flwr.proto.Fleet/one": ["x"],
            }  # fmt: skip


def test_servers_are_made_as_before(monkeypatch):
    """Interceptors that were given stay, after the one that asks who calls."""
    given = []
    monkeypatch.setattr(grpc, "server", lambda *_, interceptors: given.extend(interceptors))
    keep_grpc_own()
    mine = object()
    grpc.server(None, interceptors=[mine])
    assert given[1:] == [mine]
    assert type(given[0]).__name__ == "OwnAccount"


def test_an_app_of_uvicorn_is_asked_by_its_own_account_alone():
    import asyncio

    sent, passed = [], []

    async def app(scope, receive, send):
        passed.append(scope["type"])

    async def send(message):
        sent.append(message)

    guarded = own_account._guard_app(app)
    listener, dialling, accepted, where = connected()
    asyncio.run(guarded({"type": "http", "client": where}, None, send))
    asyncio.run(guarded({"type": "lifespan"}, None, send))
    assert (passed, sent) == (["http", "lifespan"], [])
    for stranger in (None, ("192.0.2.1", 80)):
        asyncio.run(guarded({"type": "http", "client": stranger}, None, send))
        asyncio.run(guarded({"type": "websocket", "client": stranger}, None, send))
    assert [message.get("status", message.get("code")) for message in sent] == [403, None, 1008] * 2
    assert passed == ["http", "lifespan"]
    for each in (listener, dialling, accepted):
        each.close()
