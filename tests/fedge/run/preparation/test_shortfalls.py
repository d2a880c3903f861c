"""Remarks on data of which little is tested, many windows are unused, or classes are not learned."""

import io
from dataclasses import replace

import numpy as np
import pytest

from fedge import simulate
from fedge.config.flat import from_run_config
from fedge.data.partition import partition
from fedge.run.preparation.data_facts import facts_of_deal
from fedge.run.preparation.prepare import Deal
from fedge.run.preparation.shortfalls import split_remarks
from hhar.windows.window_file import Windows


def windows_of(per_class, classes, users=4, session=None):
    """Windows of users with as many of each class, in order of time."""
    rows = np.random.default_rng(0).normal(size=(users * classes * per_class, 2)).astype(np.float32)
    y = np.tile(np.repeat(np.arange(classes), per_class), users)
    user = np.repeat([f"u{k}" for k in range(users)], classes * per_class)
    session = None if session is None else np.char.add(y.astype(str), session * (users * classes))
    return Windows(rows, y, user, None, session, tuple(map(str, range(classes))), ("a", "b"))


def remarks(windows, clients=4, **options):
    config = from_run_config({"partition.kind": "iid", **options})
    return split_remarks(windows, partition(windows, config, [clients], 3), config)


@pytest.mark.parametrize("per_class", range(1, 41))
def test_unlike_the_options_is_said_and_else_nothing(per_class):
    """Of each number of windows of a class, by counting: one of a few classes can be cut."""
    windows = windows_of(per_class, 5)
    windows.y[:] = np.where(windows.user == "u0", 0, windows.y)  # all can be tested on something
    config = from_run_config({"partition.kind": "iid"})
    try:
        dealt = partition(windows, config, [1], 3)
    except ValueError:
        return
    train, val, test = (sum(len(parts[at]) for parts in dealt.clients) for at in range(3))
    held, found = train + val + test, " ".join(split_remarks(windows, dealt, config))
    assert ("test window" in found) == (test < 0.1 * held)
    assert ("validation window" in found) == (val < 0.1 * held)
    assert ("are unused" in found) == (len(windows.y) - held > 0.2 * len(windows.y))


def test_what_stays_in_training_is_said_with_the_numbers():
    windows = windows_of(4, 50)
    windows.y[:40] = 0
    (line,) = remarks(windows, 2)
    assert line.startswith("of 798 windows, only ")
    assert "test windows (data.test-fraction 0.2): a class of which a user has fewer than 5 windows" in line
    assert remarks(windows, 2, **{"data.guard-windows": 0}) == []


def test_windows_dropped_for_nothing_are_said():
    (line,) = remarks(windows_of(6, 5))
    assert line == (
        "40 of 120 windows are unused: data.guard-windows drops 1 before each cut in time; if windows do not "
        "overlap, set it to 0"
    )
    assert remarks(windows_of(6, 5), **{"data.guard-windows": 0}) == []


def test_sessions_that_cannot_be_tested_are_said():
    windows = windows_of(12, 3, session=["one"] * 11 + ["two"])
    (line,) = remarks(windows, 1)
    assert line == (
        "of 144 windows, only 4 validation windows (data.val-fraction 0.2) and 8 test windows "
        "(data.test-fraction 0.2): sessions are never cut (data.split session), and there are few of a "
        "class; scores are uncertain"
    )


def test_a_split_of_the_datas_own_is_left_alone():
    windows = windows_of(20, 2)
    part = np.array(["train"] * 19 + ["test"])[np.arange(len(windows.y)) % 20]
    assert remarks(replace(windows, part=part), 1) == []


def test_a_class_without_training_windows_is_said():
    """Tested only, or in the list of classes only; where windows have no classes, nothing."""
    windows = windows_of(20, 3)
    config = from_run_config({"partition.unseen-clients": 1, "partition.deal": "sorted"})
    dealt = partition(windows, config, [4], 3)
    unseen = windows.user == windows.user[dealt.clients[3][0][0]]
    windows.y[~unseen & (windows.y == 2)] = 0
    windows = replace(windows, classes=("sit", "walk", "run", "fly"))
    source = None
    facts = facts_of_deal(config, Deal(windows, source, dealt, [4]))
    assert facts.remarks[-1] == (
        "2 of 4 classes have no training windows: run (18 untrained windows), fly; no model can learn them"
    )
    numbers = replace(windows, y=windows.y.astype(np.float32), classes=("n",))
    assert facts_of_deal(config, Deal(numbers, source, dealt, [4])).remarks == []


def test_they_are_printed_at_the_start(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = io.StringIO()
    windows = replace(windows_of(20, 2), classes=("0", "1", "2"))
    config = {"num-server-rounds": 1, "hierarchy.num-servers": 1, "train.model": "linear"}
    simulate(config, data=windows, terminal=out)
    assert "note: 1 of 3 classes has no training windows: 2; no model can learn it" in out.getvalue()
