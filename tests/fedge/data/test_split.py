import time
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.config.sections.data import DataConfig
from fedge.data.split import (
    TEST,
    TRAIN,
    UNUSED,
    VAL,
    blocks,
    fewest_windows_to_cut,
    groups_of,
    split_by_blocks,
    split_by_session,
)

FIFTHS = DataConfig(val_fraction=0.2, test_fraction=0.2)


def by_session(sizes, group=None, y=None, config=FIFTHS, seed=0):
    """Split sessions of the given sizes; returns the split of each session, each of which must be whole."""
    n = len(sizes)
    repeat = lambda values: np.repeat(np.asarray(values), sizes)  # noqa: E731
    split = split_by_session(
        repeat([0] * n if group is None else group),
        repeat(range(n)),
        repeat([0] * n if y is None else y),
        config,
        np.random.default_rng(seed),
    )
    session = repeat(range(n))
    parts = [set(split[session == s]) for s in range(n)]
    assert all(len(p) == 1 for p in parts)
    return [int(p.pop()) for p in parts]


def test_ten_equal_sessions_by_hand():
    """Ten sessions of five windows: a fifth of 50 is 10 windows, so two sessions each for test and
    validation.
    """
    for seed in range(5):
        assert sorted(by_session([5] * 10, seed=seed)) == [TRAIN] * 6 + [VAL] * 2 + [TEST] * 2


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([7], [TRAIN]),
        ([3, 8], [TEST, TRAIN]),
        ([8, 3], [TRAIN, TEST]),
    ],
)
def test_one_and_two_sessions_by_hand(sizes, expected):
    """One trains; of two the longer trains and the other tests."""
    fill = [9, 9, 9]  # another class with three sessions, so that the group has validation windows of its own
    found = by_session(sizes + fill, y=[0] * len(sizes) + [1, 1, 1])
    assert found[: len(sizes)] == expected
    assert sorted(found[len(sizes) :]) == [TRAIN, VAL, TEST]


def test_two_sessions_per_class_share_test_and_validation():
    """Four classes of two sessions: the shorter ones test, validate, test, validate in the order of the
    classes.
    """
    found = by_session([4, 2] * 4, y=[0, 0, 1, 1, 2, 2, 3, 3])
    assert found == [TRAIN, TEST, TRAIN, VAL, TRAIN, TEST, TRAIN, VAL]


def test_one_repeated_class_leaves_the_shortest_session_for_validation():
    assert by_session([4, 2, 5, 3], y=[0, 0, 1, 2]) == [TRAIN, TEST, TRAIN, VAL]


def test_without_a_repeated_class_everything_trains():
    assert by_session([4, 2, 5], y=[0, 1, 2]) == [TRAIN] * 3


def test_groups_are_split_apart():
    """Three sessions per group and class: each group gets one of each split, whatever the other has."""
    found = by_session([5] * 6, group=[0, 1] * 3)
    assert sorted(found[0::2]) == sorted(found[1::2]) == [TRAIN, VAL, TEST]


def test_training_keeps_a_session_however_small_the_others_are():
    """0.4 · 32 windows are wanted for test, and the short sessions hold only 2; still each split gets one."""
    config = DataConfig(val_fraction=0.4, test_fraction=0.4)
    assert sorted(by_session([1, 1, 30], config=config)[:2]) == [VAL, TEST]
    assert by_session([1, 1, 30], config=config)[2] == TRAIN
    assert sorted(by_session([1, 1, 1, 90], config=config)) == [TRAIN, VAL, TEST, TEST]


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=15),
    st.integers(0, 1000),
    st.sampled_from([0.05, 0.2, 0.4]),
    st.sampled_from([0.05, 0.2, 0.4]),
)
def test_one_class_of_any_sessions(sizes, seed, val, test):
    config = DataConfig(val_fraction=val, test_fraction=test)
    found = by_session(sizes, config=config, seed=seed)
    assert found == by_session(sizes, config=config, seed=seed)
    if len(sizes) >= 3:
        assert set(found) == {TRAIN, VAL, TEST}
    longest = max(sizes)
    assert any(size == longest and part == TRAIN for size, part in zip(sizes, found, strict=True))
    total = sum(sizes)
    for part, share in ((TEST, test), (VAL, val)):
        own = [s for s, p in zip(sizes, found, strict=True) if p == part]
        # beyond its first session a split takes another only if at least half of it is still wanted
        if len(own) > 1:
            assert sum(own) <= share * total + longest / 2


def test_seeds_differ():
    assert len({tuple(by_session([5] * 10, seed=seed)) for seed in range(10)}) > 5


def test_a_session_counts_for_its_most_frequent_class():
    """Session 0 is mostly class 1: with sessions 1 and 2 it makes a stratum of three."""
    y = np.array([0, 1, 1] + [1] * 3 + [1] * 3)
    session = np.repeat([0, 1, 2], 3)
    split = split_by_session(np.zeros(9, int), session, y, FIFTHS, np.random.default_rng(0))
    assert sorted(split[[0, 3, 6]]) == [TRAIN, VAL, TEST]


# --- blocks -------------------------------------------------------------------------------------------


def test_blocks_by_hand():
    """Ten windows, a fifth each, guard 1: 10 − 2 − 2 − 2·1 = 4 train, one dropped, 2 validate, one dropped, 2
    test.
    """
    split = split_by_blocks(np.zeros(10, int), np.zeros(10, int), FIFTHS)
    assert split.tolist() == [TRAIN] * 4 + [UNUSED] + [VAL] * 2 + [UNUSED] + [TEST] * 2


def test_blocks_of_interleaved_classes_and_streams():
    """Two streams of two classes, dealt in turn: each of the four has the ten windows of the case above."""
    stream, y = np.tile([0, 0, 1, 1], 10), np.tile([0, 1, 0, 1], 10)
    split = split_by_blocks(stream, y, FIFTHS)
    expected = [TRAIN] * 4 + [UNUSED] + [VAL] * 2 + [UNUSED] + [TEST] * 2
    for offset in range(4):
        assert split[offset::4].tolist() == expected
    assert [b.tolist()[:2] for b in blocks(stream, y)] == [[0, 4], [1, 5], [2, 6], [3, 7]]


@given(st.integers(1, 200), st.integers(0, 5), st.floats(0.01, 0.45), st.floats(0.01, 0.45))
def test_any_class_is_cut_in_order_with_guards(n, guard, val, test):
    config = DataConfig(val_fraction=val, test_fraction=test, guard_windows=guard)
    split = split_by_blocks(np.zeros(n, int), np.zeros(n, int), config)
    num_val, num_test = max(1, round(val * n)), max(1, round(test * n))
    if n <= num_val + num_test + 2 * guard:
        assert (split == TRAIN).all()
        return
    runs = [(part, len(list(where))) for part, where in groupby(split.tolist())]
    dropped = [(UNUSED, guard)] if guard else []
    num_train = n - num_val - num_test - 2 * guard
    assert runs == [(TRAIN, num_train), *dropped, (VAL, num_val), *dropped, (TEST, num_test)]


@given(st.lists(st.integers(-3, 5), max_size=40))
def test_groups_are_those_of_a_mask_per_value(values):
    values = np.array(values, dtype=np.int64)
    expected = [np.flatnonzero(values == value) for value in np.unique(values)]
    found = list(groups_of(values))
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.extended
def test_a_hundred_thousand_users_are_split_in_one_pass():
    """A mask per user would look at 10¹¹ windows: minutes instead of seconds."""
    user = np.repeat(np.arange(100_000), 6)
    y = np.tile([0, 1], 300_000)
    began = time.process_time()
    assert sum(1 for _ in blocks(user, y)) == 200_000
    split = split_by_session(user, np.arange(len(user)), y, FIFTHS, np.random.default_rng(0))
    assert time.process_time() - began < 60
    assert (np.bincount(split) > 100_000).all()


@given(st.floats(0.01, 0.6), st.floats(0.01, 0.3), st.integers(0, 7))
def test_the_fewest_windows_that_are_cut_are_the_first_not_to_stay_in_training(test, val, guard):
    config = DataConfig(test_fraction=test, val_fraction=val, guard_windows=guard)

    def is_cut(n):
        return (split_by_blocks(np.zeros(n), np.zeros(n, np.int64), config) != TRAIN).any()

    fewest = fewest_windows_to_cut(config)
    assert is_cut(fewest)
    assert not any(is_cut(n) for n in range(1, fewest))


def test_the_fewest_windows_of_a_huge_guard_take_no_time():
    assert (
        fewest_windows_to_cut(DataConfig(test_fraction=0.8, val_fraction=0.1, guard_windows=10**12)) > 10**13
    )
