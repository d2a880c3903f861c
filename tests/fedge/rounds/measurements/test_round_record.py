"""Records of servers: offers by child, the newest of a server, clusters over several tiers."""

import numpy as np
from flwr.serverapp.strategy import FedAvg

from fedge.cloud.offers import Offer
from fedge.leaf.leaf import Leaf
from fedge.rounds.measurements.book import RoundBook
from fedge.rounds.measurements.round_record import ServerRoundRecord, clusters_of, shown_gate
from fedge.serving.gate import GateResult

STATE = {"w": np.zeros(1, np.float32)}


def leaf_at(*path):
    leaf = Leaf(sum(path), {0: 1}, STATE, ["w"], FedAvg(), 0)
    leaf.path = path
    return leaf


def decision(name):
    return GateResult(name, 0.5, 0.5, name == "accepted")


def shown(book, *path):
    return shown_gate(leaf_at(*path), book.records_above(path))


def test_offers_are_by_child_of_the_server_not_by_leaf():
    offer = {"offered": Offer(1.0, STATE)}
    record = ServerRoundRecord((1,), offers=[{}, offer])
    assert record.offers_to(leaf_at(1, 1)) is offer
    assert record.offers_to(leaf_at(1, 0)) == {}
    assert ServerRoundRecord((1,)).offers_to(leaf_at(1, 1)) == {}


def test_clusters_of_the_cloud_are_its_numbers_and_those_of_regions_are_told_apart():
    """Two regions of two leaves; the second of the first region stands alone, and so does the last leaf."""
    leaves = [leaf_at(0, 0), leaf_at(0, 1), leaf_at(1, 0), leaf_at(1, 1)]
    book = RoundBook(1, root=ServerRoundRecord(labels=np.array([1, 0])))
    assert clusters_of(leaves, book.records_above) == [1, 1, 0, 0]
    book.inner = [
        ServerRoundRecord((0,), labels=np.array([0, 1])),
        ServerRoundRecord((1,), labels=np.array([0, 0])),
    ]
    book.inner.append(ServerRoundRecord((1,), 2, labels=np.array([0, 1])))
    assert clusters_of(leaves, book.records_above) == [0, 1, 2, 3]
    assert book.latest_record((1,)).number == 2
    assert [record.path for record in book.records_above((1, 0))] == [(), (1,)]
    for record in book.inner:
        record.groups = False
    assert clusters_of(leaves, book.records_above) == [1, 1, 0, 0]


def test_the_decision_shown_of_a_leaf_is_that_of_the_lowest_gate_above_its_clients():
    book = RoundBook(
        1, root=ServerRoundRecord(labels=np.zeros(2, int), gates=[decision("accepted"), decision("off")])
    )
    own = [decision("rejected"), decision("accepted")]
    book.inner = [ServerRoundRecord((0,), labels=np.zeros(2, int), gates=own)]
    assert shown(book, 0, 0).decision == "rejected"
    assert book.gate(leaf_at(0, 0)).decision == "accepted"
    assert shown(book, 1, 0).decision == "off"
    book.inner[0].has_gates = False
    assert shown(book, 0, 0).decision == "accepted"
