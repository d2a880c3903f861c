"""Families of models in whole runs: gates, blends, unseen clients, layers, corrections, resumed exactly."""

import io
import json
import re

import numpy as np
import polars as pl
import pytest
from flower_runs import comparable, flwr_run
from small_runs import small_config

from fedge import simulate
from fedge.clustering import CloudPart, Family
from fedge.config.registers.groupings import GROUPINGS
from fedge.config.registers.option import ConfigError
from fedge.config.registers.traits import BY_TIME

pytestmark = pytest.mark.whole_runs
PARTS = ["phefl", "clustered-edges", "soft-family", "tested-family", "esperhfl"]
ARGUMENTS = {
    "clustered-edges": '{"clusters": 2, "warmup": 2}',
    "soft-family": '{"dial": 1.0, "warmup": 1}',
}


class Halves(CloudPart):
    """Two models: leaf 0 has all of the first, the last all of the second, others halves."""

    def group(self, cloud):
        cloud.memory["steps"] = cloud.memory.get("steps", 0) + 1
        shares = np.full((len(cloud.models), 2), 0.5)
        shares[0], shares[-1] = [1, 0], [0, 1]
        return Family(shares, facts={"steps": int(cloud.memory["steps"])})


def config_of(folder, **changes):
    usual = {"train__model": "mlp-tiny", "hierarchy__num_servers": 3, "scaffold__enabled": False}
    return small_config(folder, **{**usual, **changes})


def carried_out(config, name, **parts):
    done = simulate({**config, "run-name": name}, terminal=io.StringIO(), **parts)
    assert done.status == "completed", done.reason
    return done


def goes_on_exactly(config, **parts):
    """Two rounds and then two more are four in one go; returns the run of four."""
    config = {**config, "num-server-rounds": 4, "checkpoint.every": 1}
    whole = carried_out(config, "whole", **parts)
    begun = carried_out({**config, "num-server-rounds": 2}, "begun", **parts)
    again = simulate({**config, "resume": str(begun.folder), "run-name": ""}, terminal=io.StringIO(), **parts)
    assert again.status == "completed", again.reason
    assert comparable(again.folder) == comparable(whole.folder)
    return whole


@pytest.mark.parametrize("method", PARTS)
def test_models_in_files_are_counted_as_those_in_memory(method, tmp_path):
    """Also where a leaf's own model is among those that its clients are asked about: it is not sent."""
    arguments = {"cluster.method-args": ARGUMENTS.get(method, "")}
    config = config_of(tmp_path, cluster__method=method, gate__enabled=False) | arguments
    in_memory = carried_out(config, "memory")
    in_files = carried_out({**config, "transfer.spill-above-mb": 0.0}, "files")
    assert comparable(in_files.folder) == comparable(in_memory.folder)
    assert in_files.servers.equals(in_memory.servers)


@pytest.mark.parametrize("method", PARTS)
def test_a_method_goes_on_exactly_after_a_stop(method, tmp_path):
    arguments = ARGUMENTS.get(method, "")
    goes_on_exactly(config_of(tmp_path, cluster__method=method, cluster__method_args=arguments))


OPTIONS = {
    "no gate": {"gate__enabled": False},
    "a blend": {"cluster__blend": 0.5},
    "blends": {"cluster__blend": "auto"},
    "layers": {"personal__layers": "head"},
    "unseen clients": {"partition__unseen_clients": 1},
    "corrections": {"scaffold__enabled": True, "scaffold__levels": 2},
    "a rule": {"cloud__rule": "fedavgm", "cloud__rule_args": '{"server_momentum": 0.5}'},
    "a tree": {"hierarchy__num_servers": 3, "hierarchy__tree": "3x1x3"},
    "algorithm": {"train__algorithm": "ditto"},
}


@pytest.mark.parametrize("what", OPTIONS)
def test_families_go_with_everything_else(what, tmp_path):
    """Each option changes what a run computes, and the run goes on exactly after a stop."""
    whole = goes_on_exactly(config_of(tmp_path, **OPTIONS[what]), grouping=Halves)
    steps = [json.loads(line) for line in (whole.folder / "clusters.jsonl").read_text().splitlines()]
    assert [step["steps"] for step in steps] == [1, 2, 3, 4]
    assert steps[0]["memberships"] == [[1, 0], [0.5, 0.5], [0, 1]]
    assert steps[0]["labels"] == [0, 0, 1]


def test_the_table_has_models_memberships_and_entropies(tmp_path):
    """Three leaves, two models, two rounds; the report has its picture."""
    done = carried_out(config_of(tmp_path, num_server_rounds=2, report=True), "run", grouping=Halves)
    assert done.memberships.height == 2 * 3 * 2
    second = done.memberships.filter((pl.col("leaf") == 1) & (pl.col("global_round") == 2))
    assert second["membership"].to_list() == [0.5, 0.5]
    assert second["models"].to_list() == [2, 2]
    assert second["entropy"].to_list() == pytest.approx([np.log(2)] * 2)
    assert "Memberships of the leaves" in (done.folder / "report.html").read_text()


def test_one_model_is_the_mean_of_all_leaves(tmp_path):
    """K = 1 and Π = 1: the bits of a run without clusters."""

    class One(CloudPart):
        def group(self, cloud):
            return Family(np.ones((len(cloud.models), 1)))

    family = carried_out(config_of(tmp_path, num_server_rounds=3), "family", grouping=One)
    mean = carried_out(config_of(tmp_path, num_server_rounds=3, cluster__enabled=False), "mean")
    for one, other in zip(family.models(), mean.models(), strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in other)


def test_hard_memberships_are_hard_clusters(tmp_path):
    """Π of zeros and ones: the bits of the labels."""

    class Hard(CloudPart):
        def group(self, cloud):
            return Family(np.array([[1.0, 0], [0, 1.0], [1.0, 0]]))

    class Labels(CloudPart):
        def group(self, cloud):
            return [0, 1, 0]

    for levels in (1, 2):
        config = config_of(
            tmp_path,
            num_server_rounds=3,
            scaffold__enabled=True,
            scaffold__levels=levels,
            gate__enabled=False,
        )
        hard = carried_out(config, f"hard-{levels}", grouping=Hard)
        labels = carried_out(config, f"labels-{levels}", grouping=Labels)
        for one, other in zip(hard.models(), labels.models(), strict=True):
            for name in other:
                np.testing.assert_allclose(one[name], other[name], rtol=1e-5, atol=1e-6)


def wrong(shares, first):
    class Wrong(CloudPart):
        def group(self, cloud):
            right = cloud.global_round < first
            return Family(np.eye(len(cloud.models)) if right else np.array(shares, dtype=float))

    return Wrong


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ([[1.0], [1.0]], r"of shape \(2, 1\)"),
        ([[0.5, 0.4], [1, 0], [0, 1]], "row 0 that sums to 0.9"),
        ([[2, -1], [1, 0], [0, 1]], "negative or not finite"),
    ],
)
def test_memberships_that_cannot_be_are_one_line(shares, words, tmp_path):
    """Before the run, whose trial has two rounds, or at its end."""
    with pytest.raises(ConfigError, match=words):
        simulate(config_of(tmp_path), grouping=wrong(shares, first=2))
    config = config_of(tmp_path, num_server_rounds=3)
    done = simulate(config, terminal=io.StringIO(), grouping=wrong(shares, first=3))
    assert done.status == "failed"
    assert re.search(words, done.reason), done.reason


def test_a_class_that_is_no_part_of_the_cloud_is_refused(tmp_path):
    class Nothing:
        pass

    with pytest.raises(ConfigError, match=r"derived from fedge\.clustering\.CloudPart"):
        simulate(config_of(tmp_path), terminal=io.StringIO(), grouping=Nothing)


def test_every_part_of_the_cloud_is_carried_out_here():
    assert set(PARTS) <= {
        e.name for e in GROUPINGS if e.code.startswith("fedge.methods") and BY_TIME in e.traits
    }


@pytest.mark.extended
@pytest.mark.parametrize("method", PARTS)
def test_ray_gives_the_same_bits(method, tmp_path):
    config = config_of(tmp_path, cluster__method=method, cluster__method_args=ARGUMENTS.get(method, ""))
    whole = carried_out(config, "whole")
    done = flwr_run(tmp_path, {**config, "run-name": "ray"}, seed="3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert comparable(tmp_path / "runs" / "ray") == comparable(whole.folder)
