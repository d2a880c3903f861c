"""Answers of a leaf server of two clients with 40 and 10 windows; whole runs: test_bad_leaf_answers."""

import math

import numpy as np
import pytest
from evaluations import classified
from flwr.serverapp.strategy import FedAdam, FedAvg
from spoilt import with_changes

from fedge.clustering.likeness.updates import Updates
from fedge.config.flat import from_run_config
from fedge.edge.answers import AnswerRejected, Schema, Trained, check_note, failure_reason
from fedge.edge.packets import orders
from fedge.exchange.failure import Failure
from fedge.leaf.leaf import Leaf
from fedge.link.frames import Packet
from fedge.rounds.measurements.book import RoundBook
from fedge.rounds.task import RunTask

CONFIG = from_run_config(
    {
        "scaffold.levels": 2,
        "train.lr": 0.1,
        "train.momentum": 0.0,
        "train.batch-size": 8,
        "train.local-epochs": 2,
        "cluster.tau": -1.0,
        "gate.enabled": False,
        "guard.retries": 0,
    }
)
HELD_OUT = {client: {"val": 10, "test": 10, "train": 40} for client in (3, 4)}
SCHEMA = Schema(RunTask(CONFIG, 7, HELD_OUT, 2))


def model(value=1.0, count=5):
    return {
        "w": np.full((2, 2), value, np.float32),
        "norm.running_var": np.ones(2, np.float32),
        "norm.num_batches_tracked": np.array(count),
    }


def a_leaf(strategy=None):
    names = ("norm.running_var",)
    return Leaf(1, {3: 40, 4: 10}, model(), ["w"], strategy or FedAvg(), 2, variances=names)


def trained(**changes):
    """An honest answer to an order to train, with some of its facts changed."""
    book = RoundBook(1, {3: 0.5, 4: 0.7}, {3: 1.0, 4: 2.0}, {3: 1, 4: 1}, uplink_bytes=8, answered=2)
    facts = {
        "counted": 2, "moved": True, "version": 7, "folds": [],
        "leaf": {"norms": [], "strategy": a_leaf().round_states()[1]["strategy"], "drift": 1.0},
        "book": orders.packed_book(book, 0.0),
    }  # fmt: skip
    facts = with_changes(facts, changes)
    control = {"w": np.zeros((2, 2))}
    return Packet(orders.DONE, facts, {"model": model(2.0, 15), "control": control, "told": control})


def asked(**changes):
    return Trained(**{"leaf": a_leaf(), "line": "leaf", "leaf_round": 7, "version": 0, **changes})


def refused(answer, question=None):
    """Reason for which an answer is refused."""
    with pytest.raises(AnswerRejected) as caught:
        SCHEMA.trained(answer, question or asked(), 1)
    words = str(caught.value)
    assert words.isprintable()
    assert len(words) <= 200
    return words


def test_an_honest_answer_counts():
    answer = trained()
    assert SCHEMA.trained(answer, asked(), 1) is answer


@pytest.mark.parametrize(
    ("path", "value", "telling"),
    [
        ("counted", 1, "counted: 1 clients, but 2 are named"),
        ("counted", 2.0, "counted: 2.0, but it can be 0 to 2"),
        ("moved", 1, "moved: 1"),
        ("version", 8, "version: 8, but it can be 7"),
        ("version", None, "version"),
        ("more", 1, "facts: 'more'"),
        ("folds", [[3, "fold-7-3"]], "folds"),
        ("leaf", None, "leaf: None is no table"),
        ("leaf__norms", [math.nan], "norms"),
        ("leaf__norms", [-1.0], "norms"),
        ("leaf__norms", [1.0] * 21, "norms"),
        ("leaf__strategy", {}, "is missing"),
        ("book__train_loss", [[99, 1.0], [3, 1.0]], "train_loss: client 99 was not to be asked"),
        ("book__train_loss", [[3, math.inf], [4, 1.0]], "train_loss"),
        ("book__train_loss", [[3, -0.1], [4, 1.0]], "loss out of range"),
        ("book__train_loss", [[3, 0.5], [3, 0.5]], "one client twice"),
        ("book__train_loss", [["3", 0.5], [4, 0.5]], "client '3' was not"),
        ("book__train_loss", [[[], 0.5], [4, 0.5]], "client [] was not"),
        ("book__train_seconds", [[3, 1e9], [4, 1.0]], "train_seconds"),
        ("book__failures", [[3, "exception", "x"]], "a client that has failed"),
        ("book__failures", [[5, "exception", "x"]], "client 5 was not"),
        ("book__kept_model", 2, "kept_model"),
        ("book__bytes", [1], "bytes"),
        ("book__bytes", [-1, 1], "bytes"),
        ("book__bytes", [10**400, 1], "bytes"),
        *(("book__answered", number, "answered") for number in (1, 3, 2.0, None)),
        ("book__calls", [[3.0]], "calls"),
        ("book__calls", [[3.0, math.nan, *[0.0] * 12]], "calls"),
    ],
)
def test_a_fact_that_cannot_be_is_refused(path, value, telling):
    assert telling in refused(trained(**{path: value}))


@pytest.mark.parametrize("fact", ["counted", "moved", "version", "folds", "leaf", "book"])
def test_a_missing_fact_is_refused(fact):
    answer = trained()
    del answer.facts[fact]
    assert refused(answer) == f"facts: '{fact}'"


@pytest.mark.parametrize("words", ["\x1b[2J", "\u202e", "a\nb", "x" * 301, None])
def test_words_of_a_failure_are_short_and_printable(words):
    answer = trained(
        counted=1, book__train_loss=[[3, 1.0]], book__train_seconds=[[3, 1.0]],
        book__failures=[[4, "exception", words]],
    )  # fmt: skip
    assert "printable text" in refused(answer)


@pytest.mark.parametrize(
    ("drift", "fits"),
    [
        (0.2, True),  # one step in each of two epochs
        (1.0, True),  # five of both clients
        (1e-300, False), (0.0, False), (0.199, False), (1.001, False), (1e30, False), (-1.0, False),
        (math.nan, False), (math.inf, False), ("1", False), (None, False),
    ],
)  # fmt: skip
def test_the_drift_has_grown_by_what_one_leaf_round_can_give(drift, fits):
    """Γ is the mean number of steps × 0.1: from 2 × 1 (eight windows or fewer) to 2 × 5 (all 40)."""
    answer = trained(leaf__drift=drift)
    if fits:
        SCHEMA.trained(answer, asked(), 1)
    else:
        assert "drift" in refused(answer)


def test_a_leaf_that_has_not_moved_has_no_model_and_its_drift_stays():
    still = trained(
        moved=False, counted=0, version=0, leaf__drift=0.0, book__train_loss=[], book__train_seconds=[],
        book__kept_model=1,
    )  # fmt: skip
    del still.states["model"]
    SCHEMA.trained(still, asked(), 1)
    assert "drift" in refused(
        Packet(still.kind, {**still.facts, "leaf": {**still.facts["leaf"], "drift": 0.5}}, still.states)
    )
    assert "moved" in refused(Packet(still.kind, {**still.facts, "moved": True, "version": 7}, still.states))


def entry(state, name, array):
    def change(states):
        states[state] = {**states[state], name: array}

    return change


@pytest.mark.parametrize(
    ("change", "telling"),
    [
        (entry("model", "w", np.full((2, 2), np.nan, np.float32)), "not finite"),
        (entry("model", "w", np.full((2, 2), np.inf, np.float32)), "not finite"),
        (entry("model", "w", np.full((2, 2), 1e30, np.float32)), "too large"),
        (entry("model", "w", np.ones(4, np.float32)), "other shape"),
        (entry("model", "w", np.ones((2, 2))), "other dtype"),
        (entry("model", "more", np.ones(2)), "other entries"),
        (entry("model", "norm.running_var", np.array([1, -1e-6], np.float32)), "variance out of range"),
        (entry("model", "norm.num_batches_tracked", np.array(16)), "count out of range"),
        (entry("model", "norm.num_batches_tracked", np.array(4)), "count out of range"),
        (entry("control", "w", np.full((2, 2), np.nan)), "not finite"),
        (entry("control", "w", np.zeros(4)), "other shape"),
        (entry("told", "w", np.full((2, 2), np.inf)), "not finite"),
        (lambda states: states.pop("model"), "states: model"),
        (lambda states: states.pop("control"), "states: control"),
        (lambda states: states.update(x={}), "states: x"),
        (lambda states: states.update({"summary.3": {}}), "summaries"),
        (lambda states: states.update({"strategy.m_t": {"w": np.ones(3)}}), "has another form"),
        (lambda states: states.update({"strategy.aggregate_train": {"w": np.ones(2)}}), "nothing that"),
        (lambda states: states.update({"strategy.__class__.x": {"w": np.ones(2)}}), "nothing that"),
    ],
)
def test_a_state_that_cannot_be_is_refused(change, telling):
    answer = trained()
    change(answer.states)
    assert telling in refused(answer)


def test_a_strategy_s_moments_come_with_the_first_round_and_keep_their_form():
    leaf = a_leaf(FedAdam(eta=0.1))
    numbers = leaf.round_states()[1]["strategy"]
    answer = trained(leaf__strategy=numbers)
    for moments in ("strategy.m_t", "strategy.v_t"):
        answer.states[moments] = {"w": np.ones((2, 2), np.float32)}
    SCHEMA.trained(answer, asked(leaf=leaf), 1)
    leaf.put_round_states(answer.states, answer.facts["leaf"])
    answer.states["strategy.m_t"] = {"v": np.ones((2, 2), np.float32)}
    leaf.drift.length = 0.0
    assert "another form" in refused(answer, asked(leaf=leaf))


def summary(windows, **changes):
    return {"0": np.zeros(4), "1": np.zeros(2), "2": np.array([windows], float), **changes}


@pytest.mark.parametrize(
    ("state", "telling"),
    [
        (summary(40), ""),
        (summary(41), "of 41 windows"),
        (summary(0.5), "of 0.5 windows"),
        (summary(8, **{"0": np.full(4, np.nan)}), "not finite"),
        (summary(8, **{"0": np.zeros(5)}), "other shape"),
        (summary(8, **{"9": np.zeros(5)}), "other entries"),
    ],
)
def test_summaries_have_the_form_of_the_cloud_s(state, telling):
    question = asked(updates=Updates(model(), ["w"], 1))
    answer = trained()
    answer.states["summary.3"] = state
    if not telling:
        SCHEMA.trained(answer, question, 1)
    else:
        assert telling in refused(answer, question)


# --- evaluations ----------------------------------------------------------------------------------------


def evaluated(rows=None, failures=(), **changes):
    found = {client: {("own", "val"): classified(np.array([[3, 2], [1, 4]]), 0.5)} for client in (3, 4)}
    book = RoundBook(1)
    book.failures.update(failures)
    told = orders.packed_evaluations(found) if rows is None else rows
    return Packet(orders.DONE, {"evaluated": told, "book": orders.packed_book(book, 0.0), **changes})


def row(**changes):
    names = ("client", "role", "split", "sums", "loss", "windows", "pair", "moments")
    values = {
        "client": 3, "role": "own", "split": "val", "sums": {"confusion": [3, 2, 1, 4]}, "loss": 0.5,
        "windows": 10, "pair": None, "moments": None, **changes,
    }  # fmt: skip
    return [values[name] for name in names]


def test_honest_evaluations_count():
    roles = {3: ["own"], 4: ["own"]}
    assert sorted(SCHEMA.evaluated(evaluated(), roles, ["val"])) == [3, 4]
    failed = evaluated([row()], {4: Failure("no reply")})
    assert sorted(SCHEMA.evaluated(failed, roles, ["val"])) == [3]


@pytest.mark.parametrize(
    ("changes", "telling"),
    [
        ({"client": 0}, "not by the clients that were asked"),
        ({"client": "3"}, "client"),
        ({"role": "offered"}, "other entries"),
        ({"role": "\x1b[2J"}, "role"),
        ({"split": "test"}, "other entries"),
        ({"sums": {"confusion": [3, 2, 1, 5]}}, "other number of windows"),
        ({"sums": {"confusion": [3, 2, 1, 4.0]}}, "numbers"),
        ({"sums": {"confusion": [-3, 8, 1, 4]}}, "count out of range"),
        ({"sums": {"confusion": [3, 2]}}, "numbers"),
        ({"sums": {}}, "other sums"),
        ({"sums": None}, "not readable"),
        ({"loss": -1.0}, "loss out of range"),
        ({"loss": "0.5"}, "no loss"),
        ({"windows": 11}, "other number of windows"),
        ({"pair": [0.0, 0.0]}, "own beside own"),
        ({"moments": [0.0]}, "was not requested"),
    ],
)
def test_an_evaluation_that_cannot_be_is_refused(changes, telling):
    with pytest.raises(AnswerRejected) as caught:
        SCHEMA.evaluated(evaluated([row(**changes)]), {3: ["own"]}, ["val"])
    assert telling in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "telling"),
    [
        (evaluated([]), "not by the clients that were asked"),
        (evaluated([row(), row()]), "one evaluation twice"),
        (evaluated([row()] * 3), "rows"),
        (evaluated(7), "rows"),
        (evaluated(book=None), "book"),
        (Packet(orders.DONE, evaluated().facts, {"model": model()}), "states"),
    ],
)
def test_an_answer_of_other_evaluations_is_refused(answer, telling):
    with pytest.raises(AnswerRejected) as caught:
        SCHEMA.evaluated(answer, {3: ["own"], 4: ["own"]}, ["val"])
    assert telling in str(caught.value)


# --- notes and words ------------------------------------------------------------------------------------


def test_a_note_speaks_of_clients_that_were_asked():
    facts = {"kind": "train", "asked": [3, 4], "back": [3], "failed": []}
    assert check_note(Packet("note", facts), [3, 4]) == ("train", {3}, set(), 0)
    for change in ({"back": [5]}, {"back": 3}, {"failed": [[3]]}, {"kind": "\x1b"}, {"kind": 3}, {"more": 1}):
        with pytest.raises(AnswerRejected):
            check_note(Packet("note", {**facts, **change}), [3, 4])


@pytest.mark.parametrize(
    "words", ["\x1b[2J" * 1000, None, ["x"], pytest.param(10**5000, id="digits"), {"a": 1}]
)
def test_what_a_leaf_server_says_of_its_failure_is_one_short_printable_line(words):
    said = failure_reason(Packet(orders.FAILED, {"words": words}))
    assert said.isprintable()
    assert 0 < len(said) <= 200
