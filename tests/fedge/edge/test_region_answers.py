"""Answers of a region of two leaves with a client each, over two leaf rounds: lies are refused."""

import copy
import math

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAdam
from spoilt import with_changes

from fedge.cloud.region import Region
from fedge.config.flat import from_run_config
from fedge.edge.answers import AnswerRejected, Schema
from fedge.edge.packets import orders
from fedge.edge.region_answers import check_region_answer
from fedge.edge.remote_regions import RegionSpan
from fedge.exchange.failure import Failure
from fedge.leaf.leaf import Leaf
from fedge.link.frames import Packet
from fedge.rounds.measurements.book import RoundBook
from fedge.rounds.task import RunTask

CONFIG = from_run_config(
    {"train.batch-size": 8, "train.local-epochs": 2, "gate.enabled": False, "guard.retries": 0}
)
SCHEMA = Schema(RunTask(CONFIG, 7, {}, 2))
VERSIONS = {4: 0, 5: 3}


def model(value=1.0, count=5):
    return {
        "w": np.full((2, 2), value, np.float32),
        "norm.running_var": np.ones(2, np.float32),
        "norm.num_batches_tracked": np.array(count),
    }


def a_span(rounds=2, of_region=2):
    names = ("norm.running_var",)
    leaves = [Leaf(i, {i: 40}, model(), ["w"], FedAdam(), 1, variances=names) for i in (4, 5)]
    for at, leaf in enumerate(leaves):
        leaf.path = (1, at)
    return RegionSpan(Region((1,), leaves, is_corrected=False, rounds=of_region), 7, 6 + rounds)


def told(client, failed=False):
    """A leaf's book of a leaf round in which its client trained, or failed."""
    book = RoundBook(1, {client: 0.5}, {client: 1.0}, {client: 1}, uplink_bytes=8, answered=1)
    if failed:
        book = RoundBook(1, asked={client: 1}, failures={client: Failure("exception", "x")})
    return orders.packed_book(book, 0.0)


def an_answer(**changes):
    """An honest answer, with some of its facts changed: in leaf round 8 the client of leaf 5 has failed."""
    kept = a_span().leaves[0].round_states()[1]
    facts = {
        "rounds": [
            [[4, 1, True, told(4)], [5, 1, True, told(5)]],
            [[4, 1, True, told(4)], [5, 0, False, told(5, failed=True)]],
        ],
        "leaves": [[4, 8, kept], [5, 7, copy.deepcopy(kept)]],
    }
    facts = with_changes(facts, changes)
    control = {"w": np.zeros((2, 2))}
    return Packet(
        orders.DONE, facts, {"model": model(2.0, 25), "4/control": control, "5/control": dict(control)}
    )


def refused(answer, span=None):
    with pytest.raises(AnswerRejected) as caught:
        check_region_answer(SCHEMA, answer, span or a_span(), VERSIONS, 1)
    words = str(caught.value)
    assert words.isprintable()
    assert len(words) <= 200
    return words


def test_an_honest_answer_counts():
    answer = an_answer()
    assert check_region_answer(SCHEMA, answer, a_span(), VERSIONS, 1) is answer


@pytest.mark.parametrize(
    ("path", "value", "telling"),
    [
        ("more", 1, "facts: 'more'"),
        ("rounds", [], "rounds: not 7 to 8"),
        ("rounds", {}, "rounds: not 7 to 8"),
        ("rounds__0", [], "rounds: of other leaves"),
        ("rounds__0__0__0", 5, "rounds: of other leaves"),
        ("rounds__1__0__0", "4", "rounds: of other leaves"),
        ("rounds__0__0", [4, 1, True], "rows must have 4 values"),
        ("rounds__0__0__1", 2, "counted: 2, but it can be 0 to 1"),
        ("rounds__0__0__1", 0, "counted: 0 clients, but 1 are named"),
        ("rounds__0__0__2", 1, "moved: 1"),
        ("rounds__1__1__2", True, "moved: with 0 replies"),
        ("rounds__0__0__3", None, "book: None is no table"),
        ("rounds__0__0__3__train_loss", [[5, 0.5]], "client 5 was not to be asked"),
        ("rounds__0__0__3__train_loss", [[4, math.inf]], "train_loss"),
        ("rounds__0__0__3__train_seconds", [[4, 1e9]], "train_seconds"),
        ("rounds__0__0__3__bytes", [-1, 1], "bytes"),
        ("rounds__0__0__3__calls", [[3.0]], "calls"),
        ("leaves", [], "leaves: of other leaves"),
        ("leaves__0__1", 7, "version: 7, but it can be 8"),
        ("leaves__1__1", 8, "version: 8, but it can be 7"),
        ("leaves__1__1", 3, "version: 3, but it can be 7"),
        ("leaves__0__2", None, "leaf: None is no table"),
        ("leaves__0__2", {}, "facts"),
        ("leaves__0__2__norms", [-1.0], "norms"),
    ],
)
def test_a_fact_that_cannot_be_is_refused(path, value, telling):
    assert telling in refused(an_answer(**{path: value}))


@pytest.mark.parametrize(
    ("name", "state", "telling"),
    [
        ("model", None, "model"),
        ("model", model(math.nan), "not finite"),
        ("model", {"w": np.zeros((2, 2), np.float32)}, ""),
        ("model", model(2.0, 26), "count out of range"),
        ("model", {**model(), "norm.running_var": np.full(2, -1, np.float32)}, "variance out of range"),
        ("4/control", None, "4/control"),
        ("4/control", {"w": np.zeros((3, 2))}, ""),
        ("5/control", {"w": np.full((2, 2), math.inf)}, "not finite"),
        ("6/control", {"w": np.zeros((2, 2))}, "states: 6/control"),
        ("4/told", {"w": np.zeros((2, 2))}, "states: 4/told"),
        ("4/strategy.m_t", {"w": np.zeros(3)}, ""),
    ],
)
def test_a_state_that_cannot_be_is_refused(name, state, telling):
    """Ten steps in each of two leaf rounds raise the counter from 5 to 25 at most."""
    answer = an_answer()
    states = {**answer.states, name: state}
    if state is None:
        del states[name]
    assert telling in refused(Packet(answer.kind, answer.facts, states))


def test_a_version_stays_where_nobody_has_moved():
    """Leaf 5 has kept its model in both leaf rounds: its version is the one from before."""
    failed = [5, 0, False, told(5, failed=True)]
    answer = an_answer(rounds__0__1=failed, leaves__1__1=3)
    assert check_region_answer(SCHEMA, answer, a_span(), VERSIONS, 1) is answer


def an_answer_of_parts(**states):
    """Of a region of one round of two leaf rounds: a model of each leaf that has moved; None: without it."""
    honest = an_answer()
    control = honest.states["4/control"]
    parts = {"4/model": model(2.0, 25), "5/model": model(3.0, 25), "4/control": control, "5/control": control}
    parts |= states
    return Packet(honest.kind, honest.facts, {name: state for name, state in parts.items() if state})


def test_a_region_of_one_round_brings_the_models_of_its_leaves():
    answer = an_answer_of_parts()
    assert check_region_answer(SCHEMA, answer, a_span(of_region=1), VERSIONS, 1) is answer


@pytest.mark.parametrize(
    ("states", "telling"),
    [
        ({"model": model(2.0, 25)}, "states: model"),
        ({"4/model": None}, "4/model"),
        ({"5/model": model(math.nan, 25)}, "not finite"),
        ({"5/model": model(2.0, 26)}, "count out of range"),
        ({"5/model": {"w": np.zeros((2, 2), np.float32)}}, ""),
        ({"6/model": model(2.0, 25)}, "states: 6/model"),
    ],
)
def test_models_of_leaves_that_cannot_be_are_refused(states, telling):
    assert telling in refused(an_answer_of_parts(**states), a_span(of_region=1))


def test_a_model_of_a_leaf_that_has_not_moved_is_refused():
    failed = [5, 0, False, told(5, failed=True)]
    kept = an_answer(rounds__0__1=failed, leaves__1__1=3)
    parts = an_answer_of_parts()
    answer = Packet(kept.kind, kept.facts, parts.states)
    assert "states: 5/model" in refused(answer, a_span(of_region=1))
    del answer.states["5/model"]
    assert check_region_answer(SCHEMA, answer, a_span(of_region=1), VERSIONS, 1) is answer


def test_models_of_leaves_are_not_of_a_region_of_several_rounds():
    assert "states: " in refused(Packet("done", an_answer().facts, an_answer_of_parts(model=model()).states))
