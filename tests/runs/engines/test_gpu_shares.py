"""Shares of GPUs on Flower's engine: Ray places by a logical count, so who gets which needs no card."""

import json
import os
import subprocess
import sys
from collections import Counter

import pytest
from flower_runs import ROOT
from processes import MARK

# Each client writes that it is there and stays until as many as fit are, so that they really are at a time.
PROGRAM = """
import json, os, sys, time
from pathlib import Path
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation

place, gpus, share, fit = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
nodes = fit + 2
client, server = ClientApp(), ServerApp()

@client.query()
def who(message, context):
    (place / f"here-{os.getpid()}").touch()
    deadline = time.monotonic() + 60
    while len(list(place.glob("here-*"))) < fit and time.monotonic() < deadline:
        time.sleep(0.02)
    told = {"pid": os.getpid(), "sees": os.environ.get("CUDA_VISIBLE_DEVICES", "none")}
    told["were"] = len(list(place.glob("here-*")))
    return Message(RecordDict({"told": ConfigRecord(told)}), reply_to=message)

@server.main()
def main(grid, context):
    while len(ids := list(grid.get_node_ids())) < nodes:
        time.sleep(0.1)
    asked = [Message(RecordDict({"c": ConfigRecord({})}), node, "query") for node in ids]
    replies = grid.send_and_receive(asked, timeout=120)
    errors = [r.error.reason for r in replies if r.has_error()]
    told = [dict(r.content["told"]) for r in replies if not r.has_error()]
    (place / "told").write_text(json.dumps({"told": told, "errors": errors}))

import ray
from fedge.engine.loopback import keep_ray_on_loopback
assert keep_ray_on_loopback()
run_simulation(server, client, nodes, backend_config={
    "init_args": {"num_cpus": 8, "num_gpus": gpus, "logging_level": "error", "log_to_driver": False},
    "client_resources": {"num_cpus": 1, "num_gpus": share},
})
"""


@pytest.mark.parametrize(
    ("gpus", "share", "on_each"),
    [
        pytest.param(1, 0.25, {"0": 4}, id="a quarter"),
        pytest.param(2, 0.5, {"0": 2, "1": 2}, id="half of one of two"),
    ],
)
@pytest.mark.extended
def test_as_many_clients_as_a_share_allows_are_on_each_gpu(gpus, share, on_each, tmp_path):
    """At a time, each with the one GPU of its share to see; two more clients wait, and get their turn."""
    fit = sum(on_each.values())
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, MARK: str(tmp_path)}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    words = [sys.executable, "-c", PROGRAM, str(tmp_path), str(gpus), str(share), str(fit)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert (tmp_path / "told").is_file(), done.stderr
    found = json.loads((tmp_path / "told").read_text())
    assert found["errors"] == [], done.stderr
    assert len(found["told"]) == fit + 2, "a client waited for ever"
    assert min(one["were"] for one in found["told"]) == fit
    workers = {one["pid"]: one["sees"] for one in found["told"]}
    assert Counter(workers.values()) == on_each
