"""A bundle of orders to two leaf servers of a process, whose clients are threads: what single orders do."""

import json
import re

import numpy as np
import pytest
from process_of_leaves import begun

from fedge.edge.host import LeafHost
from fedge.edge.packets import orders
from fedge.edge.packets.bundles import bundled, unbundled
from fedge.exchange.round_context import LEAF
from fedge.link.frames import Packet

WHERE = {"run": "a run", "global_round": 1}


def to_evaluate(model):
    facts = {"known": {"own": [orders.SENT, "known/own"]}, "unseen": {}, "phase": "", "splits": ["test"]}
    return Packet(orders.EVALUATE, {**facts, **WHERE}, {"known/own": model})


def to_train(leaf):
    states, kept = leaf.round_states()
    facts = {
        "leaf_round": 1, "line": LEAF, "fork": False, "without": [], "leaf": kept, "version": 0, "needed": [],
        "updates": False, "dispersion": False, "alone": False, **WHERE,
    }  # fmt: skip
    return Packet(orders.TRAIN, facts, {orders.MODEL: leaf.model, **states})


def bundle(packets):
    return bundled(orders.BUNDLE, packets, {"run": "a run"})


def without_times(answer):
    """Facts of an answer but those that count seconds, and its states as bytes."""
    facts = {**answer.facts, "book": {**answer.facts["book"], "train_seconds": 0, "calls": 0}}
    return facts, {
        name: {entry: array.tobytes() for entry, array in state.items()}
        for name, state in answer.states.items()
    }


@pytest.mark.parametrize("kind", [orders.TRAIN, orders.EVALUATE])
def test_a_bundle_is_answered_as_its_orders_are_one_by_one(hosts, kind):
    """The second leaf server begins the run with the first; the cloud has told the first of it alone."""
    (first, second), facts, _ = hosts
    site, (leaf, _) = begun(first, facts)
    other = second.in_run({**facts, "leaf": 1}).site.make_leaf(site.model)
    leaves = {0: leaf, 1: other}
    make = (lambda leaf: to_train(leaf)) if kind == orders.TRAIN else lambda leaf: to_evaluate(leaf.model)
    second.close()
    notes = []
    found = first.answer(bundle({i: make(leaf) for i, leaf in leaves.items()}), notes.append)
    assert found.kind == orders.DONE, found.facts
    json.dumps(found.facts)  # goes over the link as such
    parts = unbundled(found, leaves)
    assert list(parts) == [0, 1]
    for host, (index, leaf) in zip((first, second), leaves.items(), strict=True):
        host.in_run({**facts, "leaf": index})
        alone = host.answer(make(leaf), print)
        assert (alone.kind, parts[index].kind) == (orders.DONE, orders.DONE)
        assert without_times(parts[index]) == without_times(alone)
        assert all(row[5] < 0 for row in parts[index].facts["book"]["calls"])  # before the answer


def test_one_that_fails_fails_alone(hosts):
    (first, second), facts, _ = hosts
    site, (leaf, _) = begun(first, facts)
    second.in_run({**facts, "leaf": 1})
    spoilt = to_evaluate({name: np.full_like(array, np.nan) for name, array in leaf.model.items()})
    found = unbundled(first.answer(bundle({0: to_evaluate(site.model), 1: spoilt}), print), [0, 1])
    assert found[0].kind == orders.DONE
    assert {row[0] for row in found[0].facts["evaluated"]} == {0, 1, 2}
    assert found[1].kind == orders.FAILED
    assert "invalid order: " in found[1].facts["words"]


def test_one_that_cannot_begin_the_run_fails_alone(hosts):
    """Its folder is a file."""
    (first, second), facts, _ = hosts
    site, _ = begun(first, facts)

    def broken(_):
        raise OSError("no space left")

    second._open_run = broken
    order = to_evaluate(site.model)
    found = unbundled(first.answer(bundle({0: order, 1: order}), print), [0, 1])
    assert found[0].kind == orders.DONE
    where = r"OSError: no space left \(test_leaf_bundles\.py, line \d+\)"
    assert re.fullmatch(where, found[1].facts["words"])


def test_a_bundle_of_a_run_that_it_knows_nothing_of_is_sent_back(hosts):
    (first, _), facts, _ = hosts
    site, _ = begun(first, facts)
    order = bundled(orders.BUNDLE, {0: to_evaluate(site.model)}, {"run": "another run"})
    assert first.answer(order, print).kind == orders.UNKNOWN


def test_a_leaf_server_that_is_alone_takes_no_bundle(hosts):
    (first, _), facts, _ = hosts
    alone = LeafHost(first._open_run)
    site, _ = begun(alone, facts)
    answer = alone.answer(bundle({0: to_evaluate(site.model)}), print)
    assert answer.facts["words"] == "invalid order: kind: 'bundle'"
    alone.close()


def test_as_many_bytes_are_read_as_orders_of_all_may_have(hosts):
    (first, _), facts, _ = hosts
    begun(first, facts)
    together, alone = first.most_bytes(), LeafHost(first._open_run)
    begun(alone, facts)
    assert together == tuple(2 * most for most in alone.most_bytes())
    alone.close()
