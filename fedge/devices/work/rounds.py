"""A round on the virtual clock: more devices are asked than needed, with an optional deadline.

The outcome is known when the round begins: the results of the first devices to return count. The other
devices, and dropouts, are therefore not trained for real.
"""

from collections.abc import Sequence

from fedge.devices.work.jobs import Job


def goal_of(concurrency: int, over_selection: float) -> int:
    """Number of results for which a round waits, given the number of devices asked.

    >>> goal_of(13, 1.3), goal_of(10, 1.0), goal_of(1, 100.0)
    (10, 10, 1)
    """
    return max(1, round(concurrency / over_selection))


def settle_round(jobs: Sequence[Job], goal: int, deadline_us: int | None) -> tuple[list[Job], int]:
    """The jobs of a round with their outcomes, and the end of the round.

    The first `goal` jobs trained and ended by the deadline count. The round ends with the last of them; if
    there are fewer, at the deadline, or without one, with the last job. Devices still working then are
    stopped. Of jobs ending at the same time, the one with the lower device id comes first.

    Args:
        jobs: all jobs of the round, at least one.
        goal: number of results to wait for.
        deadline_us: virtual time of the deadline, or None.
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
