"""Control variates of clients, kept by their leaf: what counts moves them, and clients get c − c_i."""

import pickle
import tracemalloc
from dataclasses import asdict

import numpy as np
import pytest
from flwr.app import Array, ConfigRecord, Message, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from fedge.config.flat import from_run_config
from fedge.exchange.content import (
    ARRAYS,
    CONTROL,
    OWN_CONTROL,
    arrays_of,
    detached_message,
    total_payload_bytes,
)
from fedge.exchange.round_context import RoundContext
from fedge.exchange.train import TrainReply
from fedge.leaf.controls import difference, set_client_controls
from fedge.leaf.leaf import Leaf
from fedge.leaf.strategies.rules import make_strategy
from fedge.states.averaging import weighted_mean
from fedge.states.files import FileState, write_state
from fedge.states.records import to_record
from fedge.training.scaffold import control_delta
from fedge.training.settings import LocalTraining

SAMPLES = {0: 10, 1: 30}
SETTINGS = LocalTraining(lr=0.5, momentum=0.0)
C = {"w": np.array([0.5, -2.0])}
OWN = {"w": np.array([0.125, 1.0])}


def asked(nodes, control):
    """Messages that share what they say, as a strategy makes them."""
    content = RecordDict({ARRAYS: to_record({"w": np.zeros(2, np.float32)}), CONTROL: control})
    messages = [Message(content, node, "train") for node in nodes]
    for number, message in enumerate(messages):
        message.metadata.__dict__["_message_id"] = str(number)
    return messages


def in_file(folder, name, state):
    return FileState(write_state(folder / name, state))


def test_each_client_gets_the_difference_and_who_has_none_gets_c():
    messages = asked([7, 8, 9], to_record(C))
    set_client_controls(messages, C, {8: OWN}, lambda node: False)
    assert [arrays_of(message, CONTROL)["w"].tolist() for message in messages] == [
        [0.5, -2.0],
        [0.375, -3.0],
        [0.5, -2.0],
    ]
    assert messages[0].content is messages[2].content
    assert arrays_of(messages[1], CONTROL)["w"].dtype == np.float64
    assert arrays_of(detached_message(messages[1]), CONTROL)["w"].tolist() == [0.375, -3.0]
    assert total_payload_bytes(messages[:1]) == total_payload_bytes(messages[1:2])


def test_a_difference_takes_no_memory_until_it_is_read_and_may_be_read_again():
    array = difference(C, OWN)["w"]
    assert array.numpy() is not array.numpy()
    assert array.numpy().tolist() == [0.375, -3.0]
    plain = Array(np.array([0.375, -3.0]))
    assert (array.data, array.object_id) == (plain.data, plain.object_id)  # as a SuperLink gets it
    elsewhere = pickle.loads(pickle.dumps(array))  # as Ray hands it on
    assert elsewhere.numpy().tolist() == [0.375, -3.0]


@pytest.mark.parametrize(
    ("c_in_file", "own_in_file", "sees"),
    [(True, True, True), (True, True, False), (True, False, True), (False, True, True)],
)
def test_two_files_are_never_made_three(tmp_path, c_in_file, own_in_file, sees):
    """Tickets for c and c_i go where both are files that the client sees; else the difference, as arrays."""
    told = in_file(tmp_path, "c", C) if c_in_file else C
    own = in_file(tmp_path, "own", OWN) if own_in_file else OWN
    (message,) = asked([7], ConfigRecord(asdict(told.ticket)) if c_in_file and sees else to_record(told))
    set_client_controls([message], told, {7: own}, lambda node: sees)
    both = c_in_file and own_in_file and sees
    assert (OWN_CONTROL in message.content) == both
    found = arrays_of(message, CONTROL)["w"]
    assert found.tolist() == ([0.5, -2.0] if both else [0.375, -3.0])
    if both:
        assert arrays_of(message, OWN_CONTROL)["w"].tolist() == [0.125, 1.0]
    assert total_payload_bytes([message]) == 2 * 4 + 2 * 8


# --- a leaf through leaf rounds ---------------------------------------------------------------------------


def state(value):
    return {"w": np.array([value], np.float32)}


def new_leaf():
    return Leaf(0, SAMPLES, state(1), ["w"], make_strategy(from_run_config({}), 2), 1)


def take(leaf, leaf_round, answers, keep=lambda kept: kept):
    replies = {c: TrainReply(state(w), SAMPLES[c], k, 0.5, 1.0, 4) for c, (w, k) in sorted(answers.items())}
    mean = weighted_mean([r.state for r in replies.values()], [r.samples for r in replies.values()])
    refused = leaf.aggregate_train(
        RoundContext(0, 1, leaf_round, "nowhere", "log", 0, 5.0), replies, mean, SETTINGS, keep
    )
    leaf.keep_states(keep)
    return refused


def test_what_counts_moves_a_clients_control_by_hand():
    """Round 1: Δc_0 = (1 − 0) / (2 · 0.5) = 1, and c = 10 · 1 / 40. Round 2: −c + (0 − 0.5) / (1 · 0.5)."""
    leaf = new_leaf()
    assert leaf.client_controls == {}
    take(leaf, 1, {0: (0.0, 2)})
    assert {client: own["w"].tolist() for client, own in leaf.client_controls.items()} == {0: [1.0]}
    assert leaf.client_controls[0]["w"].dtype == np.float64
    take(leaf, 2, {0: (0.5, 1)})
    assert leaf.client_controls[0]["w"].tolist() == [1.0 - 0.25 - 1.0]


def test_what_does_not_count_leaves_controls_alone():
    leaf = new_leaf()
    take(leaf, 1, {0: (0.0, 2), 1: (3.0, 4)})
    before = {client: own["w"].tobytes() for client, own in leaf.client_controls.items()}
    assert list(take(leaf, 2, {0: (0.0, 2), 1: (np.inf, 4)})) == [1]
    fork = leaf.fork(state(5), scaffold=True)
    assert fork.client_controls is leaf.client_controls
    take(fork, 3, {0: (4.0, 2), 1: (3.0, 4)})
    assert {client: own["w"].tobytes() for client, own in leaf.client_controls.items()} == before


def test_controls_lie_where_the_run_keeps_large_states(tmp_path):
    kept = []

    def keep(one):
        if isinstance(one, FileState):
            return one
        kept.append(in_file(tmp_path, str(len(kept)), one))
        return kept[-1]

    leaf, same = new_leaf(), new_leaf()
    for leaf_round, answers in enumerate([{0: (0.0, 2), 1: (3.0, 4)}, {1: (2.0, 1)}], start=1):
        take(leaf, leaf_round, answers, keep)
        take(same, leaf_round, answers)
    assert all(isinstance(own, FileState) for own in leaf.client_controls.values())
    for client, own in same.client_controls.items():
        assert leaf.client_controls[client]["w"].tobytes() == own["w"].tobytes()


def test_moving_controls_takes_few_models(tmp_path):
    """Of six clients, all in files: c⁺ is two models, and each thread has an entry of a c_i⁺ at a time.

    At once, all c_i⁺ would be twelve models, and what they are made of as many again.
    """
    rng = np.random.default_rng(0)

    def network():
        return {f"w{number}": rng.random(400_000, np.float32) for number in range(5)}

    def keep(one):
        return one if isinstance(one, FileState) else in_file(tmp_path, str(rng.integers(2**62)), one)

    samples, first = dict.fromkeys(range(6), 10), network()
    models = [keep(network()) for _ in samples]
    leaf = Leaf(0, samples, keep(first), list(first), make_strategy(from_run_config({}), 6), 1)
    leaf.keep_states(keep)
    replies = {c: TrainReply(model, 10, 4, 0.5, 1.0, 4) for c, model in enumerate(models)}
    where = RoundContext(0, 1, 1, "nowhere", "log", 0, 5.0)
    tracemalloc.start()
    assert leaf.aggregate_train(where, replies, models[0], SETTINGS, keep) == {}
    peak = tracemalloc.get_traced_memory()[1] / (4 * 2_000_000)
    tracemalloc.stop()
    assert len(leaf.client_controls) == 6
    assert peak < 6


ANSWERS = st.dictionaries(
    st.sampled_from([0, 1]), st.tuples(st.floats(-9, 9, width=32), st.integers(1, 5)), min_size=1
)


@given(rounds=st.lists(ANSWERS, min_size=1, max_size=5))
def test_controls_are_those_that_clients_would_have_kept_themselves(rounds):
    """Each client adds up its own Δc_i, bit by bit; c stays the weighted mean of all c_i (contract C6)."""
    leaf, own = new_leaf(), {0: np.zeros(1), 1: np.zeros(1)}
    for leaf_round, answers in enumerate(rounds, start=1):
        told, start = leaf.sent_control, leaf.model
        take(leaf, leaf_round, answers)
        for client, (w, steps) in answers.items():
            own[client] = own[client] + control_delta(told, start, state(w), steps, SETTINGS.lr)["w"]
    for client, wanted in own.items():
        found = leaf.client_controls.get(client, {"w": np.zeros(1)})["w"]
        assert found.tobytes() == wanted.tobytes()
    mean = (10 * own[0] + 30 * own[1]) / 40
    assert leaf.control["w"] == pytest.approx(mean, rel=1e-9, abs=1e-9)
