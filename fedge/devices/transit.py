"""Jobs whose transfers share their leaf's link: their ends are not known in advance.

A job's model is sent over the leaf's link, trained, and sent back over the same link:

    SEND   a device starts to receive, `down_s` after it got the job, or to send, `up_s` after training
    SENT   transfers end; a model received is trained next, a model sent arrives
    ARRIVE the model is back, or the job is lost: the device dropped out or left, or the time was over

The time of a dropout is a share of the job's duration without other senders. Workers get a job when its
model has been received; if the job is lost later, the training was in vain.
"""

from collections.abc import Sequence
from dataclasses import replace

from fedge.devices.state import ClockState
from fedge.devices.timeline.clock import Event, Kind
from fedge.devices.timeline.network import DOWN, UP
from fedge.devices.work.jobs import Fate, Job
from fedge.devices.work.routes import BACK, COMING, RECEIVING, SENDING, TRAINING, OpenRound, Route


def begin_job(state: ClockState, job: Job, route: Route) -> None:
    """Start the download of a device's job."""
    state.routes[job.number] = route
    state.clock.schedule(job.began_us + route.down_us, Kind.SEND, job.device, job.number)
    if route.cut_us is not None:
        state.clock.schedule(route.cut_us, Kind.ARRIVE, job.device, job.number)


def begin_transfer(state: ClockState, event: Event) -> None:
    """Start a device's download or upload, unless its job has been lost."""
    job = state.jobs.get(event.number)
    if job is None:
        return
    route, links = state.routes[job.number], state.planning.links(job.device)
    direction = DOWN if route.leg == COMING else UP
    route.leg = RECEIVING if route.leg == COMING else SENDING
    link = state.network.of_leaf(job.server, direction)
    state.network.join(link, job.number, links[direction], state.clock)


def end_transfers(state: ClockState, event: Event) -> None:
    """End the transfers due on a link; devices train the received models."""
    for key in state.network.ended(event.subject, event.number, state.clock):
        parent = state.network.parent_of(event.subject)
        if parent is not None:
            assert state.above is not None
            state.above.parents[parent].sent(key, state.clock)
        elif _continue_job(state, key):
            state.hand_over(state.jobs[key])


def _continue_job(state: ClockState, number: int) -> bool:
    """Continue a job after a transfer, with training or its arrival; returns whether it trains now."""
    job, route, now_us = state.jobs[number], state.routes[number], state.clock.now_us
    if route.leg == SENDING:
        route.leg = BACK
        if job.fate == "trains":
            state.jobs[number] = replace(job, end_us=now_us)
            state.clock.schedule(now_us, Kind.ARRIVE, job.device, number)
        return False
    route.leg = TRAINING
    trained_us = now_us + route.train_us
    state.clock.schedule(trained_us + route.up_us, Kind.SEND, job.device, number)
    end_us = job.end_us if job.fate != "trains" else trained_us + route.up_us + route.back_us
    state.jobs[number] = replace(job, there_us=now_us, trained_us=trained_us, end_us=end_us)
    return True


def remove_job(state: ClockState, number: int, lost_as: Fate | None = None) -> Job | None:
    """Remove a job returned, or lost as planned or as given; None if removed before."""
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
    state.world.look_ahead.forget(job)
    return replace(job, fate=lost_as, end_us=state.clock.now_us)


def begin_round(state: ClockState, leaf: int, jobs: Sequence[Job], goal: int, deadline_us: int) -> None:
    """Open a round, waiting for `goal` results until `deadline_us` in virtual time; 0: no deadline."""
    state.rounds[leaf] = OpenRound(jobs[-1].number, goal, len(jobs))
    if deadline_us:
        state.clock.schedule(deadline_us, Kind.ROUND_END, leaf, jobs[-1].number)


def count_ended_job(state: ClockState, job: Job) -> Job:
    """Count an ended job of a round; returns it, as late if the round was complete."""
    open_round, has_deadline = state.rounds[job.server], state.world.config.asynchrony.deadline_s > 0
    assert open_round is not None, "a job belongs to a round"
    open_round.at_work -= 1
    if job.fate == "trains" and open_round.back == open_round.goal:
        state.world.look_ahead.forget(job)
        return replace(job, fate="late")
    open_round.back += job.fate == "trains"
    if not open_round.is_ending and (
        open_round.back == open_round.goal or (not open_round.at_work and not has_deadline)
    ):
        open_round.is_ending = True
        state.clock.schedule(state.clock.now_us, Kind.ROUND_END, job.server, open_round.number)
    return job


def stop_round(state: ClockState, event: Event) -> list[Job] | None:
    """End a round, and stop its unfinished jobs; these by device id, or None if it had ended before."""
    open_round = state.rounds[event.subject]
    if open_round is None or open_round.number != event.number:
        return None
    state.rounds[event.subject] = None
    unfinished = [job for job in state.jobs.values() if job.server == event.subject]
    stopped_jobs = [
        remove_job(state, job.number, "late") for job in sorted(unfinished, key=lambda job: job.device)
    ]
    return [job for job in stopped_jobs if job is not None]
