"""Clients that evaluate and train in one exchange: the bits are those of two, whatever fails on the way."""

import csv
import io
import json

import pytest
from flower_runs import comparable, flwr_run
from flwr.app import Context, Message
from small_runs import USERS, carry_out, small_config
from timing_sums import read

from fedge import simulate
from fedge.client_app import app as client_app
from fedge.engine.inprocess import InProcessGrid
from fedge.exchange.engine import RunError
from fedge.exchange.joint import is_joint
from fedge.rounds import transport as transports
from fedge.rounds.transport import Transport
from fedge.run.run import run

ROUNDS = 3
OFF = {"gate__enabled": False, "num_server_rounds": ROUNDS}
CONFIGS = {
    "gate off": OFF,
    "sampled, unseen clients": {
        **OFF, "hierarchy__fraction_train": 0.67, "hierarchy__leaf_rounds": 2, "partition__unseen_clients": 1,
    },
    "two levels, models in files": {
        **OFF, "scaffold__levels": 2, "cluster__tau": -1.0, "transfer__spill_above_mb": 0.0,
    },
    "server optimiser": {**OFF, "leaf__strategy": "fedadam", "scaffold__enabled": False},
    "clipping norm of the leaf": {
        **OFF, "scaffold__enabled": False, "privacy__kind": "client-adaptive",
        "privacy__noise_multiplier": 0.2,
    },
    "one leaf, nothing offered": {"hierarchy__num_servers": 1, "num_server_rounds": ROUNDS},
}  # fmt: skip


@pytest.fixture
def asked(monkeypatch):
    """Counts exchanges with joint questions."""
    found, send = [], Transport.evaluate_and_train

    def counted(transport, messages):
        found.append(sum(map(is_joint, messages)))
        return send(transport, messages)

    monkeypatch.setattr(Transport, "evaluate_and_train", counted)
    return found


def apart(monkeypatch):
    """Let no training be short enough."""
    monkeypatch.setattr(transports, "_SOON_S", -1.0)


@pytest.mark.parametrize("name", CONFIGS)
def test_one_exchange_gives_the_bits_of_two(tmp_path, monkeypatch, asked, name):
    config = small_config(tmp_path, **CONFIGS[name])
    joint = carry_out(config, "joint")
    trains = {"sampled, unseen clients": 3}.get(name, len(USERS))
    assert asked == [trains] * (ROUNDS - 1)
    apart(monkeypatch)
    assert carry_out(config, "apart") == joint
    assert len(asked) == ROUNDS - 1


@pytest.mark.extended
def test_on_ray_the_bits_are_those_in_process(tmp_path):
    config = small_config(tmp_path, **CONFIGS["sampled, unseen clients"])
    process = flwr_run(tmp_path, {**config, "runs-dir": str(tmp_path / "ray")}, seed="3")
    folder = tmp_path / "ray" / "latest"
    assert (folder / "manifest.json").is_file(), process.stdout + process.stderr
    assert process.returncode == 0
    sums = [row["messages"] for row in read(folder / "timing" / "workers.csv") if row["global_round"] == 3]
    assert sum(sums) == 3 + 9  # its second leaf round, and the evaluation
    here = simulate({**config, "run-name": "here"}, terminal=io.StringIO())
    assert comparable(folder) == comparable(here.folder)


NEVER = {
    "a gate": {"num_server_rounds": 2, "gate__min_gain": -1.0, "cluster__tau": -1.0},
    "a callback": {**OFF, "callbacks": "early-stopping"},
    "personal models": {**OFF, "personal__leaf_rounds": 1, "personal__every": 1},
    "several offers": {**OFF, "cluster__blend": "auto", "cluster__tau": 1.01},
}


@pytest.mark.parametrize("name", NEVER)
def test_where_somebody_waits_for_the_evaluation_it_comes_first(tmp_path, asked, name):
    carry_out(small_config(tmp_path, **NEVER[name]), "apart")
    assert asked == []


def test_a_run_that_stops_in_a_joint_exchange_goes_on_with_the_same_bits(tmp_path, monkeypatch):
    """It stops before round 2 has its row: rounds 2 and 3 are made again, on one worker."""
    config, send = small_config(tmp_path, **OFF), Transport.evaluate_and_train
    whole = simulate({**config, "run-name": "whole"}, terminal=io.StringIO())

    def stopping(transport, messages):
        if transport.book.global_round == 2:
            raise RunError("the engine is gone")
        return send(transport, messages)

    monkeypatch.setattr(Transport, "evaluate_and_train", stopping)
    stopped = simulate({**config, "run-name": "parts"}, terminal=io.StringIO())
    assert (stopped.status, stopped.reason) == ("failed", "the engine is gone")
    assert {row["global_round"] for row in table(stopped.folder, "global_rounds")} == {"1"}
    monkeypatch.setattr(Transport, "evaluate_and_train", send)
    again = simulate({**config, "resume": str(stopped.folder)}, terminal=io.StringIO(), workers=1)
    assert again.status == "completed"
    assert comparable(again.folder) == comparable(whole.folder)


@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_a_client_that_fails_does_so_in_the_same_round(tmp_path, monkeypatch, kind):
    """Client 4 cannot train for round 2, or cannot evaluate what round 2 made: its rows are as ever."""

    def failing(message: Message, context: Context) -> Message:
        config = message.content["config"]
        of_kind = message.metadata.message_type == kind or (kind == "evaluate" and is_joint(message))
        round_ = config.get("global_round", 0) - (kind == "evaluate" and is_joint(message))
        if of_kind and context.node_config["partition-id"] == 4 and round_ == 2:
            raise RuntimeError("sensor unplugged")
        return client_app(message, context)

    def outcome(name):
        config = {**small_config(tmp_path, **OFF), "run-name": name}
        with InProcessGrid(failing, len(USERS), config, 2) as grid:
            ended = run(grid, config, "inprocess", {}, lambda _: io.StringIO())
        assert ended.status == "partial"
        failed = [row["clients_failed"] for row in table(ended.folder, "global_rounds")]
        assert failed == ["0", "1", "0"]
        return comparable(ended.folder)

    joint = outcome("joint")
    apart(monkeypatch)
    assert outcome("apart") == joint


def table(folder, name):
    with (folder / "metrics" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_times_add_up_where_rounds_share_an_exchange(tmp_path):
    """Round 1 trains, evaluates and trains for round 2; the last one evaluates only."""
    ended = simulate({**small_config(tmp_path, **OFF)}, terminal=io.StringIO())
    timing, workers = read(ended.folder / "timing.csv"), read(ended.folder / "timing" / "workers.csv")
    messages = dict.fromkeys((1, 2, 3), 0)
    for row in workers:
        messages[int(row["global_round"])] += row["messages"]
    assert messages == {1: 18, 2: 9, 3: 9}
    assert timing[0]["timeline_train"] > timing[1]["timeline_train"] * 0.1 > 0
    assert timing[2]["timeline_train"] == 0
    assert min(row["timeline_evaluate"] for row in timing) > 0
    assert json.loads((ended.folder / "manifest.json").read_text())["status"] == "completed"
