"""Leaf rounds of two leaves with three clients each, whose answers are written down here."""

import numpy as np
import pytest

from fedge.config.flat import from_run_config
from fedge.exchange.clients import Clients
from fedge.exchange.content import ARRAYS, arrays_of
from fedge.exchange.round_context import TRIAL, RoundContext
from fedge.exchange.train import train_reply
from fedge.leaf.leaf import Leaf
from fedge.leaf.strategies.rules import make_strategy
from fedge.leaf.training_history import Turns
from fedge.rounds.lines import TrainingLine, own_models
from fedge.rounds.training import LeafRounds
from fedge.rounds.transport import RoundServices, Transport
from fedge.states.state_files import SharedStates
from fedge.timing.laps import LapClock
from fedge.training.local import TrainResult

SAMPLES = {0: 10, 1: 20, 2: 30, 3: 10, 4: 10, 5: 10}
STEPS = 5  # of five epochs of one batch


def context_of(global_round, leaf_round):
    return RoundContext(7, global_round, leaf_round, "nowhere", "log", 0, 5.0)


def state(value):
    return {"w": np.array([value], np.float32)}


@pytest.fixture
def rounds(tmp_path):
    """A function of options that gives leaves, transport and leaf rounds of global round 3."""

    def make(**options):
        config = from_run_config(options)
        samples = [{c: SAMPLES[c] for c in range(3 * i, 3 * i + 3)} for i in range(2)]
        leaves = [Leaf(i, samples[i], state(i), ["w"], make_strategy(config, 3), 0) for i in range(2)]
        clients = Clients(None, {client: 100 + client for client in SAMPLES})
        facilities = RoundServices(clients, context_of, LapClock(), SharedStates(tmp_path, enabled=False))
        transport = Transport(facilities, SAMPLES, retries=0)
        transport.begin_round(3)
        return leaves, transport, LeafRounds(config, leaves, transport)

    return make


def answers(messages, values):
    """Clients' replies: client → the value that its model has become."""
    by_client = {message.metadata.dst_node_id - 100: message for message in messages}
    return [
        train_reply(by_client[client], TrainResult(state(value), 0.5, STEPS), SAMPLES[client], 2.0)
        for client, value in values.items()
    ]


def test_all_clients_of_all_leaves_get_their_leaf_s_model(rounds):
    leaves, _, leaf_rounds = rounds()
    messages = leaf_rounds.messages(own_models(leaves), 5, None)
    found = {m.metadata.dst_node_id - 100: float(arrays_of(m, ARRAYS)["w"][0]) for m in messages}
    assert found == {0: 0, 1: 0, 2: 0, 3: 1, 4: 1, 5: 1}


def test_a_sample_follows_from_seed_and_round(rounds):
    leaves, _, leaf_rounds = rounds(**{"hierarchy.fraction-train": 0.67})

    def asked(leaf_round):
        messages = leaf_rounds.messages(own_models(leaves), leaf_round, None)
        return sorted(message.metadata.dst_node_id for message in messages)

    drawn = [asked(number) for number in range(1, 7)]
    assert {len(nodes) for nodes in drawn} == {4}
    assert len({tuple(nodes) for nodes in drawn}) > 1
    assert asked(1) == drawn[0]


def test_numbers_by_round_and_leaf_and_turns_of_those_that_came(rounds):
    """Global round 3: one of leaf 0, two of leaf 1, in turns. Client 3 does not answer at first."""
    leaves, transport, leaf_rounds = rounds(
        **{"hierarchy.num-servers": 2, "hierarchy.participation": "1: all; 3: 1,2"},
        **{"hierarchy.selection": "round-robin"},
    )
    for leaf in leaves:
        leaf.turns = Turns()
    asked = []
    for leaf_round, failing in ((5, {3}), (6, set())):
        training = own_models(leaves)
        messages = leaf_rounds.messages(training, leaf_round, None)
        asked.append(sorted(m.metadata.dst_node_id - 100 for m in messages))
        there = [client for client in asked[-1] if client not in failing]
        leaf_rounds.take(training, leaf_round, answers(messages, dict.fromkeys(there, 1.0)))
    assert asked == [[0, 3, 4], [1, 3, 5]]
    assert transport.book.asked == {0: 1, 1: 1, 3: 2, 4: 1, 5: 1}
    assert leaves[0].turns.facts() == [[0, 1, 5, 1, 0.5], [1, 1, 6, 1, 0.5]]
    assert leaves[1].turns.facts() == [[3, 2, 6, 1, 0.5], [4, 1, 5, 1, 0.5], [5, 1, 6, 1, 0.5]]


def test_a_fork_goes_by_turns_and_leaves_no_trace_in_them(rounds):
    leaves, transport, leaf_rounds = rounds(
        **{"hierarchy.selection": "round-robin", "hierarchy.fraction-train": 0.34}
    )
    leaves[1].turns = Turns()
    leaves[1].turns.note([3], {3: 0.5}, 4)
    training = TrainingLine(TRIAL, [leaves[1].fork(state(7), scaffold=True)])
    messages = leaf_rounds.messages(training, 5, None)
    assert [m.metadata.dst_node_id for m in messages] == [104]
    leaf_rounds.take(training, 5, answers(messages, {4: 8.0}))
    assert leaves[1].turns.facts() == [[3, 1, 4, 1, 0.5]]
    assert transport.book.asked == {}


def test_every_leaf_moves_to_the_mean_of_its_own_clients(rounds):
    """Leaf 0: (10 · 1 + 20 · 2 + 30 · 4) / 60 = 17/6. Of leaf 1 only client 4 answers, with 5."""
    leaves, transport, leaf_rounds = rounds()
    training = own_models(leaves)
    messages = leaf_rounds.messages(training, 5, None)
    assert leaf_rounds.take(training, 5, answers(messages, {0: 1.0, 1: 2.0, 2: 4.0, 4: 5.0})) == 4
    assert [float(leaf.model["w"][0]) for leaf in leaves] == [pytest.approx(17 / 6), 5.0]
    assert leaves[0].models.served["w"][0] == 0
    assert transport.book.uplink_bytes == 4 * 4
    assert transport.book.train_loss == {0: 0.5, 1: 0.5, 2: 0.5, 4: 0.5}
    assert transport.seconds_per_window == 2.0 / 10  # of leaf 1, which was last


def test_a_reply_that_does_not_count_is_noted_and_left_out(rounds):
    leaves, transport, leaf_rounds = rounds()
    training = own_models(leaves)
    messages = leaf_rounds.messages(training, 5, None)
    assert leaf_rounds.take(training, 5, answers(messages, {0: 1.0, 1: np.nan, 3: 2.0})) == 2
    assert list(transport.book.failures) == [1]
    assert float(leaves[0].model["w"][0]) == 1.0


def test_with_too_few_replies_a_leaf_keeps_its_model(rounds):
    leaves, transport, leaf_rounds = rounds(**{"guard.min-clients": 2})
    training = own_models(leaves)
    messages = leaf_rounds.messages(training, 5, None)
    leaf_rounds.take(training, 5, answers(messages, {0: 1.0, 1: 1.0, 3: 9.0}))
    assert [float(leaf.model["w"][0]) for leaf in leaves] == [1.0, 1.0]
    assert transport.book.kept_model == {1: 1}


def test_a_fold_needs_no_replies_of_clients_left_out_of_it(rounds):
    """Where all of three clients must reply, both of a fold must, or a lone leaf could never be judged."""
    leaves, _, leaf_rounds = rounds(**{"guard.min-clients": 3})
    for values, model in (({4: 8.0}, 7.0), ({4: 8.0, 5: 8.0}, 8.0)):
        training = TrainingLine(TRIAL, [leaves[1].fork(state(7), scaffold=True, without=[3])], 0)
        messages = leaf_rounds.messages(training, 5, None)
        leaf_rounds.take(training, 5, answers(messages, values))
        assert float(training.leaves[0].model["w"][0]) == model


def test_a_fork_trains_beside_its_leaf(rounds):
    """Of leaf 1 alone; its clients' losses are not the leaf's, nor does the round count for them."""
    leaves, transport, leaf_rounds = rounds()
    training = TrainingLine(TRIAL, [leaves[1].fork(state(7), scaffold=True)])
    messages = leaf_rounds.messages(training, 5, None)
    assert sorted(m.metadata.dst_node_id for m in messages) == [103, 104, 105]
    leaf_rounds.take(training, 5, answers(messages, {3: 8.0, 4: 8.0}))
    assert float(training.leaves[0].model["w"][0]) == 8.0
    assert [float(leaf.model["w"][0]) for leaf in leaves] == [0, 1]
    assert transport.book.train_loss == {}
    assert leaves[1].client_controls == {}
