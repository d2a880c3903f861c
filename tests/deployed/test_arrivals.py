"""Asynchrony on real SuperNodes: the log of arrivals repeats the run on the virtual clock, bit for bit."""

import csv
import io
import json
import subprocess

import pytest
from deployment import BIN, Deployment
from small_runs import small_config

from fedge import simulate
from fedge.launch.deal import deal_into
from fedge.records.tables.model_tables import CLIENT_MODELS

NODES = 3
FILES = (
    "checkpoints/final.safetensors", "devices/versions.csv", "devices/jobs.csv", "devices/devices.csv",
    "devices/staleness.csv", "metrics/leaf_rounds.csv",
)  # fmt: skip

pytestmark = [pytest.mark.whole_runs, pytest.mark.extended]


@pytest.fixture(scope="module", params=["fedavg", "ditto"])
def there(request, tmp_path_factory):
    """(folder of a run on three SuperNodes, its options); two nodes are at work at a time.

    Of Ditto the nodes keep memories on their own machines.
    """
    folder = tmp_path_factory.mktemp("arrivals")
    options = small_config(
        folder / "data", hierarchy__num_servers=1, clients=NODES, num_server_rounds=2,
        scaffold__enabled=False, cluster__enabled=False, gate__enabled=False, train__algorithm=request.param,
    )  # fmt: skip
    options |= {
        "asynchrony.rule": "fedbuff", "asynchrony.rule-args": '{"buffer": 2}', "asynchrony.concurrency": 2,
        "asynchrony.evaluate-every-s": 30.0, "asynchrony.end-updates": 6,  # a busy machine may take long
    }  # fmt: skip
    deal_into(folder / "dealt", options)
    deployment = Deployment(
        folder, {**options, "data.path": "nowhere.npz", "runs-dir": "runs", "asynchrony.clock": "real"}
    )
    with deployment:
        deployment.register(NODES)
        for node in range(NODES):
            deployment.start_node(node, NODES, folder / "dealt" / f"client-{node}")
        done = subprocess.run(
            [str(BIN / "fedge"), "run", ".", "deployed", "-c", 'run-name="there"'],
            cwd=deployment.app, env=deployment.environment(folder / "user", SEED="3"),
            capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return deployment.app / "runs" / "there", options


def test_nodes_come_back_in_the_order_of_the_log(there):
    folder, _ = there
    with (folder / "devices" / "arrivals.csv").open() as file:
        rows = list(csv.DictReader(file))
    ends = [int(row["ended_us"]) for row in rows]
    assert len(rows) >= 4
    assert ends == sorted(ends)
    assert {row["outcome"] for row in rows} == {"updates"}
    assert json.loads((folder / "manifest.json").read_text())["status"] == "completed"


def test_the_log_repeats_the_run_on_the_virtual_clock(there, tmp_path):
    folder, options = there
    again = simulate(
        {
            **options,
            "seed": 3,
            "asynchrony.replay": str(folder),
            "runs-dir": str(tmp_path),
            "run-name": "again",
        },
        terminal=io.StringIO(),
    )
    own = (CLIENT_MODELS.path,) if options["train.algorithm"] == "ditto" else ()
    for name in (*FILES, *own):
        assert (again.folder / name).read_bytes() == (folder / name).read_bytes(), name
