"""Orders to evaluate, and evaluations, arrive as they were sent."""

import numpy as np
import pytest
from evaluations import classified

from fedge.exchange.evaluate import (
    OWN,
    Evaluation,
    evaluate_messages,
    evaluate_reply,
    models_to_evaluate,
    pool_evaluations,
    read_evaluate,
    splits_to_evaluate,
)
from fedge.exchange.round_context import RoundContext
from fedge.states.records import to_record
from fedge.tasks import Task

CONTEXT = RoundContext(42, 3, 7, "/data", "/run.log", 99, 1.5)
MODELS = {role: {"w": np.full(2, value, np.float32)} for role, value in ((OWN, 1), ("offered", 2))}


@pytest.fixture
def asked():
    records = {role: to_record(model) for role, model in MODELS.items()}
    (message,) = evaluate_messages([5], records, ("val", "test"), CONTEXT)
    message.metadata.__dict__["_message_id"] = "1"
    return message


def test_models_come_one_by_one_under_their_roles(asked):
    found = dict(models_to_evaluate(asked))
    assert list(found) == list(MODELS)
    assert all(np.array_equal(found[role]["w"], MODELS[role]["w"]) for role in MODELS)
    assert splits_to_evaluate(asked) == ["val", "test"]
    assert RoundContext.from_message(asked) == CONTEXT


def test_evaluations_come_back(asked):
    own = classified(np.array([[3, 1], [0, 2]]), 0.5)
    offered = classified(np.array([[2, 2], [1, 1]]), 0.75, only_one_right=(2, 0))
    reply = evaluate_reply(asked, {(OWN, "val"): own, ("offered", "val"): offered})
    found = read_evaluate(reply, outputs=2)
    assert found.keys() == {(OWN, "val"), ("offered", "val")}
    assert np.array_equal(found["offered", "val"].confusion, offered.confusion)
    assert (found[OWN, "val"].loss, found[OWN, "val"].differences) == (0.5, None)
    assert found["offered", "val"].differences == (-2.0, 2.0)


class _Named(Task):
    """A task with sums named as entries of a reply."""

    def form(self, outputs):
        return {name: np.zeros(2) for name in ("loss", "windows", "differences", "moments", "sums")}


def test_sums_may_have_names_of_a_replys_entries(asked):
    """Of an own task whose sum is called `loss`, every evaluation was rejected."""
    sums = {name: np.array([0.5, place]) for place, name in enumerate(_Named().form(1))}
    reply = evaluate_reply(asked, {(OWN, "val"): Evaluation(sums, 0.25, 4, (1.0, 1.0))})
    found = read_evaluate(reply, _Named())
    assert found.keys() == {(OWN, "val")}
    assert (found[OWN, "val"].loss, found[OWN, "val"].windows) == (0.25, 4)
    assert all(np.array_equal(found[OWN, "val"].sums[name], sums[name]) for name in sums)


def test_scores_are_pooled_over_windows():
    """5 of 6 windows right with loss 0.5, 1 of 2 with loss 1.5: 6 of 8, (6·0.5 + 2·1.5) / 8."""
    first = classified(np.array([[3, 1], [0, 2]]), 0.5)
    second = classified(np.array([[1, 0], [1, 0]]), 1.5)
    found = pool_evaluations([first, second])
    assert (found.score, found.loss) == (0.75, 0.75)
    assert pool_evaluations([]) is None
