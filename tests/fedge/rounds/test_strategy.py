"""The hierarchy as a whole, on the in-process engine, against plain loops written here."""

import csv
import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Context, Message
from safetensors.numpy import load_file
from timing_sums import assert_times_add_up, read

from fedge import simulate
from fedge.client_app import app as client_app
from fedge.config.flat import from_run_config
from fedge.data.partition import partition
from fedge.data.prepared import write_client_data
from fedge.engine.inprocess import InProcessGrid
from fedge.run.run import run
from fedge.seeding import Purpose, torch_stream
from fedge.timing.laps import LapClock
from fedge.training.local import train
from fedge.training.networks.models import build_model, parameter_names
from fedge.training.networks.module_state import get_state
from fedge.training.schedule import local_training
from hhar.windows.window_file import Windows, load_windows, save_windows

pytestmark = pytest.mark.whole_runs

NUM_USERS, CLASSES = 9, 3


@pytest.fixture(scope="module")
def window_file(tmp_path_factory):
    """Nine users with 30 to 54 windows of 2 × 16, three classes, five sessions per class."""
    rng = np.random.default_rng(0)
    x, y, user, session = [], [], [], []
    for u in range(NUM_USERS):
        for label in range(CLASSES):
            for s in range(5):
                for _ in range(2 + (u + s) % 3):
                    wave = np.sin((label + 1) * np.arange(16) / 2 + rng.uniform(0, 6))
                    x.append(np.stack([wave, u / 9 * wave]) + rng.normal(0, 0.3, (2, 16)))
                    y.append(label)
                    user.append(chr(ord("a") + u))
                    session.append(f"{label}-{s}")
    path = tmp_path_factory.mktemp("windows") / "tiny.npz"
    save_windows(
        path,
        Windows(
            np.array(x, dtype=np.float32),
            np.array(y, dtype=np.int64),
            np.array(user),
            None,
            np.array(session),
            tuple("pqr"),
            ("x", "y"),
        ),
    )
    return path


@pytest.fixture
def settings(window_file, tmp_path):
    """Three global rounds of the reference network on the tiny set."""
    return {
        "num-server-rounds": 3,
        "seed": 7,
        "runs-dir": str(tmp_path / "runs"),
        "report": False,
        "data.path": str(window_file),
        "train.local-epochs": 2,
        "train.batch-size": 8,
    }


def final_models(outcome):
    """The served models of a run, one state per leaf."""
    tensors = load_file(outcome.folder / "checkpoints" / "final.safetensors")
    leaves = sorted({key.split("/")[0] for key in tensors})
    return [
        {k.split("/", 1)[1]: v for k, v in tensors.items() if k.startswith(leaf + "/")} for leaf in leaves
    ]


def rows(outcome, table):
    """A metrics table as dictionaries."""
    with (outcome.folder / "metrics" / table).open(newline="") as file:
        return list(csv.DictReader(file))


def quiet(config, tmp_path, **kwargs):
    """Carry out a run whose progress lines go to a file."""
    with (tmp_path / "terminal.txt").open("a") as terminal:
        return simulate(config, terminal=terminal, **kwargs)


def plain_fedavg(settings, members, num_clients=NUM_USERS):
    """FedAvg as a loop over `members`, written without leaf, strategy, messages or engine."""
    config = from_run_config(settings)
    windows = load_windows(config.data.path)
    parts = partition(windows, config, [num_clients], config.seed).clients
    folder = Path(config.runs_dir) / "plain"
    write_client_data(folder, windows, partition(windows, config, [num_clients], config.seed), True)
    x_all, y_all = np.load(folder / "x.npy"), np.load(folder / "y.npy")
    starts = np.concatenate([[0], np.cumsum([sum(map(len, p)) for p in parts])])
    model = build_model("cnn", (2, 16), CLASSES, torch_stream(config.seed, Purpose.MODEL))
    state = get_state(model)
    for round_ in range(1, config.num_server_rounds + 1):
        results, sizes = [], []
        for client in members:
            n = len(parts[client][0])
            rows_ = slice(starts[client], starts[client] + n)
            x, y = torch.tensor(x_all[rows_]), torch.tensor(y_all[rows_])
            stream = torch_stream(config.seed, Purpose.BATCHES, round_, client)
            result = train(model, x, y, local_training(config.train, round_), stream, state=state)
            results.append(result.state)
            sizes.append(n)
        state = {name: _mean([r[name] for r in results], sizes) for name in state}
    return state


def _mean(arrays, sizes):
    if arrays[0].dtype.kind != "f":
        return arrays[0]
    total = np.zeros(arrays[0].shape)
    for array, share in zip(arrays, np.array(sizes, dtype=float) / sum(sizes), strict=True):
        total = total + share * array.astype(np.float64)
    return total.astype(np.float32)


OFF = {"scaffold.enabled": False, "cluster.enabled": False, "gate.enabled": False}


def test_one_leaf_is_fedavg_bit_for_bit(settings, tmp_path):
    """Equivalence 1: one leaf, clustering and gate off."""
    outcome = quiet({**settings, **OFF, "hierarchy.num-servers": 1}, tmp_path)
    (served,) = final_models(outcome)
    expected = plain_fedavg(settings, range(NUM_USERS))
    assert served.keys() == expected.keys()
    for name, array in expected.items():
        assert served[name].tobytes() == array.tobytes(), name


def test_three_leaves_in_one_cluster_are_fedavg_over_all_clients(settings, tmp_path):
    """Equivalence 2: the mean of leaf means, weighted by windows, is the mean over all clients."""
    outcome = quiet({**settings, **OFF}, tmp_path)
    expected = plain_fedavg(settings, range(NUM_USERS))
    for served in final_models(outcome):
        for name, array in expected.items():
            np.testing.assert_allclose(served[name], array, rtol=0, atol=1e-6, err_msg=name)


def test_tau_above_one_isolates_the_leaves(settings, tmp_path):
    """Equivalence 3: every leaf is FedAvg over its own clients, and the gate has nothing to decide."""
    outcome = quiet({**settings, "scaffold.enabled": False, "cluster.tau": 1.01}, tmp_path)
    for leaf, served in enumerate(final_models(outcome)):
        expected = plain_fedavg(settings, range(3 * leaf, 3 * leaf + 3))
        for name, array in expected.items():
            assert served[name].tobytes() == array.tobytes(), (leaf, name)
    assert {row["gate"] for row in rows(outcome, "leaf_rounds.csv")} == {"off"}
    assert {row["cluster_labels"] for row in rows(outcome, "global_rounds.csv")} == {"0 1 2"}


def test_workers_and_seeds(settings, tmp_path):
    """Contract C3: the number of workers changes no bit of models, metrics or clusters; the seed does."""
    one, four = quiet(settings, tmp_path, workers=1), quiet(settings, tmp_path, workers=4)
    other = quiet({**settings, "seed": 8}, tmp_path, workers=4)
    assert comparable(one) == comparable(four)
    assert comparable(one)["final.safetensors"] != comparable(other)["final.safetensors"]
    assert comparable(one)["clients.csv"] != comparable(other)["clients.csv"]


def comparable(outcome):
    """Results whose bytes must be equal in equal runs: everything but times and memory."""
    found = {
        "clusters.jsonl": (outcome.folder / "clusters.jsonl").read_text(),
        "final.safetensors": (outcome.folder / "checkpoints" / "final.safetensors").read_bytes(),
    }
    for table, timed in (
        ("global_rounds.csv", "seconds"),
        ("leaf_rounds.csv", ""),
        ("clients.csv", "train_seconds"),
    ):
        found[table] = [{k: v for k, v in row.items() if k != timed} for row in rows(outcome, table)]
    return found


def test_seed_in_the_environment_wins(settings, tmp_path, monkeypatch):
    """Contract C2."""
    from_config = quiet({**settings, "seed": 11}, tmp_path)
    monkeypatch.setenv("SEED", "11")
    from_environment = quiet(settings, tmp_path)
    assert comparable(from_config) == comparable(from_environment)
    manifest = json.loads((from_environment.folder / "manifest.json").read_text())
    assert (manifest["seed"], manifest["seed_source"]) == (11, "environment")


def test_partial_participation_depends_on_seed_and_round_only(settings, tmp_path):
    """Each leaf trains 2 of 3 clients, other ones from round to round, the same on one or four workers."""
    config = {**settings, "hierarchy.fraction-train": 0.67, "num-server-rounds": 6}
    one, four = quiet(config, tmp_path, workers=1), quiet(config, tmp_path, workers=4)
    assert comparable(one) == comparable(four)
    trained = [
        (row["global_round"], row["leaf"], row["client"])
        for row in rows(one, "clients.csv")
        if row["train_loss"]
    ]
    per_leaf_round = {
        key: [c for r, leaf, c in trained if (r, leaf) == key]
        for key in {(r, leaf) for r, leaf, _ in trained}
    }
    assert {len(clients) for clients in per_leaf_round.values()} == {2}
    assert len({tuple(clients) for (_, leaf), clients in per_leaf_round.items() if leaf == "0"}) > 1


def test_leaf_rounds_multiply_exchanges(settings, tmp_path):
    """Two leaf rounds per global round: 9 clients send one model more each, and results differ."""
    one = quiet({**settings, **OFF}, tmp_path)
    two = quiet({**settings, **OFF, "hierarchy.leaf-rounds": 2}, tmp_path)
    bytes_one, bytes_two = (int(rows(o, "global_rounds.csv")[0]["uplink_bytes"]) for o in (one, two))
    assert bytes_two == 2 * bytes_one
    assert comparable(one)["final.safetensors"] != comparable(two)["final.safetensors"]


def test_control_variates_keep_their_invariant_through_the_messages(settings, tmp_path):
    """Contract C6: at full participation c == weighted mean of the c_i, parameters only, at every leaf."""
    config = {**settings, "gate.enabled": False}
    kept = {}

    def spy_on(strategy_leaves, grid):
        for leaf in strategy_leaves:
            kept[leaf.index] = (
                leaf.control,
                [leaf.client_controls[client] for client in leaf.clients],
                list(leaf.train_samples.values()),
            )
        assert all(not context.state for context in grid._contexts.values())  # clients keep nothing

    _run_with_hook(config, tmp_path, spy_on)
    trainable = parameter_names(build_model("cnn", (2, 16), CLASSES, torch.Generator()))
    assert len(kept) == 3
    for control, client_controls, weights in kept.values():
        assert list(control) == trainable
        for name in trainable:
            mean = np.average([c[name] for c in client_controls], axis=0, weights=weights)
            np.testing.assert_allclose(control[name], mean, rtol=0, atol=1e-12)
            assert np.abs(control[name]).max() > 0


def _run_with_hook(config, tmp_path, hook, app=client_app):
    """Run in process and call `hook` with the leaves and the grid after the last round."""
    import fedge.run.build as run_module

    made = []
    original = run_module.HierarchicalStrategy

    class Watched(original):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            made.append(self)

    run_module.HierarchicalStrategy = Watched
    try:
        with InProcessGrid(app, NUM_USERS, config, 2) as grid, (tmp_path / "t.txt").open("w") as terminal:
            outcome = run(grid, config, "inprocess", {}, lambda _: terminal)
            hook(made[0].leaves, grid)
    finally:
        run_module.HierarchicalStrategy = original
    return outcome


@pytest.mark.parametrize("strategy", ["fedmedian", "fedtrimmedavg", "krum", "fedadam"])
def test_flower_strategies_run_at_the_leaves(settings, tmp_path, strategy):
    """Every offered strategy trains, keeps names, shapes and dtypes, and differs from FedAvg."""
    config = {**settings, **OFF, "leaf.strategy": strategy}
    outcome = quiet(config, tmp_path)
    reference = get_state(build_model("cnn", (2, 16), CLASSES, torch.Generator()))
    for served in final_models(outcome):
        assert {n: (a.shape, a.dtype) for n, a in served.items()} == {
            n: (a.shape, a.dtype) for n, a in reference.items()
        }
        assert all(np.isfinite(a).all() for a in served.values())
        assert all((served[n] >= 0).all() for n in served if n.endswith("running_var"))
    fedavg = quiet({**settings, **OFF}, tmp_path)
    assert comparable(outcome)["final.safetensors"] != comparable(fedavg)["final.safetensors"]
    assert outcome.status == "completed"


def test_median_of_a_leaf_is_the_median_of_its_clients(settings, tmp_path):
    """One leaf of 9 clients, one round: FedMedian's model is numpy's median of what the clients sent."""
    from fedge.exchange.train import read_train

    sent = []

    def recording_app(message: Message, context: Context) -> Message:
        reply = client_app(message, context)
        if message.metadata.message_type == "train":
            sent.append(read_train(reply).state)
        return reply

    config = {
        **settings,
        **OFF,
        "leaf.strategy": "fedmedian",
        "hierarchy.num-servers": 1,
        "num-server-rounds": 1,
    }
    outcome = _run_with_hook(config, tmp_path, lambda leaves, grid: None, app=recording_app)
    (served,) = final_models(outcome)
    names = [name for name, array in served.items() if array.dtype.kind == "f"]
    assert len(names) >= 10
    for name in names:
        expected = np.median(np.stack([state[name] for state in sent]), axis=0).astype(np.float32)
        np.testing.assert_array_equal(served[name], expected)


def test_a_failing_client_is_named_and_left_out(settings, tmp_path):
    """Client 4 raises in global round 2: the run goes on, says so and ends partial."""

    def failing_app(message: Message, context: Context) -> Message:
        is_client_4 = context.node_config["partition-id"] == 4
        in_round_2 = message.content["config"].get("global_round") == 2
        if message.metadata.message_type == "train" and is_client_4 and in_round_2:
            raise RuntimeError("sensor unplugged")
        return client_app(message, context)

    outcome = _run_with_hook(settings, tmp_path, lambda leaves, grid: None, app=failing_app)
    assert outcome.status == "partial"
    table = rows(outcome, "global_rounds.csv")
    assert [row["clients_failed"] for row in table] == ["0", "1", "0"]
    assert [row["clients_ok"] for row in table] == ["9", "8", "9"]
    lost = [
        row for row in rows(outcome, "clients.csv") if row["global_round"] == "2" and row["client"] == "4"
    ]
    assert (lost[0]["train_loss"], lost[0]["train_seconds"]) == ("", "")
    assert (
        "client 4 failed, first in round 2: RuntimeError: sensor unplugged"
        in (tmp_path / "t.txt").read_text()
    )


def test_a_run_without_any_working_client_fails(settings, tmp_path):
    """Every client raises: one line, manifest failed, no data left."""

    def broken_app(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "train":
            raise RuntimeError("no battery")
        return client_app(message, context)

    outcome = _run_with_hook(settings, tmp_path, lambda leaves, grid: None, app=broken_app)
    manifest = json.loads((outcome.folder / "manifest.json").read_text())
    assert manifest["status"] == "failed"
    assert "no client could train in global round 1; client 0: RuntimeError: no battery" in manifest["reason"]
    assert not (outcome.folder / "data").exists()
    assert "Traceback" not in (tmp_path / "t.txt").read_text()
    assert "no battery" in (outcome.folder / "run.log").read_text()


def test_fedprox_keeps_clients_closer(settings, tmp_path):
    """A larger prox-mu shortens the way from the start of a round to the leaf model."""
    distances = []
    for mu in (0.0, 1.0, 10.0):
        config = {**settings, **OFF, "train.prox-mu": mu, "num-server-rounds": 1, "train.local-epochs": 5}
        start = get_state(build_model("cnn", (2, 16), CLASSES, torch_stream(7, Purpose.MODEL)))
        end = final_models(quiet(config, tmp_path))[0]
        weights = [n for n in start if n.endswith("weight")]
        distances.append(sum(float(((end[n] - start[n]) ** 2).sum()) for n in weights))
    assert distances[0] > distances[1] > distances[2]


def test_the_gate_serves_what_it_says(settings, tmp_path):
    """min-gain = 1 can never be met: every leaf keeps its own model and equals the isolated run's."""
    kept = quiet({**settings, "gate.min-gain": 1.0, "scaffold.enabled": False}, tmp_path)
    isolated = quiet({**settings, "cluster.tau": 1.01, "scaffold.enabled": False}, tmp_path)
    assert comparable(kept)["final.safetensors"] == comparable(isolated)["final.safetensors"]
    assert {row["gate"] for row in rows(kept, "leaf_rounds.csv")} == {"rejected"}
    taken = quiet({**settings, "gate.min-gain": -1.0, "scaffold.enabled": False}, tmp_path)
    ungated = quiet({**settings, "gate.enabled": False, "scaffold.enabled": False}, tmp_path)
    assert comparable(taken)["final.safetensors"] == comparable(ungated)["final.safetensors"]
    assert {row["gate"] for row in rows(taken, "leaf_rounds.csv")} == {"accepted"}


def test_clustering_rounds(settings, tmp_path):
    """start-round 2, every 2: cloud steps after rounds 2 and 4 only; labels last in between."""
    config = {**settings, "num-server-rounds": 5, "cluster.start-round": 2, "cluster.every": 2}
    outcome = quiet(config, tmp_path)
    lines = [json.loads(line) for line in (outcome.folder / "clusters.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [2, 4]
    table = rows(outcome, "global_rounds.csv")
    assert [row["cluster_labels"] for row in table][:2] == ["0 1 2", " ".join(map(str, lines[0]["labels"]))]
    assert table[2]["cluster_labels"] == table[1]["cluster_labels"]


def test_times_add_up_and_memory_is_there(settings, tmp_path, monkeypatch):
    """Rounds last as long as the clock on the wall says, and every round has the server's memory."""
    before, after, finish = [], [], LapClock.finish

    def noting(clock):
        before.append(time.perf_counter())
        laps = finish(clock)
        after.append(time.perf_counter())
        return laps

    monkeypatch.setattr(LapClock, "finish", noting)
    outcome = quiet({**settings, "hierarchy.leaf-rounds": 2}, tmp_path, workers=2)
    assert_times_add_up(outcome.folder, 3 * NUM_USERS)
    timing = read(outcome.folder / "timing.csv")
    assert len(before) == len(timing) + 1
    for number, row in enumerate(timing):  # between the two ends, however busy the machine is
        assert before[number + 1] - after[number] <= row["total"] + 1e-6
        assert row["total"] - 1e-6 <= after[number + 1] - before[number]
        assert row["workers"] == 2
        assert row["timeline_train"] > row["timeline_evaluate"] > 0
    with (outcome.folder / "memory.csv").open(newline="") as file:
        memory = list(csv.DictReader(file))
    assert [row["global_round"] for row in memory if row["role"] == "server"] == ["1", "2", "3"]
    assert float(memory[0]["uss_mib"]) > 0
    assert all(int(row["threads"]) > 2 for row in memory if row["role"] == "server")


def test_a_client_that_trains_longest_keeps_its_worker_from_idling(settings, tmp_path):
    """Seconds that clients report are those of the timelines, but for the push before the wait."""
    outcome = quiet({**settings, "train.local-epochs": 10, "train.kernel": "torch"}, tmp_path, workers=1)
    trained = sum(float(row["train_seconds"]) for row in rows(outcome, "clients.csv"))
    parts = ("deserialise", "load", "train", "evaluate", "serialise")
    timing = read(outcome.folder / "timing.csv")
    worked = sum(row[f"timeline_{part}"] for row in timing for part in parts)
    assert worked == pytest.approx(trained + sum(row["timeline_evaluate"] for row in timing), rel=0.1)
