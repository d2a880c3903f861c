"""What a reply tells of the client's time, and that nothing else comes of it."""

import pytest
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

from fedge.exchange.content import METRICS, WORK, work_of
from fedge.exchange.evaluate import evaluate_reply, read_evaluate
from fedge.exchange.round_context import RoundContext
from fedge.exchange.train import train_messages, train_reply
from fedge.states.records import to_record
from fedge.timing.calls import NUMBERS
from fedge.training.local import TrainResult

CONTEXT = RoundContext(42, 3, 7, "/data", "/run.log", 99, 1.5)
NUMBERS_OF_A_CALL = [float(n) for n in range(NUMBERS)]


@pytest.fixture
def asked():
    (message,) = train_messages([1], to_record({}), CONTEXT)
    message.metadata.__dict__["_message_id"] = "1"
    return message


def test_numbers_come_back_beside_the_metrics(asked):
    trained = train_reply(asked, TrainResult({}, 0.5, 3), 7, 1.5, None, lambda: NUMBERS_OF_A_CALL)
    evaluated = evaluate_reply(asked, {}, lambda: NUMBERS_OF_A_CALL)
    assert work_of(trained) == work_of(evaluated) == NUMBERS_OF_A_CALL
    assert read_evaluate(evaluated) == {}


def test_a_client_may_tell_nothing(asked):
    assert work_of(train_reply(asked, TrainResult({}, 0.5, 3), 7, 1.5)) is None
    assert work_of(evaluate_reply(asked, {})) is None


@pytest.mark.parametrize(
    "records",
    [
        {},
        {METRICS: MetricRecord()},
        {METRICS: MetricRecord({WORK: 1.0})},
        {METRICS: MetricRecord({WORK: NUMBERS_OF_A_CALL[1:]})},
        {METRICS: MetricRecord({WORK: [10**400] * NUMBERS})},
        {METRICS: ArrayRecord()},
    ],
    ids=["nothing", "empty", "a number", "too short", "whole numbers", "arrays"],
)
def test_what_cannot_be_read_is_nothing(asked, records):
    assert work_of(Message(RecordDict(records), reply_to=asked)) is None
