"""Whole runs under trees of any depth: what regions must not change, kills at every tier, any cut."""

import csv
import os
import signal

import pytest
from flower_runs import comparable, without, write_overrides
from killed_runs import start, times_gone_on, uninterrupted
from leaf_servers import cloud, in_threads
from small_runs import carry_out, small_config

from fedge.cli import main
from fedge.states.checkpoint import checkpoints

PLAIN = {"cluster.enabled": False, "gate.enabled": False, "partition.kind": "iid", "data.split": "blocks"}
DEEP = {
    **PLAIN, "hierarchy.tree": "2x2x2x2", "hierarchy.region-rounds": "2,1", "hierarchy.leaf-rounds": 2,
    "scaffold.levels": 4, "clients": 16,
}  # fmt: skip
FLAT_TOO = ("models", "clients", "confusion", "partition")


def rows(folder, table):
    with (folder / "metrics" / f"{table}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_regions_that_change_nothing_change_no_bit(tmp_path):
    """3 × 3 × 3: one round of regions, no grouping, no gate; the flat run has nine leaves under one cloud."""
    config = {**small_config(tmp_path), **PLAIN, "clients": 27}
    flat = carry_out({**config, "hierarchy.num-servers": 9}, "flat")
    deep = carry_out({**config, "hierarchy.tree": "3x3x3"}, "deep")
    assert [name for name in FLAT_TOO if flat[name] != deep[name]] == []
    served = ("leaf", "cluster", "test_accuracy", "test_loss", "macro_f1", "train_samples")  # not the gate's
    flat_rows, deep_rows = ([[row[c] for c in served] for row in without(r["leaf"])] for r in (flat, deep))
    assert flat_rows == deep_rows
    moved = carry_out({**config, "hierarchy.tree": "3x3x3", "hierarchy.region-rounds": "2"}, "moved")
    assert moved["models"] != deep["models"]


@pytest.mark.extended
def test_on_hhar_s_clients_regions_that_change_nothing_change_no_bit(tmp_path, shared_data):
    """27 clients of the nine users, on unequal numbers of windows; the network has BatchNorm."""
    config = {
        **small_config(tmp_path), **PLAIN, "train.model": "cnn", "clients": 27,
        "data.path": str(shared_data / "hhar-9users" / "hhar-9users-128x3.npz"),
    }  # fmt: skip
    flat = carry_out({**config, "hierarchy.num-servers": 9}, "flat")
    deep = carry_out({**config, "hierarchy.tree": "3x3x3"}, "deep")
    assert [name for name in FLAT_TOO if flat[name] != deep[name]] == []


def test_depth_four_by_configuration_alone(tmp_path):
    """Regions of two tiers, SCAFFOLD on four levels, clusters of the cloud's children, gates at those."""
    clusters = {"cluster.enabled": True, "gate.enabled": True, "cluster.tau": 0.5}
    config = {**small_config(tmp_path), **DEEP, **clusters, "partition.unseen-clients": 0}
    carry_out(config, "deep")
    folder = tmp_path / "runs" / "deep"
    servers = rows(folder, "servers")
    last = [row for row in servers if row["global_round"] == "2"]
    assert [row["path"] for row in last[:5]] == ["/", "/0", "/0/0", "/0/0/0", "/0/0/1"]
    assert [row["name"] for row in last[:4]] == ["cloud", "region-1", "region-2", "leaf"]
    assert {row["gate"] for row in last if row["tier"] == "1"} <= {"accepted", "rejected"}
    assert {row["gate"] for row in last if row["tier"] != "1"} == {""}
    assert [row["num_clients"] for row in last[:4]] == ["16", "8", "4", "2"]
    for row in rows(folder, "global_rounds"):
        there = [s for s in servers if s["global_round"] == row["global_round"] and s["uplink_bytes"]]
        for way in ("uplink_bytes", "downlink_bytes"):
            assert sum(int(server[way]) for server in there) == int(row[f"cloud_{way}"])
    leaves = [row["test_score"] for row in last if row["tier"] == "3"]
    of_leaves = [row["test_accuracy"] for row in rows(folder, "leaf_rounds") if row["global_round"] == "2"]
    assert leaves == of_leaves


def test_two_tiers_have_servers_too(tmp_path):
    carry_out(small_config(tmp_path), "flat")
    first = rows(tmp_path / "runs" / "flat", "servers")[:4]
    assert [(row["path"], row["tier"], row["name"]) for row in first] == [
        ("/", "0", "cloud"), ("/0", "1", "leaf"), ("/1", "1", "leaf"), ("/2", "1", "leaf")
    ]  # fmt: skip


KILLS = (  # where a process kills itself once a global round is done: at a leaf, at regions, at the cloud
    ("leaf.leaf", "Leaf", "aggregate_train", (0, 1, 1), 4),
    ("cloud.region", "Region", "combine", (1, 0), 2),
    ("cloud.region", "Region", "combine", (1,), 2),
    ("rounds.server_round", "ServerRounds", "hold_if_due", (), 1),
)
GROUPED = {  # servers over leaves group them, and have a rule and gates
    **DEEP, "cluster.enabled": True, "cluster.method": "agglomerative", "cluster.count": "2",
    "gate.enabled": True, "cluster.tiers": "2", "gate.tiers": "0,2", "cloud.rule": "fedavgm",
    "cloud.rule-tiers": "0,1",
    "scaffold.levels": 1,
}  # fmt: skip
KILLS_AT_GROUPS = (
    ("rounds.server_round", "ServerRounds", "combine", (1, 0), 2),
    ("rounds.server_round", "ServerRounds", "combine", (1,), 2),
    ("rounds.gates", "Gates", "decide", (), 10),
)
KILL = """
import os, signal
from fedge.{module} import {kind} as kind
original, calls = kind.{name}, []
def killed(self, *args, **kwargs):
    if getattr(self, 'path', ()) == {path}:
        calls.append(1)
        if len(calls) > {per_round}:
            os.kill(os.getpid(), signal.SIGKILL)
    return original(self, *args, **kwargs)
kind.{name} = killed
"""


@pytest.mark.extended
@pytest.mark.parametrize(
    ("tree", "kills"), [(DEEP, KILLS), (GROUPED, KILLS_AT_GROUPS)], ids=["means", "groups"]
)
def test_killed_at_every_tier_it_goes_on_exactly(tmp_path, tree, kills):
    """A tree of depth 4 of whose processes some kill themselves, each at another tier."""
    config = {**small_config(tmp_path), **tree, "num-server-rounds": 6, "run-name": "killed"}
    words = ["run", ".", "-c", write_overrides(tmp_path, config)]
    folder = tmp_path / "runs" / "killed"
    for module, kind, name, path, per_round in kills:
        code = KILL.format(module=module, kind=kind, name=name, path=path, per_round=per_round)
        process = start(code, *words)
        output, _ = process.communicate(timeout=900)
        assert process.returncode == -signal.SIGKILL, output
        assert checkpoints(folder / "checkpoints")
        words = ["resume", str(folder)]
    assert main(["resume", str(folder)]) == 0
    assert times_gone_on(folder) == len(kills)
    assert comparable(folder) == comparable(uninterrupted(tmp_path, config))


MEANS = {"hierarchy.tree": "((3,3),(3))", "hierarchy.region-rounds": "2", "scaffold.levels": 3}
TRIALS = {
    "hierarchy.tree": "1x3x3", "cluster.tiers": "1", "cluster.method": "agglomerative",
    "cluster.count": "auto",
    "cluster.signal": "affinity", "cluster.patience": 2, "cluster.level": 0.5, "cluster.min-gain": 0.0,
    "num-server-rounds": 4,
}  # fmt: skip


@pytest.mark.parametrize("shape", [MEANS, TRIALS], ids=["means", "trials of groups at a region"])
def test_a_tree_cut_into_processes_makes_the_same_bits(tmp_path, certificates, address, shape):
    """Its three leaves are leaf servers of their own; regions are part of the cloud's process."""
    config = {**small_config(tmp_path), "gate.enabled": False, **shape}
    wanted = carry_out(config, "here")
    with in_threads(address, certificates, tmp_path):
        outcome, _ = cloud({**config, "run-name": "there"}, address, certificates)
    assert outcome.status == "completed", outcome.reason
    found = comparable(outcome.folder)
    assert [key for key in found if key != "clusters" and found[key] != wanted[key]] == []


@pytest.mark.extended
def test_both_engines_make_the_same_bits(tmp_path):
    config = {**small_config(tmp_path), **DEEP}
    wanted = carry_out(config, "here")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    overrides = write_overrides(tmp_path, {**config, "run-name": "ray"})
    assert main(["run", ".", "--engine", "flower", "-c", overrides]) == 0
    found = comparable(tmp_path / "runs" / "ray")
    assert [key for key in found if key != "clusters" and found[key] != wanted[key]] == []
