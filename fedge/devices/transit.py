"""Jobs with transfers on the shared links of their leaves: the end of each is unknown in advance.

A job's model comes over the leaf's link, is trained, and returns over the same link:

    SEND   a device begins to receive, `down_s` after it was given work, or to send, `up_s` after training
    SENT   transfers end; received models are trained, sent ones arrive
    ARRIVE a sent model is back, or the job is lost: the device drops out or goes, or its time is over

A device drops out after a share of its job's time without other senders. A job is handed to the workers when
its model has come; a later loss means training in vain.
"""

from collections.abc import Sequence
from dataclasses import replace

from fedge.devices.state import ClockState
from fedge.devices.timeline.clock import Event, Kind
from fedge.devices.timeline.network import DOWN, UP
from fedge.devices.work.jobs import Fate, Job
from fedge.devices.work.routes import BACK, COMING, RECEIVING, SENDING, TRAINING, OpenRound, Route


def begin_job(state: ClockState, job: Job, route: Route) -> None:
    """Let a device's job begin to come."""
    state.routes[job.number] = route
    state.clock.at(job.began_us + route.down_us, Kind.SEND, job.device, job.number)
    if route.cut_us is not None:
        state.clock.at(route.cut_us, Kind.ARRIVE, job.device, job.number)


def begin_transfer(state: ClockState, event: Event) -> None:
    """Let a device begin to receive or to send, unless its job has been lost."""
    job = state.jobs.get(event.number)
    if job is None:
        return
    route, links = state.routes[job.number], state.planning.links(job.device)
    direction = DOWN if route.leg == COMING else UP
    route.leg = RECEIVING if route.leg == COMING else SENDING
    link = state.network.of_leaf(job.server, direction)
    state.network.join(link, job.number, links[direction], state.clock)


def end_transfers(state: ClockState, event: Event) -> None:
    """Let a transferred model go on its way; its device begins to train a received one."""
    for key in state.network.ended(event.subject, event.number, state.clock):
        parent = state.network.parent_of(event.subject)
        if parent is not None:
            assert state.above is not None
            state.above.parents[parent].sent(key, state.clock)
        elif _sent(state, key):
            state.hand_over(state.jobs[key])


def _sent(state: ClockState, number: int) -> bool:
    """Let a device train its received model, or its sent one arrive; whether to train now."""
    job, route, now_us = state.jobs[number], state.routes[number], state.clock.now_us
    if route.leg == SENDING:
        route.leg = BACK
        if job.fate == "trains":
            state.jobs[number] = replace(job, end_us=now_us)
            state.clock.at(now_us, Kind.ARRIVE, job.device, number)
        return False
    route.leg = TRAINING
    trained_us = now_us + route.train_us
    state.clock.at(trained_us + route.up_us, Kind.SEND, job.device, number)
    end_us = job.end_us if job.fate != "trains" else trained_us + route.up_us + route.back_us
    state.jobs[number] = replace(job, there_us=now_us, trained_us=trained_us, end_us=end_us)
    return True


def ended(state: ClockState, number: int, lost_as: Fate | None = None) -> Job | None:
    """Remove a finished job: returned, or lost, as planned or as given; None: already."""
    job = state.jobs.pop(number, None)
    if job is None:
        return None
    route = state.routes.pop(number)
    if route.leg in (RECEIVING, SENDING):
        link = state.network.of_leaf(job.server, DOWN if route.leg == RECEIVING else UP)
        state.network.leave(link, number, state.clock)
    if lost_as is None and route.leg != BACK and job.fate == "trains":
        lost_as = route.lost_as
    if lost_as is None:
        return replace(job, end_us=state.clock.now_us)
    state.world.ahead.forget(job)
    return replace(job, fate=lost_as, end_us=state.clock.now_us)


def begin_round(state: ClockState, leaf: int, jobs: Sequence[Job], goal: int, deadline_us: int) -> None:
    """Record a round of started jobs, waiting for `goal` results until a time; 0: for as long."""
    state.rounds[leaf] = OpenRound(jobs[-1].number, goal, len(jobs))
    if deadline_us:
        state.clock.at(deadline_us, Kind.ROUND_END, leaf, jobs[-1].number)


def count_ended_job(state: ClockState, job: Job) -> Job:
    """An ended job of a round; late if the round is complete."""
    found, has_deadline = state.rounds[job.server], state.world.config.asynchrony.deadline_s > 0
    assert found is not None, "a job belongs to a round"
    found.at_work -= 1
    if job.fate == "trains" and found.back == found.goal:
        state.world.ahead.forget(job)
        return replace(job, fate="late")
    found.back += job.fate == "trains"
    if not found.is_ending and (found.back == found.goal or (not found.at_work and not has_deadline)):
        found.is_ending = True
        state.clock.at(state.clock.now_us, Kind.ROUND_END, job.server, found.number)
    return job


def stopped(state: ClockState, event: Event) -> list[Job] | None:
    """End a round: those still at work are told to stop, in the order of ids; None: ended before."""
    found = state.rounds[event.subject]
    if found is None or found.number != event.number:
        return None
    state.rounds[event.subject] = None
    at_work = [job for job in state.jobs.values() if job.server == event.subject]
    over = [ended(state, job.number, "late") for job in sorted(at_work, key=lambda job: job.device)]
    return [job for job in over if job is not None]
