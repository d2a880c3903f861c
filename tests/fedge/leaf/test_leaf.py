"""A leaf through leaf rounds whose replies are written down here."""

import json

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg
from hypothesis import given
from hypothesis import strategies as st

from fedge.config.flat import from_run_config
from fedge.exchange.content import CONTROL
from fedge.exchange.engine import RunError
from fedge.exchange.round_context import RoundContext
from fedge.exchange.train import TrainReply
from fedge.leaf.drift import Drift
from fedge.leaf.leaf import Leaf
from fedge.leaf.strategies.rules import make_strategy
from fedge.states.averaging import weighted_mean
from fedge.states.records import from_record, to_record
from fedge.training.settings import LocalTraining

SAMPLES = {1: 30, 0: 10}
SETTINGS = LocalTraining(lr=0.5, momentum=0.0)


def state(value):
    return {"w": np.array([value], np.float32)}


def make_leaf(levels=1, **options):
    strategy = make_strategy(from_run_config(options), 2)
    return Leaf(0, SAMPLES, state(1), ["w"], strategy, levels, unseen_clients=[3, 2])


def take(leaf, leaf_round, answers):
    """Let a leaf combine answers: client → (what its model has become, steps)."""
    replies = {c: TrainReply(state(w), SAMPLES[c], k, 0.5, 1.0, 4) for c, (w, k) in sorted(answers.items())}
    mean = weighted_mean([r.state for r in replies.values()], [r.samples for r in replies.values()])
    context = RoundContext(0, 1, leaf_round, "nowhere", "log", 0, 5.0)
    return leaf.aggregate_train(context, replies, mean, SETTINGS)


def test_a_leaf_knows_its_clients_in_order():
    leaf = make_leaf()
    assert (leaf.clients, leaf.unseen_clients, leaf.weight) == ((0, 1), (2, 3), 40)
    assert leaf.client_controls == {}
    assert leaf.control["w"].tolist() == [0.0]
    assert make_leaf(levels=0).control is None


def test_a_leaf_round_with_control_variates_by_hand():
    """Model (10 · 0 + 30 · 3) / 40; Δc_0 = (1 − 0) / (2 · 0.5), Δc_1 = (1 − 3) / (4 · 0.5), c = −20 / 40."""
    leaf = make_leaf()
    assert take(leaf, 1, {0: (0.0, 2), 1: (3.0, 4)}) == {}
    assert leaf.model["w"].tolist() == [2.25]
    assert leaf.control["w"].tolist() == [-0.5]
    assert {c: own["w"].tolist() for c, own in leaf.client_controls.items()} == {0: [1.0], 1: [-1.0]}
    assert leaf.models.served["w"].tolist() == [1.0]


def test_a_client_that_did_not_answer_still_counts_in_the_mean_of_controls():
    """c = 10 · 1 / 40; only client 0 has a round that counted, and so a control that is not zero."""
    leaf = make_leaf()
    take(leaf, 1, {0: (0.0, 2)})
    assert leaf.control["w"].tolist() == [0.25]
    assert {c: own["w"].tolist() for c, own in leaf.client_controls.items()} == {0: [1.0]}


def test_the_length_of_a_drift_is_weighted_as_the_model_is():
    """By the clients' own weights 3 and 1, where they send some: (3 · 2 + 1 · 6) / 4 = 3 steps."""
    leaf = make_leaf(levels=2)
    replies = {
        client: TrainReply(state(2), SAMPLES[client], steps, 0.5, 1.0, 4, weight=weight)
        for client, steps, weight in ((0, 2, 3.0), (1, 6, 1.0))
    }
    leaf.aggregate_train(RoundContext(0, 1, 1, "nowhere", "log", 0, 5.0), replies, state(2), SETTINGS)
    assert leaf.drift.length == pytest.approx(3 * SETTINGS.lr / (1 - SETTINGS.momentum))


class Overshoots(FedAvg):
    """Goes twice as far as the mean, from 1."""

    def aggregate_train(self, server_round, replies):
        made, metrics = super().aggregate_train(server_round, replies)
        return to_record({n: (2 * a - 1).astype(a.dtype) for n, a in from_record(made).items()}), metrics


@pytest.mark.parametrize(("variances", "model"), [((), -0.5), (("w",), 1.0)])
def test_a_strategy_cannot_make_a_variance_negative(variances, model, caplog):
    """Mean 0.25, made 2 · 0.25 − 1: as a variance it would be NaN at all clients; the leaf keeps its own."""
    leaf = Leaf(0, SAMPLES, state(1), ["w"], Overshoots(), 0, variances=variances)
    refused = take(leaf, 1, {0: (0.25, 2), 1: (0.25, 4)})
    assert leaf.model["w"].tolist() == [model]
    assert sorted(refused) == ([0, 1] if variances else [])
    assert ("entry 'w', a variance, would be negative" in caplog.text) == bool(variances)


def test_nothing_comes_back_of_a_fork():
    """It trains with the leaf's control, which stays, and moments of its server's optimiser of its own."""
    options = {"leaf.strategy": "fedadam", "scaffold.enabled": False}
    leaf, same = make_leaf(**options), make_leaf(**options)
    fork = leaf.fork(state(5), scaffold=True)
    assert fork.sent_control is leaf.sent_control
    assert leaf.fork(state(5), scaffold=False).sent_control is None
    take(fork, 1, {0: (4.0, 2), 1: (3.0, 4)})
    assert fork.model["w"][0] != 5
    assert leaf.model["w"].tolist() == [1.0]
    assert (leaf.control["w"].tolist(), leaf.client_controls) == ([0.0], {})
    for other in (leaf, same):
        take(other, 1, {0: (0.0, 2), 1: (3.0, 4)})
    assert leaf.model["w"].tobytes() == same.model["w"].tobytes()


def test_replies_that_cannot_be_combined_change_nothing_and_are_named():
    """Client 1's model is so far away that its control is not finite."""
    leaf = make_leaf()
    refused = take(leaf, 1, {0: (0.0, 2), 1: (np.inf, 4)})
    assert list(refused) == [1]
    assert (leaf.model["w"].tolist(), leaf.control["w"].tolist()) == ([1.0], [0.0])
    assert leaf.client_controls == {}


ANSWERS = st.dictionaries(
    st.sampled_from([0, 1]), st.tuples(st.floats(-9, 9, width=32), st.integers(1, 5)), min_size=1
)


@pytest.mark.parametrize("strategy", ["fedavg", "fedadam"])
@given(rounds=st.lists(ANSWERS, min_size=1, max_size=4), stop=st.integers(0, 4))
def test_a_leaf_goes_on_from_what_it_gave(strategy, rounds, stop):
    """Through JSON, after any round: the same bits as without a break."""
    options = {"leaf.strategy": strategy, "scaffold.enabled": False}
    whole, parts = make_leaf(**options), make_leaf(**options)
    for leaf_round, answers in enumerate(rounds, start=1):
        for leaf in (whole, parts):
            take(leaf, leaf_round, answers)
            leaf.keep_states(lambda kept: kept)
        if leaf_round == stop:
            before, parts = parts, make_leaf(**options)
            parts.restore(before.states(), json.loads(json.dumps(before.facts())))
            parts.keep_states(lambda kept: kept)
    assert {n: s["w"].tobytes() for n, s in parts.states().items() if "w" in s} == {
        n: s["w"].tobytes() for n, s in whole.states().items() if "w" in s
    }
    assert parts.facts() == whole.facts()


def test_the_norms_that_limit_updates_survive():
    """The limit of the next round goes by them: whole states, and states of a leaf round from elsewhere."""
    leaf, restored, moved = make_leaf(), make_leaf(), make_leaf()
    assert not leaf.norms.too_large({0: 1.0, 1: 2.0}, 5.0)
    assert list(leaf.norms.too_large({0: 3.0, 1: 99.0}, 5.0)) == [1]
    leaf.keep_states(lambda kept: kept)
    restored.restore(leaf.states(), json.loads(json.dumps(leaf.facts())))
    restored.keep_states(lambda kept: kept)
    states, facts = leaf.round_states()
    moved.norms.norms.append(7.0)
    moved.put_round_states(states, json.loads(json.dumps(facts)))
    for other in (restored, moved):
        assert list(other.norms.norms) == [1.0, 2.0, 3.0]
        assert list(other.norms.too_large({0: 20.0}, 5.0)) == [0]


@pytest.mark.parametrize("group", [0, 3, -1])
@pytest.mark.parametrize("length", [0.0, 2.5])
def test_a_drift_survives_with_its_group(group, length):
    """Servers whose drifts began together are corrected by their common mean."""
    drift = Drift(state(4), length, group, state(2))
    again = Drift.restored(drift.states(), json.loads(json.dumps(drift.facts())), state(4), state(0))
    assert (again.length, again.group) == (length, group)
    assert again.start["w"].tolist() == [4.0]
    assert again.correction["w"].tolist() == [2.0]


# --- what clients are told -----------------------------------------------------------------------------


CONTEXT = RoundContext(0, 1, 3, "nowhere", "log", 0, 5.0)


def leaf_of(levels):
    """A leaf of two clients with c_j = 2 and, on two levels, u_j = 5."""
    leaf = make_leaf(levels)
    if levels:
        leaf.control = {"w": np.array([2.0])}
    if levels == 2:
        leaf.drift.correction = {"w": np.array([5.0])}
    leaf.keep_states(lambda kept: kept)
    return leaf


class NoGrid:
    """A Grid of which a leaf only asks who is there."""


def told(leaf):
    """The control in what each of a leaf's clients is sent; None where there is none."""
    messages = leaf.configure_train(NoGrid(), [11, 12], CONTEXT)
    return [from_record(m.content[CONTROL])["w"].tolist() if CONTROL in m.content else None for m in messages]


@pytest.mark.parametrize(("levels", "control"), [(0, None), (1, [2.0]), (2, [7.0])])
def test_clients_are_told_c_and_with_two_levels_c_plus_u(levels, control):
    assert told(leaf_of(levels)) == [control] * 2


@pytest.mark.parametrize(("levels", "control"), [(0, None), (1, [2.0]), (2, [7.0])])
def test_a_fork_tells_what_its_leaf_tells(levels, control):
    """A line beside the leaf's is compared with it, so both must be corrected alike."""
    leaf = leaf_of(levels)
    fork = leaf.fork(state(9), scaffold=True)
    fork.keep_states(lambda kept: kept)
    assert told(fork) == [control] * 2
    assert from_record(fork.configure_train(NoGrid(), [11, 12], CONTEXT)[0].content["arrays"])["w"][0] == 9
    assert told(leaf) == [control] * 2


def test_a_fork_without_scaffold_tells_nothing():
    assert told(leaf_of(2).fork(state(9), scaffold=False)) == [None] * 2


class AsksNobody(FedAvg):
    """A strategy written from scratch, for which Flower asks for a configure_train."""

    def configure_train(self, *_):
        return []


class Fails(FedAvg):
    """As a strategy of Flower's quickstart that halves a step size, which nobody has set, in round 5."""

    def configure_train(self, server_round, arrays, config, grid):
        if server_round == 5:
            config["lr"] *= 0.5
        return super().configure_train(server_round, arrays, config, grid)


def test_a_strategy_that_fails_later_than_its_trial_is_named():
    leaf = Leaf(0, SAMPLES, state(1), ["w"], Fails(), 0)
    with pytest.raises(
        RunError, match=r"^leaf\.strategy: configure_train of Fails failed in leaf round 5: KeyE"
    ):
        leaf.configure_train(NoGrid(), [11, 12], RoundContext(0, 5, 5, "nowhere", "log", 0, 5.0))


def test_a_strategy_that_asks_nobody_is_said():
    """A leaf with nobody to ask has nothing to say: its clients are not sampled in this round."""
    leaf = Leaf(0, SAMPLES, state(1), ["w"], AsksNobody(), 0)
    context = RoundContext(0, 1, 1, "nowhere", "log", 0, 5.0)
    assert leaf.configure_train(None, [], context) == []
    with pytest.raises(RunError, match="configure_train of AsksNobody made none; derive it from FedAvg"):
        leaf.configure_train(None, [11, 12], context)
