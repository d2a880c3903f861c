"""Robust, adaptive and private leaves: all of configs/robust, server and private, on the synthetic set."""

import csv
import json
from pathlib import Path

import faulty_client
import numpy as np
import pytest
from flwr.serverapp.strategy import Krum

import fedge.leaf.strategies.private_mean
from fedge.config.flat import from_run_config
from fedge.config.registers.choices import PRIVACY_KINDS
from fedge.config.registers.parts import MODELS, RULES
from fedge.config.registers.traits import BATCH_NORM, WINDOWS
from fedge.engine.inprocess import InProcessGrid
from fedge.exchange.train import TrainReply
from fedge.launch.projects.project import parse_override
from fedge.leaf.strategies.quorum import needed_replies, refuse_missing_quorum
from fedge.leaf.strategies.rules import SelectiveMultiKrum, combine, make_strategy
from fedge.privacy.mechanism import next_clip_norm
from fedge.run.run import run
from fedge.seeding import torch_stream
from fedge.training.networks.models import build_model
from fedge.training.schedule import local_training
from hhar.synthetic.generate import synthetic_windows
from hhar.windows.window_file import save_windows

CONFIGS = Path(__file__).parents[3] / "configs"
FILES = sorted(
    str(p.relative_to(CONFIGS)) for d in ("robust", "server", "private") for p in (CONFIGS / d).iterdir()
)
CLIENTS = 10
BAD = 3  # the client that is bad


@pytest.fixture(scope="module")
def window_file(tmp_path_factory):
    """Thirty synthetic users, 6,480 windows: enough that an accuracy is known to a point."""
    path = tmp_path_factory.mktemp("windows") / "thirty.npz"
    save_windows(path, synthetic_windows(30, seed=1))
    return str(path)


@pytest.fixture(scope="module")
def accuracy(window_file, tmp_path_factory):
    """A function (configuration file, attack of client 3) → how it ended; each is run once."""
    known = {}

    def measure(file, attack=None, **changes):
        key = (file, attack, *changes.items())
        if key not in known:
            folder = tmp_path_factory.mktemp("run")
            known[key] = study(file, attack, window_file, folder, changes)
        return known[key]

    return measure


def study(file, attack, window_file, folder, changes):
    """Train softmax regression (convex) until it stands still: one leaf, ten clients, windows at random.

    Returns:
        (status, final mean test accuracy, rows of global_rounds.csv, run folder).
    """
    config = {
        **parse_override(str(CONFIGS / file)),
        "report": False,
        "num-server-rounds": 8,
        "data.path": window_file,
        "runs-dir": str(folder / "runs"),
        "partition.kind": "iid",
        "train.model": "linear",
        "train.local-epochs": 1,
        "train.lr": 0.05,
        "train.lr-decay": 0.7,
        **changes,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDGE_FAULTS", json.dumps([{"what": attack, "client": BAD}] if attack else []))
        with (
            InProcessGrid(faulty_client.app, CLIENTS, config, 2) as grid,
            (folder / "terminal.txt").open("w") as terminal,
        ):
            outcome = run(grid, config, "inprocess", {}, lambda _: terminal)
    with (outcome.folder / "metrics" / "global_rounds.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return outcome.status, float(rows[-1]["test_accuracy_mean"]), rows, outcome.folder


# --- one bad client of ten ------------------------------------------------------------------------------


@pytest.mark.parametrize("attack", ["huge", "sign-flip"])
def test_plain_averaging_breaks(accuracy, attack):
    """Baseline of the others: one client's 1e30, or −10 times its update, ruins FedAvg."""
    assert accuracy("fedavg.toml", attack)[1] < accuracy("fedavg.toml")[1] - 0.1


ROBUST = ["norm-limit", "median", "trimmed-mean", "krum", "multikrum", "bulyan"]
WITHSTOOD = [
    ("fedavg.toml", "all-nan"),  # the guard refuses it, whatever the strategy
    *(
        (f"robust/{name}.toml", attack)
        for name, attack in zip(ROBUST, ("huge", "sign-flip") * 3, strict=True)
    ),
    *(
        pytest.param(f"robust/{name}.toml", attack, marks=pytest.mark.extended)
        for name, attack in zip(ROBUST, ("sign-flip", "huge") * 3, strict=True)
    ),
    ("private/server-fixed.toml", "huge"),  # what is clipped to a norm cannot pull further than others
    ("private/server-fixed.toml", "sign-flip"),
    ("private/server-adaptive.toml", "huge"),
]


@pytest.mark.parametrize(("file", "attack"), WITHSTOOD)
def test_one_bad_client_of_ten_costs_at_most_two_points(accuracy, file, attack):
    """Against what FedAvg reaches when nobody is bad."""
    status, reached, _, _ = accuracy(file, attack)
    assert reached > accuracy("fedavg.toml")[1] - 0.02
    assert status == ("partial" if attack == "all-nan" or "norm-limit" in file else "completed")


def test_the_guard_names_what_it_refuses(accuracy):
    _, _, rows, folder = accuracy("robust/norm-limit.toml", "huge")
    assert {row["failures"] for row in rows} == {"rejected: update too large 1"}
    assert (
        "client 3 failed, first in round 1: rejected: update too large"
        in (folder / "manifest.json").read_text()
    )


@pytest.mark.parametrize("file", FILES)
def test_every_configuration_runs_as_it_is(file, accuracy):
    """Nothing in it contradicts the default federation of nine clients, and what trains ends completed."""
    refuse_missing_quorum(from_run_config(parse_override(str(CONFIGS / file))), [9])
    status, reached, _, _ = accuracy(file, **{"num-server-rounds": 2})
    assert status == "completed"
    assert 0 < reached < 1


def test_configs_are_named_as_what_they_set():
    """Every strategy beyond FedAvg and every kind of privacy has its file."""
    files = [parse_override(str(CONFIGS / file)) for file in FILES]
    assert {f.get("leaf.strategy", "fedavg") for f in files} == set(RULES.names)
    assert {f.get("privacy.kind", "off") for f in files} == set(PRIVACY_KINDS)


# --- the strategies by hand -----------------------------------------------------------------------------


def combined(config, values, model=0.0, rounds=1):
    """A leaf's aggregate of clients that send these numbers in one entry, and a counter."""
    checked = from_run_config({"scaffold.enabled": False, **config})
    strategy = make_strategy(checked, len(values))
    state = {"w": np.array([model], np.float32), "n": np.array(3)}
    for leaf_round in range(1, rounds + 1):
        replies = [
            TrainReply({"w": np.array([v], np.float32), "n": np.array(4)}, 1, 1, 0.5, 0, 0) for v in values
        ]
        mean = {"w": np.array([np.mean(values)], np.float32), "n": np.array(4)}
        settings = local_training(checked.train, leaf_round)
        state = combine(strategy, state, mean, replies, ["w"], settings, 42, (leaf_round, 0))
    assert state["n"] == 4
    assert state["w"].dtype == np.float32
    return float(state["w"][0])


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"leaf.strategy": "fedmedian"}, 3.0),  # median of 1 2 3 4 100
        ({"leaf.strategy": "fedtrimmedavg"}, 3.0),  # (2 + 3 + 4) / 3
        # f = 1 leaves the n − f − 2 = 2 nearest; sums of squares 5 (of 1), 2, 2, 5: first smallest is 2
        ({"leaf.strategy": "krum", "leaf.strategy-args.num-malicious-nodes": 1}, 2.0),
        (
            {"leaf.strategy": "multikrum", "leaf.strategy-args.num-malicious-nodes": 1},
            2.5,
        ),  # n − f − 2 = 2 best: 2 and 3
        (
            {
                "leaf.strategy": "multikrum",
                "leaf.strategy-args.num-malicious-nodes": 1,
                "leaf.strategy-args.num-nodes-to-select": 1,
            },
            2.0,
        ),
        (
            {"leaf.strategy": "fedavgm", "leaf.strategy-args.server-momentum": 0.5},
            22.0,
        ),  # first step: the mean
    ],
)
def test_strategies_by_hand(config, expected):
    assert combined(config, [1.0, 2.0, 3.0, 4.0, 100.0]) == pytest.approx(expected)


def test_bulyan_by_hand():
    """n = 7, f = 1: Multi-Krum takes 5 of 1 2 3 4 5 6 100; of those, the 3 nearest to their median."""
    reached = combined(
        {"leaf.strategy": "bulyan", "leaf.strategy-args.num-malicious-nodes": 1}, [1.0, 2, 3, 4, 5, 6, 100]
    )
    assert reached in (3.0, 4.0)  # Krum's scores tie at both ends: 1…5 or 2…6 are taken


def test_server_momentum_starts_from_the_leafs_model():
    """Twice a mean of 1 seen from 0, momentum 0.5: steps of 1 and 0.5 + (1 − 1): 1, then 1.5.

    Flower keeps a model of its own for that; a leaf's may have been changed by the gate in between.
    """
    assert (
        combined(
            {"leaf.strategy": "fedavgm", "leaf.strategy-args.server-momentum": 0.5}, [1.0, 1.0], rounds=2
        )
        == 1.5
    )


def test_qfedavg_by_hand():
    """q = 0.1, F = 0.5, L = 1/0.05; steps −1, −3: Δ = L F^q Σ steps, h = q F^(q−1) (L step)² + L F^q."""
    fq, length = 0.5**0.1, 20.0
    h = sum(0.1 * 0.5**-0.9 * (length * step) ** 2 + length * fq for step in (1, 3))
    expected = length * fq * (1 + 3) / h
    assert combined({"leaf.strategy": "qfedavg", "train.lr": 0.05}, [1.0, 3.0]) == pytest.approx(
        expected, rel=1e-5
    )


def test_multikrum_takes_all_but_the_malicious_however_many_came():
    strategy = SelectiveMultiKrum(num_malicious_nodes=1, num_nodes_to_select=0)
    config = from_run_config(
        {"scaffold.enabled": False, "leaf.strategy": "multikrum", "leaf.strategy-args.num-malicious-nodes": 1}
    )
    assert needed_replies(config) == 5
    assert isinstance(make_strategy(config, 5), SelectiveMultiKrum)
    assert not isinstance(strategy, Krum)


# --- privacy --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["server-adaptive", "client-adaptive"])
def test_the_adaptive_norm_finds_the_median_of_the_norms(accuracy, kind, monkeypatch):
    """In a run without noise: it starts far too small and grows until not all are clipped."""
    seen = []

    def watched(clip_norm, unclipped, *rest):
        seen.append((clip_norm, 1 - sum(unclipped) / len(unclipped)))
        return next_clip_norm(clip_norm, unclipped, *rest)

    monkeypatch.setattr(fedge.leaf.strategies.private_mean, "next_clip_norm", watched)
    accuracy(f"private/{kind}.toml", **{"privacy.noise-multiplier": 0.0, "privacy.clip-lr": 1.0})
    norms, clipped = zip(*seen, strict=True)
    assert len(seen) == 8
    assert norms[0] == 0.1
    assert clipped[0] == 1.0
    assert norms[1] == pytest.approx(0.1 * np.exp(0.5))
    assert min(clipped) < 1.0


def test_noise_has_the_same_bits_on_any_number_of_workers(window_file, tmp_path):
    """Contract C3 with noise, at the leaf and at the clients."""
    for kind in ("server-fixed", "local"):
        finals = []
        for workers in (1, 3):
            config = {
                **parse_override(str(CONFIGS / f"private/{kind}.toml")),
                "report": False, "num-server-rounds": 2, "data.path": window_file, "train.model": "linear",
                "partition.kind": "iid", "train.local-epochs": 1,
                "runs-dir": str(tmp_path / f"{kind}-{workers}"),
            }  # fmt: skip
            with (
                InProcessGrid(faulty_client.app, 4, config, workers) as grid,
                (tmp_path / "t").open("w") as out,
            ):
                outcome = run(grid, config, "inprocess", {}, lambda _, out=out: out)
            assert outcome.status == "completed"
            finals.append((outcome.folder / "checkpoints" / "final.safetensors").read_bytes())
        assert finals[0] == finals[1]


def test_models_with_batch_norm_are_those_with_statistics():
    for name in MODELS.names_with(WINDOWS):
        model = build_model(name, (2, 16), 3, torch_stream(0, 0))
        assert bool(list(model.buffers())) == (name in MODELS.names_with(BATCH_NORM))
