"""A deployment whose nodes are all machines of their own: other networks, and none of the server's files.

Carried out as a program in namespaces of its own (`ALONE`): a pair of virtual network cards joins each node
to the SuperLink; nothing outside them is reached, and all ends with the program.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from deployment import BIN, Deployment, wait_until
from support_folders import PYTHONPATH

ALONE = ["unshare", "--user", "--map-root-user", "--mount", "--net", "--pid", "--fork", "--kill-child",
         "--mount-proc"]  # fmt: skip
# its network card comes from outside, and its name is its own
_JOINED = """
echo machine-{number} > /proc/sys/kernel/hostname
ip link set lo up
until ip link show card >/dev/null 2>&1; do sleep 0.1; done
ip addr add 10.77.{number}.2/24 dev card && ip link set card up
mount -t tmpfs tmpfs /mnt
"""
# of the server's folder it has what a person would bring
_NODE = """
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
    done = subprocess.run(
        [*ALONE, str(python), __file__, str(folder), str(clients), name],
        env={**os.environ, "PYTHONPATH": PYTHONPATH}, check=False,
    )  # fmt: skip
    return done.returncode


def main(folder, clients, name):
    """Start SuperLink and nodes, and carry the run out; returns its exit code."""
    folder, clients = Path(folder), int(clients)
    ip("link", "set", "lo", "up")
    hosts = ("127.0.0.1", *(f"10.77.{node}.1" for node in range(clients)))
    options = json.loads((folder / "options.json").read_text())
    with Deployment(folder, options, hosts=hosts, listen="0.0.0.0") as deployment:
        deployment.register(clients)
        for node in range(clients):
            deployment.nodes[node] = start_node(deployment, folder, node, clients)
        with (folder / "run.log").open("wb") as log:
            run = subprocess.Popen(
                [str(BIN / "fedge"), "run", ".", "deployed", "-c", f'run-name="{name}"'],
                cwd=deployment.app, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=deployment.environment(folder / "user", SEED=str(options["seed"])),
            )  # fmt: skip
        return run.wait(900)


def ip(*words):
    """Carry out a command on network cards."""
    subprocess.run(["ip", *words], check=True)


def start_node(deployment, folder, node, nodes):
    """Start a node that stands apart, joined by the card ``hereN``; returns its process."""
    script = _NODE.format(node=node, nodes=nodes, folder=folder, fedge=BIN / "fedge", port=deployment.fleet)
    return start_machine(deployment, folder, node, script)


def start_machine(deployment, folder, number, script):
    """Start a script on a machine of its own, 10.77.NUMBER.2, where this one is 10.77.NUMBER.1.

    It may mount what it likes, and its output goes to apart-NUMBER.log; returns its process.
    """
    ip("link", "add", f"here{number}", "type", "veth", "peer", "name", f"card{number}")
    ip("addr", "add", f"10.77.{number}.1/24", "dev", f"here{number}")
    ip("link", "set", f"here{number}", "up")
    with (folder / f"apart-{number}.log").open("wb") as log:
        machine = subprocess.Popen(
            ["unshare", "--net", "--mount", "--uts", "sh", "-c", _JOINED.format(number=number) + script],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env=deployment.environment(folder / f"apart-{number}"),
        )  # fmt: skip
    here = os.readlink("/proc/self/ns/net")
    wait_until(lambda: os.readlink(f"/proc/{machine.pid}/ns/net") != here, 20, "a network of its own")
    ip("link", "set", f"card{number}", "netns", str(machine.pid), "name", "card")
    return machine


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
