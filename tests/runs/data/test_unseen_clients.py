"""Unseen clients: who they are, that they change nothing, and which model evaluates them."""

import csv
import dataclasses
import io
import json

import numpy as np
import pytest
import torch
from flwr.serverapp.strategy import FedAvg
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from fedge import simulate
from fedge.client_app import app as client_app
from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import PARTITIONS
from fedge.config.sections.serving import PersonalConfig
from fedge.config.topology import known_per_leaf, unseen_ids
from fedge.data.partition import partition
from fedge.data.prepared import open_client, write_client_data
from fedge.engine.inprocess import InProcessGrid
from fedge.leaf.leaf import Leaf
from fedge.metrics.scores import accuracy
from fedge.run.run import run
from fedge.serving.gate import GateResult
from fedge.serving.personal import PersonalResult
from fedge.serving.roles import served_role, unseen_clients_evaluate
from fedge.training.evaluation import evaluate_parts
from fedge.training.networks.models import build_model
from fedge.training.networks.module_state import load_state, tensor_of
from hhar.synthetic.generate import synthetic_windows
from hhar.windows.window_file import Windows, save_windows

KINDS = [kind for kind in PARTITIONS.names if kind != "device"]
UNSEEN = [2, 5, 8]


@pytest.fixture(scope="module")
def windows():
    return synthetic_windows(num_users=9)


def deal(windows, sizes=(3, 3, 3), seed=0, **keys):
    named = {k.replace("__", ".").replace("_", "-"): v for k, v in keys.items()}
    config = {"partition.unseen-clients": 1, "partition.deal": "sorted", **named}  # users in a known order
    return partition(windows, from_run_config(config), sizes, seed)


def altered(windows, users):
    """Windows in which all readings of some users are noise and their labels are others."""
    theirs = np.isin(windows.user, users)
    x, y = windows.x.copy(), windows.y.copy()
    x[theirs] = 50 + 9 * np.random.default_rng(1).normal(size=x[theirs].shape)
    y[theirs] = (y[theirs] + 1) % len(windows.classes)
    return Windows(x, y, windows.user, windows.device, windows.session, windows.classes, windows.channels)


# --- who they are -------------------------------------------------------------------------------------


def test_the_last_clients_of_each_leaf():
    assert unseen_ids([3, 2, 4], 1) == [2, 4, 8]
    assert unseen_ids([3, 4], 2) == [1, 2, 5, 6]
    assert unseen_ids([3, 3], 0) == []
    assert known_per_leaf([3, 2, 4], 1) == [2, 1, 3]


def test_a_leaf_without_a_client_that_trains_is_refused(windows):
    with pytest.raises(
        ConfigError, match=r"^partition\.unseen-clients must leave every leaf .* leaf 1 has 1 in all;"
    ):
        deal(windows, (2, 1))
    with pytest.raises(ConfigError, match=r"^partition\.unseen-clients must leave every leaf"):
        simulate({"partition.unseen-clients": 3, "data.path": "synthetic"}, terminal=io.StringIO())


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_else_has_a_window_of_their_users(windows, kind):
    """Nine users for nine clients: the unseen clients 2, 5 and 8 hold c, f and i, whatever else is dealt."""
    dealt = deal(windows, partition__kind=kind)
    holds = [set(np.unique(windows.user[np.concatenate(parts)])) for parts in dealt.clients]
    assert dealt.unseen_clients == set(UNSEEN)
    assert [holds[k] for k in UNSEEN] == [{"c"}, {"f"}, {"i"}]
    others = set().union(*(holds[k] for k in range(9) if k not in UNSEEN))
    assert others == set("abdegh")


@settings(max_examples=20)
@given(st.sampled_from(["iid", "dirichlet", "imbalance"]), st.integers(1, 2), st.integers(0, 99))
def test_who_is_known_gets_all_other_windows(windows, kind, unseen_clients, seed):
    arguments = {"partition__kind_args__alpha_leaves": 9.0} if kind == "dirichlet" else {}
    dealt = deal(
        windows, (4, 3), seed, partition__kind=kind, partition__unseen_clients=unseen_clients, **arguments
    )
    users = {
        u for k in dealt.unseen_clients for u in np.unique(windows.user[np.concatenate(dealt.clients[k])])
    }
    assert len(users) == 2 * unseen_clients
    known = [np.concatenate(parts) for k, parts in enumerate(dealt.clients) if k not in dealt.unseen_clients]
    assert sorted(np.concatenate(known)) == list(np.flatnonzero(~np.isin(windows.user, list(users))))


@pytest.mark.parametrize(
    ("keys", "sizes", "telling"),
    [
        ({"partition__kind": "device"}, (3, 3), "needs whole users, but partition.kind=device"),
        (
            {"partition__kind_args__split_users": True},
            (5, 5),
            "needs whole users, but 9 users are too few for 10 clients",
        ),
        ({"partition__kind": "iid", "partition__unseen_clients": 5}, (9, 9), "take all of 9 users; lower it"),
    ],
)
def test_what_leaves_no_unseen_users_is_refused(windows, keys, sizes, telling):
    with pytest.raises(ConfigError, match=r"^partition\.unseen-clients ") as caught:
        deal(windows, sizes, **keys)
    assert telling in str(caught.value)


def test_statistics_are_those_of_clients_that_train(windows, tmp_path):
    """All other bytes of the clients' windows are the same whatever the unseen clients' readings are."""
    dealt = deal(windows)
    for name, each in (("one", windows), ("two", altered(windows, ["c", "f", "i"]))):
        write_client_data(tmp_path / name, each, dealt, normalize=True)
    for k in range(9):
        one, two = (open_client(str(tmp_path / name), k) for name in ("one", "two"))
        same = all(
            one_part[0].tobytes() == two_part[0].tobytes()
            for one_part, two_part in ((one.train, two.train), (one.held_out, two.held_out))
        )
        assert same == (k not in UNSEEN)


def test_who_is_served_what():
    """Known clients get what the gate took, or what was fine-tuned if it helped; unseen ones their role."""
    same = GateResult("accepted", 0.5, 0.6, serves_offer=True, role="offered")
    cluster = dataclasses.replace(same, unseen_role="cluster")
    better, worse = PersonalResult(0.5, 0.6, serves=True), PersonalResult(0.5, 0.4, serves=False)
    for found, known in ((None, "offered"), (worse, "offered"), (better, "personal")):
        for gate in (same, cluster):
            assert served_role(gate, found, unseen_client=False) == known
        assert served_role(same, found, unseen_client=True) == known
        assert served_role(cluster, found, unseen_client=True) == "cluster"


def test_unseen_clients_evaluate_what_they_may_be_served():
    """A leaf that is alone in its cluster, or before the first cloud step, is its own cluster."""
    own, cluster = {"w": np.zeros(1)}, {"w": np.ones(1)}
    leaf = Leaf(0, {0: 10}, own, ["w"], FedAvg(), False, unseen_clients=[1])
    models = {"own": own, "offered": {"w": np.full(1, 2.0)}}
    assert unseen_clients_evaluate(PersonalConfig(), leaf, models) == {"own": own}
    leaf.models.apply_cloud_step(cluster, None)
    assert unseen_clients_evaluate(PersonalConfig(), leaf, models) == {"cluster": cluster}
    assert unseen_clients_evaluate(PersonalConfig(unseen_clients="same"), leaf, models) == models


# --- runs ---------------------------------------------------------------------------------------------

QUICK = {"num-server-rounds": 3, "train.model": "linear", "train.local-epochs": 1, "seed": 5, "report": False}


def carry_out(tmp_path, name, windows, supernodes=9, **changes):
    """Run QUICK on windows; returns the run's folder."""
    path = save_windows(tmp_path / f"{name}.npz", windows)
    changes = {k.replace("__", ".").replace("_", "-"): v for k, v in changes.items()}
    places = {"data.path": str(path), "runs-dir": str(tmp_path / name), "partition.deal": "sorted"}
    config = {**QUICK, **places, **changes}
    outcome = simulate(config, num_supernodes=supernodes, terminal=io.StringIO())
    assert outcome.status == "completed"
    return outcome.folder


def table(folder, name):
    with (folder / "metrics" / f"{name}.csv").open(newline="") as file:
        return [{k: v for k, v in r.items() if "seconds" not in k} for r in csv.DictReader(file)]


def models(folder):
    return (folder / "checkpoints" / "final.safetensors").read_bytes()


METHODS = {
    "default": {},
    "leaves alone": {"cluster__tau": 1.01},
    "no gate, no SCAFFOLD, two of three": {
        "gate__enabled": False, "scaffold__enabled": False, "hierarchy__fraction_train": 0.5,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_unseen_clients_change_no_bit_of_anything_else(windows, tmp_path, name):
    """Other readings and labels of unseen clients: same models, clusters, gates and rows of known ones."""
    changes = {"partition__unseen_clients": 1, **METHODS[name]}
    one = carry_out(tmp_path, "one", windows, **changes)
    two = carry_out(tmp_path, "two", altered(windows, ["c", "f", "i"]), **changes)
    assert models(one) == models(two)
    assert (one / "clusters.jsonl").read_bytes() == (two / "clusters.jsonl").read_bytes()
    known = [[r for r in table(f, "clients") if r["unseen_client"] == "0"] for f in (one, two)]
    assert known[0] == known[1]
    assert len(known[0]) == 3 * 6
    for name_, table_ in (("unseen", "leaf_rounds"), ("unseen", "global_rounds")):
        kept = [
            [{k: v for k, v in r.items() if name_ not in k} for r in table(f, table_)] for f in (one, two)
        ]
        assert kept[0] == kept[1]
    unseen = [[r["unseen_accuracy_mean"] for r in table(f, "global_rounds")] for f in (one, two)]
    assert unseen[0] != unseen[1]


def test_unseen_clients_might_as_well_not_be_there(windows, tmp_path):
    """One leaf of clients a to e, with and without unseen clients f and g: the same models, bit for bit."""

    def of(users):
        rows = np.isin(windows.user, list(users))
        return Windows(
            windows.x[rows], windows.y[rows], windows.user[rows], None, windows.session[rows],
            windows.classes, windows.channels,
        )  # fmt: skip

    flat = {"hierarchy__num_servers": 1}
    without = carry_out(tmp_path, "without", of("abcde"), 5, **flat)
    beside = carry_out(tmp_path, "beside", of("abcdefg"), 7, partition__unseen_clients=2, **flat)
    one, two = (load_file(run / "checkpoints" / "final.safetensors") for run in (without, beside))
    assert {n: a.tobytes() for n, a in one.items()} == {n: a.tobytes() for n, a in two.items()}
    known = [r for r in table(beside, "clients") if r["unseen_client"] == "0"]
    assert known == table(without, "clients")
    assert table(without, "global_rounds")[0]["unseen_accuracy_mean"] == ""


@pytest.mark.parametrize("kind", KINDS)
def test_windows_of_others_are_dealt_as_if_they_were_not_there(windows, kind):
    """Three leaves of two, with and without an unseen client each: the same windows in the same splits."""
    rows = np.flatnonzero(~np.isin(windows.user, ["c", "f", "i"]))
    fewer = Windows(
        windows.x[rows], windows.y[rows], windows.user[rows], None, windows.session[rows], windows.classes,
        windows.channels,
    )  # fmt: skip
    without = deal(fewer, (2, 2, 2), partition__kind=kind, partition__unseen_clients=0)
    beside = deal(windows, partition__kind=kind)
    known = [parts for k, parts in enumerate(beside.clients) if k not in UNSEEN]
    for ours, theirs in zip(known, without.clients, strict=True):
        assert all((a == rows[b]).all() for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(
    "serving",
    [
        {"gate__min_gain": 0.02},
        {"gate__min_gain": 0.02, "personal__unseen_clients": "same"},
        {"personal__leaf_rounds": 2, "cluster__blend": "auto", "cluster__tau": 0.9},
        {"personal__leaf_rounds": 2, "personal__unseen_clients": "same", "gate__enabled": False},
        {"gate__rule": "after-round", "personal__leaf_rounds": 1, "cluster__every": 2},
        {"cluster__tau": 1.1, "cluster__blend": 0.5},
    ],
    ids=str,
)
def test_rows_by_models_loaded_from_the_run(windows, tmp_path, serving):
    """After the last round, what its leaf serves a client gives its row; no unseen one's row trained."""
    config = {"partition__unseen_clients": 1, "scenario": "rotate", **serving}
    folder = carry_out(tmp_path, "run", windows, **config)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["unseen_clients"] == UNSEEN
    groups = manifest["scenario"]["groups"]
    assert sorted(groups) in ([0, 0, 1], [0, 1, 1])
    config = from_run_config(manifest["config"])
    dealt = partition(windows, config, [3, 3, 3], 5)
    write_client_data(tmp_path / "data", windows, dealt, normalize=True)
    states = load_file(folder / "checkpoints" / "final.safetensors")
    rows = {int(r["client"]): r for r in table(folder, "clients") if r["global_round"] == "3"}
    if serving.get("personal__unseen_clients") == "same":
        assert not any(k.startswith("unseen-") for k in states)
    for client in range(9):
        data = open_client(str(tmp_path / "data"), client)
        x, y = data.test
        model = build_model("linear", x.shape[1:], data.classes, torch.Generator())
        own = f"leaf-{client // 3}/"
        if client in UNSEEN and any(k.startswith(f"unseen-{client // 3}/") for k in states):
            own = f"unseen-{client // 3}/"
        load_state(model, {k.removeprefix(own): v for k, v in states.items() if k.startswith(own)})
        (part,) = evaluate_parts(model, tensor_of(x), tensor_of(y), [len(y)], threads=1)
        assert float(rows[client]["test_accuracy"]) == accuracy(part.confusion)
        both = [rows[client][name] for name in ("shared_accuracy", "tuned_accuracy")]
        evaluates_both = client not in UNSEEN or serving.get("personal__unseen_clients") == "same"
        assert all(both) == any(both) == ("personal__leaf_rounds" in serving and evaluates_both)
        if client in UNSEEN:
            assert (rows[client]["train_samples"], rows[client]["train_loss"]) == ("0", "")
    last = table(folder, "global_rounds")[-1]
    unseen = [float(rows[c]["test_accuracy"]) for c in UNSEEN]
    assert float(last["unseen_accuracy_mean"]) == np.mean(unseen)
    assert float(last["unseen_accuracy_worst"]) == min(unseen)
    leaves = [r for r in table(folder, "leaf_rounds") if r["global_round"] == "3"]
    assert [float(r["unseen_accuracy"]) for r in leaves] == unseen
    assert [r["num_clients"] for r in leaves] == ["2"] * 3
    with (folder / "partition.csv").open(newline="") as file:
        held = {(r["client"], r["unseen_client"], r["group"]) for r in csv.DictReader(file)}
    assert held == {(str(k), str(int(k in UNSEEN)), str(groups[k // 3])) for k in range(9)}


def test_a_unseen_client_that_fails_is_named_and_changes_nothing_else(windows, tmp_path):
    """Client 5 never answers when it is to evaluate: the run is partial, its cells are empty."""

    def failing_app(message, context):
        if message.metadata.message_type == "evaluate" and context.node_config["partition-id"] == 5:
            raise RuntimeError("sensor unplugged")
        return client_app(message, context)

    path = save_windows(tmp_path / "w.npz", windows)
    config = {
        **QUICK,
        "data.path": str(path),
        "runs-dir": str(tmp_path / "failing"),
        "partition.unseen-clients": 1,
        "partition.deal": "sorted",
    }
    with InProcessGrid(failing_app, 9, config, 2) as grid:
        outcome = run(grid, config, "inprocess", {}, lambda _: io.StringIO())
    assert outcome.status == "partial"
    whole = carry_out(tmp_path, "whole", windows, partition__unseen_clients=1)
    assert models(outcome.folder) == models(whole)
    lost = [r for r in table(outcome.folder, "clients") if r["client"] == "5"]
    assert {(r["test_accuracy"], r["unseen_client"]) for r in lost} == {("", "1")}
    leaf = [r["unseen_accuracy"] for r in table(outcome.folder, "leaf_rounds") if r["leaf"] == "1"]
    assert leaf == [""] * 3
    assert {r["clients_ok"] for r in table(outcome.folder, "global_rounds")} == {"8"}


def test_truth_and_tiers_in_the_metrics(windows, tmp_path):
    """Leaves alone: every cluster holds one leaf. One group of two leaves, one of one: ari 0, complete 0.58.

    Entropy of sizes 2 and 1: ln 3 − (2/3) ln 2; of three single leaves: ln 3. Every leaf sends its model up
    in every round, and nobody gets one back; labels change only before the first round.
    """
    folder = carry_out(tmp_path, "run", windows, scenario="flip", cluster__tau=1.01)
    rounds = table(folder, "global_rounds")
    size = sum(a.nbytes for a in load_file(folder / "checkpoints" / "final.safetensors").values())
    for row in rounds:
        assert (row["ari"], row["homogeneity"]) == ("0.0", pytest.approx("1.0"))
        assert float(row["completeness"]) == pytest.approx((np.log(3) - 2 / 3 * np.log(2)) / np.log(3))
        assert (int(row["cloud_uplink_bytes"]), row["cloud_downlink_bytes"]) == (size, "0")
    assert [r["churn"] for r in rounds] == ["", "0.0", "0.0"]


def test_every_offer_goes_down_and_one_leaf_has_no_cloud(windows, tmp_path):
    joined = table(carry_out(tmp_path, "joined", windows, cluster__every=2), "global_rounds")
    assert [int(r["cloud_downlink_bytes"]) == int(r["cloud_uplink_bytes"]) > 0 for r in joined] == [
        True, False, True
    ]  # fmt: skip
    assert [r["churn"] for r in joined] == ["", "", "0.0"]
    flat = table(carry_out(tmp_path, "flat", windows, hierarchy__num_servers=1), "global_rounds")
    assert {(r["cloud_uplink_bytes"], r["cloud_downlink_bytes"]) for r in flat} == {("0", "0")}
    assert {(r["ari"], r["nmi"]) for r in joined + flat} == {("", "")}
