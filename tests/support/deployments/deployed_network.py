"""A deployment whose node 2 is a machine of its own: another network, and none of the server's files.

Carried out as a program in namespaces of its own (``unshare``), where a pair of virtual network cards joins
the node to the SuperLink; nothing outside them is reached, and all ends with the program.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

from deployment import BIN, Deployment, wait_until
from flower_runs import comparable
from machines_apart import ip, start_node
from small_runs import carry_out, small_config

from fedge.launch.deal import deal_into

NODES, APART = 3, 2
TABLES = ("global", "leaf", "clients", "confusion", "models")


def main(folder):
    """Carry out a run for each break of the network; print what came of it."""
    folder = Path(folder)
    ip("link", "set", "lo", "up")
    options = small_config(
        folder / "data", hierarchy__num_servers=2, clients=NODES, num_server_rounds=3, scaffold__levels=2
    )
    deal_into(folder / "dealt", options)
    expected = carry_out({**options, "runs-dir": str(folder / "here")}, "here")
    deployment = Deployment(
        folder, {**options, "data.path": "nowhere.npz", "runs-dir": "runs"},
        hosts=("127.0.0.1", f"10.77.{APART}.1"), listen="0.0.0.0",
    )  # fmt: skip
    with deployment:
        deployment.register(NODES)
        for node in range(NODES):
            if node != APART:
                deployment.start_node(node, NODES, folder / "dealt" / f"client-{node}")
        deployment.nodes[APART] = start_node(deployment, folder, APART, NODES)
        for seconds in (0, 20, 100):
            print(json.dumps(_run(deployment, folder, seconds, expected)), flush=True)


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
        ip("link", "set", f"here{APART}", "down")
        time.sleep(seconds)
        ip("link", "set", f"here{APART}", "up")
    code = run.wait(600)
    found = comparable(deployment.app / "runs" / name) if code in (0, 3) else {}
    same = bool(found) and all(found[table] == expected[table] for table in TABLES)
    return {"broken": seconds, "code": code, "same": same, "said": log.read_text()}


if __name__ == "__main__":
    main(sys.argv[1])
