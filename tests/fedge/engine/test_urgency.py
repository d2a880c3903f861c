"""Messages go to an engine by urgency, few at a time; clients in this process stand for any engine."""

import threading

from flwr.app import ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from fedge.engine.inprocess import InProcessGrid
from fedge.engine.urgency import Urgency


class Noted:
    """Clients that note in which order they are asked; the first one waits until it is told to go on."""

    def __init__(self):
        self.order, self.may_go_on, self.app = [], threading.Event(), ClientApp()
        self.is_at_work = threading.Event()

        @self.app.train()
        def train(message, context):
            self.order.append(int(context.node_config["partition-id"]))
            self.is_at_work.set()
            assert self.may_go_on.wait(30)
            return Message(RecordDict({"arrays": ArrayRecord()}), reply_to=message)


def asked(client):
    return Message(RecordDict(), client + 1, "train")


def test_what_is_due_first_is_worked_on_first_but_for_what_is_given_out():
    noted = Noted()
    with InProcessGrid(noted.app, 6, {}, 1) as grid:
        urgency = Urgency(grid, grid.num_workers)
        ids = {client: urgency.push_due(asked(client), due) for client, due in enumerate([9, 8, 7, 3, 5, -2])}
        assert noted.is_at_work.wait(30)
        assert urgency.wait_for_any(ids.values(), 0.0) == []
        assert urgency.wait_for(ids[4], 0.01) is None
        noted.may_go_on.set()
        for client in (4, 0, 1, 2, 3, 5):  # asked for in any order, each is handed out once
            reply = urgency.wait_for(ids[client], 30.0)
            assert not reply.has_error()
            assert reply.metadata.src_node_id == client + 1
            assert urgency.wait_for(ids[client], 0.0) is None
    assert noted.order == [0, 1, 5, 3, 4, 2]  # one at work and one behind it were given out at once


def test_those_that_are_there():
    noted = Noted()
    noted.may_go_on.set()
    with InProcessGrid(noted.app, 3, {}, 2) as grid:
        urgency = Urgency(grid, grid.num_workers)
        ids = [urgency.push_due(asked(client), 0) for client in range(3)]
        left, found = list(ids), set()
        while left:
            there = urgency.wait_for_any(left, 30.0)
            assert there
            found.update(there)
            left = [key for key in left if key not in found]
        assert found == set(ids)
        assert sorted(grid_ids(urgency, ids)) == [1, 2, 3]


def grid_ids(urgency, ids):
    return [urgency.wait_for(key, 0.0).metadata.src_node_id for key in ids]
