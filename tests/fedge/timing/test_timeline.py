"""Timelines and legs worked out by hand, and their sums for any calls."""

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.process.identity import PID_BITS
from fedge.timing.clocks import MachineClock
from fedge.timing.timeline import (
    LEG_COLUMNS,
    TIMELINE_PARTS,
    ExchangeTimes,
    MessageTimes,
    TimelineBook,
    cut_timelines,
    idle_at_end,
    is_in_order,
    legs_of,
    overlap,
    percentiles,
    without_overlaps,
)

SERVER, THREADS = 100, (101, 102)


def edges(began, **parts):
    """The edges of a call from the seconds of its parts."""
    return np.cumsum([began, *(parts.get(part, 0.0) for part in TIMELINE_PARTS[1:])])


# Two workers, one exchange; the server pushed until 1 and waited from 1 to 11.
WAIT = [(1.0, 11.0)]
CALLS = np.array(
    [
        edges(0.5, deserialise=0.25, load=0.25, train=4.0, serialise=1.0),  # worker 0, until 6
        edges(7.0, train=2.0, serialise=1.0),  # worker 0, until 10
        edges(2.0, evaluate=3.0),  # worker 1, until 5
    ]
)
WORKER = np.array([0, 0, 1])


def by_name(row):
    return {
        timeline: seconds for timeline, seconds in zip(TIMELINE_PARTS, row.tolist(), strict=True) if seconds
    }


# --- timelines by hand --------------------------------------------------------------------------------------


def test_timelines_by_hand():
    """Time before the wait is not in it; the rest of ten seconds is idle."""
    first, second = cut_timelines(CALLS, WORKER, 2, WAIT)
    assert by_name(first) == {"idle": 2.0, "train": 6.0, "serialise": 2.0}
    assert by_name(second) == {"idle": 7.0, "evaluate": 3.0}


def test_a_wait_in_two_pieces():
    """1 to 4 and 6 to 8: of worker 0, training 1 to 4 and 7 to 8; of worker 1, 2 to 4."""
    timelines = cut_timelines(CALLS, WORKER, 2, [(1.0, 4.0), (6.0, 8.0)])
    assert by_name(timelines[0]) == {"train": 4.0, "idle": 1.0}
    assert by_name(timelines[1]) == {"evaluate": 2.0, "idle": 3.0}


def test_a_worker_without_a_call_is_idle():
    assert by_name(cut_timelines(CALLS, WORKER, 3, WAIT)[2]) == {"idle": 10.0}


def test_idle_at_the_end_by_hand():
    """Worker 1 ends at 5, worker 0 at 10, worker 2 has had nothing since 1; the last second is nobody's."""
    assert idle_at_end(CALLS, WORKER, 3, WAIT).tolist() == [0.0, 5.0, 9.0]
    assert idle_at_end(CALLS[:0], WORKER[:0], 2, WAIT).tolist() == [0.0, 0.0]


def test_calls_that_overlap_are_cut_where_the_earlier_one_ends():
    """The second call says 3 to 9, the first lasts until 6: 3 seconds are left of the second."""
    calls = np.array([edges(3.0, train=6.0), edges(1.0, evaluate=5.0)])
    turned = without_overlaps(calls, np.array([0, 0]))
    assert by_name(cut_timelines(turned, np.array([0, 0]), 1, WAIT)[0]) == {
        "idle": 2.0, "evaluate": 5.0, "train": 3.0
    }  # fmt: skip
    assert without_overlaps(calls, np.array([0, 1])).tolist() == calls.tolist()


def test_overlap_by_hand():
    begin, end = np.array([0.0, 2.0, 5.0, -np.inf]), np.array([1.0, 6.0, 5.0, 4.0])
    assert overlap(begin, end, [(0.5, 3.0), (4.0, 5.5)]).tolist() == [0.5, 2.5, 0.0, 2.5]


SECONDS = st.integers(0, 2**12).map(lambda n: n / 64)  # exact in binary
CALL = st.tuples(st.integers(0, 2), SECONDS, st.lists(SECONDS, min_size=5, max_size=5))


@given(st.lists(CALL, max_size=12), st.lists(SECONDS, min_size=2, max_size=8, unique=True))
def test_timelines_add_up_whatever_the_calls(calls, marks):
    """Any calls on three workers, any waits: each timeline sums to the wait, no part is negative."""
    marks = sorted(marks)
    waits = list(zip(marks[::2], marks[1::2], strict=False))
    starts = np.array([np.cumsum([began, *parts]) for _, began, parts in calls]).reshape(-1, 6)
    worker = np.array([one for one, _, _ in calls], dtype=np.int64)
    timelines = cut_timelines(without_overlaps(starts, worker), worker, 3, waits)
    assert timelines.min() >= 0
    assert timelines.sum(axis=1).tolist() == [sum(end - begin for begin, end in waits)] * 3
    at_end = idle_at_end(without_overlaps(starts, worker), worker, 3, waits)
    assert (at_end <= timelines[:, 0]).all()


# --- legs by hand ---------------------------------------------------------------------------------------


def message_times(pushed=0.125, received=11.0):
    count = len(CALLS)
    return MessageTimes(
        np.ones(count, int), np.arange(count), WORKER, np.full(count, pushed), np.full(count, received), CALLS
    )


def test_legs_by_hand():
    """Worker 0 was free at 6 for its second message, which had been pushed at 0.125 and began at 7."""
    assert legs_of(message_times()).tolist() == [
        [0.0, 0.375, 5.5, 5.0],
        [5.875, 1.0, 3.0, 1.0],
        [0.0, 1.875, 3.0, 6.0],
    ]


def test_percentiles_by_hand():
    """Of 0, 1, 2, 3, 4: the median is 2; 90 % of the way from 0 to 4 is 3.6, 99 % is 3.96."""
    column = np.arange(5.0)[::-1]
    found = percentiles(np.stack([column, 10 * column, 0 * column, column + 1], axis=1))
    assert tuple(found) == LEG_COLUMNS
    queue = [found[f"queue_{p}"] for p in ("p50", "p90", "p99", "max")]
    assert queue == pytest.approx([2.0, 3.6, 3.96, 4.0])
    assert [found[f"return_{p}"] for p in ("p50", "max")] == [3.0, 5.0]
    assert (found["dispatch_max"], found["run_max"]) == (40.0, 0.0)


def test_stamps_of_two_clocks_do_not_fit():
    assert is_in_order(message_times())
    assert is_in_order(message_times(pushed=0.5005))  # the clocks of one machine may be that far apart
    assert not is_in_order(message_times(pushed=0.6))  # begun before it was pushed
    assert not is_in_order(message_times(received=9.9))  # received before it was done


# --- a run ----------------------------------------------------------------------------------------------


def call(client, place, began, train, process=SERVER, pushed=1000.0, received=1012.0, cuda=(0.0, 0.0)):
    """Notes on a message."""
    thread = THREADS[place] if process == SERVER else process
    return client, pushed, received, [process, thread, began, 0.0, 0.0, train, 0.0, 0.0, *cuda]


def exchange(waits, *calls):
    """The times of an exchange."""
    times = ExchangeTimes(waits)
    for one in calls:
        times.add(*one)
    return times


def test_a_round_by_hand():
    """The round began at 1000; the thread that was there first is worker 0, seen or not."""
    exchanges = [
        exchange([(1001.0, 1011.0)], call(0, 1, 1002.0, 4.0), call(1, 1, 1006.0, 5.0)),
        exchange([(1021.0, 1031.0)], call(1, 0, 1021.0, 9.0, pushed=1020.0, received=1031.0)),
    ]
    found = TimelineBook(SERVER).round(1000.0, exchanges, THREADS)
    assert found is not None
    assert [(timeline.worker, timeline.pid, timeline.messages) for timeline in found.timelines] == [
        (0, 101, 1),
        (1, 102, 2),
    ]
    assert [by_name(np.array(timeline.seconds)) for timeline in found.timelines] == [
        {"idle": 11.0, "train": 9.0}, {"idle": 11.0, "train": 9.0}
    ]  # fmt: skip
    assert [timeline.idle_at_end for timeline in found.timelines] == [10.0, 9.0]
    assert dict(zip(TIMELINE_PARTS, found.seconds, strict=True))["idle"] == 22.0
    assert found.messages.pushed.tolist() == [0.0, 0.0, 20.0]
    assert found.messages.edges[:, -1].tolist() == [6.0, 11.0, 30.0]
    assert found.messages.exchange.tolist() == [1, 1, 2]
    assert found.messages.worker.tolist() == [1, 1, 0]
    assert found.cuda_mib == {}


def test_workers_keep_their_numbers_and_new_ones_get_the_next():
    """Processes on Ray: 7 dies after the first round, 5 takes its place."""
    book = TimelineBook(SERVER)

    def numbers(present, *working):
        rows = [call(k, 0, 1001.0, 1.0, process=process) for k, process in enumerate(working)]
        found = book.round(1000.0, [exchange([(1000.0, 1010.0)], *rows)], present)
        return {timeline.pid: timeline.worker for timeline in found.timelines}

    assert numbers([7, 9], 9) == {7: 0, 9: 1}
    assert numbers([5, 9], 7, 9) == {7: 0, 9: 1, 5: 2}
    assert numbers([5, 9], 5) == {9: 1, 5: 2}


def test_workers_of_two_machines_are_two_although_their_process_ids_are_one():
    here, there = 1 << PID_BITS, 2 << PID_BITS
    rows = [call(k, 0, 1001.0, 1.0, process=process) for k, process in enumerate([here | 7, there | 7])]
    found = TimelineBook(here | SERVER).round(1000.0, [exchange([(1000.0, 1010.0)], *rows)], [])
    assert [(one.pid, one.machine) for one in found.timelines] == [(7, ""), (7, "00000002")]


def test_calls_on_another_machine_are_laid_by_what_its_clock_says():
    """It is 5000 s ahead; a reading that took from 1010 to 1010.2 says so, messages less closely."""
    here, there = 1 << PID_BITS, 2 << PID_BITS
    rows = [call(0, 0, 1001.0, 4.0, process=here | 7), call(1, 0, 6003.0, 5.0, process=there | 7)]
    clocks = {2: MachineClock(name="10.0.0.2").asked(1010.0, 6010.1, 1010.2)}
    times = exchange([(1000.0, 1010.0)], *rows)
    found = TimelineBook(here | SERVER).round(1000.0, [times], [there | 9], clocks)
    laid = {(one.pid, one.machine): by_name(np.array(one.seconds)) for one in found.timelines}
    assert laid == {
        (9, "10.0.0.2"): {"idle": 10.0},
        (7, ""): {"idle": 6.0, "train": 4.0},
        (7, "10.0.0.2"): {"idle": 5.0, "train": 5.0},
    }
    assert found.messages.edges[1, 0] == pytest.approx(3.0)
    unasked = TimelineBook(here | SERVER).round(1000.0, [exchange([(1000.0, 1010.0)], *rows)], [])
    assert unasked.messages.edges[1, 0] == pytest.approx(3.5)  # between 0, pushed, and 7: received at 12


def test_the_most_gpu_memory_of_a_process():
    rows = [
        call(0, 0, 1001.0, 1.0, cuda=(10.0, 20.0)),
        call(1, 1, 1001.0, 1.0, cuda=(5.0, 30.0)),
        call(2, 0, 1001.0, 1.0, process=7),
    ]
    found = TimelineBook(SERVER).round(1000.0, [exchange([(1000.0, 1010.0)], *rows)], [])
    assert found.cuda_mib == {SERVER: (10.0, 30.0)}


@pytest.mark.parametrize(
    "row", [call(0, 0, 900.0, 1.0), call(0, 0, float("nan"), 1.0), call(0, 0, 1001.0, -1.0)],
    ids=["another clock", "no number", "negative"],
)  # fmt: skip
def test_what_does_not_fit_has_no_timelines_and_is_said_once(row, caplog):
    book = TimelineBook(SERVER)
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            times = exchange([(1000.0, 1010.0)], call(1, 1, 1001.0, 1.0), row)
            assert book.round(1000.0, [times], THREADS) is None
    assert caplog.text.count("no worker times") == 1


def test_nobody_said_anything():
    assert TimelineBook(SERVER).round(1000.0, [ExchangeTimes([(1000.0, 1010.0)])], THREADS) is None
    assert TimelineBook(SERVER).round(1000.0, [], THREADS) is None
