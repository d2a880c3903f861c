import numpy as np
import pytest

from fedge.records import message_log
from fedge.records.message_log import MessageLog, message_files, round_of
from fedge.records.tables.timing_tables import MESSAGES as TABLE
from fedge.timing.timeline import MessageTimes

MESSAGES = MessageTimes(
    exchange=np.array([1, 2]),
    client=np.array([4, 0]),
    worker=np.array([1, 0]),
    pushed=np.array([0.25, 2.0]),
    received=np.array([1.5, 4.0]),
    edges=np.array([[0.5, 0.5, 0.5, 1.25, 1.25, 1.3333333], [2.5, 2.625, 2.75, 2.75, 3.25, 3.25]]),
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "timing").mkdir()
    return tmp_path


def rounds(folder):
    return [round_of(path) for path in message_files(folder)]


@pytest.fixture
def at_once(monkeypatch):
    """Let every round be written."""
    monkeypatch.setattr(message_log, "_EVERY_S", 0.0)


def test_a_round_by_hand(folder):
    """Seconds since the round began, parts as seconds, microseconds."""
    MessageLog(folder, {}).write(3, 5.0, MESSAGES)
    assert (folder / "timing" / "messages-000003.csv").read_text().splitlines() == [
        ",".join(TABLE.names),
        "3,1,4,1,0.250000,0.500000,0.000000,0.000000,0.750000,0.000000,0.083333,1.500000",
        "3,2,0,0,2.000000,2.500000,0.125000,0.125000,0.000000,0.500000,0.000000,4.000000",
    ]


def test_first_slowest_and_newest_stay(folder, at_once):
    log = MessageLog(folder, {})
    seen = []
    for number, seconds in enumerate([2.0, 1.0, 5.0, 1.0, 5.0, 6.0, 1.0], start=1):
        log.write(number, seconds, MESSAGES)
        seen.append(rounds(folder))
    assert seen == [[1], [1, 2], [1, 3], [1, 3, 4], [1, 3, 5], [1, 6], [1, 6, 7]]


def test_short_rounds_are_written_now_and_then_and_at_the_end(folder):
    log = MessageLog(folder, {})
    log.write(1, 0.5, MESSAGES)
    for number in (2, 3, 4):
        log.write(number, 0.25, MESSAGES)
    assert rounds(folder) == [1]
    log.write(5, 0.75, MESSAGES)  # the slowest so far is never missed
    log.write(6, 0.25, MESSAGES)
    assert rounds(folder) == [1, 5]
    log.flush()
    log.flush()
    assert rounds(folder) == [1, 5, 6]


def test_a_run_goes_on_as_if_later_rounds_had_not_been(folder, at_once):
    """Stopped in round 6, going on after round 4: what was slowest then is kept, and what came later goes."""
    log = MessageLog(folder, {})
    for number, seconds in enumerate([1.0, 3.0, 1.0, 1.0, 1.0], start=1):
        log.write(number, seconds, MESSAGES)
    assert rounds(folder) == [1, 2, 5]
    again = MessageLog(folder, {1: 1.0, 2: 3.0, 3: 1.0, 4: 1.0})
    assert rounds(folder) == [1, 2]
    again.write(5, 2.0, MESSAGES)
    assert rounds(folder) == [1, 2, 5]
    again.write(6, 4.0, MESSAGES)
    assert rounds(folder) == [1, 6]


def test_a_disk_that_cannot_be_written_leaves_nothing_half_done(folder):
    log = MessageLog(folder, {})
    (folder / "timing" / "messages-000001.csv.tmp").mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        log.write(1, 1.0, MESSAGES)
    assert rounds(folder) == []
