"""Rules of a server as their papers have them, by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.config.flat import from_run_config
from fedge.exchange.train import TrainReply
from fedge.leaf.strategies.published import krum_picks
from fedge.leaf.strategies.rules import combine, make_strategy
from fedge.states.averaging import weighted_mean
from fedge.training.settings import LocalTraining

START = {"w": np.array([1.0, -2.0], np.float32)}


def strategy(name, clients, **changes):
    options = {"scaffold.enabled": False, "leaf.strategy": name, **changes}
    return make_strategy(from_run_config(options), clients)


def combined(rule, states, start=START, leaf_round=1):
    replies = [TrainReply(state, 10, 1, 0.5, 1.0, 0) for state in states]
    mean = weighted_mean(states, [10.0] * len(states))
    return combine(rule, start, mean, replies, ["w"], LocalTraining(), 1, (leaf_round, 0))


@pytest.mark.parametrize("name", ["fedadam", "fedyogi", "fedadagrad"])
def test_two_steps_of_server_optimisers_by_hand(name):
    """Reddi et al. 2021, algorithm 2, with η = .1, τ = .001 and the step Δ = (.5, .25), twice."""
    rule, delta, tau = strategy(name, 1, **{"leaf.strategy-args.eta": 0.1}), np.array([0.5, 0.25]), 1e-3
    m, v, x = np.zeros(2), np.full(2, tau**2), START["w"].astype(np.float64)
    first, second = {"fedadam": (0.9, 0.99), "fedyogi": (0.9, 0.99), "fedadagrad": (0.0, 0.0)}[name]
    state = START
    for leaf_round in (1, 2):
        m = first * m + (1 - first) * delta
        v = {
            "fedadam": second * v + (1 - second) * delta**2,
            "fedyogi": v - (1 - second) * delta**2 * np.sign(v - delta**2),
            "fedadagrad": v + delta**2,
        }[name]
        x = x + 0.1 * m / (np.sqrt(v) + tau)
        reply = {"w": (state["w"] + delta).astype(np.float32)}
        state = combined(rule, [reply], state, leaf_round)
        np.testing.assert_allclose(state["w"], x, rtol=2e-6)


def test_krum_by_hand_picks_among_those_left():
    """On a line at 0, 1, 3, 7, 8, 9 with f = 1: first each is judged by its three nearest.

    Sums of squares: 59, 41, 29, 21, 27, 41 → 7 at place 3. Of those left by two: 10, 5, 13, 26, 37 → 1 at
    place 1. Then by one: 9, 9, 1, 1 → 8 at place 4. In one pass 7, 8 and 3 come first.
    """
    line = [np.array([float(value)]) for value in (0, 1, 3, 7, 8, 9)]
    assert krum_picks(line, 1, 3) == [3, 1, 4]


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=9), st.integers(0, 2), st.integers(1, 9))
def test_krum_picks_each_once_and_all_if_asked(values, malicious, count):
    vectors = [np.array([float(value)]) for value in values]
    picked = krum_picks(vectors, malicious, min(count, len(values)))
    assert len(set(picked)) == len(picked) == min(count, len(values))
    assert krum_picks(vectors, malicious, len(picked)) == picked


def test_bulyan_leaves_out_whom_krum_does_not_pick():
    """Seven replies, one malicious: five are picked, and of these the three values nearest to the median."""
    moves = [0.0, 0.1, 0.2, 0.3, 0.4, 5.0, 0.25]
    states = [{"w": (START["w"] + np.float32(move)).astype(np.float32)} for move in moves]
    vectors = [state["w"].astype(np.float64) - START["w"] for state in states]
    picked = sorted(vectors[at][0] for at in krum_picks(vectors, 1, 5))
    median = picked[2]
    nearest = sorted(picked, key=lambda value: abs(value - median))[:3]
    made = combined(strategy("bulyan", 7, **{"leaf.strategy-args.num-malicious-nodes": 1}), states)
    np.testing.assert_allclose(made["w"][0], 1 + np.mean(nearest), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "changes"), [("fedtrimmedavg", {"leaf.strategy-args.beta": 0.25}), ("fedmedian", {})]
)
def test_means_of_what_is_left_are_those_of_float64(name, changes):
    """Cast once, at the end: an odd number of float32 values of all sizes loses nothing on the way."""
    values = np.random.default_rng(0).normal(size=(8, 1000)).astype(np.float32) * np.float32(1e3)
    start = {"w": np.zeros(1000, np.float32)}
    made = combined(strategy(name, 8, **changes), [{"w": row} for row in values], start)
    middle = np.sort(values.astype(np.float64), axis=0)
    middle = middle[2:6] if name == "fedtrimmedavg" else middle[3:5]
    assert made["w"].dtype == np.float32
    assert np.array_equal(made["w"], middle.mean(axis=0).astype(np.float32))
