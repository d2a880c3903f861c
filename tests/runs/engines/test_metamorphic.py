"""Changes without effect: where a run is carried out, clients' names, who answers first or breaks.

Eight configurations (tests/support/crashes/crash_runs.py), each against an undisturbed run in a process of
its own.
"""

import io
import json
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from crash_runs import BASE, CLIENTS, CONFIGURATIONS, comparable, write_data
from daily import daily
from flower_runs import start, write_overrides
from support_folders import PYTHONPATH

from fedge import simulate
from fedge.client_app import app as client_app
from fedge.engine.inprocess import InProcessGrid
from fedge.run.run import run
from hhar.windows.window_file import load_windows, save_windows

ROUNDS = 4
# loads what a run loads, then carries out every configuration in a process that has done no other
ALONE = """
import json, os, sys
sys.path[:0] = sys.argv[1].split(os.pathsep)
import crash_runs, fedge.run.run, torch
torch.set_num_threads(1)
for name in crash_runs.CONFIGURATIONS:
    config = {**crash_runs.BASE, **crash_runs.CONFIGURATIONS[name], **json.loads(sys.argv[2])}
    config["run-name"] = name
    code, said = crash_runs.forked(lambda: crash_runs.carry_out(config).status)
    assert (code, said) == (0, "completed"), said
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "windows.npz"
    write_data(path)
    return path


@pytest.fixture(scope="module")
def alone(tmp_path_factory, data):
    """Results of each configuration with a process for itself."""
    runs = tmp_path_factory.mktemp("alone")
    more = {"num-server-rounds": ROUNDS, "runs-dir": str(runs), "data.path": str(data)}
    subprocess.run([sys.executable, "-c", ALONE, PYTHONPATH, json.dumps(more)], check=True, timeout=900)
    return {name: results(runs / name) for name in CONFIGURATIONS}


def results(folder, but=()):
    """Results of a run that must be equal in equal runs."""
    found = comparable(folder)
    found["manifest.json"] = {
        key: value
        for key, value in found["manifest.json"].items()
        if key not in ("config", "federation", *but)
    }
    return found


def config_of(name, runs, data, **changes):
    return {
        **BASE, **CONFIGURATIONS[name], "num-server-rounds": ROUNDS, "runs-dir": str(runs),
        "data.path": str(data), "run-name": name, **changes,
    }  # fmt: skip


def carry_out(name, runs, data, **changes):
    ended = simulate(config_of(name, runs, data, **changes), clients=CLIENTS, terminal=io.StringIO())
    assert ended.status == "completed", ended.reason
    return ended.folder


@pytest.mark.parametrize("order", [
    pytest.param(3, id="some"),
    pytest.param(1, id="forwards", marks=pytest.mark.extended),
    pytest.param(-1, id="backwards", marks=pytest.mark.extended),
])  # fmt: skip
def test_runs_of_one_process_are_those_of_many(tmp_path, data, alone, order):
    """One after the other, each with its own number of workers: nothing of a run stays for the next."""
    for number, name in enumerate(list(CONFIGURATIONS)[::order]):
        config = config_of(name, tmp_path, data)
        simulate(config, clients=CLIENTS, workers=1 + number % 3, terminal=io.StringIO())
        assert results(tmp_path / name) == alone[name]


def test_runs_side_by_side_in_threads_are_those_of_many_processes(tmp_path, data, alone):
    with ThreadPoolExecutor(4) as pool:
        folders = dict(
            zip(CONFIGURATIONS, pool.map(lambda n: carry_out(n, tmp_path, data), CONFIGURATIONS), strict=True)
        )
    for name, folder in folders.items():
        assert results(folder) == alone[name]


def until(last, name):
    """Options of a run that ends with round `last`: models can be kept of its own rounds only."""
    kept = CONFIGURATIONS[name].get("checkpoint.models", "").split(",")
    models = [part for part in kept if not part.isdigit() or int(part) <= last]
    return {"num-server-rounds": last, "checkpoint.models": ",".join(models)}


@pytest.mark.parametrize("name", daily(CONFIGURATIONS, list(CONFIGURATIONS)[::3]))
def test_a_break_after_every_round_changes_nothing(tmp_path, data, alone, name):
    """Round by round, each in a run that goes on; what every last round does is done in all of them."""
    more = {"personal.every": 1} if name == "fedge" else {"checkpoint.every": 1}
    folder = carry_out(name, tmp_path, data, **until(1, name), **more)
    for last in range(2, ROUNDS + 1):
        carry_out(name, tmp_path, data, resume=str(folder), **until(last, name), **more)
    found = results(folder)
    if name == "fedge":
        alone = {name: results(carry_out(name, tmp_path / "whole", data, **more))}
    assert found.pop("files") == [
        file.replace("round-000002", "round-000003") for file in alone[name]["files"]
    ]
    assert found == {key: value for key, value in alone[name].items() if key != "files"}


class Shuffled(InProcessGrid):
    """Nodes that have other ids, and whose replies are handed in one by one, in any order."""

    in_order = False

    def __init__(self, *words):
        super().__init__(*words)
        self._rng = random.Random(7)
        ids = self._rng.sample(range(1, 2**62), len(self._contexts))
        for node_id, context in zip(ids, self._contexts.values(), strict=True):
            context.node_id = node_id
        self._contexts = {context.node_id: context for context in self._contexts.values()}

    def get_node_ids(self):
        return self._rng.sample(list(self._contexts), len(self._contexts))

    def pull_messages(self, message_ids):
        wanted = set(message_ids)
        with self._arrived:
            there = sorted(self._replies.keys() & wanted)
            if self._num_pending or not there:
                return []
            return [self._replies.pop(self._rng.choice(there))]


@pytest.mark.parametrize("name", daily(CONFIGURATIONS, list(CONFIGURATIONS)[::3]))
def test_other_nodes_and_any_order_of_replies_change_nothing(tmp_path, data, alone, name):
    config = config_of(name, tmp_path, data)
    with Shuffled(client_app, CLIENTS, config, 3) as grid:
        outcome = run(grid, config, "inprocess", {"num-supernodes": CLIENTS}, lambda _: io.StringIO())
    assert outcome.status == "completed"
    assert results(outcome.folder, but=("engine",)) == {**alone[name], "manifest.json": {
        k: v for k, v in alone[name]["manifest.json"].items() if k != "engine"
    }}  # fmt: skip


@pytest.mark.parametrize("name", daily(CONFIGURATIONS, list(CONFIGURATIONS)[::3]))
def test_other_names_of_users_change_names_alone(tmp_path, data, alone, name):
    """Names in the same order, since users are dealt by it."""
    windows = load_windows(data)
    other = {user: f"Q{number}-{user}é" for number, user in enumerate(np.unique(windows.user))}
    renamed = replace(windows, user=np.array([other[user] for user in windows.user]))
    path = save_windows(tmp_path / "windows.npz", renamed)
    found, expected = results(carry_out(name, tmp_path, path), ("data", "outputs")), dict(alone[name])
    for user, new in other.items():
        found["partition.csv"] = found["partition.csv"].replace(new.encode(), user.encode())
    expected["manifest.json"] = {
        k: v for k, v in expected["manifest.json"].items() if k not in ("data", "outputs")
    }
    assert found == expected


@pytest.mark.extended
def test_on_ray_a_break_and_any_order_of_replies_change_nothing(tmp_path, data, alone):
    """Two rounds on Ray, where replies come as they come; one in this process; the last on Ray again."""
    name, backend = "partial", {"client-resources": {"num-cpus": max(1, os.cpu_count() // 2)}}
    backend["init-args"] = {"log-to-driver": False}

    def on_ray(**changes):
        config = config_of(name, tmp_path, data, **changes)
        words = ["--app", ".", "--num-supernodes", str(CLIENTS), "--backend-config", json.dumps(backend)]
        overrides = write_overrides(tmp_path, config)
        process = start("flower-simulation", *words, "--run-config", overrides, seed=str(BASE["seed"]))
        assert process.returncode == 0, process.stdout + process.stderr

    folder = tmp_path / name
    on_ray(**until(2, name))
    carry_out(name, tmp_path, data, resume=str(folder), **until(3, name))
    on_ray(resume=str(folder))
    but = ("engine", "seed_source")
    expected = {k: v for k, v in alone[name]["manifest.json"].items() if k not in but}
    found = results(folder, but)
    assert found == {**alone[name], "manifest.json": expected, "files": found["files"]}
