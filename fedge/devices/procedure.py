"""Event loop: events in the order of virtual time, whatever their order in real time.

    SENT           transfers over a shared link end (`fedge.devices.transit`)
    SEND           a device starts to receive or to send over its leaf's link
    SEND_BETWEEN   a transfer between a server and its parent starts, over the parent's link
    SERVED_ABOVE   a server whose rule takes virtual time is done with a child's model
    SERVED         a leaf whose rule takes virtual time (`DeviceServer.seconds_of_next`) is free again
    ARRIVE         a device's job ends; the leaf's rule gets its model, and its place becomes free
    UP             a server's model reaches its parent (`fedge.devices.tiers.parent`)
    DOWN           the parent's answer reaches the server
    ROUND_END      a leaf that works in rounds combines its arrivals and starts the next round
    LEAVE          a region's combined model is sent to its children
    EVALUATE       clients evaluate the current models, and rows are written (`fedge.devices.periods`)
    START          a leaf gives jobs to idle, present devices, or to those of a round

All state between two events is in `fedge.devices.state.ClockState`, from which a run can be continued.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial

from fedge.config.registers import parts, traits
from fedge.devices import transit
from fedge.devices.periods import end_period
from fedge.devices.planning import JobStart
from fedge.devices.run_limits import RunLimits
from fedge.devices.servers.arrivals import Arrival
from fedge.devices.state import ClockState
from fedge.devices.timeline.clock import SECOND_US, Event, Kind
from fedge.devices.work.jobs import Job
from fedge.devices.work.rounds import goal_of, settle_round
from fedge.devices.world import JobRow
from fedge.exchange.failure import MEMORY_LOST, Failure
from fedge.exchange.train import TrainReply


class Procedure(ClockState):
    """A run on the virtual clock, one event after another."""

    @cached_property
    def _ends(self) -> RunLimits:
        return RunLimits(self.world.config.asynchrony)

    @cached_property
    def _in_rounds(self) -> bool:
        return parts.SERVER_RULES.has(self.world.config.asynchrony.rule, traits.ROUNDS)

    @cached_property
    def _period_us(self) -> int:
        return max(1, round(self.world.config.asynchrony.evaluate_every_s * SECOND_US))

    @cached_property
    def _handlers(self) -> Mapping[int, Callable[[Event], None]]:
        return {
            Kind.SENT: partial(transit.end_transfers, self),
            Kind.SEND: partial(transit.begin_transfer, self),
            Kind.SEND_BETWEEN: self._between_tiers,
            Kind.SERVED_ABOVE: self._between_tiers,
            Kind.SERVED: self._served,
            Kind.ARRIVE: self._arrive,
            Kind.UP: self._between_tiers,
            Kind.DOWN: self._between_tiers,
            Kind.LEAVE: self._between_tiers,
            Kind.ROUND_END: self._round_end,
            Kind.EVALUATE: self._evaluate,
            Kind.START: self._start,
        }

    # --- events -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Schedule the first events; all places are free."""
        for leaf, places in enumerate(self.places):
            for place in range(1 if self._in_rounds else places):
                self.clock.schedule(0, Kind.START, leaf, place)
        self.clock.schedule(self._period_us, Kind.EVALUATE, 0, 1)

    def run_until(self, evaluations: int, events: int | None = None) -> None:
        """Run until a number of evaluations or events is reached, or an evaluation ends the run.

        Jobs ending by then are passed to workers, including those in flight at a checkpoint, trained again.
        """
        self.last_us = evaluations * self._period_us
        for job in sorted(self.pending_jobs, key=lambda job: job.end_us):
            self.hand_over(job)
        event_limit = math.inf if events is None else events
        while self.evaluated < evaluations and self.clock.events < event_limit and not self.has_ended:
            event = self.clock.next()
            self._handlers[event.kind](event)
            if self._ends.are_set and not self.ending and (reason := self._ends.reached(self)):
                self.ending = reason
                self.clock.schedule(self.clock.now_us, Kind.EVALUATE, 0, self.evaluated + 1)

    # --- work is given ------------------------------------------------------------------------------

    def _start(self, event: Event) -> None:
        """Give jobs to the devices of a round, or to as many as there are free places."""
        leaf = event.subject
        if self._in_rounds:
            self._begin_round(leaf)
            return
        refill = min(self.world.config.asynchrony.refill, self.places[leaf])
        if self.places[leaf] - self.at_work[leaf] < refill:
            return
        while self.at_work[leaf] < self.places[leaf]:
            job = self._plan_job(leaf)
            if job is None:
                self._schedule_retry(leaf, event.number)
                return
            self._begin_job(job)

    def _begin_round(self, leaf: int) -> None:
        """Start a round: jobs for as many devices as it needs, all from the same model."""
        planned: list[Job] = []
        while len(planned) < self.places[leaf] and (job := self._plan_job(leaf)) is not None:
            planned.append(job)
        if not planned:
            self._schedule_retry(leaf, 0)
            return
        asynchrony = self.world.config.asynchrony
        goal = goal_of(self.places[leaf], asynchrony.over_selection)
        deadline_us = self.clock.now_us + round(asynchrony.deadline_s * SECOND_US)
        deadline_us = max(deadline_us, self.clock.now_us + 1) if asynchrony.deadline_s else 0
        if self.network.at_leaves:
            for job in planned:
                self._begin_job(job)
            transit.begin_round(self, leaf, planned, goal, deadline_us)
            return
        jobs, end_us = settle_round(planned, goal, deadline_us or None)
        for job in jobs:
            self._begin_job(job)
        self.clock.schedule(end_us, Kind.ROUND_END, leaf)

    def _schedule_retry(self, leaf: int, number: int) -> None:
        """Let a leaf without available devices try again when one arrives."""
        next_us = self.choosing.next_change_us(leaf)
        if next_us is not None and not self.clock.now_us < self.wakes[leaf] <= next_us:
            self.wakes[leaf] = next_us
            self.clock.schedule(next_us, Kind.START, leaf, number)

    def _plan_job(self, leaf: int) -> Job | None:
        """The next job of a leaf; None if no device is available."""
        now_us = self.clock.now_us
        choice = self.choosing.pick(leaf, now_us)
        if choice is None:
            return None
        device, until_us = choice
        attempt = int(self.choosing.history.begun[device])
        period, server = self.evaluated + 1, self.servers[leaf]
        start = JobStart(leaf, device, attempt, now_us, until_us, period, server)
        if not self.network.at_leaves:
            return self.planning.job(start)
        job, self.routes[self.planning.begun] = self.planning.routed(start)
        return job

    def _begin_job(self, job: Job) -> None:
        """Start a device's job, from the valid version of its memory."""
        if self.algorithms is not None:
            job = replace(job, kept=self.algorithms.valid(job.device))
        self.jobs[job.number] = job
        self.at_work[job.server] += 1
        self.ledger.moved["down"] += self.down_bytes
        if self.network.at_leaves:
            transit.begin_job(self, job, self.routes[job.number])
            return
        if not self.world.config.asynchrony.is_real:
            self.clock.schedule(job.end_us, Kind.ARRIVE, job.device, job.number)
        self.hand_over(job)

    # --- work comes back ----------------------------------------------------------------------------

    def _arrive(self, event: Event) -> None:
        """Take in or queue the result of a job, and free its place."""
        now_us = self.clock.now_us
        if self.network.at_leaves:
            job = transit.remove_job(self, event.number)
        else:
            job = self.jobs.pop(event.number).ended(now_us)
        if job is None:
            return
        if self._in_rounds and self.network.at_leaves:
            job = transit.count_ended_job(self, job)
        self.choosing.put(job.server, job.device, now_us)
        self.at_work[job.server] -= 1
        if job.fate == "failed":
            self._count_as_zero(job)
        if job.fate != "trains":
            self._record_end(job, job.fate, None)
        elif self.lines[job.server].waiting:
            self.lines[job.server].waiting.append(job)
        elif not self._is_busy_with(job):
            self._take_in(job)
        if not self._in_rounds:
            self.clock.schedule(now_us, Kind.START, job.server, job.number)

    def _is_busy_with(self, job: Job) -> bool:
        """Whether the leaf's rule takes virtual time for this result; if so, its work starts now."""
        busy_us = round(self.servers[job.server].seconds_of_next * SECOND_US)
        if busy_us:
            until_us = self.lines[job.server].occupy(job, busy_us, self.clock.now_us)
            self.clock.schedule(until_us, Kind.SERVED, job.server, job.number)
        return busy_us > 0

    def _served(self, event: Event) -> None:
        """Take in the arrival on which a leaf was busy, then waiting ones until it is busy again."""
        waiting = self.lines[event.subject].waiting
        self._take_in(waiting.popleft())
        while waiting:
            job = waiting.popleft()
            if self._is_busy_with(job):
                return
            self._take_in(job)

    def _take_in(self, job: Job) -> None:
        """Pass a device's result to its leaf, and record the outcome."""
        result = self.world.look_ahead.result(job)
        if self.algorithms is not None and not isinstance(result, Failure):
            result = self.algorithms.usable(job, result, self.servers[job.server], self.evaluated + 1)
        self._record_end(job, *self._admit_result(job, result))

    def _record_end(self, job: Job, outcome: str, staleness: int | None) -> None:
        """Record the outcome of a job."""
        self.ledger.end_of(job, outcome)
        if job.device in self.world.traced:
            self.world.hooks.on_job(JobRow(job, outcome, staleness))

    def _admit_result(self, job: Job, reply: TrainReply | Failure) -> tuple[str, int | None]:
        """Pass a device's result to its leaf; returns outcome and staleness."""
        if isinstance(reply, Failure):
            self.ledger.failures.setdefault(job.device, reply)
            self._count_as_zero(job)
            return "failed", None
        self.ledger.moved["up"] += reply.uplink_bytes
        self.ledger.losses[job.device] = reply.loss
        server = self.servers[job.server]
        staleness = server.number - job.staleness_from
        self.ledger.staleness[staleness] += 1
        limit = self.world.config.asynchrony.max_staleness
        if limit and staleness > limit:
            return "stale", staleness
        self.choosing.note_update(job.device, reply.loss, job.busy_us / SECOND_US)
        layout, weight = server.version.layout, reply.weight
        arrival = Arrival(
            job.device, staleness, job.start.vector, server.store_vector(layout.vector(reply.state)),
            float(self.world.population.windows[job.device]) if weight is None else weight,
            layout.counters(reply.state), job.share,
        )  # fmt: skip
        if self.algorithms is not None:
            self.algorithms.admit(job, reply, arrival)
            if reply.lost:
                self.ledger.failures.setdefault(job.device, Failure(MEMORY_LOST, reply.lost))
        self._pass_to_rule(job.server, arrival)
        return "updates", staleness

    def _count_as_zero(self, job: Job) -> None:
        """Count a failed job as an update of zero where privacy forbids revealing failures."""
        server, limit = self.servers[job.server], self.world.config.asynchrony.max_staleness
        staleness = server.number - job.staleness_from
        if server.memory.private is not None and not (limit and staleness > limit):
            self._pass_to_rule(job.server, Arrival(job.device, staleness, job.start.vector, job.start.vector))

    def _round_end(self, event: Event) -> None:
        """Combine the arrivals, and start the next round."""
        if self.network.at_leaves:
            stopped_jobs = transit.stop_round(self, event)
            if stopped_jobs is None:
                return
            for job in stopped_jobs:
                self.choosing.put(job.server, job.device, self.clock.now_us)
                self.at_work[job.server] -= 1
                self._record_end(job, job.fate, None)
        self._pass_to_rule(event.subject, None)
        self.clock.schedule(self.clock.now_us, Kind.START, event.subject)

    def _pass_to_rule(self, leaf: int, arrival: Arrival | None) -> None:
        """Pass an arrival to a leaf's rule, or the end of a round."""
        server = self.servers[leaf]
        previous = server.version
        is_new = server.take(arrival)
        if is_new and self.algorithms is not None:
            self.algorithms.combine(leaf, previous, server, self.evaluated + 1)
        if is_new:
            self.ledger.leaf_versions += 1
        if is_new and self.above is not None:
            self.above.note_version(leaf, self.clock, self.ledger)
        self.world.give_back()
        self.world.clock.lap("aggregate")

    def _between_tiers(self, event: Event) -> None:
        """Process an event between servers."""
        assert self.above is not None
        if self.above.handle_event(event, self.clock, self.ledger):
            self.world.clock.lap("cluster")

    # --- how good it is -----------------------------------------------------------------------------

    def _evaluate(self, event: Event) -> None:
        """Let clients evaluate, and report the ended period."""
        self.evaluated = event.number
        self.clock.schedule(self.clock.now_us + self._period_us, Kind.EVALUATE, 0, event.number + 1)
        result, row = end_period(self)
        laps = self.world.clock.finish()
        self.has_ended = self.world.hooks.on_evaluation(result, row, laps) or bool(self.ending)
