"""Models that leaves go on with and serve, in real runs in process: each against another run."""

import csv
import io
import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from fedge import simulate
from fedge.exchange.clients import Clients
from fedge.training.networks.models import build_model, head_names, layer_names

TINY = {
    "report": False,
    "data.path": "synthetic",
    "train.model": "mlp-tiny",
    "train.local-epochs": 1,
    "scaffold.enabled": False,
    "cluster.signal": "update",
    "cluster.tau": -1.0,
    "seed": 5,
    "num-server-rounds": 3,
}
OPEN = {"gate.enabled": False}
ALONE = {"cluster.tau": 1.01}
TENTATIVE = {"gate.rule": "after-round"}


@pytest.fixture
def carry_out(tmp_path):
    """A function that runs TINY with changes and returns the run's folder."""

    def run(**changes):
        (name := tmp_path / f"runs-{len(list(tmp_path.iterdir()))}").mkdir()
        outcome = simulate({**TINY, "runs-dir": str(name), **changes}, terminal=io.StringIO())
        assert outcome.status == "completed"
        return outcome.folder

    return run


def models(folder):
    return load_file(folder / "checkpoints" / "final.safetensors")


def model_bytes(folder):
    return (folder / "checkpoints" / "final.safetensors").read_bytes()


def seen_by_the_cloud(folder):
    """Labels and similarities of every cloud step: with signal "update" they show the models' bits."""
    return [(e["labels"], e["similarity"]) for e in map(json.loads, (folder / "clusters.jsonl").open())]


def table(folder, name="leaf_rounds"):
    with (folder / "metrics" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


# --- offers taken tentatively -------------------------------------------------------------------------


def test_a_leaf_that_turns_every_trial_down_is_a_leaf_alone(carry_out):
    """Its own line trains on, window by window in the same order, as if the cloud were not there."""
    alone = carry_out(**ALONE)
    stubborn = carry_out(**TENTATIVE, **{"gate.min-gain": 1.0})
    assert model_bytes(stubborn) == model_bytes(alone)
    assert [r["test_accuracy"] for r in table(stubborn)] == [r["test_accuracy"] for r in table(alone)]
    assert [r["gate"] for r in table(stubborn)] == ["off"] * 3 + ["rejected"] * 6
    assert {r["serves"] for r in table(stubborn)[3:]} == {"own-line"}


@pytest.mark.parametrize(("leaf_rounds", "scaffold"), [(1, False), (2, True)])
def test_the_cloud_sees_what_the_offers_became_whatever_the_gate_says(carry_out, leaf_rounds, scaffold):
    changes = {"hierarchy.leaf-rounds": leaf_rounds, "scaffold.enabled": scaffold}
    seen = [
        seen_by_the_cloud(carry_out(**changes, **settings))
        for settings in (OPEN, {**TENTATIVE, "gate.min-gain": 1.0}, {**TENTATIVE, "gate.min-gain": -1.0})
    ]
    assert seen[0] == seen[1] == seen[2]


def test_a_tentative_offer_costs_a_second_training_exchange(carry_out, monkeypatch):
    """Two exchanges in the first global round, three in the others; twice the models up from then on."""
    counted = []
    exchange = Clients.exchange

    def counting(self, messages, *args, **kwargs):
        counted.append(len(messages))
        return exchange(self, messages, *args, **kwargs)

    monkeypatch.setattr(Clients, "exchange", counting)
    for changes, exchanges in (
        ({}, 6), ({"cluster.blend": "auto", **ALONE}, 6), (TENTATIVE, 8), ({"personal.leaf-rounds": 2}, 9),
    ):  # fmt: skip
        counted.clear()
        folder = carry_out(**changes)
        assert counted == [9] * exchanges, changes
        up = [int(r["uplink_bytes"]) for r in table(folder, "global_rounds")]
        if changes == TENTATIVE:
            assert up == [up[0], 2 * up[0], 2 * up[0]]


# --- offers -------------------------------------------------------------------------------------------


def test_nothing_of_the_clusters_is_hierarchical_averaging(carry_out):
    """λ = 0 with every leaf in a cluster of its own: HierFAVG, bit for bit."""
    hierarchical = carry_out(**OPEN, **{"cluster.enabled": False})
    blended = carry_out(**OPEN, **ALONE, **{"cluster.blend": 0.0})
    assert model_bytes(blended) == model_bytes(hierarchical)
    assert {r["blend"] for r in table(blended)} == {"0.0"}


def test_each_leaf_tries_the_whole_grid(carry_out):
    """Its choice is at least as good as λ = 0.5 alone in the first round."""
    fixed = table(carry_out(**OPEN, **ALONE, **{"cluster.blend": 0.5}))[:3]
    tried = table(carry_out(**OPEN, **ALONE, **{"cluster.blend": "auto"}))[:3]
    assert {r["blend"] for r in tried} <= {"0.0", "0.25", "0.5", "0.75"}
    for one, best in zip(fixed, tried, strict=True):
        assert best["val_accuracy_own"] == one["val_accuracy_own"]
        assert float(best["val_accuracy_offered"]) >= float(one["val_accuracy_offered"])
        assert best["serves"] == f"offered-{float(best['blend']):g}"


@pytest.mark.parametrize("layers", ["none", "head", "batch-norm", "both"])
def test_what_a_leaf_keeps_is_its_own_and_the_rest_is_shared(carry_out, layers):
    found = models(carry_out(**OPEN, **{"personal.layers": layers}))
    model = build_model("mlp-tiny", (3, 16), 6, torch.Generator())
    kinds = {"none": (), "both": ("head", "batch-norm")}.get(layers, (layers,))
    kept = layer_names(model, kinds)
    assert ("head.weight" in kept) == ("head" in kinds)
    assert ("norm.running_var" in kept) == ("norm.num_batches_tracked" in kept) == ("batch-norm" in kinds)
    for name in model.state_dict():
        first, *others = (found[f"leaf-{leaf}/{name}"] for leaf in range(3))
        same = all(np.array_equal(first, other) for other in others)
        if name != "norm.num_batches_tracked":  # all leaves have taken as many steps
            assert same == (name not in kept), name


def test_layers_by_name():
    model = build_model("cnn", (6, 16), 4, torch.Generator())
    assert layer_names(model, ()) == []
    assert layer_names(model, ("head",)) == list(head_names(model))
    entries = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    assert layer_names(model, ("batch-norm",)) == [f"norm{n}.{e}" for n in (1, 2) for e in entries]


# --- gates --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["published", "after-round", "one-standard-error", "paired"])
def test_the_evidence_of_every_decision_adds_up(carry_out, rule):
    """The gain is the difference of the windows that only one model has right; the rule follows from them."""
    decided = 0
    for row in table(carry_out(**{"gate.rule": rule, "cluster.tau": 0.0, "num-server-rounds": 5})):
        if not row["val_windows"]:
            assert row["gate"] == "off"
            continue
        decided += 1
        windows, b, c = (int(row[k]) for k in ("val_windows", "val_only_own", "val_only_offered"))
        gain = float(row["val_accuracy_offered"]) - float(row["val_accuracy_own"])
        assert gain == pytest.approx((c - b) / windows, abs=1e-12)
        error, p = float(row["val_standard_error"]), float(row["val_p_value"])
        taken = {"one-standard-error": gain >= -error, "paired": p > 0.05}.get(rule, c >= b)
        assert row["gate"] == ("accepted" if taken else "rejected")
    assert decided > 0


# --- personal models ----------------------------------------------------------------------------------


def test_personal_models_leave_the_federation_alone(carry_out):
    """Every round before the last, and what the cloud sees, is as without; the last serves the better one."""
    plain = carry_out(**ALONE)
    tuned = carry_out(**ALONE, **{"personal.leaf-rounds": 2})
    assert seen_by_the_cloud(tuned) == seen_by_the_cloud(plain)
    assert table(tuned)[:6] == table(plain)[:6]
    for before, row in zip(table(plain)[6:], table(tuned)[6:], strict=True):
        assert row["val_accuracy_own"] == before["val_accuracy_own"] == row["val_accuracy_before"]
        better = float(row["val_accuracy_personal"]) >= float(row["val_accuracy_before"])
        assert row["serves"] == ("personal" if better else "own")
        assert better or row["test_accuracy"] == before["test_accuracy"]
    assert model_bytes(tuned) != model_bytes(plain)
    assert any(r["serves"] == "personal" for r in table(tuned))
    seconds = [float(r["train_seconds"]) for r in table(tuned, "clients")]
    assert min(seconds) > 0
    before = [r["shared_accuracy"] for r in table(tuned, "clients")]
    assert before == [""] * 18 + [r["test_accuracy"] for r in table(plain, "clients")[18:]]
    served = {leaf: r["serves"] for leaf, r in enumerate(table(tuned)[6:])}
    for row in table(tuned, "clients")[18:]:
        name = "tuned_accuracy" if served[int(row["leaf"])] == "personal" else "shared_accuracy"
        assert row["test_accuracy"] == row[name]
    losses = [r["train_loss"] for r in table(tuned, "clients")]
    assert losses == [r["train_loss"] for r in table(plain, "clients")]


def test_personal_models_every_second_round(carry_out):
    rows = table(carry_out(**{"personal.leaf-rounds": 1, "personal.every": 2, "num-server-rounds": 5}))
    made = {r["global_round"] for r in rows if r["val_accuracy_personal"]}
    assert made == {"2", "4", "5"}


def test_a_fork_draws_its_own_order(carry_out):
    """One leaf alone: two leaf rounds of fine-tuning are not the next two leaf rounds."""
    flat = {"hierarchy.num-servers": 1, "train.lr-decay": 1.0}
    tuned = models(carry_out(**flat, **{"num-server-rounds": 1, "personal.leaf-rounds": 1}))
    longer = models(carry_out(**flat, **{"num-server-rounds": 2}))
    assert any(not np.array_equal(tuned[name], longer[name]) for name in tuned)


@pytest.mark.parametrize("strategy", ["fedadam", "fedavgm", "krum", "qfedavg"])
def test_any_leaf_strategy_can_be_forked(carry_out, strategy):
    """A fork has moments of its own: those of the leaf are as they would be without."""
    changes = {"leaf.strategy": strategy, **ALONE}
    plain = carry_out(**changes)
    tuned = carry_out(**changes, **{"personal.leaf-rounds": 1, "personal.every": 1})
    assert seen_by_the_cloud(tuned) == seen_by_the_cloud(plain)


def test_noise_of_a_personal_model_is_its_own(carry_out):
    """Privacy on: the line that goes on is the same bits; what is served has noise of its own."""
    private = {
        "train.model": "linear", "privacy.kind": "server-fixed", "privacy.noise-multiplier": 0.1, **ALONE,
    }  # fmt: skip
    plain = carry_out(**private)
    tuned = carry_out(**private, **{"personal.leaf-rounds": 1})
    assert seen_by_the_cloud(tuned) == seen_by_the_cloud(plain)


@pytest.mark.parametrize("hierarchy", [{"hierarchy.num-servers": 4}, {"hierarchy.tree": "2x2x2"}], ids=str)
def test_unseen_clients_are_served_the_mean_with_its_last_layer(hierarchy, carry_out):
    """In a tree they evaluated the mean, but the stored model had the last layer that their leaf keeps."""
    changes = {**OPEN, "partition.unseen-clients": 1, "personal.layers": "head", "num-server-rounds": 2}
    folder = carry_out(**changes, **hierarchy, clients=8)
    final = load_file(folder / "checkpoints" / "final.safetensors")
    names = [name.removeprefix("unseen-0/") for name in final if name.startswith("unseen-0/")]
    assert names
    for name in names:
        assert all(np.array_equal(final[f"unseen-{i}/{name}"], final[f"unseen-0/{name}"]) for i in range(4))
    assert any(not np.array_equal(final[f"leaf-1/{name}"], final[f"leaf-0/{name}"]) for name in names)
