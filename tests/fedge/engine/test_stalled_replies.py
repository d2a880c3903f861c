"""Replies of which nothing comes, with Flower's own function that pulls them."""

import threading

import pytest

from fedge.engine.stalled_replies import _bounded, _flower_modules, give_up_stalled_replies

GRID, OBJECTS = _flower_modules()
ObjectUnavailableError, pull_objects = OBJECTS.ObjectUnavailableError, OBJECTS.pull_objects


def test_flower_s_grid_gives_up_and_once():
    before = GRID.pull_objects
    try:
        assert give_up_stalled_replies()
        wrapped = GRID.pull_objects
        assert wrapped.__wrapped__ is pull_objects
        assert give_up_stalled_replies()
        assert GRID.pull_objects is wrapped
    finally:
        GRID.pull_objects = before


def test_nothing_of_it_comes():
    def pull(name):
        raise ObjectUnavailableError(name)

    bounded = _bounded(pull_objects, ObjectUnavailableError, 0.05)
    with pytest.raises(ObjectUnavailableError, match="no part of it arrived for"):
        bounded(["a", "b"], pull, initial_backoff=0.02, backoff_cap=0.02)


def test_a_slow_reply_comes_as_long_as_parts_of_it_do():
    """Each part takes several tries; the whole takes longer than the limit, no part of it does."""
    tries, lock = {}, threading.Lock()

    def pull(name):
        with lock:
            tries[name] = tries.get(name, 0) + 1
        if tries[name] < int(name):
            raise ObjectUnavailableError(name)
        return name.encode()

    bounded = _bounded(pull_objects, ObjectUnavailableError, 2.0)
    names = [str(n) for n in range(1, 9)]
    found = bounded(names, pull, initial_backoff=0.01, backoff_cap=0.01)
    assert found == {name: name.encode() for name in names}
    assert tries == {name: int(name) for name in names}


def test_what_cannot_come_fails_as_before():
    def pull(name):
        raise ValueError(name)

    with pytest.raises(ValueError, match="a"):
        _bounded(pull_objects, ObjectUnavailableError, 1.0)(["a"], pull)
