"""A deployment whose node 2 is a machine of its own: another network, and none of the server's files.

Carried out as a program in namespaces of its own (``unshare``), where a pair of virtual network cards joins
the node to the SuperLink; nothing outside them is reached, and all ends with the program.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from deployment import BIN, Deployment, wait_until
from flower_runs import comparable
from small_runs import carry_out, small_config

from fedge.launch.deal import deal_into

NODES, APART = 3, 2
SERVER, NODE = "10.77.0.1", "10.77.0.2"
ALONE = ["unshare", "--user", "--map-root-user", "--mount", "--net", "--pid", "--fork", "--kill-child",
         "--mount-proc"]  # fmt: skip
TABLES = ("global", "leaf", "clients", "confusion", "models")
# its network card comes from outside; of the server's folder it has what a person would bring
_MACHINE = """
ip link set lo up
until ip link show card >/dev/null 2>&1; do sleep 0.1; done
ip addr add {node}/24 dev card && ip link set card up
mount -t tmpfs tmpfs /mnt
cp -r {folder}/dealt/client-{apart} /mnt/client && cp {folder}/certs/ca.crt {folder}/certs/node-{apart} /mnt
mount -t tmpfs tmpfs {folder}
exec {fedge} node {apart} --of {nodes} --superlink {server}:{port} --certs /mnt --data-folder /mnt/client
"""


def main(folder):
    """Carry out a run for each break of the network; print what came of it."""
    folder = Path(folder)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    _ip("link", "add", "here", "type", "veth", "peer", "name", "card")
    _ip("addr", "add", f"{SERVER}/24", "dev", "here")
    _ip("link", "set", "here", "up")
    options = small_config(
        folder / "data", hierarchy__num_servers=2, clients=NODES, num_server_rounds=3, scaffold__levels=2
    )
    deal_into(folder / "dealt", options)
    expected = carry_out({**options, "runs-dir": str(folder / "here")}, "here")
    deployment = Deployment(
        folder, {**options, "data.path": "nowhere.npz", "runs-dir": "runs"},
        hosts=("127.0.0.1", SERVER), listen="0.0.0.0",
    )  # fmt: skip
    with deployment:
        deployment.register(NODES)
        for node in range(NODES):
            if node != APART:
                deployment.start_node(node, NODES, folder / "dealt" / f"client-{node}")
        deployment.nodes[APART] = _machine(deployment, folder)
        for seconds in (0, 20, 100):
            print(json.dumps(_run(deployment, folder, seconds, expected)), flush=True)


def _machine(deployment, folder):
    """Start the node that stands apart; returns its process."""
    script = _MACHINE.format(
        node=NODE, server=SERVER, folder=folder, apart=APART, nodes=NODES, fedge=BIN / "fedge",
        port=deployment.fleet,
    )  # fmt: skip
    with (folder / "apart.log").open("wb") as log:
        machine = subprocess.Popen(
            ["unshare", "--net", "--mount", "sh", "-c", script],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=deployment.environment(folder / "apart"),
        )  # fmt: skip
    here = os.readlink("/proc/self/ns/net")
    wait_until(lambda: os.readlink(f"/proc/{machine.pid}/ns/net") != here, 20, "a network of its own")
    _ip("link", "set", "card", "netns", str(machine.pid))
    return machine


def _run(deployment, folder, seconds, expected):
    """Carry out a run whose network is broken for so many seconds after round 1."""
    name = f"broken-{seconds}"
    log = folder / f"{name}.log"
    with log.open("wb") as out:
        run = subprocess.Popen(
            [str(BIN / "fedge"), "run", ".", "deployed", "-c", f'run-name="{name}"'],
            cwd=deployment.app, env=deployment.environment(folder / "user", SEED="3"),
            stdin=subprocess.DEVNULL, stdout=out, stderr=out,
        )  # fmt: skip
    wait_until(lambda: run.poll() is not None or "round 1" in log.read_text(), 300, "round 1")
    if seconds:
        _ip("link", "set", "here", "down")
        time.sleep(seconds)
        _ip("link", "set", "here", "up")
    code = run.wait(600)
    found = comparable(deployment.app / "runs" / name) if code in (0, 3) else {}
    same = bool(found) and all(found[table] == expected[table] for table in TABLES)
    return {"broken": seconds, "code": code, "same": same, "said": log.read_text()}


def _ip(*words):
    subprocess.run(["ip", *words], check=True)


if __name__ == "__main__":
    main(sys.argv[1])
