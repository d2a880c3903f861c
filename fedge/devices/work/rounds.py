"""A round on the virtual clock: more devices are asked than waited for, with an optional deadline.

All of this is known when the round begins: the results of the first devices to return count. The others, and
dropouts, are therefore not really trained.
"""

from collections.abc import Sequence

from fedge.devices.work.jobs import Job


def goal_of(concurrency: int, over_selection: float) -> int:
    """Number of awaited results of a round, for so many asked devices.

    >>> goal_of(13, 1.3), goal_of(10, 1.0), goal_of(1, 100.0)
    (10, 10, 1)
    """
    return max(1, round(concurrency / over_selection))


def settled(jobs: Sequence[Job], goal: int, deadline_us: int | None) -> tuple[list[Job], int]:
    """The jobs of a round as they will end, and when the round ends.

    The first `goal` training jobs ending by the deadline count. The round ends with the last of them; with
    fewer, at the deadline, and without one when nobody is at work any more. Devices at work then are told to
    stop. Of jobs ending at the same time, the device with the lower id is first.

    Args:
        jobs: all jobs starting together, at least one.
        goal: how many are waited for.
        deadline_us: virtual time; None for none.
    """
    by_end = sorted((job for job in jobs if job.fate == "trains"), key=lambda job: (job.end_us, job.device))
    in_time = [job for job in by_end if deadline_us is None or job.end_us <= deadline_us]
    chosen = in_time[:goal]
    if len(chosen) == goal:
        end_us = chosen[-1].end_us
    elif deadline_us is not None:
        end_us = deadline_us
    else:
        end_us = max(job.end_us for job in jobs)
    numbers = {job.number for job in chosen}
    return [
        job
        if job.number in numbers or (job.fate != "trains" and job.end_us <= end_us)
        else job.stopped(end_us)
        for job in jobs
    ], end_us
