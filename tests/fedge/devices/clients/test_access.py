"""Access to real clients from the virtual clock: questions all at once, replies in their order."""

import numpy as np
from virtual_world import config_of

from fedge.devices.clients.access import ClientAccess, Waiting
from fedge.devices.servers.vectors import version_of
from fedge.exchange.failure import Failure


class Urgent:
    """An engine that writes down what it is sent."""

    def __init__(self):
        self.pushed = []

    def push_due(self, message, due):
        self.pushed.append((message, due))
        return f"id of {message}"


class Answering(Waiting):
    """Client 5 fails; others echo their question and its id."""

    def reply(self, question, message_id):
        return Failure("exception", "no") if question == "for 5" else (question, message_id)


def test_all_are_asked_before_training_and_answer_in_order():
    engine = Urgent()
    access = ClientAccess(Answering(engine, 1.0, None, None), None, config_of(), None)
    found = list(access.replies({7: "for 7", 5: "for 5"}))
    assert engine.pushed == [("for 7", -2), ("for 5", -2)]
    assert found == [(7, ("for 7", "id of for 7")), (5, Failure("exception", "no"))]


def test_a_task_has_its_device_s_facts_and_the_options():
    config = config_of(train__local_epochs=3, train__batch_size=5, guard__client_timeout=9.0)
    start = version_of({"w": np.zeros(2, np.float32)})
    task = ClientAccess(None, None, config, None, ["w"]).task(start, 12, local_steps=0)
    assert (task.model, task.samples, task.variances, task.timeout_s) == (start.state, 12, ("w",), 9.0)
    assert (task.steps(12), task.form, task.keeps) == (9, None, False)
    assert ClientAccess(None, None, config, None).task(start, 12, local_steps=4).steps(12) == 4
