"""A joint question: evaluate a round's models, then train from them for the next one, all in one call.

A train message with the records of an evaluate message beside its own; the reply is a training reply with the
metrics of an evaluation. Either side separates the two, so readers of one part need not know the other. A
client failing in training after the evaluation answers with the evaluation alone; the sender notices the
missing part, and requests it separately.
"""

from collections.abc import Callable

from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

from fedge.config.registers.failing import OWN_ERRORS
from fedge.exchange.content import ARRAYS, CONFIG, METRICS, config_of, with_records
from fedge.exchange.evaluate import SPLITS, evaluated_record
from fedge.states.records import entries

_EVALUATED = "evaluated"  # a question's round context of the evaluation, a reply's metrics of it
JOINT = "joint"  # an exchange of such questions
_TRAINED_ROLE = "trained-role"  # beside the splits: the role of the trained model, sent once


def joint_question(train: Message, evaluate: Message, trained_role: str | None = None) -> Message:
    """A question for two results, within the time for one.

    Args:
        train: a train message, of the round to come.
        evaluate: an evaluate message to the same client, of the round before.
        trained_role: of the evaluated model to be trained, if any.
    """
    records = dict(evaluate.content.items())
    splits = dict(_splits_of(evaluate).items())
    if trained_role is not None:
        del records[evaluated_record(trained_role)]
        splits[_TRAINED_ROLE] = trained_role
    both = {**records, SPLITS: ConfigRecord(splits), _EVALUATED: records[CONFIG], **train.content}
    return Message(RecordDict(both), train.metadata.dst_node_id, train.metadata.message_type)


def is_joint(question: Message) -> bool:
    """Whether a question asks for both."""
    return _EVALUATED in entries(question.content)


def _splits_of(message: Message) -> ConfigRecord:
    """The record of an evaluate message on its windows."""
    record = message.content[SPLITS]
    assert isinstance(record, ConfigRecord)
    return record


def evaluate_part(question: Message) -> Message | None:
    """A joint question as an evaluate message; None of a question for training alone."""
    if not is_joint(question):
        return None
    records = dict(question.content.items())
    role = _splits_of(question).get(_TRAINED_ROLE)
    if role is not None:
        records[evaluated_record(str(role))] = records[ARRAYS]
    evaluated = records.pop(_EVALUATED)
    assert isinstance(evaluated, ConfigRecord)
    records[CONFIG] = ConfigRecord({**dict(config_of(question).items()), **dict(evaluated.items())})
    del records[ARRAYS]
    return with_records(question, records)


def joint_reply(question: Message, evaluation: Message, train: Callable[[], Message]) -> Message:
    """The reply to a joint question.

    Args:
        question: the joint one.
        evaluation: the reply to its `evaluate_part`.
        train: makes the reply of the training; its errors leave the evaluation unchanged.
    """
    found = {_EVALUATED: evaluation.content[METRICS]}
    try:
        trained = train()
    except OWN_ERRORS:  # the training is asked for once more by itself, and says why then
        return Message(RecordDict(found), reply_to=question)
    return Message(RecordDict({**trained.content, **found}), reply_to=question)


def parts_of(reply: Message) -> tuple[Message | None, Message | None]:
    """The training and evaluation replies within a joint reply, as far as present."""
    records = entries(reply.content)
    evaluated = records.get(_EVALUATED)
    train = {name: record for name, record in records.items() if name != _EVALUATED}
    evaluation = with_records(reply, {METRICS: evaluated}) if isinstance(evaluated, MetricRecord) else None
    return (with_records(reply, train) if train else None), evaluation
