"""Samples that training and test windows share are told, and nothing where they share none."""

from dataclasses import replace

import numpy as np
import pytest

from fedge.config.flat import from_run_config
from fedge.data.partition import partition
from fedge.run.preparation.data_facts import facts_of_deal
from fedge.run.preparation.leaks import leak_remarks
from fedge.run.preparation.prepare import Deal
from hhar.windows.window_file import Windows


def cut(stride, length=16, tokens=False, steps=40, constant=False):
    """Windows of two users and classes, cut from series of noise, with the sample number of each value."""
    rng = np.random.default_rng(0)
    xs, ys, users, numbers = [], [], [], []
    for user in "ab":
        for label in (0, 1):
            total = stride * (steps - 1) + length
            series = rng.integers(0, 30, total) if tokens else rng.normal(size=(2, total)).astype(np.float32)
            series = np.zeros_like(series) if constant else series
            for at in range(0, total - length + 1, stride):
                xs.append(series[..., at : at + length])
                numbers.append((user, label, at))
                ys.append(label)
                users.append(user)
    names = () if tokens else ("p", "q")
    return Windows(np.array(xs), np.array(ys), np.array(users), None, None, ("s", "t"), names), numbers


def shares(dealt, numbers, length):
    """Whether a test or validation window has a sample of a training window."""
    for train, *others in dealt.clients:
        seen = {(u, c, at + k) for i in train for u, c, at in [numbers[i]] for k in range(length)}
        for i in np.concatenate(others):
            user, label, at = numbers[i]
            if any((user, label, at + k) in seen for k in range(length)):
                return True
    return False


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 5, 7, 8, 12, 16, 20])
@pytest.mark.parametrize("guard", [0, 1, 3, 7])
@pytest.mark.parametrize("tokens", [False, True])
def test_a_leak_through_overlap_is_said_with_the_guard_that_mends_it(stride, guard, tokens):
    """Against sample numbers, which a run does not know."""
    windows, numbers = cut(stride, tokens=tokens, steps=90 if stride == 1 else 40)
    config = from_run_config({"data.guard-windows": guard})
    dealt = partition(windows, config, [2], 3)
    found = leak_remarks(windows, dealt, config)
    if stride > 12:  # they share no sample
        assert found == []
        return
    assert bool(found) == shares(dealt, numbers, 16)
    if found:
        enough = from_run_config({"data.guard-windows": int(found[0].split("data.guard-windows=")[1])})
        mended = partition(windows, enough, [2], 3)
        assert not shares(mended, numbers, 16)
        assert leak_remarks(windows, mended, enough) == []


@pytest.mark.parametrize("kind", ["constant", "rows", "images"])
def test_equal_values_by_chance_are_no_overlap(kind):
    windows, _ = cut(4, constant=True)
    if kind != "constant":
        shape = (16, 2) if kind == "images" else ()
        x = np.ones((len(windows), 2, *shape), np.float32) * np.arange(len(windows)).reshape(
            -1, 1, *[1] * len(shape)
        )
        windows = replace(windows, x=x)
    config = from_run_config({})
    assert leak_remarks(windows, partition(windows, config, [2], 3), config) == []


def test_sessions_on_both_sides_of_a_given_split_are_said():
    windows, _ = cut(16)
    at = np.arange(len(windows))
    config = from_run_config({})
    for session, part, words in (
        (at // 4, at % 4, "40 sessions have training and test windows in the data's own split (part), so "),
        (at // 40, at % 4, "4 sessions have training and test windows"),
        (at, at % 4, ""),
        (at // 4, at // 4 % 4, ""),
    ):
        given = replace(
            windows, session=session.astype(str), part=np.array(["train", "train", "val", "test"])[part]
        )
        dealt = partition(given, config, [2], 3)
        found = leak_remarks(given, dealt, config)
        assert bool(found) == bool(words)
        assert not words or found[0].startswith(words)


def test_they_are_among_a_runs_remarks():
    windows, _ = cut(2)
    config = from_run_config({})
    facts = facts_of_deal(config, Deal(windows, None, partition(windows, config, [2], 3), [2]))
    assert "set data.guard-windows=7" in facts.remarks[-1]
