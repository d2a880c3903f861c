"""Kills at random points, for every method of the register: what goes on has the bytes of an unbroken run.

A kill leaves behind what its run folder holds at that moment, so copies of the folder of one run, made at
random points, are what as many kills leave.
"""

import io
import random
import shutil

import pytest
from daily import daily
from flower_runs import comparable
from small_runs import small_config

import fedge.client_app
from fedge import simulate
from fedge.config.registers.methods import methods_of
from fedge.process.background_jobs import BackgroundJob
from fedge.run.snapshot import Snapshots

pytestmark = pytest.mark.whole_runs
ROUNDS = 4
CLIENT, CLOUD = ({entry.name for entry in methods_of(tier)} for tier in ("class", "cloud"))
METHODS = sorted(CLIENT | CLOUD)
ARGUMENTS = {
    "clustered-edges": '{"clusters": 2, "warmup": 2}',
    "soft-family": '{"dial": 1.0, "warmup": 1}',
}


def config_of(folder, method):
    """Options of a run by all parts that a method has; FedAvg's with SCAFFOLD, whose variates are kept."""
    config = small_config(folder, num_server_rounds=ROUNDS, train__model="mlp-tiny", hierarchy__num_servers=3)
    config |= {"scaffold.enabled": method == "fedavg", "run-name": "run", "hierarchy.leaf-rounds": 2}
    if method in CLIENT:
        config |= {"train.algorithm": method, "hierarchy.fraction-train": 0.67}
    if method in CLOUD:
        config |= {"cluster.method": method, "cluster.method-args": ARGUMENTS.get(method, "")}
    return config


KEPT = ("memory/**/*", "metrics/client_models.csv", "metrics/memberships.csv")


class Points:
    """Points at which a run can be killed: before and after a client keeps its memory, around checkpoints."""

    def __init__(self, monkeypatch, folder):
        self.rounds, self.wanted, self.folder, self.round = [], {}, folder, 0
        keep, write = fedge.client_app.keep_memory, Snapshots.write

        def keeps(*arguments):
            self.here()
            kept = keep(*arguments)
            self.here()
            return kept

        def writes(snapshots, global_round, table):
            self.here()
            write(snapshots, global_round, table)
            self.round = global_round + 1
            self.here()

        monkeypatch.setattr(fedge.client_app, "keep_memory", keeps)
        monkeypatch.setattr(Snapshots, "write", writes)
        monkeypatch.setattr(
            BackgroundJob, "begin", lambda self, job: job()
        )  # a copy takes time, in which nothing moves

    def here(self):
        """Copy the run's folder if this point is wanted."""
        if len(self.rounds) in self.wanted:
            shutil.copytree(self.folder, self.wanted[len(self.rounds)], symlinks=True)
        self.rounds.append(self.round)


def files(folder, pattern):
    """Path → bytes of some files of a run."""
    found = [path for path in folder.glob(pattern) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def carried_out(config):
    done = simulate(config, terminal=io.StringIO(), workers=1)
    assert done.status == "completed", done.reason
    return comparable(done.folder) | {name: files(done.folder, name) for name in KEPT}


def goes_on_exactly(method, choose, folder, monkeypatch):
    """Kill at the points that `choose` takes of rounds by point; each time the bytes are those of no kill."""
    config, runs = config_of(folder, method), folder / "runs"
    with monkeypatch.context() as patch:
        points = Points(patch, runs / "run")
        whole = carried_out(config)
        rounds, points.rounds, points.round = points.rounds, [], 0
        points.wanted = {point: folder / f"killed-{point}" for point in choose(rounds)}
        shutil.rmtree(runs)
        assert carried_out(config) == whole
    assert points.rounds == rounds
    for point, left in points.wanted.items():
        shutil.rmtree(runs / "run")
        shutil.copytree(left, runs / "run", symlinks=True)
        again = {**config, "resume": str(runs / "run"), "run-name": ""}
        assert carried_out(again) == whole, f"{method} killed at point {point}, in round {rounds[point]}"


@pytest.mark.parametrize("method", daily(METHODS, ["ditto"]))
def test_a_kill_in_each_round(method, tmp_path, monkeypatch):
    def one_of_each(rounds):
        draw = random.Random(method)
        return [draw.choice([p for p, at in enumerate(rounds) if at == n]) for n in range(1, ROUNDS + 1)]

    goes_on_exactly(method, one_of_each, tmp_path, monkeypatch)


@pytest.mark.extended
@pytest.mark.parametrize("method", METHODS)
def test_twenty_kills(method, tmp_path, monkeypatch):
    def twenty(rounds):
        return random.Random(f"twenty {method}").sample([p for p, at in enumerate(rounds) if at > 0], 20)

    goes_on_exactly(method, twenty, tmp_path, monkeypatch)
