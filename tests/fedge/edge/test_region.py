"""A region over two leaf servers of its process, whose clients are threads: as the cloud does it, by bits."""

import json

import numpy as np
import pytest
from process_of_leaves import TREE, begun

from fedge.cloud.region import servers_over
from fedge.config.flat import from_run_config
from fedge.edge.host import LeafHost
from fedge.edge.order_checks import OrderRefused, check_region
from fedge.edge.packets import orders
from fedge.exchange.round_context import LEAF
from fedge.link.frames import Packet


def an_order(model, leaves, **changes):
    """The order of leaf rounds 1 and 2."""
    rows, states = [], {orders.MODEL: model}
    for leaf in leaves:
        own, kept = leaf.round_states()
        states |= orders.region_states(own, leaf.index)
        rows.append([leaf.index, kept, 0, []])
    facts = {"path": [0], "first": 1, "last": 2, "leaves": rows, "run": "a run", "global_round": 1, **changes}
    return Packet(orders.REGION, facts, states)


def test_the_same_bits_as_orders_round_by_round(hosts):
    """The region's mean after each of two rounds, and every leaf's c, as by orders of single leaf rounds."""
    (first, second), facts, config = hosts
    site, _ = begun(first, facts)
    leaves = [first._run[1].site.make_leaf(site.model), None]
    leaves[1] = second.in_run({**facts, "leaf": 1}).site.make_leaf(site.model)
    notes = []
    answer = first.answer(an_order(site.model, leaves), notes.append)
    assert answer.kind == orders.DONE, answer.facts
    told = answer.facts["rounds"]
    assert [[row[:3] for row in of_round] for of_round in told] == [[[0, 3, True], [1, 3, True]]] * 2
    assert [row[:2] for row in answer.facts["leaves"]] == [[0, 2], [1, 2]]
    assert set(answer.states) == {orders.MODEL, "0/control", "1/control"}
    assert {note["leaf_round"] for note in notes} <= {1, 2}
    json.dumps(answer.facts)  # goes over the link as such
    for host in (first, second):
        host.close()
    (region,) = servers_over(config, leaves)[:1]
    for leaf_round in (1, 2):
        for host, leaf in zip((first, second), leaves, strict=True):
            own, kept = leaf.round_states()
            order = {
                "leaf_round": leaf_round, "line": LEAF, "fork": False, "without": [], "leaf": kept,
                "version": leaf_round - 1, "needed": [], "updates": False, "dispersion": False,
                "alone": False, "run": "a run", "global_round": 1,
            }  # fmt: skip
            host.in_run({**facts, "leaf": leaf.index})
            found = host.answer(Packet(orders.TRAIN, order, {orders.MODEL: leaf.model, **own}), print)
            assert found.kind == orders.DONE, found.facts
            leaf.put_round_states(found.states, found.facts["leaf"])
            leaf.models.trained(LEAF, found.states[orders.MODEL])
            leaf.keep_states(lambda state: state)
        region.combine(1, lambda state: state)
    for name, array in region.model.items():
        assert array.tobytes() == answer.states[orders.MODEL][name].tobytes(), name
    for leaf in leaves:
        for name, array in leaf.control.items():
            assert array.tobytes() == answer.states[f"{leaf.index}/control"][name].tobytes(), name


def test_a_repeated_order_has_the_same_start_and_the_same_answer(hosts):
    """The versions that the first try has written do not count; the process may have lost its memory."""
    (first, second), facts, _ = hosts
    site, _ = begun(first, facts)
    leaves = [site.make_leaf(site.model), second.in_run({**facts, "leaf": 1}).site.make_leaf(site.model)]
    answers = []
    for _ in range(2):
        begun(first, facts)
        answers.append(first.answer(an_order(site.model, leaves), print))
        second.close()
    one, other = (answer.states for answer in answers)
    assert one.keys() == other.keys()
    for name, state in one.items():
        assert all(np.array_equal(array, other[name][entry]) for entry, array in state.items()), name


def test_an_order_of_a_run_that_it_knows_nothing_of_is_sent_back(hosts):
    (first, _), facts, _ = hosts
    site, (leaf, _) = begun(first, facts)
    order = an_order(site.model, [leaf], run="another run")
    assert first.answer(order, print).kind == orders.UNKNOWN


def test_a_leaf_server_that_is_alone_is_no_region(hosts, tmp_path):
    (first, _), facts, _ = hosts
    site, (leaf, _) = begun(first, facts)
    alone = LeafHost(first._open_run)
    assert orders.SUBTREE not in alone.hello().facts
    assert first.hello().facts[orders.SUBTREE]
    answer = alone.answer(an_order(site.model, [leaf]), print)
    assert answer.facts["words"] == "invalid order: kind: 'region'"
    alone.close()


def rows(*leaves):
    return [[leaf, {}, 0, []] for leaf in leaves]


@pytest.mark.parametrize(
    ("changes", "telling"),
    [
        ({"more": 1}, "facts"),
        ({"path": "0"}, "path"),
        ({"path": [0, 0]}, "not those below the region"),
        ({"path": [1]}, "not those below the region"),
        ({"path": [-1]}, "path"),
        ({"leaves": rows(0)}, "not those below the region"),
        ({"leaves": rows(1, 0)}, "not those below the region"),
        ({"leaves": rows(0, 1, 2)}, "leaves"),
        ({"leaves": [[0, {}, 0], [1, {}, 0]]}, "rows"),
        ({"leaves": [[0, None, 0, []], [1, {}, 0, []]]}, "leaf: None is no table"),
        ({"leaves": [[0, {}, -1, []], [1, {}, 0, []]]}, "version"),
        ({"leaves": [[0, {}, 0, ["../x"]], [1, {}, 0, []]]}, "needed"),
        ({"first": 2, "last": 3}, "begins no round"),
        ({"first": 1, "last": 4}, "last: 4, but it can be 2"),
        ({"first": 1.0}, "first"),
    ],
)
def test_what_is_no_order_is_refused_in_one_line(changes, telling):
    config = from_run_config({**TREE, "clients": 9})
    facts = {
        "path": [0],
        "first": 1,
        "last": 2,
        "leaves": rows(0, 1),
        "run": "a run",
        "global_round": 1,
        **changes,
    }
    with pytest.raises(OrderRefused, match=telling) as caught:
        check_region(Packet(orders.REGION, facts, {orders.MODEL: {}}), config.hierarchy, [0, 1])
    assert str(caught.value).isprintable()


def test_as_many_versions_may_be_needed_as_a_run_keeps_checkpoints():
    config = from_run_config({**TREE, "clients": 9})
    leaves = [[leaf, {}, 3000, list(range(3000))] for leaf in (0, 1)]
    facts = {"path": [0], "first": 1, "last": 2, "leaves": leaves, "run": "a run", "global_round": 1}
    check_region(Packet(orders.REGION, facts, {orders.MODEL: {}}), config.hierarchy, [0, 1])


@pytest.mark.parametrize("states", [{}, {"model": {}, "2/control": {}}, {"model": {}, "control": {}}])
def test_states_of_others_are_refused(states):
    config = from_run_config({**TREE, "clients": 9})
    facts = {"path": [0], "first": 1, "last": 2, "leaves": rows(0, 1), "run": "r", "global_round": 1}
    with pytest.raises(OrderRefused, match="states: not the model and those"):
        check_region(Packet(orders.REGION, facts, states), config.hierarchy, [0, 1])
