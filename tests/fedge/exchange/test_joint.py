"""Questions asked together, and their replies, come out as they went in."""

import numpy as np
import pytest
from evaluations import classified

from fedge.exchange.content import ARRAYS, METRICS, arrays_of, total_payload_bytes
from fedge.exchange.evaluate import (
    OWN,
    evaluate_messages,
    evaluate_reply,
    models_to_evaluate,
    read_evaluate,
    splits_to_evaluate,
)
from fedge.exchange.hello import expect_windows, refuse_other_windows
from fedge.exchange.joint import evaluate_part, is_joint, joint_question, joint_reply, parts_of
from fedge.exchange.round_context import RoundContext, is_of_version
from fedge.exchange.train import TRAIN, read_train, train_messages, train_reply
from fedge.states.records import entries, to_record
from fedge.training.local import TrainResult

NOW = RoundContext(42, 3, 3, "/data", "/run.log", 99, 1.5)
NEXT = RoundContext(42, 4, 4, "/data", "/run.log", 99, 1.5)
OFFERED = {"w": np.full(1000, 2, np.float32)}
MODELS = {OWN: {"w": np.ones(1000, np.float32)}, "offered": OFFERED}
EVALUATIONS = {(OWN, "val"): classified(np.array([[3, 1], [0, 2]]), 0.5)}


def asked_apart():
    """Node 5 is to evaluate two models of round 3, and to train the second one for round 4."""
    records = {role: to_record(model) for role, model in MODELS.items()}
    (evaluate,) = evaluate_messages([5], records, ("val", "test"), NOW)
    (train,) = train_messages([5], to_record(OFFERED), NEXT)
    return train, evaluate


@pytest.fixture
def question():
    made = joint_question(*asked_apart(), trained_role="offered")
    made.metadata.__dict__["_message_id"] = "1"
    return made


def trained(question):
    return train_reply(question, TrainResult(OFFERED, 0.25, 12), 100, 1.5)


def test_a_question_is_both(question):
    assert (question.metadata.message_type, question.metadata.dst_node_id) == (TRAIN, 5)
    context = RoundContext.from_message(question)
    assert context == NEXT
    assert np.array_equal(arrays_of(question, ARRAYS)["w"], OFFERED["w"])
    part = evaluate_part(question)
    assert RoundContext.from_message(part) == NOW
    assert splits_to_evaluate(part) == ["val", "test"]
    assert {role: model["w"][0] for role, model in models_to_evaluate(part)} == {OWN: 1, "offered": 2}
    assert not is_joint(part)


def test_the_model_that_is_trained_goes_once(question):
    apart = total_payload_bytes(asked_apart())
    assert total_payload_bytes([question]) == apart - 4000
    assert total_payload_bytes([joint_question(*asked_apart())]) == apart


def test_a_question_for_training_alone_has_no_other_part():
    train, _ = asked_apart()
    assert evaluate_part(train) is None


def test_windows_that_are_expected_are_so_in_both_parts(question):
    expect_windows(question, "abc")
    for part in (question, evaluate_part(question)):
        refuse_other_windows(part, 0, "abc")
        with pytest.raises(ValueError, match="windows of partition 0"):
            refuse_other_windows(part, 0, "abd")


def test_a_reply_is_both(question):
    evaluation = evaluate_reply(evaluate_part(question), EVALUATIONS)
    training, evaluated = parts_of(joint_reply(question, evaluation, lambda: trained(question)))
    assert is_of_version(training, question)
    assert is_of_version(evaluated, evaluate_part(question))
    assert not is_of_version(evaluated, question)
    assert list(training.content) == [ARRAYS, METRICS]
    assert (read_train(training).steps, read_train(training).samples) == (12, 100)
    assert read_evaluate(evaluated, outputs=2)[OWN, "val"].loss == 0.5
    assert training.metadata.reply_to_message_id == evaluated.metadata.reply_to_message_id == "1"


def test_what_fails_in_training_leaves_the_evaluation(question):
    def fail():
        raise RuntimeError("sensor unplugged")

    evaluation = evaluate_reply(evaluate_part(question), EVALUATIONS)
    training, evaluated = parts_of(joint_reply(question, evaluation, fail))
    assert training is None
    assert read_evaluate(evaluated, outputs=2)[OWN, "val"].loss == 0.5


def test_a_client_that_only_trains_leaves_the_evaluation_open(question):
    training, evaluated = parts_of(trained(question))
    assert evaluated is None
    assert read_train(training).steps == 12


def test_whatever_a_reply_holds_it_comes_apart(question):
    """Pickled on Ray, a reply is what the client made of it; it is refused where it is read."""
    reply = trained(question)
    entries(reply.content).update({"evaluated": 5, 7: "odd", "more": object()})
    training, evaluated = parts_of(reply)
    assert evaluated is None
    assert read_train(training).steps == 12
