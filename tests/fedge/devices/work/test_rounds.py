"""Jobs that count in a round, and its end."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.devices.servers.vectors import version_of
from fedge.devices.work.jobs import Job
from fedge.devices.work.rounds import settle_round

START = version_of({"w": np.zeros(1, np.float32)})


def jobs_of(*ends):
    """Jobs that begin at 10; a negative end is of a device that drops out then."""
    return [
        Job(number, number, 0, 1, 1, 0, 10, abs(end), 10, abs(end), "trains" if end > 0 else "dropped", START)
        for number, end in enumerate(ends)
    ]


def fates(jobs):
    return [(job.fate, job.end_us) for job in jobs]


@pytest.mark.parametrize(
    ("ends", "goal", "deadline", "expected", "end"),
    [
        ((20, 40, 30), 2, None, [("trains", 20), ("late", 30), ("trains", 30)], 30),
        ((20, 40, 30), 3, 35, [("trains", 20), ("late", 35), ("trains", 30)], 35),
        ((-90, 40, -15), 2, None, [("dropped", 90), ("trains", 40), ("dropped", 15)], 90),
        ((-90, 40, -15), 1, None, [("late", 40), ("trains", 40), ("dropped", 15)], 40),
        ((20, 20, 20), 2, None, [("trains", 20), ("trains", 20), ("late", 20)], 20),
        ((50, 60), 2, 40, [("late", 40), ("late", 40)], 40),
    ],
    ids=["over-selection", "deadline", "all are waited for", "a dropout is told to stop", "ties", "nobody"],
)
def test_a_round_by_hand(ends, goal, deadline, expected, end):
    found, ends_at = settle_round(jobs_of(*ends), goal, deadline)
    assert (fates(found), ends_at) == (expected, end)


@given(
    st.lists(st.integers(11, 99).flatmap(lambda end: st.sampled_from([end, -end])), min_size=1, max_size=12),
    st.integers(1, 12),
    st.none() | st.integers(11, 99),
)
def test_nobody_works_on_after_a_round(ends, goal, deadline):
    jobs = jobs_of(*ends)
    found, end = settle_round(jobs, goal, deadline)
    assert [job.number for job in found] == [job.number for job in jobs]
    assert all(job.end_us <= end for job in found)
    counted = [job for job in found if job.fate == "trains"]
    assert len(counted) <= goal
    lost = [job for job, was in zip(found, jobs, strict=True) if job.fate == "late" and was.fate == "trains"]
    assert len(counted) == goal or deadline is not None or not lost
