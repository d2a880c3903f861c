"""Nodes whose ClientApps' process stays from message to message, as on a GPU: the bits of one per message.

On a machine with a GPU the clients compute on it; elsewhere their processes stay though they hold none.
"""

import hashlib
import json
import subprocess
import time

import pytest
import torch
from deployment import BIN, Deployment
from processes import leftovers
from small_runs import carry_out, small_config

from fedge import load_run
from fedge.launch.deal import deal_into

NODES, ROUNDS = 2, 3
HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU else "cpu"
LOST_S = 120.0
NODE = (
    "import sys; from fedge.process import persistent_process; "
    "{} sys.argv[0] = 'fedge'; from fedge.cli import main; sys.exit(main(sys.argv[1:]))"
)
KEPT = NODE.format("" if HAS_GPU else "persistent_process.holds_gpu = lambda: True;")
PER_MESSAGE = NODE.format("persistent_process.holds_gpu = lambda: False;")

pytestmark = [pytest.mark.extended, pytest.mark.whole_runs]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Way → (run folder, seconds), by nodes whose processes stay, and by those of one message."""
    folder = tmp_path_factory.mktemp("kept")
    options = small_config(
        folder / "data", hierarchy__num_servers=2, clients=NODES, num_server_rounds=ROUNDS, report=False,
        guard__client_timeout=LOST_S, train__device=DEVICE,
    )  # fmt: skip
    deal_into(folder / "dealt", options)
    found = {"options": options}
    for way, code in (("kept", KEPT), ("message", PER_MESSAGE)):
        there = folder / way
        there.mkdir()
        with Deployment(there, {**options, "data.path": "nowhere.npz", "runs-dir": "runs"}) as deployment:
            deployment.register(NODES)
            for node in range(NODES):
                deployment.nodes[node] = deployment.start(f"node-{node}", [
                    "python", "-c", code, "node", node, "--of", NODES, "--superlink",
                    f"127.0.0.1:{deployment.fleet}", "--certs", deployment.certs,
                    "--data-folder", folder / "dealt" / f"client-{node}",
                ])  # fmt: skip
            for name in ("first", "second") if way == "kept" else ("first",):
                began = time.monotonic()
                done = subprocess.run(
                    [str(BIN / "fedge"), "run", ".", "deployed", "-c", f'run-name="{name}"'],
                    cwd=deployment.app, env=deployment.environment(there / "user", SEED="3"),
                    capture_output=True, text=True, timeout=900, check=False,
                )  # fmt: skip
                seconds = time.monotonic() - began
                logs = "".join(path.read_text()[-3000:] for path in there.glob("node-*.log"))
                assert done.returncode == 0, done.stdout + done.stderr + logs
        assert leftovers(deployment.mark) == []
        found[way] = deployment.app / "runs" / "first", seconds
    return found


def digest(folder):
    return hashlib.sha256((folder / "checkpoints" / "final.safetensors").read_bytes()).hexdigest()


def test_models_have_the_bits_of_a_process_per_message_and_of_a_run_in_process(runs, monkeypatch):
    kept, message = runs["kept"][0], runs["message"][0]
    monkeypatch.setenv("SEED", "3")
    carry_out({**runs["options"], "runs-dir": str(kept.parent / "here")}, "here")
    digests = {digest(kept), digest(message), digest(kept.parent / "here" / "here")}
    assert len(digests) == 1


def test_a_second_run_on_the_same_nodes_has_the_same_bits(runs):
    first = runs["kept"][0]
    assert digest(first) == digest(first.parent / "second")


def test_one_process_of_a_node_answers_all_rounds_or_each_message_has_its_own(runs):
    for way, count in (("kept", NODES), ("message", NODES * ROUNDS)):
        run = load_run(runs[way][0])
        workers = run.memory.filter(run.memory["role"] == "worker")
        assert len(set(workers["pid"])) == count, way
        timing = (runs[way][0] / "timing.csv").read_text().splitlines()
        print(json.dumps({"way": way, "seconds": runs[way][1], "timing": timing[:4]}))
