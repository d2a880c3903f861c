"""Robust, adaptive and private leaves: all of configs/robust, server and private, on the synthetic set."""

import csv
import json
from pathlib import Path

import faulty_client
import numpy as np
import pytest
from flwr.app import Error, Message
from flwr.serverapp.strategy import FedAvg, Krum

import fedge.client.privacy
from fedge.client.privacy import numpy_draws_from, private_state, with_privacy
from fedge.config.choices import LEAF_STRATEGIES, MODELS, MODELS_WITH_BATCH_NORM, PRIVACY_KINDS
from fedge.config.sections import PrivacyConfig, from_run_config
from fedge.engine.inprocess import InProcessGrid
from fedge.exchange.train import TrainReply
from fedge.launch.project import parse_override
from fedge.leaf.quorum import needed_replies, refuse_missing_quorum
from fedge.leaf.rules import SelectiveMultiKrum, combine, make_strategy
from fedge.run.run import run
from fedge.seeding import torch_stream
from fedge.training.models import buffer_names, build_model
from fedge.training.schedule import local_training
from hhar.synthetic.generate import synthetic_windows
from hhar.windows.window_file import save_windows

CONFIGS = Path(__file__).parents[2] / "configs"
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
    """Return a function (configuration file, attack of client 3) → how it ended; each is run once."""
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
    """What the others are measured against: one client's 1e30, or −10 times its update, ruins FedAvg."""
    assert accuracy("fedavg.toml", attack)[1] < accuracy("fedavg.toml")[1] - 0.1


ROBUST = ["norm-limit", "median", "trimmed-mean", "krum", "multikrum", "bulyan"]
WITHSTOOD = [
    ("fedavg.toml", "all-nan"),  # the guard refuses it, whatever the strategy
    *((f"robust/{name}.toml", attack) for name in ROBUST for attack in ("huge", "sign-flip")),
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
    assert {f.get("leaf.strategy", "fedavg") for f in files} == set(LEAF_STRATEGIES)
    assert {f.get("privacy.kind", "off") for f in files} == set(PRIVACY_KINDS)


# --- the strategies by hand -----------------------------------------------------------------------------


def combined(config, values, model=0.0, rounds=1):
    """Return what a leaf makes of clients that send these numbers in one entry, and a counter."""
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
        ({"leaf.strategy": "krum", "leaf.num-malicious": 1}, 2.0),
        ({"leaf.strategy": "multikrum", "leaf.num-malicious": 1}, 2.5),  # n − f − 2 = 2 best: 2 and 3
        ({"leaf.strategy": "multikrum", "leaf.num-malicious": 1, "leaf.num-selected": 1}, 2.0),
        ({"leaf.strategy": "fedavgm", "leaf.server-momentum": 0.5}, 22.0),  # first step: the mean
    ],
)
def test_strategies_by_hand(config, expected):
    assert combined(config, [1.0, 2.0, 3.0, 4.0, 100.0]) == pytest.approx(expected)


def test_bulyan_by_hand():
    """n = 7, f = 1: Multi-Krum takes 5 of 1 2 3 4 5 6 100; of those, the 3 nearest to their median."""
    reached = combined({"leaf.strategy": "bulyan", "leaf.num-malicious": 1}, [1.0, 2, 3, 4, 5, 6, 100])
    assert reached in (3.0, 4.0)  # Krum's scores tie at both ends: 1…5 or 2…6 are taken


def test_server_momentum_starts_from_the_leafs_model():
    """Twice a mean of 1 seen from 0, momentum 0.5: steps of 1 and 0.5 + (1 − 1): 1, then 1.5.

    Flower keeps a model of its own for that; a leaf's may have been changed by the gate in between.
    """
    assert combined({"leaf.strategy": "fedavgm", "leaf.server-momentum": 0.5}, [1.0, 1.0], rounds=2) == 1.5


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
        {"scaffold.enabled": False, "leaf.strategy": "multikrum", "leaf.num-malicious": 1}
    )
    assert needed_replies(config) == 5
    assert isinstance(make_strategy(config, 5), SelectiveMultiKrum)
    assert not isinstance(strategy, Krum)


# --- privacy --------------------------------------------------------------------------------------------


def private(kind, **changes):
    return PrivacyConfig(kind=kind, **changes)


START = {"w": np.zeros(4, np.float32), "b": np.zeros((1, 1), np.float32)}
END = {"w": np.array([3, 0, 0, 0], np.float32), "b": np.full((1, 1), 4, np.float32)}  # norm 5


def test_client_clipping_by_hand():
    """Norm 5 to 1: all values divided by 5. What is within the norm stays. The leaf's norm wins."""
    for kind in ("client-fixed", "client-adaptive"):
        sent, clipped = private_state(private(kind), 1.0, START, END, (1, 2, 3))
        np.testing.assert_allclose(sent["w"], [0.6, 0, 0, 0], rtol=1e-6)
        np.testing.assert_allclose(sent["b"], [[0.8]], rtol=1e-6)
        assert sent["w"].dtype == np.float32
        assert clipped is (True if kind == "client-adaptive" else None)
        sent, clipped = private_state(private(kind), 10.0, START, END, (1, 2, 3))
        np.testing.assert_allclose(sent["w"], END["w"], rtol=1e-6)
        assert clipped is (False if kind == "client-adaptive" else None)


def test_nothing_is_touched_where_the_client_is_not_asked():
    for kind in ("off", "server-fixed", "server-adaptive"):
        sent, clipped = private_state(private(kind), None, START, END, (1, 2, 3))
        assert sent is END
        assert clipped is None


def test_an_update_of_zero_is_refused_with_a_reason():
    with pytest.raises(ValueError, match="did not change"):
        private_state(private("client-fixed"), 1.0, START, START, (1, 2, 3))


def test_local_noise_by_hand():
    """Clipped to norm 1, then noise of std 2 · 1 · sqrt(2 ln(1.25/δ)) / ε on every number."""
    start = {"w": np.zeros(200_000, np.float32)}
    end = {"w": np.ones(200_000, np.float32)}
    config = private("local", epsilon=0.5, delta=1e-5, clip_norm=1.0)
    sent, _ = private_state(config, None, start, end, (42, 1, 0))
    expected = 2 * np.sqrt(2 * np.log(1.25e5)) / 0.5
    assert np.std(sent["w"]) == pytest.approx(expected, rel=0.01)
    assert abs(np.mean(sent["w"])) < 4 * expected / np.sqrt(200_000)


def test_noise_follows_from_seed_round_and_client_and_leaves_no_trace():
    """Contract C2: NumPy's global state is as it was, whatever it was, and does not matter."""
    draws = {}
    for where in ((42, 1, 0), (42, 1, 1), (42, 2, 0), (43, 1, 0)):
        for global_seed in (0, 1):
            np.random.seed(global_seed)  # noqa: NPY002
            before = np.random.get_state()[1].tobytes()  # noqa: NPY002
            sent, _ = private_state(private("local"), None, START, END, where)
            assert np.random.get_state()[1].tobytes() == before  # noqa: NPY002
            draws.setdefault(where, set()).add(sent["w"].tobytes())
    assert all(len(found) == 1 for found in draws.values())
    assert len({next(iter(found)) for found in draws.values()}) == 4


def test_numpy_gets_its_state_back_after_an_error():
    before = np.random.get_state()[1].tobytes()  # noqa: NPY002
    with pytest.raises(ValueError, match="scale"), numpy_draws_from(1, 2):
        np.random.normal(size=3, scale=[1, 1, -1])  # noqa: NPY002
    assert np.random.get_state()[1].tobytes() == before  # noqa: NPY002


def test_central_noise_by_hand():
    """Noise of the mean: multiplier × norm / clients = 2 · 3 / 4; all clients weigh alike."""
    config = from_run_config(
        {
            "scaffold.enabled": False, "train.model": "linear", "privacy.kind": "server-fixed",
            "privacy.noise-multiplier": 2.0, "privacy.clip-norm": 3.0,
        }
    )  # fmt: skip
    size = 100_000
    model = {"w": np.zeros(size, np.float32)}
    value = 3 / np.sqrt(size)  # an update of norm 3: just not clipped
    replies = [
        TrainReply({"w": np.full(size, value * sign, np.float32)}, samples, 1, 0.5, 0, 0)
        for sign, samples in ((1, 1000), (1, 1), (1, 1), (-1, 1))
    ]
    settings = local_training(config.train, 1)
    strategy = make_strategy(config, 9)  # nine were asked, four replied: the noise is that of four
    state = combine(strategy, model, model, replies, ["w"], settings, 42, (1, 0))
    assert np.std(state["w"]) == pytest.approx(1.5, rel=0.02)
    assert np.mean(state["w"]) == pytest.approx(value / 2, abs=4 * 1.5 / np.sqrt(size))


@pytest.mark.parametrize("side", ["server", "client"])
def test_the_adaptive_norm_goes_where_the_quantile_is(side):
    """Andrew et al. 2021: C ← C exp(−η (b − γ)) with b the share of updates that are NOT clipped.

    All are clipped (b = 0): C grows by exp(0.2 · 0.5); none is (b = 1): it shrinks by as much.
    """
    wrapper = with_privacy(FedAvg(), private(f"{side}-adaptive", noise_multiplier=0.0, clip_norm=1.0), 10)
    wrapper._geometric_update(1.0)
    assert wrapper.clipping_norm == pytest.approx(np.exp(0.1))
    wrapper._geometric_update(0.0)
    wrapper._geometric_update(0.0)
    assert wrapper.clipping_norm == pytest.approx(np.exp(-0.1))


@pytest.mark.parametrize("kind", ["server-adaptive", "client-adaptive"])
def test_the_adaptive_norm_finds_the_median_of_the_norms(accuracy, kind, monkeypatch):
    """In a run without noise: it starts far too small and grows until not all are clipped."""
    seen = []
    original = fedge.client.privacy._UnclippedQuantile._geometric_update

    def watched(self, fraction):
        seen.append((self.clipping_norm, fraction))
        original(self, fraction)

    monkeypatch.setattr(fedge.client.privacy._UnclippedQuantile, "_geometric_update", watched)
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
                "num-server-rounds": 2, "data.path": window_file, "train.model": "linear",
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
    for name in MODELS:
        model = build_model(name, 2, 16, 3, torch_stream(0, 0))
        assert bool(buffer_names(model)) == (name in MODELS_WITH_BATCH_NORM)


def test_a_mod_that_refuses_is_an_error(monkeypatch):
    """Flower's modifiers answer with an error message; it does not get lost."""

    def refusing(message, *_):
        return Message(Error(1, "no key"), reply_to=message)

    monkeypatch.setattr(fedge.client.privacy, "fixedclipping_mod", refusing)
    with pytest.raises(ValueError, match="no key"):
        private_state(private("client-fixed"), 1.0, START, END, (1, 2, 3))
