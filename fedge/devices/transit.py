"""Jobs with transfers on the shared links of their leaves: the end of each is unknown in advance.

A job's model comes over the leaf's link, is trained, and returns over the same link:

    SEND   a device begins to receive, `down_s` after it was given work, or to send, `up_s` after training
    SENT   transfers end; received models are trained, sent ones arrive
    ARRIVE a sent model is back, or the job is lost: the device drops out or goes, or its time is over

A device drops out after a share of its job's time without other senders. A job is handed to the workers when
its model has come; a later loss means training in vain.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, Any

from fedge.devices.timeline.clock import Event, Kind
from fedge.devices.timeline.network import DOWN, UP
from fedge.devices.work.jobs import Fate, Job

if TYPE_CHECKING:
    from fedge.devices.procedure import Procedure

COMING, RECEIVING, TRAINING, SENDING, BACK = range(5)
NOT_YET_US = 2**61  # when something happens of which nobody knows


@dataclass
class Route:
    """One job's way over shared links.

    Attributes:
        down_us, train_us, up_us: before its model comes, of training, before its result goes.
        back_us: of sending the result if nobody else were sending.
        cut_us: virtual time of its loss unless returned; None: never.
        lost_as: its outcome then.
        leg: its position.
    """

    down_us: int
    train_us: int
    up_us: int
    back_us: int
    cut_us: int | None = None
    lost_as: Fate = "late"
    leg: int = COMING

    def facts(self) -> list[Any]:
        """The route as JSON, for `Route(*facts)`."""
        return list(astuple(self))


@dataclass
class OpenRound:
    """A round with its end on enough results.

    Attributes:
        number: of its last job, an identifier among rounds.
        goal: awaited results.
        at_work: unfinished jobs.
        back: present results.
        is_ending: its end is noted.
    """

    number: int
    goal: int
    at_work: int
    back: int = 0
    is_ending: bool = False

    def facts(self) -> list[Any]:
        """The round as JSON, for `OpenRound(*facts)`."""
        return list(astuple(self))


def begin_job(procedure: "Procedure", job: Job, route: Route) -> None:
    """Let a device's job begin to come."""
    procedure.routes[job.number] = route
    procedure.clock.at(job.began_us + route.down_us, Kind.SEND, job.device, job.number)
    if route.cut_us is not None:
        procedure.clock.at(route.cut_us, Kind.ARRIVE, job.device, job.number)


def begin_transfer(procedure: "Procedure", event: Event) -> None:
    """Let a device begin to receive or to send, unless its job has been lost."""
    job = procedure.jobs.get(event.number)
    if job is None:
        return
    route, links = procedure.routes[job.number], procedure.planning.links(job.device)
    direction = DOWN if route.leg == COMING else UP
    route.leg = RECEIVING if route.leg == COMING else SENDING
    link = procedure.network.of_leaf(job.server, direction)
    procedure.network.join(link, job.number, links[direction], procedure.clock)


def end_transfers(procedure: "Procedure", event: Event) -> None:
    """Let a transferred model go on its way; its device begins to train a received one."""
    for key in procedure.network.ended(event.subject, event.number, procedure.clock):
        parent = procedure.network.parent_of(event.subject)
        if parent is not None:
            assert procedure.above is not None
            procedure.above.parents[parent].sent(key, procedure.clock)
        elif _sent(procedure, key):
            procedure.hand_over(procedure.jobs[key])


def _sent(procedure: "Procedure", number: int) -> bool:
    """Let a device train its received model, or its sent one arrive; whether to train now."""
    job, route, now_us = procedure.jobs[number], procedure.routes[number], procedure.clock.now_us
    if route.leg == SENDING:
        route.leg = BACK
        if job.fate == "trains":
            procedure.jobs[number] = replace(job, end_us=now_us)
            procedure.clock.at(now_us, Kind.ARRIVE, job.device, number)
        return False
    route.leg = TRAINING
    trained_us = now_us + route.train_us
    procedure.clock.at(trained_us + route.up_us, Kind.SEND, job.device, number)
    end_us = job.end_us if job.fate != "trains" else trained_us + route.up_us + route.back_us
    procedure.jobs[number] = replace(job, there_us=now_us, trained_us=trained_us, end_us=end_us)
    return True


def ended(procedure: "Procedure", number: int, lost_as: Fate | None = None) -> Job | None:
    """Remove a finished job: returned, or lost, as planned or as given; None: already."""
    job = procedure.jobs.pop(number, None)
    if job is None:
        return None
    route = procedure.routes.pop(number)
    if route.leg in (RECEIVING, SENDING):
        link = procedure.network.of_leaf(job.server, DOWN if route.leg == RECEIVING else UP)
        procedure.network.leave(link, number, procedure.clock)
    if lost_as is None and route.leg != BACK and job.fate == "trains":
        lost_as = route.lost_as
    if lost_as is None:
        return replace(job, end_us=procedure.clock.now_us)
    procedure.world.ahead.forget(job)
    return replace(job, fate=lost_as, end_us=procedure.clock.now_us)


def begin_round(procedure: "Procedure", leaf: int, jobs: Sequence[Job], goal: int, deadline_us: int) -> None:
    """Record a round of started jobs, waiting for `goal` results until a time; 0: for as long."""
    procedure.rounds[leaf] = OpenRound(jobs[-1].number, goal, len(jobs))
    if deadline_us:
        procedure.clock.at(deadline_us, Kind.ROUND_END, leaf, jobs[-1].number)


def count_ended_job(procedure: "Procedure", job: Job) -> Job:
    """An ended job of a round; late if the round is complete."""
    found, has_deadline = procedure.rounds[job.server], procedure.world.config.asynchrony.deadline_s > 0
    assert found is not None, "a job belongs to a round"
    found.at_work -= 1
    if job.fate == "trains" and found.back == found.goal:
        procedure.world.ahead.forget(job)
        return replace(job, fate="late")
    found.back += job.fate == "trains"
    if not found.is_ending and (found.back == found.goal or (not found.at_work and not has_deadline)):
        found.is_ending = True
        procedure.clock.at(procedure.clock.now_us, Kind.ROUND_END, job.server, found.number)
    return job


def stopped(procedure: "Procedure", event: Event) -> list[Job] | None:
    """End a round: those still at work are told to stop, in the order of ids; None: ended before."""
    found = procedure.rounds[event.subject]
    if found is None or found.number != event.number:
        return None
    procedure.rounds[event.subject] = None
    at_work = [job for job in procedure.jobs.values() if job.server == event.subject]
    over = [ended(procedure, job.number, "late") for job in sorted(at_work, key=lambda job: job.device)]
    return [job for job in over if job is not None]
