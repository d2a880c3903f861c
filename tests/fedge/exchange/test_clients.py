"""The order in which clients are sent to work, on the real in-process engine."""

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from fedge.engine.flower_engine import FlowerEngine
from fedge.engine.inprocess import InProcessGrid
from fedge.exchange.clients import Clients
from fedge.exchange.content import ARRAYS, arrays_of
from fedge.leaf.strategies.grid import LeafGrid
from fedge.states.files import FileState
from fedge.states.records import to_record
from fedge.states.state_files import SharedStates

CLIENTS = 6
COSTS = {0: 1.0, 1: 8.0, 2: 3.0, 3: 4.0, 4: 5.0, 5: 2.0}


@pytest.fixture
def served():
    """An engine with one worker whose clients note that they were called."""
    app, calls = ClientApp(), []

    @app.train()
    def train(message: Message, context) -> Message:
        calls.append(int(context.node_config["partition-id"]))
        return Message(RecordDict(), reply_to=message)

    with InProcessGrid(app, CLIENTS, {}, 1) as grid:
        yield grid, calls


def messages():
    return [Message(RecordDict({"c": ConfigRecord()}), node, "train") for node in range(1, CLIENTS + 1)]


def clients(engine):
    return Clients(engine, {partition: partition + 1 for partition in range(CLIENTS)})


def test_the_largest_client_starts_first_and_replies_stay_in_order(served):
    grid, calls = served
    exchange = clients(grid).exchange(messages(), 30.0, costs_s=COSTS)
    assert calls == [1, 4, 3, 2, 5, 0]
    assert list(exchange.replies) == list(range(CLIENTS))
    assert not exchange.failures


def test_without_costs_clients_start_in_partition_order(served):
    grid, calls = served
    clients(grid).exchange(messages(), 30.0)
    assert calls == list(range(CLIENTS))


class NotingGrid(LeafGrid):
    """A view that notes what is pushed at a time."""

    def __init__(self, grid):
        super().__init__(grid, range(1, CLIENTS + 1))
        self.pushed = []

    def push_messages(self, messages):
        messages = list(messages)
        if messages:
            self.pushed.append([message.metadata.dst_node_id - 1 for message in messages])
        return super().push_messages(messages)


def test_an_engine_that_keeps_no_order_gets_waves(served):
    grid, calls = served
    noting = NotingGrid(grid)
    clients(FlowerEngine(noting)).exchange(messages(), 30.0, costs_s=COSTS)
    assert noting.pushed == [[1, 4], [3, 2], [5, 0]]
    assert calls == [1, 4, 3, 2, 5, 0]


def test_states_of_replies_wait_where_they_are_kept(tmp_path):
    """Errors, and replies that hold no arrays under that name, are left alone."""
    app, model = ClientApp(), {"w": np.arange(8.0)}

    @app.train()
    def train(message: Message, context) -> Message:
        client = int(context.node_config["partition-id"])
        if client == 1:
            raise ZeroDivisionError
        content = {0: to_record(model), 2: ConfigRecord()}[client]
        return Message(RecordDict({ARRAYS: content}), reply_to=message)

    shared = SharedStates(tmp_path, in_one_process=True)
    shared.prepare(20, 64, 1000)
    with InProcessGrid(app, 3, {}, 1) as grid:
        found = Clients(grid, {0: 1, 1: 2, 2: 3})
        found.keep_replies(shared.keep)
        exchange = found.exchange(messages()[:3], 30.0)
    shared.close()
    assert (list(exchange.replies), list(exchange.failures)) == ([0, 2], [1])
    state = arrays_of(exchange.replies[0], ARRAYS)
    assert isinstance(state, FileState)
    assert state["w"].tolist() == model["w"].tolist()
