"""Runs on a Ray cluster whose machines see nothing of the server's files: three nodes in namespaces."""

import csv
import json
import shutil

import polars as pl
import pytest
from flower_runs import ROOT, SMALL, comparable, write_overrides
from ray_cluster import is_possible, run_on_cluster
from ray_cut import run_and_cut

from fedge import load_run, simulate
from fedge.timing.calls import PARTS

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not is_possible(), reason="this machine allows no namespaces"),
]

MACHINES = {"", "127.0.0.3", "127.0.0.4"}  # the server's, and two that are elsewhere
CONFIG = {**SMALL, "num-server-rounds": 2, "seed": 5}


@pytest.fixture(scope="module")
def in_process(tmp_path_factory):
    """The same run on threads of this process."""
    folder = tmp_path_factory.mktemp("in-process")
    with (folder / "terminal.txt").open("w") as terminal:
        config = {**CONFIG, "runs-dir": str(folder), "run-name": "whole"}
        return simulate(config, num_supernodes=9, terminal=terminal).folder


def project(tmp_path):
    """Make a project's folder, which no other node sees."""
    shutil.copyfile(ROOT / "pyproject.toml", tmp_path / "pyproject.toml")
    shutil.copyfile(ROOT / "README.md", tmp_path / "README.md")
    return tmp_path


def words(tmp_path, **more):
    overrides = write_overrides(tmp_path, {**CONFIG, "run-name": "cluster", **more})
    return ["run", "--engine", "flower", "-c", overrides]


def test_nodes_without_a_common_file_system_give_the_same_bits(tmp_path, in_process):
    """Windows come through the object store, models in messages; all three work, by clocks of their own."""
    done = run_on_cluster(project(tmp_path), *words(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path / "runs" / "cluster"
    assert comparable(folder) == comparable(in_process)
    run = load_run(folder)
    assert run.workers["worker"].n_unique() == 3
    assert {one or "" for one in run.workers["machine"]} == MACHINES
    held = {(row["role"], row["machine"] or "") for row in run.memory.iter_rows(named=True)}
    assert held == {
        ("server", ""),
        ("other", ""),
        *((role, one) for role in ("worker", "ray") for one in MACHINES),
    }
    ended = run.messages["received"] - run.messages.select(pl.sum_horizontal("began", *PARTS)).to_series()
    assert (ended.min(), (run.messages["began"] - run.messages["pushed"]).min()) >= (-1e-3, -1e-3)
    assert set(run.memory.filter(pl.col("role") == "worker")["fds"] > 0) == {True}
    assert json.loads((folder / "manifest.json").read_text())["status"] == "completed"


@pytest.mark.parametrize(
    "method",
    [
        {"train.algorithm": "ditto", "evaluate.every": 1},
        {"uplink.clients": "top-k", "uplink.clients-args": '{"share": 0.25}'},
    ],
    ids=["ditto", "uplink"],
)
def test_memories_go_through_messages_to_files_of_the_server(tmp_path, method):
    """A client works now on this machine, now on that; the run goes on in process, from the same files."""
    method = {**method, "scaffold.enabled": False, "checkpoint.every": 1}
    done = run_on_cluster(project(tmp_path), *words(tmp_path, **method))
    assert done.returncode == 0, done.stdout + done.stderr
    here = {**CONFIG, **method, "runs-dir": str(tmp_path / "here"), "run-name": "whole"}
    whole = simulate(here, num_supernodes=9)
    folder = tmp_path / "runs" / "cluster"
    assert comparable(folder) == comparable(whole.folder)
    files = {file.relative_to(folder): file.read_bytes() for file in (folder / "memory").rglob("*.*")}
    assert len(files) >= 9
    assert files == {
        file.relative_to(whole.folder): file.read_bytes() for file in (whole.folder / "memory").rglob("*.*")
    }
    more = {"num-server-rounds": 3}
    again = simulate({**here, **more, "resume": str(folder), "run-name": ""}, num_supernodes=9)
    three = simulate({**here, **more, "run-name": "three"}, num_supernodes=9)
    assert comparable(again.folder)["models"] == comparable(three.folder)["models"]


def lost(tmp_path, lose, **more):
    """Carry out a run that loses one of its three nodes at work; returns its folder, exit code and output."""
    long = {"num-server-rounds": 6, "train.local-epochs": 8}
    done = run_on_cluster(project(tmp_path), *words(tmp_path, **long, **more), lose=lose, timeout=500)
    assert "node lost after global round" in done.stdout, done.stdout + done.stderr
    return tmp_path / "runs" / "cluster", done.returncode, done.stdout + done.stderr


def column(folder, table, name):
    """A column of a table of a run, as text."""
    return [row[name] for row in csv.DictReader((folder / table).open())]


def test_a_node_that_dies_at_work_costs_a_try_and_one_that_comes_gets_its_workers(tmp_path):
    """Its client is tried again elsewhere; two nodes go on; Ray starts its worker anew on another machine."""
    folder, code, said = lost(tmp_path, "and back")
    assert code == 0, said
    workers = column(folder, "timing.csv", "workers")
    assert (workers[0], workers[-1]) == ("3", "3"), workers
    assert "2" in workers
    assert set(column(folder, "metrics/global_rounds.csv", "clients_failed")) == {"0"}
    whole = {**CONFIG, "num-server-rounds": 6, "train.local-epochs": 8, "runs-dir": str(tmp_path / "here")}
    assert comparable(folder) == comparable(simulate(whole, num_supernodes=9, workers=2).folder)


def test_a_node_that_joins_a_healthy_run_gets_work_and_changes_no_bit(tmp_path):
    """Three nodes at first; the fourth comes after round 1, and clients train there."""
    long = {"num-server-rounds": 80, "train.local-epochs": 2}
    done = run_on_cluster(project(tmp_path), *words(tmp_path, **long), lose="joins", timeout=550)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path / "runs" / "cluster"
    run = load_run(folder)
    assert {one or "" for one in run.workers["machine"]} == {*MACHINES, "127.0.0.5"}
    assert column(folder, "timing.csv", "workers")[0] == "3"
    assert column(folder, "timing.csv", "workers")[-1] == "4"
    assert set(column(folder, "metrics/global_rounds.csv", "clients_failed")) == {"0"}
    whole = {**CONFIG, **long, "runs-dir": str(tmp_path / "here")}
    assert comparable(folder) == comparable(simulate(whole, num_supernodes=9, workers=2).folder)


def test_without_retries_a_node_that_dies_costs_the_client_that_it_had_at_work(tmp_path):
    """Only in that one exchange; nobody after it is given to a worker that is gone."""
    folder, code, said = lost(tmp_path, "for good", **{"guard.retries": 0})
    assert code == 3, said
    failed = column(folder, "metrics/global_rounds.csv", "clients_failed")
    assert sorted(failed) == ["0"] * 5 + ["1"], failed
    assert "worker died" in " ".join(column(folder, "metrics/global_rounds.csv", "failures"))
    assert column(folder, "timing.csv", "workers")[-1] == "2"


def test_a_client_over_its_time_on_another_machine_is_named_so(tmp_path, monkeypatch):
    """Its worker ends itself, and what it says then stays on its machine: the server knows by the time."""
    file = project(tmp_path) / "pyproject.toml"
    text = file.read_text()
    assert "fedge.client_app:app" in text
    file.write_text(text.replace("fedge.client_app:app", "tests.support.liars.faulty_client:app"))
    monkeypatch.setenv("FEDGE_FAULTS", json.dumps([{"what": "hang", "client": 1, "rounds": [2]}]))
    done = run_on_cluster(tmp_path, *words(tmp_path, **{"guard.client-timeout": 10.0, "guard.retries": 0}))
    assert done.returncode == 3, done.stdout + done.stderr
    table = "metrics/global_rounds.csv"
    assert column(tmp_path / "runs" / "cluster", table, "failures") == ["", "no reply 1"]
    said = "client 1 failed, first in round 2: no reply within 10 s, which is guard.client-timeout"
    assert said in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("back_after_s", "workers_at_end"), [(None, "2"), (15.0, "23"), (80.0, "2")],
    ids=["for good", "for a while", "for longer than Ray waits"],
)  # fmt: skip
def test_a_machine_that_is_cut_off_without_a_word_costs_time_and_a_try(
    tmp_path, back_after_s, workers_at_end
):
    """Ray misses its heartbeats; then its client is tried again, and two machines go on.

    One that is back before goes on, unless a reply was lost meanwhile; later, Ray does not know it any more.
    """
    long = {"num-server-rounds": 6, "train.local-epochs": 8}
    done = run_and_cut(project(tmp_path), *words(tmp_path, **long), back_after_s=back_after_s)
    said = done.stdout + done.stderr
    assert "cut off after global round" in said
    assert done.returncode == 0, said
    folder = tmp_path / "runs" / "cluster"
    assert set(column(folder, "metrics/global_rounds.csv", "clients_failed")) == {"0"}
    slowest = max(map(float, column(folder, "timing.csv", "total")))
    assert 14 < slowest < 200, said  # a reply that is lost in a short cut is missed after 30 to 90 s
    workers = column(folder, "timing.csv", "workers")
    assert workers[0] == "3", workers
    assert workers[-1] in workers_at_end, workers
    whole = {**CONFIG, **long, "runs-dir": str(tmp_path / "here")}
    assert comparable(folder) == comparable(simulate(whole, num_supernodes=9, workers=2).folder)
