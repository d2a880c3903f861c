"""Orders of a cloud that lies, to a leaf server of two clients: each is refused in one printable line."""

import copy
import errno
import math
import os

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAdam

from fedge.edge.order_checks import OrderRefused, check_order, check_run, failed_order, most_bytes
from fedge.edge.packets import orders
from fedge.leaf.leaf import Leaf
from fedge.link.frames import Packet
from fedge.states.files import StateFileError

RUN = {
    "run": "a run", "leaf": 1, "clients": 9, "seed": 3, "config": {"seed": 3, "train.model": "linear"},
    "fingerprint": "0" * 64, "scale": None,
}  # fmt: skip
ASK = {name: RUN[name] for name in ("config", "seed", "clients", "leaf")}
TEXTS = ["\x1b[2J", "\u202e", "a\nb", "x" * 10**4]


def model():
    return {"w": np.ones((2, 2), np.float32)}


def a_leaf():
    return Leaf(1, {3: 40, 4: 10}, model(), ["w"], FedAdam(), 2)


def order(kind):
    """An honest order."""
    states, facts = a_leaf().round_states()
    common = {"run": "a run", "global_round": 1}
    known = {"own": [orders.SENT, "known/own"], "fold": [orders.HERE, "fold-1-3"]}
    train = {
        "leaf_round": 1, "line": "leaf", "fork": False, "without": [], "leaf": facts, "version": 0,
        "needed": [], "updates": False, "alone": False, "dispersion": False,
    }  # fmt: skip
    evaluate = {"known": known, "unseen": {}, "phase": "", "splits": ["val", "test"]}
    made = {
        orders.TRAIN: (train, {"model": model(), **states}),
        orders.PROBE: ({"leaf_round": 1, "line": "probe", "updates": True}, {"model": model()}),
        orders.EVALUATE: (evaluate, {"known/own": model()}),
    }
    facts, states = made[kind]
    return Packet(kind, copy.deepcopy({**facts, **common}), dict(states))


def refused(packet):
    with pytest.raises(OrderRefused) as caught:
        check_order(packet, a_leaf())
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) <= 200
    return str(caught.value)


@pytest.mark.parametrize("kind", [orders.TRAIN, orders.PROBE, orders.EVALUATE])
def test_an_honest_order_is_one_and_none_of_its_facts_may_miss(kind):
    check_order(order(kind), a_leaf())
    for name in order(kind).facts:
        packet = order(kind)
        del packet.facts[name]
        assert name in refused(packet)
    packet = order(kind)
    packet.facts["\x1b[2J"] = 1
    assert r"\x1b[2J" in refused(packet)


def test_as_many_versions_may_be_needed_as_a_run_keeps_checkpoints():
    """checkpoint.keep has no limit."""
    packet = order(orders.TRAIN)
    packet.facts["needed"] = list(range(3000))
    check_order(packet, a_leaf())


@pytest.mark.parametrize(
    ("kind", "fact", "value"),
    [
        (orders.TRAIN, "leaf_round", 10**4000),
        (orders.TRAIN, "leaf_round", "../../x"),
        (orders.TRAIN, "leaf_round", 1.0),
        (orders.TRAIN, "global_round", -1),
        (orders.TRAIN, "line", "everything"),
        (orders.TRAIN, "line", ["leaf"]),
        (orders.TRAIN, "fork", 1),
        (orders.TRAIN, "without", [0]),
        (orders.TRAIN, "without", 3),
        (orders.TRAIN, "version", "../../../etc/passwd"),
        (orders.TRAIN, "needed", [1] * 10**4),
        (orders.TRAIN, "needed", ["../x"]),
        (orders.TRAIN, "leaf", None),
        (orders.TRAIN, "leaf", {"norms": [], "strategy": {}, "drift": 0.0}),
        (orders.PROBE, "updates", None),
        (orders.EVALUATE, "phase", "dance"),
        (orders.EVALUATE, "splits", ["val", "val"]),
        (orders.EVALUATE, "splits", ["everything"]),
        (orders.EVALUATE, "known", {"own": ["/etc", "passwd"]}),
        (orders.EVALUATE, "known", {"own": [orders.SENT, "other"]}),
        (orders.EVALUATE, "known", {"\x1b[2J": [orders.SENT, "known/own"]}),
    ],
)  # fmt: skip
def test_a_fact_of_an_order_that_cannot_be_is_refused(kind, fact, value):
    packet = order(kind)
    packet.facts[fact] = value
    refused(packet)


@pytest.mark.parametrize("kind", [orders.TRAIN, orders.PROBE, orders.EVALUATE])
@pytest.mark.parametrize(
    "array",
    [
        np.full((2, 2), np.nan, np.float32),
        np.ones(3, np.float32),
        np.ones((2, 2)),
        np.full((2, 2), 1e30, np.float32),
    ],
    ids=["nan", "shape", "dtype", "size"],
)
def test_a_model_that_cannot_be_is_refused(kind, array):
    packet = order(kind)
    for name in [name for name in packet.states if name.endswith(("model", "own"))]:
        packet.states[name] = {"w": array}
    refused(packet)


@pytest.mark.parametrize("name", ["x", "strategy.__class__.x", "strategy.aggregate_train", "strategy.a.b"])
def test_states_that_nobody_needs_and_names_of_code_are_refused(name):
    packet = order(orders.TRAIN)
    packet.states[name] = {"w": np.ones((2, 2), np.float32)}
    refused(packet)
    packet = order(orders.TRAIN)
    packet.facts["leaf"]["strategy"][name.removeprefix("strategy.") + "()"] = 1
    refused(packet)


@pytest.mark.parametrize("value", [math.nan, -1.0, math.inf, "1", None])
def test_a_drift_that_cannot_be_is_refused(value):
    packet = order(orders.TRAIN)
    packet.facts["leaf"]["drift"] = value
    assert "drift" in refused(packet)


# --- runs -----------------------------------------------------------------------------------------------


def test_honest_facts_of_a_run_are_some():
    check_run(RUN, begins=True)
    check_run({**RUN, "scale": [[0.0, 1.0], [1.0, 2.0]], "told": {"3": "{}"}}, begins=True)
    check_run({**RUN, "local_steps": 12, "kernel": "native avx2"}, begins=True)
    check_run({**RUN, "parts": {"train.model": "0" * 64}}, begins=True)
    check_run(ASK, begins=False)
    check_run({**ASK, "wait_s": 97.5}, begins=False)


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        *[(name, None) for name in RUN if name != "scale"],
        *[("run", each) for each in TEXTS],
        *[("fingerprint", each) for each in TEXTS],
        ("clients", 10**9), ("clients", 0), ("clients", 9.0), ("seed", -1), ("seed", 2**65), ("leaf", -1),
        ("config", {"train.lr": None}), ("config", {"train.lr": [1]}), ("config", {"\x1b": 1}),
        ("config", {"train.model": "x" * 10**6}), ("config", {str(key): 1 for key in range(2000)}),
        ("scale", [1]), ("scale", [[1.0], [math.nan]]), ("scale", [[1.0], "x"]), ("scale", {"mean": []}),
        ("told", {"9": "{}"}), ("told", {"x": "{}"}), ("told", {"3": 1}), ("told", {"3": "\x1b"}),
        ("parts", []), ("parts", {"train.model": 1}), ("parts", {"train.model": "\x1b"}),
        ("told", []), ("told", {"9" * 5000: "{}"}),
    ],
)  # fmt: skip
def test_a_fact_of_a_run_that_cannot_be_is_refused_in_one_line(fact, value):
    with pytest.raises(OrderRefused) as caught:
        check_run({**RUN, fact: value}, begins=True)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) <= 200


@pytest.mark.parametrize("value", [-1.0, math.nan, "60", None, 1e300, True], ids=repr)
def test_a_wait_for_clients_that_cannot_be_is_refused(value):
    with pytest.raises(OrderRefused, match="wait_s"):
        check_run({**ASK, "wait_s": value}, begins=False)


def test_an_order_has_room_for_all_leaves_models_and_not_for_everything():
    arrays, head = most_bytes(10**6, 3)
    assert 3 * 10**6 < arrays < 10**9
    assert head < 2**28


@pytest.mark.parametrize("is_state", [False, True])
@pytest.mark.parametrize(
    ("number", "step"),
    [
        (errno.ENOSPC, "free disk space"),
        (errno.EFBIG, "allow larger files (ulimit -f)"),
        (errno.EROFS, "make the folder writable"),
    ],
)
def test_a_disk_of_a_leaf_server_that_takes_no_more_is_told_with_the_step(number, step, is_state):
    """Of windows, of control variates and of kept models alike."""
    error = OSError(number, os.strerror(number), "leaf-1/run-1/x")
    if is_state:
        cause, error = error, StateFileError("cannot write state leaf-1/run-1/x: full")
        error.__cause__ = cause
    words = failed_order("train", error).facts["words"]
    told = (
        "cannot write state leaf-1/run-1/x: full"
        if is_state
        else "a file could not be written (leaf-1/run-1/x"
    )
    assert words.startswith(told)
    assert words.endswith(step)


def test_another_error_of_a_leaf_server_keeps_its_kind():
    assert (
        failed_order("train", FileNotFoundError(2, "No", "x"))
        .facts["words"]
        .startswith("FileNotFoundError: ")
    )
