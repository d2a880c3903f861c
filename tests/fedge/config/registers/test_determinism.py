"""Custom parts of every register, each with draws that no seed says: all are refused in one line."""

import itertools
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAvg
from small_runs import carry_out, small_config
from torch import nn

from fedge.algorithm import Algorithm, Fit, Sent
from fedge.clustering.likeness.evidence import Evidence
from fedge.clustering.registry import method_named
from fedge.clustering.signals import similarity_of
from fedge.compression import Compressor
from fedge.config.flat import from_run_config
from fedge.config.registers.determinism import GLOBAL_STREAMS, call_twice
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import CALLBACKS, DATASETS, REGISTERS, TRACKERS
from fedge.data.association import associated
from fedge.data.prepared import DataShape
from fedge.data.scenario import Change, make_scenario
from fedge.data.shares import _deal_by_user_code
from fedge.devices import Fleet
from fedge.leaf.strategies.quorum import fewest_training
from fedge.leaf.trial import try_algorithm
from fedge.rounds.mobility import refuse_impossible_moves
from fedge.run.preparation.parts import (
    refuse_model_that_does_not_fit,
    refuse_parts_that_do_not_fit,
    refuse_rule_that_fails,
)
from fedge.serving.gate import Paired, takes_offer
from fedge.tasks import Score
from fedge.tasks.classification import Classification
from fedge.training.networks.models import build_model
from hhar.windows.window_file import Windows

SHAPE, SIZES = DataShape((2, 8), 2), [8, 8]
turns = itertools.count(1)
CHANCE = {
    "its own": lambda: np.random.default_rng().random(),
    "numpy.random": lambda: np.random.random(),  # noqa: NPY002
    "random": random.random,
    "torch": lambda: float(torch.rand(())),
    "its memory": lambda: next(turns) * 0.6180339887 % 1.0,
}
drawn = random.random  # as a test says


def _number(count):
    """A number below `count`."""
    return int(drawn() * count)


class Net(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        self.last = nn.Linear(16, classes)

    def forward(self, x):
        return self.last(x.flatten(1)) * (1 + drawn())


class Method(Algorithm):
    def train(self, client):
        state = {name: array + np.float32(drawn()) for name, array in client.received.items()}
        return Sent(Fit(state, 0.0, 1))


class Task(Classification):
    def losses(self, answers, y, smoothing=0.0):
        return super().losses(answers, y, smoothing) * drawn()


def loss(answers, y):
    return nn.functional.cross_entropy(answers, y, reduction="none") * (1 + drawn())


metric = Score("luck", lambda sums: drawn(), higher_is_better=True)


def augment(x, rng):
    return x + np.float32(drawn())


class Optimizer(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for weight in group["params"]:
                weight.data += drawn()


def schedule(global_round):
    return 0.5 + drawn() / 2


class Rule(FedAvg):
    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies)
        return ArrayRecord({n: Array(a.numpy() + np.float32(drawn())) for n, a in arrays.items()}), metrics


class Code(Compressor):
    unbiased = True

    def sent(self, update, rng):
        return update * (1 + drawn())

    def bits(self, count):
        return 64 * count


def signal(evidence):
    return np.full((len(evidence.models),) * 2, drawn())


def group(evidence, config, before):
    return [_number(1000) for _ in evidence.models]


def gate(pair, config):
    return drawn() < 0.5


def deal(windows, clients_per_leaf, rng):
    return [_number(sum(clients_per_leaf)) for _ in windows.y]


def plant(groups, channels, classes, rng):
    return [Change(np.eye(len(channels)) * (1 + drawn())) for _ in range(groups)]


def server(model, memory, arrival):
    return model + np.float32(drawn())


def preset(owner, rng):
    nothing, at_once = np.zeros(len(owner)), np.full(len(owner), np.inf)
    return Fleet(nothing, nothing + 1 + drawn(), at_once, at_once, nothing, nothing)


def duration(work):
    return 1 + drawn()


def availability(devices, seed):
    return lambda device, now_us: (True, now_us + 1 + _number(10**6))


def pick(there, history, turn):
    return there.at(_number(len(there)))


def select(clients, turn):
    return sorted(clients.ids, key=lambda client: drawn())[: turn.count]


def participation(global_round, leaf, clients):
    return 1 + _number(clients)


def associate(clients, places, rng):
    leaves = np.repeat(np.arange(len(places)), places)
    return np.random.default_rng(_number(2**53)).permutation(leaves)  # hardly twice the same by chance


def move(places, turn):
    return {int(client): _number(places.leaves) for client in places.ids}


def _windows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 2, 8)).astype(np.float32)
    return Windows(x, np.arange(64) % 2, np.array(["a", "b"] * 32), None, None, ("x", "y"), ("c0", "c1"))


def _tried(config):
    network = build_model("linear", (2, 8), 2, torch.Generator().manual_seed(0))
    windows = _windows()
    try_algorithm(config, network, windows.x[:10], windows.y[:10])


def _grouped(config):
    models = [{"w": np.full((2, 2), float(n), np.float32)} for n in range(12)]
    evidence = Evidence(models, models, [1.0] * 12, ("w",))
    if config.cluster.signal.endswith("signal"):
        similarity_of(config.cluster.signal, evidence)
    else:
        method_named(config.cluster).group(evidence, config.cluster, None)


def _associated(config):
    windows = _windows()
    parts = [(np.arange(4) + 4 * client, np.arange(0), np.arange(0)) for client in range(16)]
    associated(parts, windows, config, SIZES, 0)


def _asked(config):
    for _ in range(20):  # it is asked in a run alone, for one bit each
        takes_offer(Paired(both=7, only_own=1, only_offered=1, windows=10), config.gate)


CLOCK = {
    "asynchrony.rule": "fedasync",
    "scaffold.enabled": False,
    "cluster.enabled": False,
    "gate.enabled": False,
}
PLAIN = {"scaffold.enabled": False}
LEARNT = {"train.model": "linear", **PLAIN}
ASKED = {
    "train.model": ("Net", PLAIN, lambda config: refuse_model_that_does_not_fit(config, SHAPE)),
    "train.algorithm": ("Method", LEARNT, _tried),
    "train.task": ("Task", LEARNT, lambda config: refuse_model_that_does_not_fit(config, SHAPE)),
    "train.loss": ("loss", LEARNT, lambda config: refuse_model_that_does_not_fit(config, SHAPE)),
    "train.metrics": ("metric", LEARNT, lambda config: refuse_model_that_does_not_fit(config, SHAPE)),
    "train.augment": ("augment", LEARNT, lambda config: refuse_model_that_does_not_fit(config, SHAPE)),
    "train.optimizer": ("Optimizer", LEARNT, refuse_parts_that_do_not_fit),
    "train.schedule": ("schedule", LEARNT, refuse_parts_that_do_not_fit),
    "leaf.strategy": ("Rule", LEARNT, lambda config: refuse_rule_that_fails(config, SHAPE, SIZES)),
    "cloud.rule": ("Rule", LEARNT, lambda config: refuse_rule_that_fails(config, SHAPE, SIZES)),
    "uplink.clients": ("Code", LEARNT, refuse_parts_that_do_not_fit),
    "uplink.servers": ("Code", CLOCK | {"asynchrony.rule": "off"}, refuse_parts_that_do_not_fit),
    "cluster.signal": ("signal", {}, _grouped),
    "cluster.method": ("group", {}, _grouped),
    "gate.rule": ("gate", {}, _asked),
    "partition.kind": (
        "deal",
        {},
        lambda c: _deal_by_user_code(_windows(), np.zeros(64, np.int64), c, SIZES, 0),
    ),
    "scenario": ("plant", {}, lambda config: make_scenario(config, ("x", "y"), 2, SIZES, 0)),
    "asynchrony.rule": ("server", CLOCK, refuse_parts_that_do_not_fit),
    "asynchrony.cloud-rule": ("server", CLOCK, refuse_parts_that_do_not_fit),
    "devices.preset": ("preset", CLOCK, refuse_parts_that_do_not_fit),
    "devices.availability": ("availability", CLOCK, refuse_parts_that_do_not_fit),
    "devices.duration": ("duration", CLOCK, refuse_parts_that_do_not_fit),
    "devices.selection": ("pick", CLOCK, refuse_parts_that_do_not_fit),
    "hierarchy.selection": ("select", {}, refuse_parts_that_do_not_fit),
    "hierarchy.participation": ("participation", {}, lambda config: fewest_training(config, SIZES)),
    "hierarchy.association": ("associate", {}, _associated),
    "hierarchy.mobility": ("move", {}, lambda c: refuse_impossible_moves(c, SIZES, 0)),
}
# what they give is told (a fingerprint, which a resumed run compares), or no part of a result
NOT_ASKED = {register.option for register in (DATASETS, TRACKERS, CALLBACKS)}
ONLY_STREAMS = {"train.model": {"numpy.random", "random"}}  # PyTorch's are a client's own (`OwnDraws`)
EACH = [(o, s) for o in ASKED for s in CHANCE if s in ONLY_STREAMS.get(o, CHANCE)]


def _config(option):
    part, options, _ = ASKED[option]
    return from_run_config({**options, option: f"{__name__}:{part}"})


def test_every_register_is_asked_twice_or_says_why_not():
    assert {register.option for register in REGISTERS} <= ASKED.keys() | NOT_ASKED


@pytest.mark.parametrize("option", ASKED)
def test_a_part_without_draws_is_taken(option, monkeypatch):
    monkeypatch.setattr(f"{__name__}.drawn", lambda: 0.25)
    ASKED[option][2](_config(option))


@pytest.mark.parametrize(("option", "source"), EACH)
def test_draws_that_no_seed_says_are_refused(option, source, monkeypatch):
    monkeypatch.setattr(f"{__name__}.drawn", CHANCE[source])
    with pytest.raises(ConfigError, match=r"must (follow from the seed|give the same result)") as caught:
        ASKED[option][2](_config(option))
    assert "\n" not in str(caught.value)
    assert option.removesuffix("s") in str(caught.value)


IN_SERIES = [
    "train.schedule", "hierarchy.participation", "hierarchy.selection", "hierarchy.mobility",
    "devices.availability", "devices.duration", "devices.selection",
]  # fmt: skip


@pytest.mark.parametrize("period", [2, 3, 5])
@pytest.mark.parametrize("option", IN_SERIES)
def test_a_part_that_counts_its_calls_is_refused_however_often_it_is_tried(option, period, monkeypatch):
    """A resumed run would begin to count anew, though two whole series of calls may give the same."""
    part, _, act = ASKED[option]
    calls, ask = itertools.count(), globals()[part]

    def counting(*given):
        monkeypatch.setattr(f"{__name__}.drawn", random.Random(next(calls) % period).random)
        return ask(*given)

    def counting_later(*given):
        return lambda *at: counting(*given)(*at)

    counts = counting_later if option == "devices.availability" else counting
    monkeypatch.setattr(f"{__name__}.{part}", counts)
    with pytest.raises(ConfigError, match="must give the same result from the same start"):
        act(_config(option))


@pytest.mark.parametrize("option", ASKED)
def test_a_part_that_ends_the_process_is_refused(option, monkeypatch):
    """sys.exit() in a user's code would end a run with an exit code of its own, as 0."""
    monkeypatch.setattr(f"{__name__}.drawn", lambda: sys.exit("no more"))
    with pytest.raises(ConfigError, match="SystemExit: no more") as caught:
        ASKED[option][2](_config(option))
    assert "\n" not in str(caught.value)


def _begun_anew():
    random.seed(3)
    return random.random()


def test_a_stream_begun_anew_and_one_of_equal_answers_are_told_apart():
    """The first says the same for ever; the second says the same by chance."""
    assert call_twice("it", _begun_anew) == call_twice("it", _begun_anew)
    with pytest.raises(
        ConfigError, match="it must follow from the seed, but draws from the global stream of random"
    ):
        call_twice("it", lambda: random.random() < 2)


def _seeds_and_draws(library):
    return {
        "random": lambda: (random.seed(3), random.random())[1],
        "numpy.random": lambda: (np.random.seed(3), np.random.random())[1],  # noqa: NPY002
        "torch": lambda: (torch.manual_seed(3), float(torch.rand(())))[1],
    }[library]


@pytest.mark.parametrize("library", ["random", "numpy.random", "torch"])
def test_in_threads_no_stream_may_be_begun_anew(library):
    """Another thread begins it anew between this one's seed and its draw."""
    ask = _seeds_and_draws(library)
    assert call_twice("it", ask) == ask()
    with pytest.raises(
        ConfigError, match=f"it must follow from the seed, but draws from the global stream of {library}"
    ):
        call_twice("it", ask, in_threads=True)


def test_in_threads_a_first_call_may_move_a_stream_once():
    """A library that draws while it is imported."""
    calls = []

    def ask():
        if not calls:
            random.random()
        calls.append(1)
        return 1

    assert call_twice("it", ask, in_threads=True) == 1


def test_draws_of_another_thread_now_and_then_are_none_of_a_part():
    """Flower's heartbeats and retries draw their times from Python's stream."""
    calls = []

    def ask():
        if len(calls) in (0, 1, 3, 4):  # both calls of the first pair; one of each later
            elsewhere = threading.Thread(target=random.random)
            elsewhere.start()
            elsewhere.join()
        calls.append(1)
        return 1

    assert call_twice("it", ask, in_threads=True) == 1
    assert len(calls) == 4


SEED_FIRST = ["train.algorithm", "train.augment", "train.loss", "train.optimizer", "uplink.clients"]


@pytest.mark.parametrize("option", SEED_FIRST)
def test_what_clients_compute_may_not_begin_a_global_stream_anew(option, monkeypatch):
    monkeypatch.setattr(f"{__name__}.drawn", _begun_anew)
    with pytest.raises(ConfigError, match="draws from the global stream of random"):
        ASKED[option][2](_config(option))


def test_threads_that_ask_at_once_do_not_see_each_other_s_streams():
    """As leaf servers of one process, which begin together."""

    def asked(number):
        def answer():
            time.sleep(0.002)  # time for others
            return number

        return call_twice(f"part {number}", answer, in_threads=number % 2 == 0)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(asked, range(24))) == list(range(24))


@pytest.mark.parametrize(
    "options",
    [
        {"scaffold.enabled": True},
        {"privacy.kind": "client-adaptive", "privacy.noise-multiplier": 0.05},
        {"leaf.strategy": "fedadam"},
    ],
)
def test_what_a_run_itself_draws_from_a_global_stream_it_draws_alone(options, tmp_path, monkeypatch):
    """Leaf servers of one process train while others try their parts."""
    drew = []
    for module in (random, np.random):
        for name in ("random", "uniform", "sample", "shuffle", "choice", "normal", "randint", "seed"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, _watched(getattr(module, name), drew))
    carry_out(small_config(tmp_path) | {"scaffold.enabled": False} | options, "watched")
    assert set(drew) == {True}  # FedAvg's samples among them


def _watched(function, drew):
    """A function that notes whether the lock on the global streams is its thread's."""

    def called(*args, **kwargs):
        drew.append(GLOBAL_STREAMS._is_owned())
        return function(*args, **kwargs)

    return called
