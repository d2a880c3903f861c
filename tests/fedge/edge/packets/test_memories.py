"""Versions of clients' memories, as packets tell them: what is possible passes, nothing else."""

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.algorithm.leaf_part import LeafPart
from fedge.edge.packets.memories import check_ascending, check_memories, check_needed
from fedge.edge.packets.plain_json import FactError
from fedge.exchange.algorithm import ReplyForm
from fedge.leaf.algorithm import LeafAlgorithm
from fedge.states.memory import KeptVersion, RemoteMemories, path_of, write_memory

OLD, NEW = "a" * 64, "b" * 64
MODEL = {"w": np.zeros(2, np.float32)}


class Leaf:
    """A leaf of three clients, one of which never trains."""

    clients, unseen_clients = (3, 4), (5,)

    def __init__(self, folder="", keeps=True, elsewhere=None):
        form = ReplyForm(("w",), keeps=keeps)
        self.algorithm = LeafAlgorithm(LeafPart(), form, folder, MODEL, ["w"], elsewhere)
        if keeps:
            self.algorithm.kept = {3: KeptVersion(2, OLD, 8)}


def test_versions_of_before_and_of_this_round_are_possible():
    check_memories({"3": [2, OLD, 8]}, Leaf())
    check_memories({"3": [7, NEW, 8], "4": [7, NEW, 8]}, Leaf(), new_round=7)
    check_memories({"4": [99, NEW, 8]}, Leaf(), any_round=True)
    check_memories({}, Leaf(keeps=False))
    check_needed({"3": [1, 2], "4": list(range(3000)), "5": []}, Leaf())


@pytest.mark.parametrize(
    "told",
    [
        None, [], {"9": [2, OLD, 8]}, {"5": [7, NEW, 8]}, {"3": [7, NEW]}, {"3": [7, NEW, 8, 9]}, {"3": 7},
        {"3": [7, "x" * 64, 8]}, {"3": [7, NEW[:-1], 8]}, {"3": [7, 5, 8]}, {"3": [7, NEW, -1]},
        {"3": [7, NEW, 8.0]}, {"3": [6, NEW, 8]}, {"3": [2, NEW, 8]}, {"3": [2, OLD, 9]},
        {"3": [True, NEW, 8]}, {"4": [7, NEW, 8]},
        {3: [7, NEW, 8]}, {"3": [-7, NEW, 8]}, {"3": ["7", NEW, 8]},
    ],
)  # fmt: skip
def test_impossible_versions_are_refused(told):
    """Other clients, other forms, other rounds, and one that counted and is gone."""
    with pytest.raises(FactError):
        check_memories(told, Leaf(), new_round=7)


def test_no_version_is_possible_where_nothing_is_kept():
    with pytest.raises(FactError):
        check_memories({"3": [7, NEW, 8]}, Leaf(keeps=False), new_round=7)


@pytest.mark.parametrize("told", [None, {"9": []}, {"3": 1}, {"3": [-1]}, {"3": ["1"]}, {"3": [1] * 1001}])
def test_impossible_needs_are_refused(told):
    with pytest.raises(FactError):
        check_needed(told, Leaf())


def test_a_leaf_server_removes_what_neither_counts_nor_is_needed(tmp_path):
    leaf = Leaf(str(tmp_path))
    for leaf_round in (1, 2, 3):
        write_memory(tmp_path, 3, leaf_round, MODEL)
    leaf.algorithm.forget([3, 4], {"3": [1]})
    assert [path_of(tmp_path, 3, n).exists() for n in (1, 2, 3)] == [True, True, False]


def test_needs_and_state_go_out_and_come_back():
    elsewhere = RemoteMemories("run", 1)
    elsewhere.pin({3: KeptVersion(2, OLD, 8)})
    leaf = Leaf(elsewhere=elsewhere)
    assert leaf.algorithm.needed(leaf.clients) == {"3": [2], "4": []}
    other = copy.copy(Leaf().algorithm)
    other.kept = {}
    other.restore(leaf.algorithm.memory, leaf.algorithm.facts())
    assert other.kept == leaf.algorithm.kept
    assert leaf.algorithm.states() == {}


@given(
    st.integers(-(2**70), 2**70) | st.sampled_from([2**53 - 1, 2**53, 2**53 + 1, 10**9, 10**9 + 1, True]),
    st.integers(-(2**70), 2**70) | st.sampled_from([0, 2**53 - 1, 2**53, 2**53 + 1, None, "5"]),
)
def test_a_version_that_passes_is_taken_in(leaf_round, size):
    """Both bounds are one: what passed the first and not the second would end the cloud's run."""
    leaf = Leaf()
    told = {"3": [leaf_round, NEW, size]}
    try:
        check_memories(told, leaf, any_round=True)
    except FactError:
        return
    leaf.algorithm.restore({}, told)
    assert leaf.algorithm.kept == {3: KeptVersion(leaf_round, NEW, size)}


@pytest.mark.parametrize(
    "value", [None, 3, "12", {1: 2}, [1, 1], [2, 1], [1, "2"], [-1], [1, 10**10], [True]]
)
def test_rounds_ascend_and_there_may_be_any_number(value):
    check_ascending(list(range(10**5)), "needed")
    with pytest.raises(FactError):
        check_ascending(value, "needed")
