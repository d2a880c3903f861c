"""Picks of robust rules when updates are small beside the weights, and replies that cannot be combined."""

import random

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAvg

from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import CLOUD, RULES
from fedge.exchange.round_context import RoundContext
from fedge.exchange.train import TrainReply
from fedge.leaf.leaf import Leaf
from fedge.leaf.strategies.rules import (
    combine,
    is_stateless,
    make_cloud_rule,
    make_strategy,
    note_of_uncalled,
    refuse_strategy_that_fails,
)
from fedge.leaf.strategies.strategy_state import (
    numbers_of,
    refuse_incompatible_state,
    restore_strategy,
    states_of,
)
from fedge.training.settings import LocalTraining

CLIENTS = 10


ONE_MALICIOUS = {"leaf.strategy-args.num-malicious-nodes": 1}


def strategy(name, **changes):
    config = from_run_config({"scaffold.enabled": False, "leaf.strategy": name, **changes})
    return make_strategy(config, CLIENTS)


PRIVATE = ("server-fixed", "server-adaptive", "client-fixed", "client-adaptive", "local")
MADE = {
    **{f"leaf {name}": lambda name=name: strategy(name) for name in RULES.names},
    **{
        f"cloud {name}": lambda name=name: make_cloud_rule(from_run_config({"cloud.rule": name}).cloud)
        for name in CLOUD.names
    },
    **{
        f"private {kind}": lambda kind=kind: strategy(
            "fedavg", **{"privacy.kind": kind, "privacy.noise-multiplier": 0.01, "train.model": "linear"}
        )
        for kind in PRIVATE
    },
}  # fmt: skip


@pytest.mark.parametrize("name", MADE)
def test_what_a_rule_keeps_of_a_round_is_taken_by_one_that_goes_on(name):
    """After a stop, or at another process: nothing that a round has left in a rule is refused as forged."""
    rng = np.random.default_rng(0)
    models = [{"w": rng.normal(size=(4, 3)).astype(np.float32)} for _ in range(CLIENTS + 1)]
    settings = LocalTraining(lr=0.05)  # q-FedAvg is told the step size

    def round_of(rule, number):
        arguments = models[0], models[1], replies_of(models[1:]), ["w"], settings, 1, (number, 0)
        return combine(rule, *arguments)["w"].tobytes()

    one, other = MADE[name](), MADE[name]()
    for number in (1, 2):
        round_of(one, number)
    states, numbers = states_of(one), numbers_of(one)
    refuse_incompatible_state(other, states, numbers, models[0])
    restore_strategy(other, states, numbers)
    assert round_of(other, 3) == round_of(one, 3)


@pytest.mark.parametrize("name", MADE)
def test_numbers_without_axes_and_empty_entries_are_combined_as_any_others(name):
    """The same numbers in flat entries give the same, and what a rule keeps is taken by one that goes on."""
    rng = np.random.default_rng(0)
    shapes = {"w": (4, 3), "scale": (), "none": (0, 3)}
    models = [
        {entry: np.asarray(rng.normal(size=shape), np.float32) for entry, shape in shapes.items()}
        for _ in range(CLIENTS + 1)
    ]
    settings = LocalTraining(lr=0.05)

    def rounds_of(rule, models, numbers):
        for number in numbers:
            replies = replies_of(models[1:])
            made = combine(rule, models[0], models[1], replies, list(shapes), settings, 1, (number, 0))
        return made

    one, other, third = MADE[name](), MADE[name](), MADE[name]()
    found = rounds_of(one, models, (1, 2))
    flat = rounds_of(other, [{n: a.reshape(-1) for n, a in model.items()} for model in models], (1, 2))
    assert {entry: array.shape for entry, array in found.items()} == shapes
    assert {n: a.tobytes() for n, a in found.items()} == {n: a.tobytes() for n, a in flat.items()}
    refuse_incompatible_state(third, states_of(one), numbers_of(one), models[0])
    restore_strategy(third, states_of(one), numbers_of(one))
    assert rounds_of(third, models, (3,))["scale"] == rounds_of(one, models, (3,))["scale"]


def replies_of(states, loss=0.5):
    return [TrainReply(state, 10, 1, loss, 1.0, 0) for state in states]


def krum_by_hand(updates, malicious, select):
    """Scores are sums of squared distances to the n − f − 2 nearest others (Blanchard et al. 2017)."""
    distances = np.array([[np.sum((a - b) ** 2) for b in updates] for a in updates])
    nearest = len(updates) - malicious - 2
    scores = np.sort(distances, axis=1)[:, 1 : nearest + 1].sum(axis=1)
    return sorted(np.argsort(scores)[:select].tolist())


@pytest.mark.parametrize("norm", [1.0, 0.1, 0.01, 0.001])
@pytest.mark.parametrize("seed", range(10))
def test_krum_picks_what_the_updates_say_however_small_they_are(norm, seed):
    """Weights of norm 100, updates of `norm`: in float32 whole models are too coarse to tell them apart."""
    rng = np.random.default_rng(seed)
    start = rng.normal(size=10_000).astype(np.float32)
    steps = rng.normal(size=(CLIENTS, 10_000)) * rng.uniform(0.8, 1.2, (CLIENTS, 1))
    states = [{"w": (start + norm * s / np.linalg.norm(s)).astype(np.float32)} for s in steps]
    updates = [state["w"].astype(np.float64) - start for state in states]
    (best,) = krum_by_hand(updates, 1, 1)
    chosen = combine(
        strategy("krum", **ONE_MALICIOUS), {"w": start}, states[0], replies_of(states), ["w"],
        LocalTraining(), 1, (1, 0),
    )  # fmt: skip
    assert np.array_equal(chosen["w"], states[best]["w"])


@pytest.mark.parametrize("seed", range(5))
def test_multi_krum_averages_those_that_lie_together(seed):
    rng = np.random.default_rng(seed)
    start = rng.normal(size=1000).astype(np.float32)
    states = [{"w": (start + 1e-4 * rng.normal(size=1000)).astype(np.float32)} for _ in range(CLIENTS)]
    states[3] = {"w": start + np.float32(1e-2)}
    updates = [state["w"].astype(np.float64) - start for state in states]
    chosen = krum_by_hand(updates, 1, 7)
    assert 3 not in chosen
    made = combine(
        strategy("multikrum", **ONE_MALICIOUS), {"w": start}, states[0], replies_of(states), ["w"],
        LocalTraining(), 1, (1, 0),
    )  # fmt: skip
    expected = start + np.mean([updates[client] for client in chosen], axis=0)
    assert np.allclose(made["w"], expected, rtol=1e-6)


def test_only_a_plain_mean_keeps_nothing():
    assert is_stateless(strategy("fedavg"))
    assert not is_stateless(strategy("fedadam"))


def test_a_reply_that_cannot_be_combined_is_named_and_leaves_no_trace():
    """q-FedAvg raises a loss to a power: 1e39 to the 20th is too much for any number."""
    start = {"w": np.ones(3, np.float32)}
    q = {"leaf.strategy-args.q": 20.0}
    settings, context = LocalTraining(lr=0.1), RoundContext(42, 1, 1, "/data", "/run.log", 0, 60.0)
    states = {client: {"w": np.full(3, 1.0 - 0.1 * (client + 1), np.float32)} for client in range(3)}
    replies = dict(enumerate(replies_of(states.values())))
    bad = {**replies, 1: replies_of([states[1]], loss=1e39)[0]}

    def leaf():
        return Leaf(0, dict.fromkeys(range(3), 10), start, ["w"], strategy("qfedavg", **q), 0)

    spoilt, honest = leaf(), leaf()
    refused = spoilt.aggregate_train(context, bad, states[0], settings)
    assert list(refused) == [1]
    assert refused[1].failure.kind == "rejected: cannot be combined"
    assert np.array_equal(spoilt.model["w"], start["w"])
    others = {client: reply for client, reply in replies.items() if client != 1}
    for made in (spoilt, honest):
        assert made.aggregate_train(context, others, states[0], settings) == {}
    assert np.array_equal(spoilt.model["w"], honest.model["w"])
    assert not np.array_equal(spoilt.model["w"], start["w"])


class TakesTwo(FedAvg):
    """One that names what it takes."""

    def __init__(self, min_train_nodes, weighted_by_key="num-examples"):
        super().__init__(weighted_by_key=weighted_by_key)
        self.given = {"min_train_nodes": min_train_nodes}


class TakesAll(FedAvg):
    """One that passes on whatever it is given."""

    def __init__(self, **given):
        super().__init__(**given)
        self.given = given


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("TakesTwo", {"min_train_nodes": 1}),
        ("TakesAll", {"fraction_train": 1.0, "min_train_nodes": 1, "min_available_nodes": 1}),
    ],
)
def test_a_strategy_of_a_user_s_own_is_offered_what_it_takes(name, given):
    """Flower's own settings, so that one client is enough: none that its constructor does not know."""
    assert strategy(f"{__name__}:{name}").given == given


def test_a_strategy_that_makes_no_model_keeps_the_last_one_and_says_so(caplog):
    class Refusing(FedAvg):
        def aggregate_train(self, server_round, replies):
            return None, None

    models = [{"w": np.full((2, 2), value, np.float32)} for value in (1.0, 2.0, 3.0)]
    made = combine(Refusing(), *models[:2], replies_of(models), ["w"], LocalTraining(), 0, (4, 0))
    assert made is models[0]
    assert caplog.messages == ["round 4: Refusing made no model of 3 replies; the last one stays"]


class StepsFromSent(FedAvg):
    """Moves half of the way from the model that it has sent: known from its messages, as in Flower."""

    def __init__(self, begin=None, **settings):
        super().__init__(**settings)
        self.sent = begin

    def configure_train(self, server_round, arrays, config, grid):
        self.sent = {name: array.numpy().copy() for name, array in arrays.items()}
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round, replies):
        found, numbers = super().aggregate_train(server_round, replies)
        made = {name: (array.numpy() + self.sent[name]) / 2 for name, array in found.items()}
        return ArrayRecord({name: Array(array.astype(np.float32)) for name, array in made.items()}), numbers


MODEL = {"w": np.ones((4, 3), np.float32), "count": np.array(3), "scale": np.float32(1.5).reshape(())}


@pytest.mark.parametrize("begin", [None, {}])
def test_a_rule_that_reads_the_model_from_its_messages_passes_its_trial_as_it_passes_a_run(begin):
    rule = StepsFromSent(begin)
    state = random.getstate()
    refuse_strategy_that_fails(RULES, f"{__name__}:StepsFromSent", rule, MODEL, ["w", "scale"], 3)
    assert random.getstate() == state
    assert rule.sent == begin


def test_a_rule_of_the_cloud_that_reads_the_model_from_messages_is_refused():
    """A cloud sends offers, and makes no messages of a strategy."""
    name = f"{__name__}:StepsFromSent"
    with pytest.raises(ConfigError, match=r"^cloud.rule \S+:StepsFromSent must not rely on configure_train"):
        refuse_strategy_that_fails(CLOUD, name, StepsFromSent({}), MODEL, ["w", "scale"], 3)


@pytest.mark.parametrize("slip", ["agregate_train", "aggregate_trains", "aggregate", "configure_trian"])
def test_a_slip_in_a_rule_s_method_is_refused(slip):
    """It would be FedAvg otherwise."""
    name = RULES.given(type("Mine", (FedAvg,), {"__module__": "page", slip: lambda *_: None}), 2)
    with pytest.raises(ConfigError, match=f"has a method {slip}, which nothing calls; did you mean"):
        strategy(name)
    RULES.forget(name)


def test_methods_that_a_run_never_calls_are_told():
    class Evaluates(FedAvg):
        def aggregate_evaluate(self, server_round, replies):
            return None

        def aggregate_train(self, server_round, replies):
            return super().aggregate_train(server_round, replies)

    name = RULES.given(Evaluates, 2)
    config = from_run_config({"scaffold.enabled": False, "leaf.strategy": name})
    assert f"{name} defines aggregate_evaluate, which a run never calls" in note_of_uncalled(config)
    RULES.forget(name)
    assert note_of_uncalled(from_run_config({"leaf.strategy": "fedavgm", "scaffold.enabled": False})) == ""
