"""Bundles of packets by leaf: what comes out is what went in, over the link's own frames, and no others."""

import numpy as np
import pytest

from fedge.edge.order_checks import OrderRefused, orders_of
from fedge.edge.packets import orders
from fedge.edge.packets.bundles import bundled, unbundled
from fedge.edge.packets.plain_json import FactError
from fedge.link.frames import Packet, chunks_of, packet_of


def state(value):
    return {"w": np.array([value], np.float32)}


def over_the_link(packet):
    return packet_of(iter(list(chunks_of(packet))))


def test_parts_come_out_as_they_went_in_and_a_shared_model_goes_once():
    """Names of states of leaf 1 begin as those of leaf 11; "told" stays beside "control"."""
    shared = state(7)
    given = {
        1: Packet(orders.TRAIN, {"version": 3}, {"model": shared, "control": state(1), "told": state(2)}),
        11: Packet(orders.TRAIN, {"version": 4}, {"model": shared}),
    }
    bundle = over_the_link(bundled(orders.BUNDLE, given, {"run": "r"}))
    assert bundle.facts["run"] == "r"
    found = unbundled(bundle, given)
    assert {leaf: (part.kind, part.facts) for leaf, part in found.items()} == {
        1: ("train", {"version": 3}), 11: ("train", {"version": 4}),
    }  # fmt: skip
    for leaf, part in found.items():
        values = {name: float(s["w"][0]) for name, s in part.states.items()}
        assert values == {name: float(s["w"][0]) for name, s in given[leaf].states.items()}
    assert found[1].states["model"] is found[11].states["model"]
    sent = sum(len(chunk) - 1 for chunk in chunks_of(bundle)) - len(next(iter(chunks_of(bundle)))) + 1
    assert sent == 3 * 4  # the model, control and told


@pytest.mark.parametrize(
    ("parts", "states"),
    [
        ([[2, "done", {}]], {}),
        ([[True, "done", {}]], {}),
        ([["0", "done", {}]], {}),
        ([[0, "done", {}], [0, "done", {}]], {}),
        ([[0, "done", {}], [1, "done", {}], [0, "done", {}]], {}),
        ([[0, "done"]], {}),
        ([[0, 7, {}]], {}),
        ([[0, "d" * 101, {}]], {}),
        ([[0, "done", None]], {}),
        ({}, {}),
        (None, {}),
        ([[0, "done", {}]], {"1/model": {}}),
        ([[0, "done", {}]], {"model": {}}),
    ],
)
def test_parts_of_others_or_of_no_form_are_refused(parts, states):
    with pytest.raises(FactError):
        unbundled(Packet(orders.DONE, {"parts": parts}, states), [0, 1])


def a_bundle(**changes):
    parts = [[leaf, orders.EVALUATE, {"run": "r", "leaf_round": 1}] for leaf in (1, 0)]
    return Packet(orders.BUNDLE, {"run": "r", "parts": parts, **changes})


def test_orders_of_a_bundle_are_in_the_order_of_leaves():
    assert list(orders_of(a_bundle(), [0, 1, 2])) == [0, 1]


@pytest.mark.parametrize(
    ("changes", "telling"),
    [
        ({"more": 1}, "facts: 'more'"),
        ({"parts": []}, "no orders, or of other kinds"),
        ({"parts": [[0, "begin", {"run": "r"}]]}, "no orders, or of other kinds"),
        ({"parts": [[0, "bundle", {"run": "r"}]]}, "no orders, or of other kinds"),
        ({"parts": [[0, "region", {"run": "r"}]]}, "no orders, or of other kinds"),
        ({"parts": [[0, "train", {"run": "s"}]]}, "of another run"),
        ({"parts": [[0, "train", {}]]}, "of another run"),
        ({"parts": [[5, "train", {"run": "r"}]]}, "of other leaves"),
    ],
)
def test_what_is_no_bundle_of_orders_is_refused_in_one_line(changes, telling):
    with pytest.raises(OrderRefused, match=telling) as caught:
        orders_of(a_bundle(**changes), [0, 1, 2])
    assert str(caught.value).isprintable()
