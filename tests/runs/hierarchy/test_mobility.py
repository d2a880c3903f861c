"""Whole runs in which clients go from leaf to leaf: tables, models, memories, control variates, resuming."""

import csv
import io
import json

import numpy as np
import pytest
from flower_runs import comparable, flwr_run
from leaf_servers import cloud
from safetensors.numpy import load_file
from small_runs import carry_out, small_config

from fedge import simulate
from fedge.algorithm import Algorithm, Sent
from fedge.config.registers.option import ConfigError
from fedge.states.checkpoint import newest_valid_checkpoint

PLAIN = {"cluster.enabled": False, "gate.enabled": False, "scaffold.enabled": False}


def moving(folder, said, rounds=4, **more):
    config = small_config(folder, **{"num-server-rounds": rounds, "hierarchy.mobility": "schedule"})
    return config | {"hierarchy.mobility-args": json.dumps({"moves": said})} | more


def chain(folder, rounds=5, **more):
    config = small_config(folder, **{"num-server-rounds": rounds, "hierarchy.mobility": "markov"})
    return config | {"hierarchy.mobility-args": '{"stay": 0.6}'} | more


def table(folder, name):
    with (folder / "metrics" / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def places(folder, global_round):
    """Leaf → its clients in a round."""
    found = {0: [], 1: [], 2: []}
    for row in table(folder, "clients"):
        if row["global_round"] == str(global_round):
            found[int(row["leaf"])].append(int(row["client"]))
    return found


def same(found, wanted):
    return [key for key in wanted if found[key] != wanted[key]] == []


def test_tables_say_who_was_where(tmp_path):
    carry_out(moving(tmp_path, "2: 4>0, 6>1; 3: 4>home"), "run")
    folder = tmp_path / "runs" / "run"
    assert places(folder, 1) == {0: [0, 1, 2], 1: [3, 4, 5], 2: [6, 7, 8]}
    assert places(folder, 2) == {0: [0, 1, 2, 4], 1: [3, 5, 6], 2: [7, 8]}
    assert places(folder, 3) == places(folder, 4) == {0: [0, 1, 2], 1: [3, 4, 5, 6], 2: [7, 8]}
    came = [
        (r["global_round"], r["client"], r["came_from"]) for r in table(folder, "clients") if r["came_from"]
    ]
    assert came == [("2", "4", "1"), ("2", "6", "2"), ("3", "4", "0")]
    counts = [
        [int(r["num_clients"]) for r in table(folder, "leaf_rounds") if r["global_round"] == n]
        for n in "1234"
    ]
    assert counts == [[3, 3, 3], [4, 3, 2], [3, 4, 2], [3, 4, 2]]
    assert "clients that came from another leaf: {4: 1, 6: 2}" in (folder / "run.log").read_text()


@pytest.mark.parametrize("scaffold", [False, True])
def test_leaves_that_swap_all_their_clients_and_swap_back_are_as_if_nobody_had_gone(tmp_path, scaffold):
    """Two leaves, one mean at the cloud: who stands under which makes no bit of difference, nor c much."""
    swap, back = (
        ", ".join(f"{client}>{int((client < 5) == there)}" for client in range(9)) for there in (True, False)
    )
    plain = PLAIN | {"scaffold.enabled": scaffold, "hierarchy.num-servers": 2}
    said = {"a": f"2: {swap}; 4: {back}", "b": "2: 0>0"}
    folders = []
    for name, moves in said.items():
        carry_out(moving(tmp_path / name, moves, **plain), "run")
        folders.append(tmp_path / name / "runs" / "run")
    assert places(folders[0], 3)[1] == [0, 1, 2, 3, 4]
    models = [load_file(folder / "checkpoints" / "final.safetensors") for folder in folders]
    for name in models[0]:
        if scaffold:
            np.testing.assert_allclose(models[0][name], models[1][name], rtol=1e-5, atol=1e-7)
        else:
            np.testing.assert_array_equal(models[0][name], models[1][name])
    if not scaffold:
        rounds = [[r["test_loss_mean"] for r in table(folder, "global_rounds")] for folder in folders]
        assert rounds[0] == rounds[1]


def test_somebody_who_goes_changes_the_models(tmp_path):
    """So that the tests above would see moves that are not made."""
    gone = carry_out(moving(tmp_path / "a", "2: 0>1", **PLAIN), "run")
    stayed = carry_out(moving(tmp_path / "b", "2: 0>0", **PLAIN), "run")
    assert gone["models"] != stayed["models"]


@pytest.mark.parametrize("plain", [PLAIN, {}, {"personal.leaf-rounds": 1, "gate.rule": "after-round"}])
def test_a_leaf_without_clients_keeps_its_model_and_takes_part_in_nothing(tmp_path, plain):
    """All of leaf 2 go in round 2, and come home in round 3; its unseen client stays."""
    said = "2: 6>0, 7>1; 3: 6>home, 7>home"
    unseen = {"partition.unseen-clients": 1, "checkpoint.models": "1,2"}
    shown = []
    carry_out(moving(tmp_path, said, **unseen, **plain), "run", show=shown.append)
    folder = tmp_path / "runs" / "run"
    assert places(folder, 2) == {0: [0, 1, 2, 6], 1: [3, 4, 5, 7], 2: [8]}
    (row,) = [r for r in table(folder, "leaf_rounds") if (r["global_round"], r["leaf"]) == ("2", "2")]
    assert (row["num_clients"], row["train_samples"], row["test_accuracy"], row["kept_model"]) == (
        "0",
        "0",
        "",
        "0",
    )
    (server,) = [r for r in table(folder, "servers") if (r["global_round"], r["path"]) == ("2", "/2")]
    assert server["uplink_bytes"] in ("", "0")
    assert server["downlink_bytes"] in ("", "0")
    if (
        "personal.leaf-rounds" not in plain
    ):  # else fine-tuned models are served, and nothing goes on with them
        before, after = (load_file(folder / "checkpoints" / f"models-{n}.safetensors") for n in (1, 2))
        own = [name for name in before if name.startswith("leaf-2/")]
        assert own
        assert all(np.array_equal(before[name], after[name]) for name in own)
        assert any(
            not np.array_equal(before[name], after[name]) for name in before if name.startswith("leaf-0/")
        )
    steps = [json.loads(line) for line in (folder / "clusters.jsonl").read_text().splitlines()]
    if not plain:
        assert [step.get("compared") for step in steps if step["round"] == 2] == [False]
    assert "leaf 2 has no clients: it keeps its model" in (folder / "run.log").read_text()
    assert "leaf 2 had no clients in 1 global round; it kept its model and did not take part" in shown[0]


EMPTIED = {
    "scaffold": {},
    "coded": {**PLAIN, "uplink.servers": "top-k", "uplink.servers-args": '{"share": 0.05}'},
    "coded every other round": {**PLAIN, "uplink.servers": "int8", "cluster.every": 2},
    "turns": {"hierarchy.selection": "power-of-choice", "hierarchy.participation": "2"},
    "at the leaf, too": {"train.algorithm": "feddyn", "scaffold.enabled": False},
    "norms": {"guard.max-norm-factor": 5.0},
}


@pytest.mark.parametrize("name", EMPTIED)
def test_a_leaf_is_as_its_clients_left_it_while_it_has_none(tmp_path, name):
    """States and facts of leaf 2 after rounds 2, 3 and 4, empty in the latter two; c is 0 without clients."""
    more = {"checkpoint.every": 1, "checkpoint.keep": 9, **EMPTIED[name]}
    carry_out(moving(tmp_path, "3: 6>0, 7>0, 8>1", **more), "run")
    found = [
        newest_valid_checkpoint(tmp_path / "runs" / "run" / "checkpoints", before=n + 1)[0] for n in (2, 3, 4)
    ]
    kept = [
        {k: s for k, s in each.groups["leaves"].items() if k.startswith("2/") and k != "2/control"}
        for each in found
    ]
    for later in kept[1:]:
        assert later.keys() == kept[0].keys()
        for kind, state in later.items():
            for entry, array in state.items():
                np.testing.assert_array_equal(array, kept[0][kind][entry], err_msg=f"{kind} {entry}")
    of_leaf = [each.facts["strategy"]["leaves"][2] for each in found]
    assert of_leaf[1] == of_leaf[2]
    assert of_leaf[0].get("sending") == of_leaf[1].get("sending")


def test_without_groups_in_force_the_cloud_waits_for_a_round_in_which_no_leaf_is_empty(tmp_path):
    carry_out(moving(tmp_path, "1: 6>0, 7>0, 8>0; 3: 6>home"), "run")
    steps = [json.loads(s) for s in (tmp_path / "runs" / "run" / "clusters.jsonl").read_text().splitlines()]
    assert [step["round"] for step in steps] == [3, 4]


def test_a_run_is_replayed_from_its_own_table(tmp_path):
    wanted = carry_out(chain(tmp_path, **{"partition.unseen-clients": 1}), "chain")
    folder = tmp_path / "runs" / "chain"
    assert sum(1 for row in table(folder, "clients") if row["came_from"]) > 3
    path = {"path": str(folder / "metrics" / "clients.csv")}
    replay = {"hierarchy.mobility": "trace", "hierarchy.mobility-args": json.dumps(path)}
    found = carry_out(chain(tmp_path, **{"partition.unseen-clients": 1}) | replay, "replayed")
    assert found == wanted


GOING_ON = {
    "scaffold": {},
    "apart": {"cluster.tau": 1.01, "gate.rule": "after-round"},
    "turns": {"hierarchy.selection": "power-of-choice", "hierarchy.participation": "2"},
    "memories": {"train.algorithm": "ditto", "scaffold.enabled": False},
    "at the leaf, too": {"train.algorithm": "feddyn", "scaffold.enabled": False},
    "virtual time": {"devices.time-rounds": True, "devices.preset": "hierfavg"},
    "norms": {"guard.max-norm-factor": 5.0},
}


@pytest.mark.parametrize("name", GOING_ON)
def test_a_run_in_parts_is_one_in_one(tmp_path, name):
    config = chain(tmp_path) | GOING_ON[name]
    wanted = carry_out(config, "whole")
    carry_out({**config, "num-server-rounds": 2}, "parts")
    carry_out({**config, "num-server-rounds": 3, "resume": str(tmp_path / "runs" / "parts")}, "parts")
    assert carry_out({**config, "resume": str(tmp_path / "runs" / "parts")}, "parts") == wanted


def test_control_variates_agree_with_those_of_the_clients_present(tmp_path):
    """Contract C6 after every round, at partial participation: c is the mean of the c_i of who is there."""
    config = chain(tmp_path, rounds=6, **{"hierarchy.participation": "2", "checkpoint.keep": 9})
    carry_out(config, "run")
    folder = tmp_path / "runs" / "run"
    windows = {int(r["client"]): int(r["train_samples"]) for r in table(folder, "clients")}
    for global_round in (2, 4, 6):
        found, _ = newest_valid_checkpoint(folder / "checkpoints", before=global_round + 1)
        assert found.global_round == global_round
        own = {int(client): state for client, state in found.groups["clients"].items()}
        for leaf, clients in enumerate(found.facts["strategy"]["places"]):
            assert clients == places(folder, global_round)[leaf]
            for name, c in found.groups["leaves"][f"{leaf}/control"].items():
                total = sum(windows[client] for client in clients)
                mean = sum(windows[i] * own[i][name] for i in clients if i in own) / max(total, 1)
                np.testing.assert_allclose(c, mean, rtol=0, atol=1e-12)


class Counting(Algorithm):
    """A client that counts its leaf rounds, and says them."""

    def start(self, client):
        return {"rounds": 0}

    def train(self, client):
        client.memory["rounds"] += 1
        if client.memory["rounds"] != client.global_round:
            raise ValueError(f"{client.memory['rounds']} rounds remembered in round {client.global_round}")
        return Sent(client.fit())


def test_a_client_takes_its_memory_along(tmp_path):
    """Its count of rounds is right in every round, wherever it is; else it would fail."""
    config = chain(tmp_path, **{"scaffold.enabled": False})
    done = simulate({**config, "run-name": "run"}, algorithm=Counting, terminal=io.StringIO())
    assert done.status == "completed", done.reason
    assert sum(1 for row in table(done.folder, "clients") if row["came_from"]) > 3
    assert all(row["train_loss"] for row in table(done.folder, "clients"))


@pytest.mark.extended
def test_ray_gives_the_same_bits(tmp_path):
    config = chain(tmp_path)
    wanted = carry_out(config, "here")
    done = flwr_run(tmp_path, {**config, "run-name": "ray"}, seed="3")
    assert done.returncode == 0, done.stdout + done.stderr
    found = comparable(tmp_path / "runs" / "ray")
    assert [key for key in found if key != "clusters" and found[key] != wanted[key]] == []


def test_leaf_servers_of_their_own_are_refused(tmp_path, certificates, address):
    telling = "^hierarchy.mobility markov needs leaf servers that are part of the run's"
    with pytest.raises(ConfigError, match=telling):
        cloud(chain(tmp_path), address, certificates)


def test_what_cannot_be_is_refused_before_anything_starts(tmp_path):
    for said, telling in (("2: 0>7", "it sends 0 to 7"), ("x", "must be rounds with clients")):
        with pytest.raises(ConfigError, match=telling):
            simulate(moving(tmp_path, said), terminal=io.StringIO())
    with pytest.raises(ConfigError, match="must be given"):
        simulate(small_config(tmp_path) | {"hierarchy.mobility": "trace"}, terminal=io.StringIO())
    assert not (tmp_path / "runs").exists()
