"""The exchange in which clients evaluate other leaves' models, and probes, on the in-process engine."""

import csv
import io
import json

import numpy as np
import pytest
import torch
from flwr.app import Context, Message

from fedge.client_app import app as client_app
from fedge.clustering.likeness.similarity import number_by_first_appearance
from fedge.data.prepared import open_client
from fedge.engine.inprocess import InProcessGrid
from fedge.exchange.content import ARRAYS, CONTROL
from fedge.exchange.evaluate import splits_to_evaluate
from fedge.exchange.round_context import RoundContext
from fedge.exchange.train import TRAIN
from fedge.run.run import run
from fedge.states.records import record_bytes
from fedge.timing.laps import PHASES
from fedge.training.evaluation import evaluate
from fedge.training.networks.models import build_model
from fedge.training.networks.module_state import load_state, tensor_of

TINY = {
    "report": False,
    "data.path": "synthetic",
    "train.model": "mlp-tiny",
    "train.local-epochs": 1,
    "seed": 5,
    "num-server-rounds": 1,
    "gate.enabled": False,
    "cluster.signal": "cross-loss",
    "cluster.method": "agglomerative",
    "cluster.tau": -1.0,
}


def watched_run(
    tmp_path, watch=lambda message, context: None, engine="inprocess", clients=9, terminal=None, **changes
):
    """Run TINY; `watch` sees every message. Returns the run folder."""
    config = {**TINY, "runs-dir": str(tmp_path / "runs"), **changes}

    def app(message: Message, context: Context) -> Message:
        watch(message, context)
        return client_app(message, context)

    with InProcessGrid(app, clients, config, 1) as grid:
        outcome = run(grid, config, engine, {}, lambda _: terminal or io.StringIO())
    assert outcome.folder is not None
    return outcome.folder


def clusters(folder):
    return [json.loads(line) for line in (folder / "clusters.jsonl").read_text().splitlines()]


def rows(folder, table):
    with (folder / table).open(newline="") as file:
        return list(csv.DictReader(file))


def leaf_models(message):
    """The leaves' models that a message asks to evaluate, by record name."""
    return [name for name in message.content if name.startswith("model/leaf-")]


def client_of(context):
    return int(context.node_config["partition-id"])


def test_losses_are_those_of_the_models_on_validation_windows(tmp_path):
    """Every number of the matrix, computed anew from the models and windows that clients were sent."""
    models, windows, seen = {}, {}, {}

    def watch(message, context):
        for name in leaf_models(message):
            models[int(name[-1])] = {n: a.numpy().copy() for n, a in message.content[name].items()}
        if leaf_models(message):
            data = open_client(RoundContext.from_message(message).data_folder, client_of(context))
            windows[client_of(context)] = [np.array(part) for part in data.val]
            seen[client_of(context)] = (splits_to_evaluate(message), len(leaf_models(message)))

    matrix = clusters(watched_run(tmp_path, watch))[0]["cross_loss"]
    assert seen == {client: (["val"], 3) for client in range(9)}
    shape = windows[0][0].shape
    network = build_model("mlp-tiny", shape[1:], len(models[0]["head.bias"]), torch.Generator())
    for i, model in models.items():
        load_state(network, model)
        for j in range(3):
            x, y = (np.concatenate([windows[c][part] for c in range(3 * j, 3 * j + 3)]) for part in (0, 1))
            assert matrix[i][j] == pytest.approx(evaluate(network, tensor_of(x), tensor_of(y)).loss, rel=1e-6)


def test_the_exchange_is_counted_in_bytes_and_time(tmp_path):
    """Nine clients get three models each, beyond what they get without it."""
    model_bytes = []

    def watch(message, _):
        model_bytes.extend(record_bytes(message.content[name]) for name in leaf_models(message))

    folder = watched_run(tmp_path / "with", watch)
    plain = watched_run(tmp_path / "without", **{"cluster.signal": "weights"})
    sent = sum(model_bytes)
    assert len(model_bytes) == 27
    assert clusters(folder)[0]["exchange_bytes"] == sent
    bytes_with, bytes_without = (
        int(rows(f, "metrics/global_rounds.csv")[0]["downlink_bytes"]) for f in (folder, plain)
    )
    assert bytes_with - bytes_without == sent
    timing = rows(folder, "timing.csv")[0]
    assert float(timing["cluster"]) > 0.001
    assert sum(float(timing[phase]) for phase in PHASES) == pytest.approx(float(timing["total"]), abs=1e-6)


def test_the_exchange_takes_place_only_when_a_cloud_step_is_due(tmp_path):
    rounds = []

    def watch(message, _):
        if leaf_models(message):
            rounds.append(RoundContext.from_message(message).global_round)

    watched_run(tmp_path, watch, **{"num-server-rounds": 4, "cluster.start-round": 2, "cluster.every": 2})
    assert sorted(rounds) == [2] * 9 + [4] * 9


def test_unseen_clients_take_no_part(tmp_path):
    asked = set()

    def watch(message, context):
        if leaf_models(message):
            asked.add(client_of(context))

    watched_run(tmp_path, watch, **{"partition.unseen-clients": 1})
    assert asked == {0, 1, 3, 4, 6, 7}


def test_large_models_go_as_tickets(tmp_path, monkeypatch):
    """Through files that clients map: the same matrix, and no array in any message."""
    in_messages = clusters(watched_run(tmp_path / "a"))
    monkeypatch.setattr("fedge.states.state_files.MEMORY", tmp_path)
    arrays = []

    def watch(message, _):
        arrays.extend(name for name in leaf_models(message) if hasattr(message.content[name], "numpy"))

    shared = watched_run(tmp_path / "b", watch, engine="flower", **{"transfer.share-above-mb": 0.0001})
    assert clusters(shared) == in_messages
    assert arrays == []


def test_a_client_that_fails_leaves_the_rest_to_evaluate(tmp_path):
    """Its leaf's column is of the other two clients; the failure is counted."""

    def watch(message, context):
        if leaf_models(message) and client_of(context) == 4:
            raise RuntimeError("no battery")

    folder = watched_run(tmp_path, watch, **{"guard.retries": 0})
    (step,) = clusters(folder)
    assert np.isfinite(np.array(step["cross_loss"], float)).all()
    assert rows(folder, "metrics/global_rounds.csv")[0]["clients_failed"] == "1"


def test_a_leaf_whose_clients_all_fail_leaves_the_clusters_as_they_are(tmp_path):
    def watch(message, context):
        if leaf_models(message) and client_of(context) in (3, 4, 5):
            raise RuntimeError("no battery")

    (step,) = clusters(watched_run(tmp_path, watch, **{"guard.retries": 0}))
    assert step["skipped"] == "no client of leaf 1 has evaluated the models"
    assert [row[1] for row in step["cross_loss"]] == [None] * 3
    assert step["labels"] == [0, 0, 0]


def test_probes_leave_no_trace_but_what_is_compared(tmp_path):
    """From round 2 on leaves start apart (every leaf a cluster); rounds 3 and 5 have a probe.

    Its messages have no control variates, and all carry the mean of the leaves' models. The models of the run
    are those of a run without probes.
    """
    starts = {}

    def watch(message, context):
        if message.metadata.message_type == TRAIN and CONTROL not in message.content:
            starts.setdefault(RoundContext.from_message(message).global_round, []).append(
                message.content[ARRAYS]["head.weight"].numpy().copy()
            )

    changes = {"num-server-rounds": 5, "cluster.tau": 100.0, "hierarchy.leaf-rounds": 2}
    probed = watched_run(tmp_path / "a", watch, **changes, **{"cluster.probe-every": 2})
    plain = watched_run(tmp_path / "b", **changes)
    assert sorted(starts) == [3, 5]
    assert all(len(heads) == 9 and (np.array(heads) == heads[0]).all() for heads in starts.values())
    assert [step.get("probe", False) for step in clusters(probed)] == [False, False, True, False, True]
    assert [step["common_start"] for step in clusters(probed)] == [True, False, True, False, True]
    assert [step["common_start"] for step in clusters(plain)] == [True] + [False] * 4
    final = "checkpoints/final.safetensors"
    assert (probed / final).read_bytes() == (plain / final).read_bytes()


AUTO = {
    "cluster.signal": "affinity", "cluster.count": "auto", "cluster.level": 0.05, "cluster.patience": 2,
}  # fmt: skip
PLANTED = {"scenario": "label-permutation", "hierarchy.num-servers": 4, "num-server-rounds": 3}


def test_a_trial_leaves_no_trace_but_what_it_says(tmp_path):
    """In round 2 all twelve clients train twice: their leaf's model and the mean of its proposed cluster.

    Forks of a split that fails train on in round 3, for a second look. It changes no bit of the models.
    """
    lines = []

    def watch(message, _):
        if message.metadata.message_type == TRAIN:
            round_context = RoundContext.from_message(message)
            lines.append((round_context.global_round, round_context.line))

    changes = {**AUTO, **PLANTED}
    tried = watched_run(tmp_path / "a", watch, clients=12, **changes, **{"cluster.min-gain": 9.0})
    plain = watched_run(tmp_path / "b", clients=12, **{**changes, "cluster.patience": 9})
    assert {line: lines.count(line) for line in set(lines)} == {
        (1, "leaf"): 12, (2, "leaf"): 12, (2, "trial"): 12, (3, "leaf"): 12, (3, "trial"): 12,
    }  # fmt: skip
    assert ["trial" in step for step in clusters(tried)] == [False, True, True]
    final = "checkpoints/final.safetensors"
    assert (tried / final).read_bytes() == (plain / final).read_bytes()
    up, down = (
        [int(rows(f, "metrics/global_rounds.csv")[1][f"cloud_{way}_bytes"]) for f in (tried, plain)]
        for way in ("uplink", "downlink")
    )
    assert up[0] == 2 * up[1]  # every leaf's fork, too
    assert down[0] > down[1]


def test_planted_groups_are_found_and_said(tmp_path):
    """Labels renamed in half of four leaves of three clients: found in round 1, in force from round 2 on."""
    terminal = io.StringIO()
    little = {"cluster.min-gain": 0.0}  # such a small network gains little in a round
    folder = watched_run(tmp_path, clients=12, terminal=terminal, **AUTO, **PLANTED, **little)
    assert json.loads((folder / "manifest.json").read_text())["scenario"]["groups"] == [1, 1, 0, 0]
    assert [step["labels"] for step in clusters(folder)] == [[0] * 4, [0, 0, 1, 1], [0, 0, 1, 1]]
    assert clusters(folder)[0]["candidate"] == [0, 0, 1, 1]
    assert clusters(folder)[1]["trial"]["gain"] > 0
    line = "round 2: leaves {0 1 2 3} split into {0 1} and {2 3}"
    assert f"note: {line}" in terminal.getvalue()
    remarks = json.loads((folder / "manifest.json").read_text())["remarks"]
    assert any(remark.startswith(line) for remark in remarks)


def test_a_lone_leaf_is_found_without_asking_anybody(tmp_path):
    """Labels renamed at one of three leaves of four clients: the first round's updates say so.

    Nobody evaluates other leaves' models until clusters have models of their own.
    """
    terminal = io.StringIO()
    dealt = {
        **AUTO,
        "cluster.level": 0.05,
        "cluster.min-gain": 0.0,
        "train.model": "cnn-pool",
    }
    planted = {"scenario": "label-permutation", "hierarchy.num-servers": 3, "num-server-rounds": 3}
    folder = watched_run(tmp_path, clients=12, terminal=terminal, **dealt, **planted)
    groups = json.loads((folder / "manifest.json").read_text())["scenario"]["groups"]
    first, second, _ = clusters(folder)
    assert first["candidate"] == second["labels"] == number_by_first_appearance(groups).tolist()
    assert (first["tests"][0]["level"], first["tested_round"]) == (0.05, 1)
    assert first["tests"][0]["p"] <= 0.05
    assert "cross_loss" not in first
    assert "exchange_bytes" not in first
    assert "cross_loss" not in second  # the trial alone was asked about
    assert f"(p = {first['tests'][0]['p']:.2g}" in terminal.getvalue()


def test_where_half_of_the_clients_train_all_are_asked_once(tmp_path):
    """The lone leaf is found from a probe of all clients in round 1; the next round makes none."""
    options = {**AUTO, "train.model": "cnn-pool"}
    planted = {"scenario": "label-permutation", "hierarchy.num-servers": 3, "num-server-rounds": 2}
    half = {"hierarchy.fraction-train": 0.5, "cluster.watch": 0.0}
    lines = []

    def watch(message, _):
        if message.metadata.message_type == TRAIN:
            round_context = RoundContext.from_message(message)
            lines.append((round_context.global_round, round_context.line))

    folder = watched_run(tmp_path, watch, clients=12, **options, **planted, **half)
    groups = json.loads((folder / "manifest.json").read_text())["scenario"]["groups"]
    first, second = clusters(folder)
    assert first["probe"] is True
    assert first["candidate"] == number_by_first_appearance(groups).tolist()
    assert "probe" not in second
    assert lines.count((1, "leaf")) == 6
    assert lines.count((1, "probe")) == 12
    assert (2, "probe") not in lines


def test_leaves_that_are_too_small_are_said_at_the_start(tmp_path):
    terminal = io.StringIO()
    dealt = {**AUTO, "cluster.level": "auto"}
    watched_run(tmp_path, clients=9, terminal=terminal, **dealt, **{"num-server-rounds": 1})
    line = "9 clients in 3 leaves cannot show that one leaf differs from all others below p = 0.036"
    assert terminal.getvalue().index(line) < terminal.getvalue().index("round 1/1")


def test_leaves_that_differ_in_their_classes_are_said_at_the_start(tmp_path):
    """Groups of classes need serve nobody better: who looks for groups is told, nobody else."""
    skewed = {"partition.kind": "dirichlet", "partition.kind-args.alpha-leaves": 0.1, "num-server-rounds": 1}
    said = []
    for name, options in (
        ("groups", {**AUTO, **skewed}),
        ("none", skewed),
        ("users", {**AUTO, "num-server-rounds": 1}),
    ):
        terminal = io.StringIO()
        watched_run(tmp_path / name, clients=12, terminal=terminal, **options)
        said.append("leaves hold other shares of the classes" in terminal.getvalue())
    assert said == [True, False, False]
