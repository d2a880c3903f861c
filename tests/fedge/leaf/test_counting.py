"""Replies of a leaf's clients that count, and their mean."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.algorithm.leaf_part import LeafPart
from fedge.config.flat import from_run_config
from fedge.exchange.algorithm import ReplyForm
from fedge.exchange.round_context import RoundContext
from fedge.exchange.train import train_messages, train_reply
from fedge.leaf.algorithm import LeafAlgorithm
from fedge.leaf.counting import Checked, checked_reply, count_replies
from fedge.leaf.leaf import Leaf
from fedge.leaf.strategies.rules import make_strategy
from fedge.states.memory import KeptVersion
from fedge.states.records import to_record
from fedge.training.local import TrainResult

SAMPLES = {0: 8, 1: 16, 2: 24}
BATCH = 8


def state(value):
    return {"w": np.array([value], np.float32)}


class OneLeaf:
    """Leaf 0 with three clients and a model of 1, and its answers to leaf round 1."""

    def __init__(self, **options):
        options = {"train.local-epochs": 1, "train.batch-size": BATCH, **options}
        self.config = from_run_config(options)
        self.leaf = Leaf(0, SAMPLES, state(1), ["w"], make_strategy(self.config, 3), 0)

    def check(self, client, model, samples=None):
        """Outcome of a client's reply."""
        context = RoundContext(0, 1, 1, "nowhere", "log", 0, 5.0)
        (question,) = train_messages([client], to_record(self.leaf.model), context)
        samples = SAMPLES[client] if samples is None else samples
        result = TrainResult(model, 0.5, max(samples // BATCH, 1))
        return checked_reply(train_reply(question, result, samples, 0.1), client, self.leaf, self.config)

    def count(self, values):
        """(client → why its reply does not count, what the others come to)."""
        checked = {client: self.check(client, state(value)) for client, value in values.items()}
        good = {client: entry for client, entry in checked.items() if isinstance(entry, Checked)}
        counted = count_replies(self.leaf, good, self.config.guard.max_norm_factor)
        refused = {c: entry for c, entry in checked.items() if not isinstance(entry, Checked)}
        return {c: why.failure.kind for c, why in (refused | counted.refused).items()}, counted


def test_replies_are_averaged_by_windows():
    """(8 · 2 + 16 · 3 + 24 · 4) / 48 = 10/3; nobody asks for norms."""
    one = OneLeaf(**{"guard.max-norm-factor": 0.0})
    refused, counted = one.count({0: 2.0, 1: 3.0, 2: 4.0})
    assert refused == {}
    assert list(counted.replies) == [0, 1, 2]
    assert counted.mean["w"][0] == pytest.approx(10 / 3)
    assert one.check(0, state(2)).norm is None


def test_a_reply_that_is_not_finite_loses_only_itself():
    """Without client 1: (8 · 2 + 24 · 4) / 32 = 3.5."""
    refused, counted = OneLeaf().count({0: 2.0, 1: np.nan, 2: 4.0})
    assert "finite" in str(refused[1])
    assert list(refused) == [1]
    assert list(counted.replies) == [0, 2]
    assert counted.mean["w"].tolist() == [3.5]


def test_an_update_far_above_the_median_loses_only_itself():
    """Updates 1, 1 and 20; the median is 1 and ten times it is allowed. The leaf remembers the other two."""
    one = OneLeaf(**{"guard.max-norm-factor": 10.0})
    refused, counted = one.count({0: 2.0, 1: 21.0, 2: 2.0})
    assert "too large" in str(refused[1])
    assert list(refused) == [1]
    assert counted.mean["w"].tolist() == [2.0]
    assert list(one.leaf.norms.norms) == [1.0, 1.0]
    assert one.check(1, state(21)).norm == 20.0


def test_nothing_counts_of_nobody():
    refused, counted = OneLeaf().count({})
    assert (refused, counted.replies, counted.mean) == ({}, {}, None)
    assert OneLeaf().count({0: np.inf})[1].mean is None


@pytest.mark.parametrize(
    ("model", "samples", "said"),
    [
        ({"w": np.zeros(2, np.float32)}, 8, "other shape"),
        ({"w": np.zeros(1, np.float64)}, 8, "other dtype"),
        ({"v": np.zeros(1, np.float32)}, 8, "other entries"),
        (state(2), 9, "samples out of range"),
        (state(2), 0, "samples out of range"),
    ],
)
def test_a_reply_that_was_not_asked_for_is_refused_by_itself(model, samples, said):
    assert said in str(OneLeaf().check(0, model, samples))


def test_what_cannot_be_read_is_refused_and_raises_nothing():
    one = OneLeaf()
    context = RoundContext(0, 1, 1, "nowhere", "log", 0, 5.0)
    (question,) = train_messages([0], to_record(one.leaf.model), context)
    reply = train_reply(question, TrainResult(state(2), 0.5, 1), 8, 0.1)
    del reply.content["metrics"]
    assert "not readable" in str(checked_reply(reply, 0, one.leaf, one.config))


@given(
    st.lists(st.sampled_from([1.5, 2.0, -3.0, np.nan, np.inf]), min_size=3, max_size=3),
    st.permutations([0, 1, 2]),
)
def test_who_counts_does_not_depend_on_the_order_of_replies(values, order):
    """Nor does anybody's fault change what the others come to."""
    given_values = dict(enumerate(values))
    refused, counted = OneLeaf().count(given_values)
    others, same = OneLeaf().count({client: given_values[client] for client in order})
    assert others == refused
    assert same.replies.keys() == counted.replies.keys()
    good = {client: value for client, value in given_values.items() if np.isfinite(value)}
    _, alone = OneLeaf().count(good)
    assert counted.replies.keys() == alone.replies.keys()
    if counted.mean is not None:
        assert counted.mean["w"].tolist() == alone.mean["w"].tolist()


def test_bytes_of_a_compressed_reply_are_counted_by_its_form():
    """One entry: a bit and a size of 32 are five bytes, whatever the client says of itself."""
    compressed = OneLeaf(**{"uplink.clients": "sign"}).check(0, state(2)).reply
    assert (compressed.uplink_bytes, OneLeaf().check(0, state(2)).reply.uplink_bytes) == (5, 4)


def test_clients_that_only_keep_what_they_could_not_send_are_checked_as_ever():
    """Steps follow from windows, a weight of one's own is refused, and so is a memory that is missing."""
    one = OneLeaf(**{"uplink.clients": "sign"})
    form = ReplyForm((), keeps=True, plain=True)
    one.leaf.algorithm = LeafAlgorithm(LeafPart(), form, "", state(1), ["w"])
    context = RoundContext(0, 1, 1, "nowhere", "log", 0, 5.0)
    (question,) = train_messages([0], to_record(one.leaf.model), context)
    kept = KeptVersion(1, "0" * 64, 4)

    def refusal(steps=1, **further):
        reply = train_reply(question, TrainResult(state(2), 0.5, steps), 8, 0.1, **further)
        found = checked_reply(reply, 0, one.leaf, one.config, keeps=True)
        return None if isinstance(found, Checked) else found.failure.kind

    assert refusal(kept=kept) is None
    assert refusal() == "rejected: other entries"
    assert refusal(steps=2, kept=kept) == "rejected: steps out of range"
    assert refusal(weight=1.0, kept=kept) == "rejected: weight out of range"
    assert refusal(extra={"more": np.ones(1, np.float32)}, kept=kept) == "rejected: other entries"
