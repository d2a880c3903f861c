"""Means without one client each; the docstring has a case by hand."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedge.leaf.folds import MOST_FOLDS, by_client, held_out_clients, lines_of, means_without


@given(st.lists(st.floats(-9, 9), min_size=2, max_size=20), st.integers(0, 5))
def test_no_client_has_a_part_in_its_own(values, first):
    clients = range(first, first + len(values))
    states = {client: {"w": np.array([value])} for client, value in zip(clients, values, strict=True)}
    made = means_without(states, dict.fromkeys(clients, 2.0))
    assert sorted(made) == list(clients)
    assert len({id(state) for state in made.values()}) == min(len(values), MOST_FOLDS)
    for client in clients:
        altered = {**states, client: {"w": np.array([1e6])}}
        again = means_without(altered, dict.fromkeys(clients, 2.0))
        assert again[client]["w"] == made[client]["w"]


@given(st.integers(3, 12), st.integers(0, 5))
def test_every_client_is_left_out_of_one_fork(count, first):
    clients, lines = range(first, first + count), lines_of(count)
    out = [held_out_clients(clients, line, lines) for line in range(lines)]
    assert sorted(client for some in out for client in some) == list(clients)
    assert min(count - len(some) for some in out) >= 2  # no fork is one client's own model
    made = [{"w": np.array([float(line)])} for line in range(lines)]
    assert all(
        by_client(clients, made)[client] is made[line] for line in range(lines) for client in out[line]
    )


def test_one_client_has_nobody():
    assert means_without({3: {"w": np.zeros(1)}}, {3: 1.0}) == {}
    assert means_without({}, {}) == {}
