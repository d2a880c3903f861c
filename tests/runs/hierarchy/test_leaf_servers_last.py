"""A hundred rounds with leaf servers of their own, and Flower's door: both take minutes."""

import os
import signal
import socket
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from flower_runs import comparable
from leaf_servers import FEDGE, LEAVES, cloud, end, start
from processes import MARK, leftovers
from small_runs import carry_out, small_config

from fedge.link.certificates import CertificateRequest, make_certificates
from fedge.link.own_account import guarded_command
from fedge.link.reach import free_port

pytestmark = pytest.mark.soak

ROUNDS = 100


def figures(process):
    """MiB, descriptors, threads."""
    return process.memory_info().rss / 2**20, process.num_fds(), process.num_threads()


def test_a_hundred_rounds_leak_nothing(tmp_path):
    """Memory and descriptors of cloud and leaf servers, sampled from round to round; the same bits."""
    certificates, address = tmp_path / "certs", f"127.0.0.1:{free_port()}"
    make_certificates(certificates, CertificateRequest(leaves=LEAVES))
    config = small_config(tmp_path, **{"num-server-rounds": ROUNDS})
    data = config["data.path"]
    leaves = {leaf: start(leaf, address, certificates, tmp_path, tmp_path, data) for leaf in range(LEAVES)}
    watched = {"cloud": psutil.Process(), **{f"leaf {n}": psutil.Process(p.pid) for n, p in leaves.items()}}
    samples, over = [], threading.Event()

    def sample():
        table, seen = tmp_path / "runs" / "there" / "metrics" / "global_rounds.csv", 0
        while not over.wait(0.02):
            done = len(table.read_text().splitlines()) - 1 if table.is_file() else 0
            if done > seen:
                seen = done
                facts = {
                    n: (p.memory_info().rss / 2**20, p.num_fds(), p.num_threads()) for n, p in watched.items()
                }
                samples.append((done, facts))

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        outcome, _ = cloud({**config, "run-name": "there"}, address, certificates)
    finally:
        over.set()
        sampler.join()
        codes = [end(process) for process in leaves.values()]
    assert (outcome.status, codes) == ("completed", [130] * LEAVES)
    assert leftovers(tmp_path) == []
    settled = [facts for done, facts in samples if done >= ROUNDS // 4]
    assert len(settled) > ROUNDS // 2
    for name in watched:
        rss, fds, threads = ([facts[name][kind] for facts in settled] for kind in range(3))
        half = len(rss) // 2
        print(
            f"{name}: RSS {rss[0]:.1f} MiB in round {ROUNDS // 4}, {rss[-1]:.1f} in round {ROUNDS}; "
            f"descriptors {min(fds)} to {max(fds)}, threads {min(threads)} to {max(threads)}"
        )
        assert max(fds[half:]) <= max(fds[:half]), name
        assert max(threads[half:]) <= max(threads[:half]), name
        assert max(rss[half:]) < max(rss[:half]) + 5, name
    assert comparable(outcome.folder)["models"] == carry_out(config, "here")["models"]


def test_only_nodes_whose_key_was_registered_get_in(tmp_path):
    """SuperLink with TLS and authentication, by `fedge certs`; node 1 is not registered."""
    make_certificates(tmp_path / "certs", CertificateRequest(nodes=2))
    io, fleet, control, of_node = (f"127.0.0.1:{free_port()}" for _ in range(4))
    project = tmp_path / "app"
    project.mkdir()
    (project / "pyproject.toml").write_text(
        '[project]\nname = "app"\nversion = "1.0"\nlicense = "Apache-2.0"\n'
        '[tool.flwr.app]\npublisher = "app"\n'
        '[tool.flwr.app.components]\nserverapp = "fedge.server_app:app"\nclientapp = "fedge.client_app:app"\n'
        '[tool.flwr.federations]\ndefault = "trial"\n[tool.flwr.federations.trial]\n'
        f'address = "{control}"\nroot-certificates = "../certs/ca.crt"\n'
    )
    env = os.environ | {
        "PATH": f"{Path(FEDGE).parent}:{os.environ['PATH']}", "FLWR_HOME": str(tmp_path / "flwr"),
        "FLWR_TELEMETRY_ENABLED": "0", MARK: str(tmp_path),
    }  # fmt: skip
    link = subprocess.Popen(
        ["flower-superlink", "--ssl-ca-certfile", "certs/ca.crt", "--ssl-certfile", "certs/superlink.crt",
         "--ssl-keyfile", "certs/superlink.key", "--enable-supernode-auth", "--serverappio-api-address", io,
         "--fleet-api-address", fleet, "--control-api-address", control],
        cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip

    def node(number, limit_s):
        key = f"certs/node-{number}"
        words = ["flower-supernode", "--superlink", fleet, "--root-certificates", "certs/ca.crt"]
        words += ["--auth-supernode-private-key", key, "--clientappio-api-address", of_node]
        out = tmp_path / f"node-{number}.out"
        with out.open("w") as file:  # no pipe: what a node starts would keep it open
            process = subprocess.Popen(
                words, cwd=tmp_path, env=env, stdout=file, stderr=file, start_new_session=True
            )
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(20)
        return out.read_text(), code

    try:
        _wait_for(control)
        words = [*guarded_command("flwr"), "supernode", "register", "certs/node-0.pub", "app", "trial"]
        told = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
        assert "registered successfully" in told.stdout
        shown, code = node(0, 15)
        assert (code, "SuperNode ID" in shown) == (None, True)
        shown, code = node(1, 30)
        assert (code, "SuperNode ID" in shown) == (1, False)
    finally:
        os.killpg(link.pid, signal.SIGTERM)
        link.wait(20)
    assert leftovers(tmp_path) == []


def _wait_for(address, limit_s=60.0):
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        with socket.socket() as trying:
            if trying.connect_ex((host, int(port))) == 0:
                return
        time.sleep(0.2)
    raise AssertionError(f"nobody listens on {address}")
