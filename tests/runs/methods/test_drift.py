"""Groups that begin, move and end: every round is measured by its own truth, also in a run that goes on."""

import csv
import json

import pytest
from flower_runs import comparable
from small_runs import small_config

from fedge import simulate

DRIFT = {
    "num-server-rounds": 5, "hierarchy.num-servers": 4, "hierarchy.clients-per-server": "3,2,2,2",
    "scenario": "gain", "scenario-sizes": "3,1", "scenario-from": 2, "scenario-moves": "3:1",
    "scenario-until": 4, "cluster.method": "oracle", "gate.enabled": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    config = {**small_config(tmp_path_factory.mktemp("drift")), **DRIFT}
    run = simulate(config)
    assert run.status == "completed", run.reason
    return config, run.folder


def rows(folder, name):
    with (folder / name).open(newline="") as table:
        return list(csv.DictReader(table))


def test_the_oracle_is_right_in_every_round(whole):
    _, folder = whole
    planted = json.loads((folder / "manifest.json").read_text())["scenario"]
    assert planted["groups"] == [0] * 4
    assert [first for first, _ in planted["later"]] == [2, 3, 5]
    by_round = {1: planted["groups"], **dict(planted["later"])}
    by_round[4] = by_round[3]
    assert sorted(by_round[2]) == [0, 0, 0, 1]
    assert sorted(by_round[3]) == [0, 0, 1, 1]
    assert by_round[5] == [0] * 4
    assert [float(row["ari"]) for row in rows(folder, "metrics/global_rounds.csv")] == [1.0] * 5
    told = rows(folder, "metrics/leaf_rounds.csv")
    for global_round, groups in by_round.items():
        mine = [int(row["group"]) for row in told if row["global_round"] == str(global_round)]
        assert mine == groups
    assert {row["group"] for row in rows(folder, "partition.csv")} == {"0"}


def test_a_run_that_goes_on_over_a_change_has_the_same_bits(whole):
    config, folder = whole
    first = simulate({**config, "run-name": "begun", "num-server-rounds": 2})
    again = simulate({**config, "resume": str(first.folder)})
    assert again.status == "completed", again.reason
    assert comparable(again.folder) == comparable(folder)
