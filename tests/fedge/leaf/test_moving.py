"""A client that goes to another leaf, by hand: two leaves with two clients each, one parameter."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.config.flat import from_run_config
from fedge.exchange.round_context import RoundContext
from fedge.exchange.train import TrainReply
from fedge.leaf.leaf import Leaf
from fedge.leaf.moving import leaf_of_each, mean_control, move, restore_places
from fedge.leaf.strategies.rules import make_strategy
from fedge.leaf.training_history import Turns
from fedge.training.settings import LocalTraining

SAMPLES = [{0: 10, 1: 30}, {2: 20, 3: 20}]


def leaves_of(samples=SAMPLES, levels=1, unseen=()):
    strategy = make_strategy(from_run_config({}), 2)
    model = {"w": np.array([0.0], np.float32)}
    return [
        Leaf(index, each, dict(model), ["w"], strategy, levels, unseen if index == 0 else ())
        for index, each in enumerate(samples)
    ]


def value(state):
    return float(state["w"][0])


def with_controls():
    """c_0 = 1, c_1 = 2, so c = (10 + 60) / 40 = 1.75; c_2 = −1, c_3 = 0, so c = −20 / 40 = −.5."""
    leaves = leaves_of()
    for leaf, controls, c in zip(leaves, ({0: 1.0, 1: 2.0}, {2: -1.0}), (1.75, -0.5), strict=True):
        leaf.client_controls = {client: {"w": np.array([own])} for client, own in controls.items()}
        leaf.control = {"w": np.array([c])}
    return leaves


def test_a_control_variate_is_handed_over():
    """Client 1 goes: c of leaf 0 = (40 · 1.75 − 60) / 10 = 1, of leaf 1 = (40 · −.5 + 60) / 70 = 4/7."""
    leaves = with_controls()
    assert move(leaves, {1: 1}) == {1: 0}
    assert [leaf.clients for leaf in leaves] == [(0,), (1, 2, 3)]
    assert [leaf.weight for leaf in leaves] == [10, 70]
    assert value(leaves[0].control) == 1.0
    assert value(leaves[1].control) == pytest.approx(4 / 7, rel=1e-15)
    assert {c: value(own) for c, own in leaves[1].client_controls.items()} == {1: 2.0, 2: -1.0}
    assert list(leaves[0].client_controls) == [0]
    leaves[1].keep_states(lambda state: state)
    assert leaves[1].sent_control is leaves[1].control


def test_a_client_without_a_control_variate_thins_out_the_mean():
    """Client 3, c_3 = 0: c of leaf 0 = 70 / 60, of leaf 1 = −20 / 20."""
    leaves = with_controls()
    move(leaves, {3: 0})
    assert [value(leaf.control) for leaf in leaves] == pytest.approx([7 / 6, -1.0], rel=1e-15)


def test_a_leaf_without_clients_has_no_weight_and_a_control_of_zero():
    leaves = with_controls()
    model = leaves[0].model
    move(leaves, {0: 1, 1: 1})
    assert (leaves[0].clients, leaves[0].weight, value(leaves[0].control)) == ((), 0, 0.0)
    assert leaves[0].model is model
    assert value(leaves[1].control) == pytest.approx(50 / 80)
    move(leaves, {0: 0, 1: 0})
    assert [value(leaf.control) for leaf in leaves] == pytest.approx([1.75, -0.5], rel=1e-15)


def test_a_leaf_whose_clients_stay_keeps_its_control_to_the_bit():
    leaves = [*with_controls(), *leaves_of([{}, {}, {9: 5}])[2:]]
    kept = leaves[2].control
    move(leaves, {0: 1, 9: 2})
    assert leaves[2].control is kept


def test_two_clients_change_places():
    leaves = with_controls()
    assert move(leaves, {0: 1, 2: 0, 3: 1}) == {0: 0, 2: 1}
    assert [leaf.clients for leaf in leaves] == [(1, 2), (0, 3)]
    assert [value(leaf.control) for leaf in leaves] == pytest.approx([40 / 50, 10 / 30])


def test_turns_go_along():
    leaves = leaves_of()
    for leaf in leaves:
        leaf.turns = Turns()
        leaf.turns.note(leaf.clients, {client: client / 10 for client in leaf.clients}, 3)
    move(leaves, {1: 1})
    assert leaves[0].turns.facts() == [[0, 1, 3, 1, 0.0]]
    assert [row[0] for row in leaves[1].turns.facts()] == [1, 2, 3]
    assert leaves[1].turns.facts()[0] == [1, 1, 3, 1, 0.1]


def test_unseen_clients_stay():
    leaves = leaves_of(unseen=(7,))
    move(leaves, {0: 1, 1: 1})
    assert leaf_of_each(leaves)[7] is leaves[0]
    assert leaf_of_each(leaves)[0] is leaves[1]


def test_places_of_a_checkpoint():
    leaves = leaves_of(levels=0)
    restore_places(leaves, [[], [3, 0, 2, 1]])
    assert [leaf.train_samples for leaf in leaves] == [{}, {0: 10, 1: 30, 2: 20, 3: 20}]
    assert [leaf.clients for leaf in leaves] == [(), (0, 1, 2, 3)]


@pytest.mark.parametrize(
    "places", [[[], [3, 0, 2]], [[0], [3, 0, 2, 1]], [[9], [3, 0, 2, 1]], [[0, 1, 2, 3]]]
)
def test_places_that_cannot_be_are_refused(places):
    with pytest.raises(ValueError, match=r"at no leaf|shorter"):
        restore_places(leaves_of(), places)


def trained(leaf, client, end, number):
    """A leaf round in which one client answers."""
    reply = TrainReply({"w": np.array([end], np.float32)}, leaf.train_samples[client], 5, 0.5, 1.0, 4)
    context = RoundContext(1, number, number, "", "", "", 1.0)
    leaf.keep_states(lambda state: state)
    refused = leaf.aggregate_train(context, {client: reply}, reply.state, LocalTraining(lr=0.1, momentum=0.0))
    assert refused == {}


STEPS = st.one_of(
    st.tuples(st.just("move"), st.integers(0, 3), st.integers(0, 1)),
    st.tuples(st.just("train"), st.integers(0, 3), st.floats(-2, 2)),
)


@given(st.lists(STEPS, max_size=12))
def test_c_is_the_mean_of_the_controls_of_those_present_whatever_happens(steps):
    """At any participation, in any order of moves and leaf rounds."""
    leaves = leaves_of()
    for number, (what, client, how) in enumerate(steps, 1):
        if what == "move":
            move(leaves, {client: how})
        else:
            trained(leaf_of_each(leaves)[client], client, how, number)
    assert sorted(c for leaf in leaves for c in leaf.clients) == [0, 1, 2, 3]
    for leaf in leaves:
        assert value(leaf.control) == pytest.approx(value(mean_control(leaf, leaf.control)), abs=1e-12)
