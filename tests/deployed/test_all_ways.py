"""One configuration in all ways, the same bits: nine clients, SCAFFOLD, clusters by `fedge`, unseen clients.

`pytest -m soak -s tests/deployed/test_all_ways.py` prints the tables of docs/machines.md: the sha256 of
final.safetensors for each way, seconds of a round in the middle, and which processes there are, with the most
memory that one of a kind took (MiB resident); then the same of stock Flower (tests/support/deployments/stock)
and of Fedge with its work: FedAvg of nine clients under one server, who train and evaluate once a round. The
newest Flower is that of `make matrix`, or of FEDGE_NEWEST_FLOWER, a Python. Seconds are of use on an idle
machine alone.
"""

import csv
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest
from flower_runs import ROOT, write_overrides
from leaves_of_nodes import Leaves
from machines_apart import run_apart
from ray_cluster import is_possible, run_on_cluster
from small_runs import carry_out, small_config
from stock_flower import on_ray, on_supernodes

from fedge import load_run
from fedge.launch.deal import deal_into
from fedge.launch.projects.project import read_config

CLIENTS, ROUNDS = 9, 3
NEWEST = Path(os.environ.get("FEDGE_NEWEST_FLOWER") or ROOT / "build" / "flower-newest" / "bin" / "python")

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """The options, a folder, and way → sha256; at the end the table is printed."""
    folder = tmp_path_factory.mktemp("ways")
    options = {
        **small_config(folder / "data", num_server_rounds=ROUNDS), **read_config("fedge:fedge", "fedge"),
        "cluster.level": 0.5, "scenario": "label-permutation", "scenario-sizes": "2,1",
        "partition.unseen-clients": 1, "guard.start-timeout": 600.0,
    }  # fmt: skip
    with watched() as seen:
        here = in_process(folder, options)
    found = {"in process": (digest(here), seconds_of(here), told(seen))}
    yield options, folder, found
    print(
        "\n| way | sha256 of final.safetensors | s per round | processes: number × MiB |\n|---|---|---|---|"
    )
    for way, row in found.items():
        print(f"| {way} | `{row[0][:16]}…` | {row[1]:.2f} | {row[2]} |")


def digest(folder):
    """The sha256 of a run's models."""
    return hashlib.sha256((folder / "checkpoints" / "final.safetensors").read_bytes()).hexdigest()


def seconds_of(folder):
    """The seconds of a global round, the one in the middle."""
    rows = csv.DictReader((folder / "metrics" / "global_rounds.csv").open())
    return statistics.median(float(row["seconds"]) for row in rows)


KINDS = (
    "flwr-serverapp", "flower-superexec", "flower-superlink", "flower-supernode", "flwr-clientapp",
    "flower-simulation", "flwr-simulation", "flwr run", "fedge leaf", "fedge.cli leaf", "fedge node",
    "fedge.cli node", "fedge run", "fedge.cli run", "ClientAppActor", "raylet", "gcs_server",
)  # fmt: skip


@contextmanager
def watched():
    """Look at this process and all below it; gives kind → (most at a time, most MiB of one)."""
    seen, over = {}, threading.Event()

    def look():
        while not over.wait(0.5):
            now = {}
            for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
                with suppress(psutil.Error):
                    words = "this test" if process.pid == os.getpid() else " ".join(process.cmdline())
                    kind = next((kind for kind in KINDS if kind in words), words if "test" in words else "")
                    now.setdefault(kind, []).append(process.memory_info().rss / 2**20)
            for kind, sizes in now.items():
                count, most = seen.get(kind, (0, 0.0))
                seen[kind] = max(count, len(sizes)), max(most, *sizes)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield seen
    finally:
        over.set()
        looking.join()


def told(seen):
    """Counts and seconds of a way as text; the test itself counts where it carries the run out."""
    kinds = [kind for kind in KINDS if kind in seen] or ["this test"]
    return ", ".join(f"{kind} {seen[kind][0]} × {seen[kind][1]:.0f}" for kind in kinds if kind in seen)


def in_process(folder, options):
    """The run that all others are compared with; it finds two groups of leaves."""
    carry_out({**options, "runs-dir": str(folder / "here")}, "here")
    steps = (folder / "here" / "here" / "clusters.jsonl").read_text().splitlines()
    assert len(set(json.loads(steps[-1])["labels"])) > 1, steps[-1]
    return folder / "here" / "here"


def on(python, *words, folder, options):
    """Carry out `fedge run` with the Flower of another Python, or of this one."""
    folder.mkdir()
    shutil.copyfile(ROOT / "pyproject.toml", folder / "pyproject.toml")
    shutil.copyfile(ROOT / "README.md", folder / "README.md")
    overrides = write_overrides(folder, {**options, "runs-dir": str(folder / "runs"), "run-name": "there"})
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "FLWR_TELEMETRY_ENABLED": "0"}
    environment |= {"RAY_USAGE_STATS_ENABLED": "0"}
    environment.pop("SEED", None)
    done = subprocess.run(
        [str(python), "-m", "fedge.cli", "run", *words, "-c", overrides], cwd=folder, env=environment,
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "runs" / "there"


def on_three_ray_nodes(folder, options, python=sys.executable):
    """Three raylets in namespaces, which see no file of each other."""
    folder.mkdir()
    shutil.copyfile(ROOT / "pyproject.toml", folder / "pyproject.toml")
    shutil.copyfile(ROOT / "README.md", folder / "README.md")
    overrides = write_overrides(folder, {**options, "runs-dir": str(folder / "runs"), "run-name": "there"})
    done = run_on_cluster(folder, "run", "--engine", "flower", "-c", overrides, python=python)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "runs" / "there"


def on_machines(folder, options, python=sys.executable):
    """A SuperLink with TLS and authentication, nodes in namespaces that see nothing of it."""
    folder.mkdir()
    deal_into(folder / "dealt", {**options, "clients": CLIENTS})
    assert run_apart(folder, options, CLIENTS, "there", python) == 0, (folder / "run.log").read_text()
    return folder / "app" / "runs" / "there"


def on_leaves(folder, options, of_nodes, python=sys.executable):
    """Three leaf servers as processes, whose clients are SuperNodes or threads."""
    given = {**options, "clients": CLIENTS}
    with Leaves(folder, given, CLIENTS, leaves=3, of_nodes=of_nodes, python=python) as there:
        code = there.run("there").wait(900)
        assert code == 0, there.said("run-there")
    return folder / "runs" / "there"


RAY = ("--engine", "flower")
WAYS = {
    "Ray": partial(on, sys.executable, *RAY),
    "in process, newest Flower": partial(on, NEWEST),
    "Ray, newest Flower": partial(on, NEWEST, *RAY),
    "three leaf servers, clients in threads": partial(on_leaves, of_nodes=False),
    "three leaf servers, a SuperLink with TLS and keys each": partial(on_leaves, of_nodes=True),
    "Ray cluster of three nodes that share no files": on_three_ray_nodes,
    "SuperLink with TLS and keys, nodes that share no files": on_machines,
    "three leaf servers, clients in threads, newest Flower": partial(
        on_leaves, of_nodes=False, python=NEWEST
    ),
    "three leaf servers, a SuperLink with TLS and keys each, newest Flower": partial(
        on_leaves, of_nodes=True, python=NEWEST
    ),
    "Ray cluster of three nodes that share no files, newest Flower": partial(
        on_three_ray_nodes, python=NEWEST
    ),
    "SuperLink with TLS and keys, nodes that share no files, newest Flower": partial(
        on_machines, python=NEWEST
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_all_ways_give_the_same_models(given, way):
    options, folder, found = given
    if "newest" in way and not NEWEST.exists():
        pytest.skip(f"{NEWEST} is not there; make matrix makes it")
    if "no files" in way and not is_possible():
        pytest.skip("this machine allows no namespaces")
    place = folder / way.replace(" ", "-").replace(",", "")
    with watched() as seen:
        there = WAYS[way](folder=place, options=options)
    found[way] = digest(there), seconds_of(there), told(seen)
    assert found[way][0] == found["in process"][0]
    if way.startswith("SuperLink"):
        assert_nodes_have_told(there)


def assert_nodes_have_told(folder):
    """Every node is a machine with what it measured of itself in each round, and one worker of the run."""
    run = load_run(folder)
    machines = {f"client {client}" for client in range(CLIENTS)}
    rounds = run.memory["global_round"].n_unique()
    held = Counter(zip(run.memory["role"], run.memory["machine"], strict=True))
    assert held[("server", None)] == rounds
    assert {machine for _, machine in held} == {None, *machines}
    assert {held[("worker", one)] for one in machines} == {rounds}
    assert {held[("node", one)] for one in machines} == {3 * rounds}  # fedge node, SuperNode, SuperExec
    assert set(run.workers["machine"]) == machines
    assert run.workers["worker"].n_unique() == CLIENTS


# --- beside stock Flower ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The options of FedAvg under one server, a folder, and who → figures; the table is printed last."""
    folder, found = tmp_path_factory.mktemp("stock"), {}
    options = small_config(folder / "data", num_server_rounds=PLAIN_ROUNDS, hierarchy__num_servers=1)
    yield {**options, "gate.enabled": False, "guard.start-timeout": 600.0}, folder, found
    print("\n| the same work | s per round | processes: number × MiB |\n|---|---|---|")
    for who, (seconds, processes) in found.items():
        print(f"| {who} | {seconds:.2f} | {processes} |")


def fedge_seconds(way):
    """Function that carries a way out and returns its seconds of a round."""
    return lambda folder, options: seconds_of(way(folder=folder, options=options))


def stock_seconds(way):
    """The same of a way of stock Flower."""
    return lambda folder, options: way(folder, options, CLIENTS, PLAIN_ROUNDS)


PLAIN_ROUNDS = 4
BESIDE = {
    "stock Flower, simulation on Ray": stock_seconds(on_ray),
    "Fedge on Ray": fedge_seconds(WAYS["Ray"]),
    "Fedge in process": fedge_seconds(partial(on, sys.executable)),
    "stock Flower, SuperLink and `flower-supernode`": stock_seconds(on_supernodes),
    "Fedge, SuperLink and `fedge node`": fedge_seconds(on_machines),
}


@pytest.mark.parametrize("who", BESIDE)
def test_stock_flower_with_the_same_work(plain, who):
    """Its figures beside Fedge's; it has other bits, as its windows are not scaled and its draws its own."""
    options, folder, found = plain
    if "fedge node" in who and not is_possible():
        pytest.skip("this machine allows no namespaces")
    place = folder / "".join(letter for letter in who if letter.isalnum())
    with watched() as seen:
        if "stock" in who:
            place.mkdir()
        seconds = BESIDE[who](place, options)
    found[who] = seconds, told(seen)
    assert seconds > 0
