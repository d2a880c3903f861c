"""Groups, gates, rules and own layers at regions: one region under a cloud does what a cloud does."""

import csv
import io
import json

import pytest
from flower_runs import comparable
from small_runs import carry_out, small_config

from fedge import load_run, simulate
from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError

IID = {"partition.kind": "iid", "data.split": "blocks"}
ROUNDS = {"num-server-rounds": 3}
AT_REGIONS = {"cluster.tiers": "1", "gate.tiers": "1", "cloud.rule-tiers": "region"}
SAME = {
    "published": {"cluster.tau": 0.9991},
    "scaffold": {"cluster.tau": 0.9991, "scaffold.levels": 2, "hierarchy.leaf-rounds": 2},
    "ifca": {"cluster.method": "ifca", "cluster.count": "2", "gate.enabled": False},
    "trials": {
        "cluster.method": "agglomerative", "cluster.count": "auto", "cluster.signal": "affinity",
        "cluster.patience": 2, "cluster.level": 0.5, "cluster.min-gain": 0.0, "num-server-rounds": 4,
    },
    "rule": {"cloud.rule": "fedavgm", "scaffold.enabled": False, "cluster.enabled": False},
    "truth": {"cluster.method": "oracle", "scenario": "label-permutation"},
    "layers": {"personal.layers": "head", "cluster.tau": 0.9},
    "blend": {"cluster.tau": 0.9991, "cluster.blend": "auto"},
    "unseen": {
        "partition.kind": "user", "partition.unseen-clients": 1, "clients": 9, "data.split": "session",
    },
}  # fmt: skip
APART = ("ifca", "trials", "truth")  # cases that have more than one cluster
SHOWN = ("models", "clients", "confusion", "partition")


def rows(folder, table):
    with (folder / "metrics" / f"{table}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("case", SAME)
def test_one_region_that_does_all_does_what_the_cloud_does(tmp_path, case):
    """The region has nothing above it to average with: same models, same clusters, same bits."""
    config = {**small_config(tmp_path), **IID, **ROUNDS, "clients": 12, **SAME[case]}
    size = int(config["clients"]) // 3
    flat = carry_out({**config, "hierarchy.num-servers": 3}, "flat")
    deep = carry_out({**config, **AT_REGIONS, "hierarchy.tree": f"1x3x{size}"}, "deep")
    assert [name for name in SHOWN if flat[name] != deep[name]] == []
    of_region = [step for step in deep["clusters"] if step.pop("server", "/") == "/0"]
    for step in of_region:
        assert step.pop("server_round") == step["round"]
    assert of_region == flat["clusters"]
    assert case not in APART or any(step["labels"] != [0, 0, 0] for step in of_region)
    clusters, gates = (
        [[row[c] for row in rows(tmp_path / "runs" / name, "leaf_rounds")] for name in ("flat", "deep")]
        for c in ("cluster", "gate")
    )
    assert clusters[0] == clusters[1]
    assert gates[0] == gates[1]


OVERSHOOTING = """
from flwr.serverapp.strategy import FedAvg
from fedge.states.records import from_record, to_record


class Overshoots(FedAvg):
    def aggregate_train(self, server_round, replies):
        made, metrics = super().aggregate_train(server_round, replies)
        down = {n: (a - 3).astype(a.dtype) if "running_var" in n else a for n, a in from_record(made).items()}
        return to_record(down if server_round > 1 else from_record(made)), metrics
"""


@pytest.mark.parametrize(("tree", "tier"), [("3x4", "cloud"), ("2x3x2", "cloud"), ("2x3x2", "region")])
def test_no_tier_makes_a_variance_negative(tmp_path, monkeypatch, caplog, tree, tier):
    """Variances of about 1, less 3 from round 2 on: the models stay, and the log says why, as for NaN."""
    (tmp_path / "overshooting.py").write_text(OVERSHOOTING)
    monkeypatch.syspath_prepend(tmp_path)
    config = {
        **small_config(tmp_path), **IID, **ROUNDS, "clients": 12, "hierarchy.tree": tree,
        "train.model": "cnn", "scaffold.enabled": False, "cluster.enabled": False, "gate.enabled": False,
        "cloud.rule": "overshooting:Overshoots", "cloud.rule-tiers": tier,
    }  # fmt: skip
    shown = []
    carry_out(config, "run", shown.append)
    assert "note: cloud.rule failed in 2 global rounds, first in round 2: leaves kept" in " ".join(
        shown[0].split()
    )
    warned = [line for line in caplog.messages if "cloud.rule cannot combine the models of children" in line]
    per_round = 2 if tier == "region" else 1  # regions
    assert len(warned) == per_round * (config["num-server-rounds"] - 1)
    assert all("running_var' of a group's model, a variance, would be" in line for line in warned)
    model = load_run(tmp_path / "runs" / "run").models()[0]
    variances = [array for name, array in model.items() if name.endswith("running_var")]
    assert variances
    assert min(array.min() for array in variances) >= 0


TWO = {
    **IID, "clients": 12, "num-server-rounds": 4, "hierarchy.tree": "2x3x2", "hierarchy.region-rounds": "2",
    "cluster.method": "agglomerative", "cluster.count": "2", "cluster.tiers": "1", "gate.enabled": False,
    "cloud.rule": "fedavgm", "cloud.rule-tiers": "0", "scaffold.enabled": False,
}  # fmt: skip


def test_every_region_groups_its_own_leaves_in_every_round_of_its_own(tmp_path):
    """Two rounds of two regions in each of the cloud's, which takes its rule's model of both."""
    carry_out({**small_config(tmp_path), **TWO, "num-server-rounds": 2}, "two")
    folder = tmp_path / "runs" / "two"
    steps = [json.loads(line) for line in (folder / "clusters.jsonl").read_text().splitlines()]
    where = [(step["round"], step.get("server", "/"), step.get("server_round")) for step in steps]
    assert where == [
        (1, "/", None), (1, "/0", 1), (1, "/1", 1), (1, "/0", 2), (1, "/1", 2),
        (2, "/", None), (2, "/0", 3), (2, "/1", 3), (2, "/0", 4), (2, "/1", 4),
    ]  # fmt: skip
    assert [step["method"] for step in steps[:2]] == ["off", "agglomerative"]
    newest = {step["server"]: step["labels"] for step in steps if "server" in step}
    last = [row for row in rows(folder, "servers") if row["global_round"] == "2"]
    for server, labels in newest.items():
        below = [row for row in last if row["path"].startswith(f"{server}/")]
        assert [int(row["cluster"]) for row in below] == labels
    clusters = [int(row["cluster"]) for row in rows(folder, "leaf_rounds") if row["global_round"] == "2"]
    assert not set(clusters[:3]) & set(clusters[3:])  # regions' clusters are different ones
    run = load_run(folder)
    assert run.clusters.height == 2
    assert run.inner_clusters["server"].to_list() == ["/0", "/1"] * 4
    assert run.problems == []


def test_a_run_with_groups_at_regions_goes_on_exactly(tmp_path):
    config = {**small_config(tmp_path), **TWO, "checkpoint.every": 1}
    wanted = carry_out(config, "whole")
    carry_out({**config, "num-server-rounds": 2}, "half")
    resumed = {**config, "resume": str(tmp_path / "runs" / "half")}
    again = simulate(resumed, terminal=io.StringIO())
    assert again.status == "completed", again.reason
    found = comparable(again.folder)
    assert [key for key in found if key != "clusters" and found[key] != wanted[key]] == []


def test_an_offer_of_a_region_is_tried_for_a_round(tmp_path):
    """Leaves take it tentatively and train their own line beside it; the next round of the region decides."""
    after = {"gate.rule": "after-round", "gate.tiers": "1", "cluster.tiers": "1", "cluster.tau": 0.5}
    config = {**small_config(tmp_path), **IID, "clients": 12, "hierarchy.tree": "2x3x2", **after}
    carry_out({**config, "hierarchy.region-rounds": "2"}, "after")
    gates = {row["gate"] for row in rows(tmp_path / "runs" / "after", "leaf_rounds")}
    assert gates & {"accepted", "rejected"}


def test_regions_try_the_cloud_s_offers_for_a_round(tmp_path):
    after = {"gate.rule": "after-round", "cluster.enabled": False, "num-server-rounds": 4}
    carry_out({**small_config(tmp_path), **IID, "clients": 12, "hierarchy.tree": "2x3x2", **after}, "after")
    servers = rows(tmp_path / "runs" / "after", "servers")
    gates = [row["gate"] for row in servers if row["tier"] == "1"]
    assert gates[:2] == ["off", "off"]
    assert set(gates[2:]) <= {"accepted", "rejected", "off"}
    assert set(gates[2:]) & {"accepted", "rejected"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cluster.tiers": "2"}, "cluster.tiers must name tiers of servers over servers"),
        ({"gate.tiers": "leaf"}, "gate.tiers must name tiers of servers over servers"),
        ({"cluster.count": "auto", "cluster.method": "agglomerative", "cluster.signal": "affinity",
          "cluster.patience": 2}, "a trial of new groups takes forks of leaves"),
        ({"cluster.method": "ifca", "cluster.count": "2", "cluster.tiers": "1", "gate.enabled": False},
         "servers above would replace the models"),
        ({"gate.rule": "after-round", "gate.tiers": "1"}, "must still be there after it"),
        ({"gate.rule": "after-round", "cluster.tiers": "0,1"}, "must still be there after it"),
        ({"cluster.count": "4", "cluster.method": "agglomerative", "cluster.tiers": "1"},
         r"at most the children of a region \(hierarchy\.tree\)"),
    ],
)  # fmt: skip
def test_tiers_that_cannot_be_are_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        from_run_config({"hierarchy.tree": "4x3x2", **options})
