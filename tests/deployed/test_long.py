"""A hundred rounds deployed: no process grows, and what a round costs; -s prints the figures."""

import csv
import json
import subprocess
import time

import psutil
import pytest
from deployment import BIN, Deployment, words_of
from flower_runs import comparable
from small_runs import carry_out, small_config

from fedge.launch.deal import deal_into

NODES, ROUNDS = 3, 100
WARM = 20  # rounds after which nothing may grow any more
MOST_MIB, MOST_FILES = 8.0, 4  # from then on

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]


def processes(deployment):
    """Name → process of all that live as long as the run, by the program that they carry out."""
    found = {"superlink": psutil.Process(deployment.superlink.pid)}
    for child in found["superlink"].children(recursive=True):
        words = words_of(child)
        for name in ("flower-superexec", "flwr-serverapp"):
            if name in words:
                found[f"superlink/{name}"] = child
    for number, node in deployment.nodes.items():
        found[f"node-{number}"] = psutil.Process(node.pid)
        for child in found[f"node-{number}"].children(recursive=True):
            words = words_of(child)
            for name in ("flower-supernode", "flower-superexec"):
                if name in words:
                    found[f"node-{number}/{name}"] = child
    return found


def sample(there):
    """Name → (MiB resident, files open)."""
    return {name: (p.memory_info().rss / 2**20, p.num_fds()) for name, p in there.items()}


def rounds_done(folder):
    """The global rounds that a run folder has."""
    path = folder / "metrics" / "global_rounds.csv"
    return len(list(csv.DictReader(path.open()))) if path.is_file() else 0


def test_a_hundred_rounds_leave_no_process_larger(tmp_path):
    options = small_config(
        tmp_path / "data", hierarchy__num_servers=2, clients=NODES, num_server_rounds=ROUNDS,
        scaffold__levels=2,
    )  # fmt: skip
    deal_into(tmp_path / "dealt", options)
    deployment = Deployment(tmp_path, {**options, "data.path": "nowhere.npz", "runs-dir": "runs"})
    samples, folder = [], deployment.app / "runs" / "long"
    with deployment:
        deployment.register(NODES)
        for node in range(NODES):
            deployment.start_node(node, NODES, tmp_path / "dealt" / f"client-{node}")
        with (tmp_path / "run.log").open("wb") as log:
            run = subprocess.Popen(
                [str(BIN / "fedge"), "run", ".", "deployed", "-c", 'run-name="long"'],
                cwd=deployment.app, env=deployment.environment(tmp_path / "user", SEED="3"),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        while run.poll() is None:
            if (done := rounds_done(folder)) > len(samples):
                there = processes(deployment)
                samples += [sample(there)] * (done - len(samples))
                cpu = {name: sum(p.cpu_times()[:4]) for name, p in there.items()}
            time.sleep(0.5)
    assert run.returncode == 0, (tmp_path / "run.log").read_text()
    here = carry_out({**options, "runs-dir": str(tmp_path / "here")}, "here")
    assert comparable(folder)["models"] == here["models"]
    rows = list(csv.DictReader((folder / "metrics" / "global_rounds.csv").open()))
    seconds = sorted(float(row["seconds"]) for row in rows)
    print(json.dumps({"median seconds of a round": seconds[len(seconds) // 2], "slowest": seconds[-1]}))
    # the last samples may lack what was about to end
    last = next(s for s in reversed(samples) if s.keys() == samples[WARM].keys())
    for name in last:
        (warm_mib, warm_files), (mib, files) = samples[WARM][name], last[name]
        print(f"| {name} | {warm_mib:.1f} | {mib:.1f} | {warm_files} | {files} | {cpu[name]:.0f} |")
    for name in last:
        (warm_mib, warm_files), (mib, files) = samples[WARM][name], last[name]
        assert mib - warm_mib < MOST_MIB, name
        assert files - warm_files <= MOST_FILES, name
