"""Real runs on Ray, looked at from outside: who can reach their processes."""

import os
import shutil
import stat
import subprocess
import sys

import pytest
from ray_runs import ENDLESS, ROOT, RayRun, listening

from fedge.engine.loopback import is_loopback

BARE = "[tool.flwr.federations.bare]\noptions.num-supernodes = 9\n"  # as who knows nothing of Ray writes it


# of Ray alone: tests/fedge/engine/test_loopback.py
@pytest.mark.extended
@pytest.mark.parametrize(("program", "federation"), [("flwr", "bare"), ("fedge", "local-simulation")])
def test_every_socket_of_a_run_is_on_loopback(tmp_path, ray_home, program, federation):
    """Of a federation that asks for nothing, and of Fedge's own."""
    app = tmp_path / "app"
    app.mkdir()
    (app / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text() + BARE)
    words = ["run", app, federation, "-c", f"{ENDLESS} runs-dir='{tmp_path / 'runs'}'"]
    words += ["--engine", "flower"] if program == "fedge" else []
    with RayRun(tmp_path, *words, program=program) as run:
        run.wait_for(" 2/100000")
        sockets = listening(run.processes())
        names = {name for name, _, _ in sockets}
        assert {"raylet", "gcs_server"} <= names, sockets
        assert len(sockets) > 5
        assert not [socket for socket in sockets if not is_loopback(socket[1])]
        # Ray keeps a process of its dashboard even so, for statistics of use: it must serve nobody
        assert listening(run.named("dashboard/dashboard.py")) == set()
        refuse_what_is_not_rays_own(run, sockets)
        (folder,) = ray_home.iterdir()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert list(folder.rglob("plasma_store")), "Ray's sockets, its store of objects among them, lie in it"


def refuse_what_is_not_rays_own(run, sockets):
    """Fail where another account learns anything at a port that is not of Ray's own programs.

    Those answer everybody: what SECURITY.md says of them is so, and of nothing else.
    """
    ports = {port: name for name, _, port in sockets}
    asked = {port: answered(port) for port in ports}
    open_to_all = {ports[port] for port, said in asked.items() if said}
    print(
        f"{len(ports)} ports of a run on Ray; another account is answered at those of {sorted(open_to_all)}"
    )
    assert "gcs_server" in open_to_all
    assert all(is_rays(name) for name in open_to_all), asked


def is_rays(name):
    """Tell whether a process is one of Ray's, the driver among them: it is a worker, too."""
    return name in ("raylet", "gcs_server") or name.startswith(("ray::", "python", "flwr", "flower"))


def answered(port):
    """Whether a port tells another account anything: Ray's own questions, Flower's, and plain HTTP."""
    code = (
        "import grpc, socket, sys\n"
        "port = int(sys.argv[1])\n"
        "asked = ('/ray.rpc.NodeInfoGcsService/GetAllNodeInfo',\n"
        "         '/ray.rpc.CoreWorkerService/GetCoreWorkerStats',\n"
        "         '/ray.rpc.NodeManagerService/GetNodeStats', '/flwr.proto.Control/ListRuns')\n"
        "with grpc.insecure_channel(f'127.0.0.1:{port}') as channel:\n"
        "    for method in asked:\n"
        "        try:\n"
        "            channel.unary_unary(method)(b'', timeout=3)\n"
        "            print(method)\n"
        "        except grpc.RpcError as error:\n"
        "            pass\n"
        "try:\n"
        "    with socket.create_connection(('127.0.0.1', port), 3) as one:\n"
        "        one.settimeout(3)\n"
        "        one.sendall(b'GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n"
        "        if one.recv(9).startswith(b'HTTP'):\n"
        "            print('HTTP')\n"
        "except OSError:\n"
        "    pass\n"
    )
    words = (
        ["setpriv", "--reuid=65534", "--clear-groups"]
        if os.geteuid() == 0 and shutil.which("setpriv")
        else []
    )
    done = subprocess.run(
        [*words, sys.executable, "-c", code, str(port)], capture_output=True, text=True, check=False, cwd="/"
    )
    return done.stdout.split()


def test_a_run_in_process_listens_nowhere(tmp_path):
    """Nor any process that it starts, with several processes per client."""
    with RayRun(tmp_path, "run", "-c", f"{ENDLESS} runs-dir='{tmp_path / 'runs'}'", program="fedge") as run:
        run.wait_for(" 2/100000")
        assert run.processes()
        assert listening(run.processes()) == set()
