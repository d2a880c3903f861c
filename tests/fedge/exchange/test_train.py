"""A leaf round's question and answer arrive as they were said."""

import numpy as np
import pytest
from flwr.app import ConfigRecord

from fedge.exchange.content import ARRAYS, arrays_of
from fedge.exchange.round_context import RoundContext
from fedge.exchange.train import (
    clip_norm_of,
    read_train,
    train_messages,
    train_reply,
)
from fedge.states.records import to_record
from fedge.training.local import TrainResult

CONTEXT = RoundContext(42, 3, 7, "/data", "/run.log", 99, 1.5)
STATE = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.array(4)}


@pytest.fixture
def asked():
    messages = train_messages([1, 2, 3], to_record(STATE), CONTEXT)
    for number, message in enumerate(messages):
        message.metadata.__dict__["_message_id"] = str(number)
    return messages


def test_a_model_goes_and_comes_back(asked):
    assert [message.metadata.dst_node_id for message in asked] == [1, 2, 3]
    sent = arrays_of(asked[0], ARRAYS)
    assert all(np.array_equal(sent[name], STATE[name]) for name in STATE)
    reply = read_train(train_reply(asked[0], TrainResult(STATE, 0.25, 12), 100, 1.5, clipped=True))
    assert (reply.samples, reply.steps, reply.loss, reply.seconds, reply.clipped) == (
        100,
        12,
        0.25,
        1.5,
        True,
    )
    assert reply.uplink_bytes == 6 * 4 + 8
    assert list(reply.state) == ["w", "n"]
    assert all(np.array_equal(reply.state[name], STATE[name]) for name in STATE)


def test_numbers_that_are_not_whole_are_refused_where_they_are_read(asked):
    reply = train_reply(asked[0], TrainResult(STATE, 0.25, 12), 100, 1.5)
    reply.content["metrics"]["steps"] = 1.5
    with pytest.raises(TypeError, match=r"steps must be a whole number, but is 1\.5"):
        read_train(reply)


def test_a_leaf_may_ask_for_clipping(asked):
    assert clip_norm_of(asked[0]) is None
    asked[0].content["config"] = ConfigRecord({**asked[0].content["config"], "clipping_norm": 0.5})
    assert clip_norm_of(asked[0]) == 0.5
