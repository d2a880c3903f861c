import numpy as np
import pytest

from fedge.states.files import open_state, state_bytes, write_state
from fedge.states.lazy_state import LazyState, RemoteState, computed_state, kinds_of

WHOLE = {"body": np.arange(6, dtype=np.float32).reshape(2, 3), "count": np.array(3, np.int64)}


@pytest.fixture
def looks():
    return []


@pytest.fixture
def due(looks):
    def make(name):
        looks.append(name)
        return WHOLE[name]

    return LazyState(kinds_of(WHOLE), make)


def test_entries_are_made_when_they_are_looked_at(due, looks):
    assert (list(due), len(due), "body" in due.kinds, looks) == (["body", "count"], 2, True, [])
    assert due["count"] == 3
    assert due["count"] == 3
    assert looks == ["count", "count"]
    with pytest.raises(KeyError):
        due["head"]


def test_its_size_is_known_beforehand(due, looks):
    assert state_bytes(due) == state_bytes(WHOLE) == 6 * 4 + 8
    assert kinds_of(due) == {"body": (np.float32, (2, 3)), "count": (np.int64, ())}
    assert looks == []


def test_made_is_every_entry_once(due, looks):
    state = computed_state(due)
    assert looks == ["body", "count"]
    assert all(np.array_equal(state[name], WHOLE[name]) for name in WHOLE)
    assert computed_state(state) is state


def test_a_file_of_it_is_that_of_its_arrays(due, looks, tmp_path):
    """Each entry is made once for it."""
    ticket = write_state(tmp_path / "due", due)
    assert sorted(looks) == ["body", "count"]
    whole = write_state(tmp_path / "whole", WHOLE)
    assert (ticket.checksum, ticket.array_bytes) == (whole.checksum, whole.array_bytes)
    assert np.array_equal(open_state(ticket)["body"], WHOLE["body"])


def test_a_state_that_is_kept_elsewhere_is_as_large_and_takes_no_memory():
    kept = RemoteState("fold-3-1", {"w": np.ones((1000, 1000), np.float32), "n": np.ones(2, np.int64)})
    assert state_bytes(kept) == 4_000_016
    assert list(kept) == ["w", "n"]
    assert kept["w"].strides == (0, 0)
    with pytest.raises(ValueError, match="read-only"):
        kept["w"][0, 0] = 1
