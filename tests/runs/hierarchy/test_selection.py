"""Whole runs in which not all clients train: who did is in the tables; same bits wherever they run."""

import csv
import json

import pytest
from flower_runs import comparable, flwr_run
from leaf_servers import cloud, in_threads
from small_runs import carry_out, small_config

from fedge import simulate
from fedge.config.registers.option import ConfigError

TURNS = {"hierarchy.selection": "power-of-choice", "hierarchy.participation": "1: all; 2: 2,1,1; 4: 0.34"}


def asked_in(folder, global_round):
    with (folder / "metrics" / "clients.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["global_round"] == str(global_round)]
    assert all(row["train_loss"] == "" for row in rows if row["asked"] == "0")
    return [int(row["client"]) for row in rows if row["asked"] != "0"]


def test_tables_say_who_was_to_train(tmp_path):
    """Leaf 0 has clients 0 to 2, and so on."""
    config = small_config(tmp_path, **{"num-server-rounds": 4}) | TURNS
    carry_out(config, "run")
    folder = tmp_path / "runs" / "run"
    assert asked_in(folder, 1) == list(range(9))
    for global_round, counts in ((2, [2, 1, 1]), (3, [2, 1, 1]), (4, [1, 1, 1])):
        found = asked_in(folder, global_round)
        assert [sum(client // 3 == leaf for client in found) for leaf in range(3)] == counts


def test_round_robin_goes_round(tmp_path):
    config = small_config(tmp_path, **{"num-server-rounds": 3, "hierarchy.participation": "1"})
    carry_out(config | {"hierarchy.selection": "round-robin", "hierarchy.leaf-rounds": 2}, "run")
    folder = tmp_path / "runs" / "run"
    wanted = [[0, 1, 3, 4, 6, 7], [0, 2, 3, 5, 6, 8], [1, 2, 4, 5, 7, 8]]
    assert [asked_in(folder, r) for r in (1, 2, 3)] == wanted


def test_a_part_of_one_s_own(tmp_path, monkeypatch):
    (tmp_path / "my_choice.py").write_text(
        "def last(clients, turn, step=1):\n    return clients.ids[-turn.count * step:]\n\n\n"
        "def falling(global_round, leaf, clients):\n    return 3 if global_round == 1 else 1\n"
    )
    monkeypatch.chdir(tmp_path)
    own = {"hierarchy.selection": "my_choice:last", "hierarchy.participation": "my_choice:falling"}
    carry_out(small_config(tmp_path) | own, "run")
    folder = tmp_path / "runs" / "run"
    assert asked_in(folder, 1) == list(range(9))
    assert asked_in(folder, 2) == [2, 5, 8]
    assert set(own) <= set(json.loads((folder / "manifest.json").read_text())["parts"])


def test_a_selection_that_lies_during_a_run_ends_it_in_one_line(tmp_path, monkeypatch):
    (tmp_path / "my_lie.py").write_text(
        "def lie(clients, turn):\n    return clients.ids if turn.leaf_round < 5 else [99]\n"
    )
    monkeypatch.chdir(tmp_path)
    config = small_config(tmp_path, **{"num-server-rounds": 6, "hierarchy.selection": "my_lie:lie"})
    outcome = simulate({**config, "run-name": "run"})
    assert outcome.status == "failed"
    assert "it returned 99, which is none of [0, 1, 2]; fix it" in outcome.reason
    assert "\n" not in outcome.reason


def test_one_that_does_not_fit_is_refused_before_anything_starts(tmp_path):
    config = small_config(tmp_path, **{"hierarchy.selection": "round-robin"})
    with pytest.raises(ConfigError, match="candidates"):
        simulate(config | {"hierarchy.selection-args": '{"candidates": 2}'})
    with pytest.raises(ConfigError, match=r"participation-args must be empty"):
        simulate(config | {"hierarchy.participation-args": '{"last": 2}'})
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", ["power-of-choice", "without-reuse", "by-size"])
def test_leaf_servers_choose_the_same_clients(tmp_path, certificates, address, name):
    changes = {
        "num-server-rounds": 4,
        "hierarchy.participation": "1: all; 2: 2,1,1",
        "hierarchy.selection": name,
    }
    config = small_config(tmp_path) | changes
    wanted = carry_out(config, "here")
    with in_threads(address, certificates, tmp_path):
        outcome, _ = cloud({**config, "run-name": "there"}, address, certificates)
    assert outcome.status == "completed", outcome.reason
    found = comparable(outcome.folder)
    assert [key for key in found if key != "clusters" and found[key] != wanted[key]] == []


@pytest.mark.extended
def test_ray_gives_the_same_bits(tmp_path):
    config = small_config(tmp_path, **{"num-server-rounds": 4}) | TURNS
    wanted = carry_out(config, "here")
    done = flwr_run(tmp_path, {**config, "run-name": "ray"}, seed="3")
    assert done.returncode == 0, done.stdout + done.stderr
    found = comparable(tmp_path / "runs" / "ray")
    assert [key for key in found if key != "clusters" and found[key] != wanted[key]] == []


@pytest.mark.parametrize("name", ["power-of-choice", "round-robin"])
def test_a_run_in_two_parts_goes_on_with_the_turns(tmp_path, name):
    changes = {"num-server-rounds": 5, "hierarchy.participation": "1", "hierarchy.selection": name}
    config = small_config(tmp_path) | changes
    wanted = carry_out(config, "whole")
    carry_out({**config, "num-server-rounds": 2}, "parts")
    assert carry_out({**config, "resume": str(tmp_path / "runs" / "parts")}, "parts") == wanted
