"""Rows of servers, worked out by hand: regions over leaves with one client each, of 10, 30 and 20 windows."""

import numpy as np
from evaluations import classified
from flwr.serverapp.strategy import FedAvg

from fedge.cloud.region import Region, servers_over
from fedge.config.flat import from_run_config
from fedge.leaf.leaf import Leaf
from fedge.rounds.measurements.book import RoundBook
from fedge.rounds.measurements.round_record import ServerRoundRecord
from fedge.rounds.measurements.server_rows import server_rows
from fedge.serving.gate import GateResult

RIGHT = (5, 9, 10)  # of ten test windows each


def measured(tree):
    """A book in which every client has evaluated what it is served, and the cloud's children."""
    state = {"w": np.zeros(1, np.float32)}
    leaves = [Leaf(i, {i: n}, state, ["w"], FedAvg(), 0) for i, n in enumerate((10, 30, 20))]
    config = from_run_config({"hierarchy.tree": tree, "scaffold.enabled": False})
    branches = servers_over(config, leaves)
    off = GateResult("off", 0.5, None, False)
    book = RoundBook(1, root=ServerRoundRecord(labels=np.arange(len(branches)), gates=[off] * len(branches)))
    for client, right in enumerate(RIGHT):
        book.evaluated[client] = {(off.role, "test"): classified([[right, 10 - right], [0, 0]], 0.1)}
    return book, branches


def test_scores_and_windows_of_a_region_are_those_of_all_clients_below_it():
    book, branches = measured("((1,1),(1))")
    book.note_region(branches[0])  # two models of 4 bytes up, their mean down to both
    rows = server_rows(book, branches)
    assert isinstance(branches[0], Region)
    assert [row.path for row in rows] == [(), (0,), (0, 0), (0, 1), (1,), (1, 0)]
    assert [row.test_score for row in rows] == [0.8, 0.7, 0.5, 0.9, 1.0, 1.0]
    assert [row.train_samples for row in rows] == [60, 40, 10, 30, 20, 20]
    assert [row.cluster for row in rows] == [None, 0, 0, 0, 1, 1]
    assert [row.gate is not None for row in rows] == [False, True, False, False, True, False]
    assert [(row.uplink_bytes, row.downlink_bytes) for row in rows[2:4]] == [(4, 4), (4, 4)]
    assert rows[0].uplink_bytes is None
