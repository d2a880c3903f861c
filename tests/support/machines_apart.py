"""A deployment whose nodes are all machines of their own: other networks, and none of the server's files.

Carried out as a program in namespaces of its own (`deployed_network.ALONE`): a pair of virtual network cards
joins each node to the SuperLink; nothing outside them is reached, and all ends with the program.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from deployed_network import ALONE
from deployment import BIN, Deployment, wait_until
from flower_runs import ROOT

# its network card comes from outside; of the server's folder it has what a person would bring
_MACHINE = """
ip link set lo up
until ip link show card >/dev/null 2>&1; do sleep 0.1; done
ip addr add 10.77.{node}.2/24 dev card && ip link set card up
mount -t tmpfs tmpfs /mnt
cp -r {folder}/dealt/client-{node} /mnt/client && cp {folder}/certs/ca.crt {folder}/certs/node-{node} /mnt
mount -t tmpfs tmpfs {folder}
exec {fedge} node {node} --of {nodes} --superlink 10.77.{node}.1:{port} --certs /mnt --data-folder /mnt/client
"""


def run_apart(folder, options, clients, name, python=sys.executable):
    """Carry out a run whose windows `fedge deal` has written into folder/dealt; returns the exit code.

    All of it runs in the environment of `python`.
    """
    (folder / "options.json").write_text(
        json.dumps({**options, "data.path": "nowhere.npz", "runs-dir": "runs"})
    )
    support = ROOT / "tests" / "support"
    done = subprocess.run(
        [*ALONE, str(python), __file__, str(folder), str(clients), name],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(support)])}, check=False,
    )  # fmt: skip
    return done.returncode


def main(folder, clients, name):
    """Start SuperLink and nodes, and carry the run out; returns its exit code."""
    folder, clients = Path(folder), int(clients)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    hosts = ("127.0.0.1", *(f"10.77.{node}.1" for node in range(clients)))
    options = json.loads((folder / "options.json").read_text())
    with Deployment(folder, options, hosts=hosts, listen="0.0.0.0") as deployment:
        deployment.register(clients)
        for node in range(clients):
            deployment.nodes[node] = _machine(deployment, folder, node, clients)
        with (folder / "run.log").open("wb") as log:
            run = subprocess.Popen(
                [str(BIN / "fedge"), "run", ".", "deployed", "-c", f'run-name="{name}"'],
                cwd=deployment.app, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=deployment.environment(folder / "user", SEED=str(options["seed"])),
            )  # fmt: skip
        return run.wait(900)


def _machine(deployment, folder, node, nodes):
    """Start a node that stands apart; returns its process."""
    for words in (
        ["link", "add", f"here{node}", "type", "veth", "peer", "name", f"card{node}"],
        ["addr", "add", f"10.77.{node}.1/24", "dev", f"here{node}"],
        ["link", "set", f"here{node}", "up"],
    ):
        subprocess.run(["ip", *words], check=True)
    script = _MACHINE.format(
        node=node, nodes=nodes, folder=folder, fedge=BIN / "fedge", port=deployment.fleet
    )
    with (folder / f"apart-{node}.log").open("wb") as log:
        machine = subprocess.Popen(
            ["unshare", "--net", "--mount", "sh", "-c", script], stdin=subprocess.DEVNULL, stdout=log,
            stderr=log, env=deployment.environment(folder / f"apart-{node}"),
        )  # fmt: skip
    here = os.readlink("/proc/self/ns/net")
    wait_until(lambda: os.readlink(f"/proc/{machine.pid}/ns/net") != here, 20, "a network of its own")
    words = ["link", "set", f"card{node}", "netns", str(machine.pid), "name", "card"]
    subprocess.run(["ip", *words], check=True)
    return machine


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
