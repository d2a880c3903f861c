"""Joint messages: evaluate a round's models, then train from them for the next round, in one exchange.

A joint message is a train message with the records of an evaluate message; its reply is a train reply with
the metrics of an evaluation. Both sides split it, so code for either part need not know the other. If
training fails after the evaluation, the client replies with the evaluation alone, and the missing part is
requested separately.
"""

from collections.abc import Callable

from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

from fedge.config.registers.failing import own_errors
from fedge.exchange.content import ARRAYS, CONFIG, METRICS, config_of, with_records
from fedge.exchange.evaluate import SPLITS, evaluated_record
from fedge.states.records import entries

_EVALUATED = "evaluated"  # round context of the evaluation in a message, its metrics in a reply
JOINT = "joint"  # kind of an exchange with joint messages
_TRAINED_ROLE = "trained-role"  # beside the splits: the role of the trained model, sent once


def joint_question(train: Message, evaluate: Message, trained_role: str | None = None) -> Message:
    """A joint message, with the timeout of a single one.

    Args:
        train: a train message of the next round.
        evaluate: an evaluate message of the current round to the same client.
        trained_role: role of the evaluated model to be trained as well, if any.
    """
    records = dict(evaluate.content.items())
    splits = dict(_splits_of(evaluate).items())
    if trained_role is not None:
        del records[evaluated_record(trained_role)]
        splits[_TRAINED_ROLE] = trained_role
    content = {**records, SPLITS: ConfigRecord(splits), _EVALUATED: records[CONFIG], **train.content}
    return Message(RecordDict(content), train.metadata.dst_node_id, train.metadata.message_type)


def is_joint(question: Message) -> bool:
    """Whether a message is a joint one."""
    return _EVALUATED in entries(question.content)


def _splits_of(message: Message) -> ConfigRecord:
    """The record of an evaluate message with the names of its splits."""
    record = message.content[SPLITS]
    assert isinstance(record, ConfigRecord)
    return record


def evaluate_part(question: Message) -> Message | None:
    """The evaluate message within a joint message; None for a train message."""
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
    """The reply to a joint message.

    Args:
        question: the joint message.
        evaluation: the reply to its `evaluate_part`.
        train: trains and makes the train reply; if it fails, the evaluation alone is returned.
    """
    evaluated = {_EVALUATED: evaluation.content[METRICS]}
    try:
        trained = train()
    except own_errors():  # training is requested again on its own, and then reports the error
        return Message(RecordDict(evaluated), reply_to=question)
    return Message(RecordDict({**trained.content, **evaluated}), reply_to=question)


def parts_of(reply: Message) -> tuple[Message | None, Message | None]:
    """The training and evaluation replies within a joint reply, as far as present."""
    records = entries(reply.content)
    evaluated = records.get(_EVALUATED)
    train = {name: record for name, record in records.items() if name != _EVALUATED}
    evaluation = with_records(reply, {METRICS: evaluated}) if isinstance(evaluated, MetricRecord) else None
    return (with_records(reply, train) if train else None), evaluation
