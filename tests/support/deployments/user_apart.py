"""A user who sees nothing of the SuperLink's files, and goes on with a run whose server was killed.

Carried out as a program in namespaces of its own, as `machines_apart`; prints what came of it as JSON.
"""

import json
import sys
from pathlib import Path

import psutil
from deployment import BIN, Deployment, wait_until, words_of
from flower_runs import comparable
from machines_apart import ip, start_machine
from small_runs import carry_out, small_config

from fedge.launch.deal import deal_into

NODES, USER = 2, 9
TABLES = ("global", "leaf", "clients", "confusion", "models")
# of all files a user has the project and the authority's certificate
_SCRIPT = """
cp -r {folder}/app /mnt/app && cp {folder}/certs/ca.crt /mnt/app && mkdir /mnt/home
mount -t tmpfs tmpfs {folder}
cd /mnt/app && export FLWR_HOME=/mnt/home SEED=3
{fedge} run . deployed -c 'run-name="there"'; echo "first: $?"
{fedge} run . deployed -c 'resume="there"'; echo "second: $?"
ls -A . {folder} | grep -c runs
"""


def main(folder):
    """Start SuperLink and nodes, let the user begin a run, kill its server, and let the user go on."""
    folder = Path(folder)
    ip("link", "set", "lo", "up")
    options = small_config(
        folder / "data", hierarchy__num_servers=2, clients=NODES, num_server_rounds=3, scaffold__levels=2
    )
    deal_into(folder / "dealt", options)
    expected = carry_out({**options, "runs-dir": str(folder / "here")}, "here")
    deployment = Deployment(
        folder, {**options, "data.path": "nowhere.npz", "runs-dir": "runs"},
        hosts=("127.0.0.1", f"10.77.{USER}.1"), listen="0.0.0.0", control_at="0.0.0.0",
    )  # fmt: skip
    with deployment:
        deployment.register(NODES)
        project = deployment.app / "pyproject.toml"
        text = project.read_text().replace(
            f"127.0.0.1:{deployment.control}", f"10.77.{USER}.1:{deployment.control}"
        )
        project.write_text(text.replace(str(deployment.certs / "ca.crt"), "ca.crt"))
        for node in range(NODES):
            deployment.start_node(node, NODES, folder / "dealt" / f"client-{node}")
        user = start_machine(deployment, folder, USER, _SCRIPT.format(folder=folder, fedge=BIN / "fedge"))
        log = folder / f"apart-{USER}.log"
        wait_until(lambda: user.poll() is not None or "round 1" in log.read_text(), 300, "round 1")
        below = psutil.Process(deployment.superlink.pid).children(recursive=True)
        (app,) = [process for process in below if "flwr-serverapp" in words_of(process)]
        app.kill()
        user.wait(600)
        found = comparable(folder / "superlink" / "runs" / "there")
    same = all(found[table] == expected[table] for table in TABLES)
    print(json.dumps({"same": same, "said": log.read_text()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
