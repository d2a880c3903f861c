"""The loop: events one after another, as the virtual clock has them; real time decides nothing.

    START      a leaf gives work to a device that is idle and there, or to those of a round
    SERVED     a leaf whose rule takes virtual time (`Server.seconds_of_next`) is done with an arrival
    ARRIVE     a device's job ends; what it has trained goes to its leaf's rule, and the place is free again
    AT_CLOUD   what a leaf has sent reaches the cloud, AT_LEAF its answer (`fedge.devices.cloud`)
    ROUND_END  a leaf that works in rounds combines what is there, and begins the next round
    EVALUATE   clients evaluate the model of the run, whose rows are written

Everything between two events stands in the attributes of `Procedure`: so a run can go on from there.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from fedge.cloud.step import CloudStep
from fedge.config import parts
from fedge.config.config import Config
from fedge.config.topology import places_per_leaf
from fedge.devices.availability import Presence
from fedge.devices.choosing import Choosing
from fedge.devices.clock import SECOND_US, Clock, Event, Kind
from fedge.devices.cloud import Cloud
from fedge.devices.draws import JobDraws
from fedge.devices.evaluation import Evaluating
from fedge.devices.fleet import Durations, Fleet
from fedge.devices.groups import Groups
from fedge.devices.jobs import Fate, Job
from fedge.devices.ledger import Ledger, gini
from fedge.devices.lookahead import LookAhead
from fedge.devices.results import Period, Population, VersionRow, mean_accuracy, round_result
from fedge.devices.rounds import goal_of, settled
from fedge.devices.rules import Arrival
from fedge.devices.server import Server
from fedge.devices.vectors import Version
from fedge.exchange.failure import Failure
from fedge.exchange.train import TrainReply
from fedge.rounds.results import RoundResult
from fedge.timing.laps import LapClock


@dataclass(frozen=True)
class JobRow:
    """One job of a traced device; a row of devices/jobs.csv.

    Attributes:
        job: as it was begun.
        outcome: "updates", or why it was lost.
        staleness: of what arrived; None where nothing did.
    """

    job: Job
    outcome: str
    staleness: int | None


@dataclass(frozen=True)
class Hooks:
    """Who is told what happens.

    Attributes:
        on_evaluation: the rows of an evaluation; answers whether the run is to end there.
        on_job: a job of a traced device that has ended.
    """

    on_evaluation: Callable[[RoundResult, VersionRow, dict[str, float]], bool]
    on_job: Callable[[JobRow], None]


@dataclass(frozen=True)
class World:
    """What the procedure is about: who is there and how fast, and what reaches them.

    Attributes:
        config: of the run.
        seed: in force.
        who: is there.
        fleet: a row per client; those of unseen clients are not used.
        presence: when devices are there.
        ahead: lets devices train.
        evaluating: lets clients evaluate.
        traced: devices whose jobs are listed.
        clock: real time, charged throughout.
        hooks: who is told.
    """

    config: Config
    seed: int
    who: Population
    fleet: Fleet
    presence: Presence
    ahead: LookAhead
    evaluating: Evaluating
    traced: frozenset[int]
    clock: LapClock
    hooks: Hooks


class Procedure:
    """A run on the virtual clock.

    Attributes:
        clock: virtual time, and what is to come.
        servers: the leaves, in order.
        cloud: above them; None above a single one.
        groups: of leaves with a model of their own each; None where all share one.
        busy: per leaf the virtual microseconds for which its rule has occupied it, and until when it does.
        jobs: number → job that is under way.
        lines: per leaf the jobs that have ended and wait to be taken in; it is busy with the first.
        choosing: who is idle.
        ledger: what has happened.
        attempts: device → jobs that it was given so far.
        evaluated: how many evaluations there have been.
        begun: how many jobs.
        has_ended: the newest evaluation is to be the last.
        moved_before: the bytes that had been moved at the last evaluation.
        places: devices of each leaf that are at work at a time.
    """

    def __init__(
        self,
        world: World,
        servers: Sequence[Server],
        cloud: Cloud | None = None,
        groups: Groups | None = None,
    ) -> None:
        """Stand before the first event.

        Args:
            world: of the run.
            servers: the leaves, in order, with their first model.
            cloud: above them, with the same model; None above a single leaf.
            groups: of leaves; None: all share a model.
        """
        config = world.config
        self.clock = Clock()
        self.servers = list(servers)
        self.cloud = cloud
        self.groups = groups
        self.jobs: dict[int, Job] = {}
        self.lines: list[list[Job]] = [[] for _ in self.servers]
        self.busy = [[0, 0] for _ in self.servers]
        leaves = [world.who.devices_of(leaf) for leaf in range(len(self.servers))]
        self.choosing = Choosing(world.seed, leaves, world.presence)
        self.ledger = Ledger(len(world.fleet))
        self.attempts = [0] * len(world.fleet)
        self.evaluated = 0
        self.begun = 0
        self.has_ended = False
        self.places = places_per_leaf(config.asynchrony.concurrency, len(self.servers))
        self._world = world
        self._in_rounds = parts.SERVER_RULES.has(config.asynchrony.rule, parts.ROUNDS)
        self._durations, self._draws = Durations(world.fleet), JobDraws(world.seed)
        self._every_us = max(1, round(config.asynchrony.evaluate_every_s * SECOND_US))
        self._model_bytes = self.servers[0].version.nbytes
        self.moved_before = dict(self.ledger.moved)
        self._handlers: Mapping[int, Callable[[Event], None]] = {
            Kind.SERVED: self._served,
            Kind.ARRIVE: self._arrive,
            Kind.AT_CLOUD: self._at_cloud,
            Kind.AT_LEAF: self._at_leaf,
            Kind.ROUND_END: self._round_end,
            Kind.EVALUATE: self._evaluate,
            Kind.START: self._start,
        }

    # --- what happens -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Note the first events: every place is free."""
        for leaf, places in enumerate(self.places):
            for place in range(1 if self._in_rounds else places):
                self.clock.at(0, Kind.START, leaf, place)
        self.clock.at(self._every_us, Kind.EVALUATE, 0, 1)

    def go_on(self, evaluations: int, events: int | None = None) -> None:
        """Go on until so many evaluations are done, one is to be the last, or so many events have happened.

        Jobs that end by then are handed to the workers; those in flight are, too, so that after a checkpoint
        they are trained again.
        """
        self._last_us = evaluations * self._every_us
        waiting = [job for line in self.lines for job in line]
        for job in sorted([*waiting, *self.jobs.values()], key=lambda job: job.end_us):
            self._hand_over(job)
        most = math.inf if events is None else events
        while self.evaluated < evaluations and self.clock.events < most and not self.has_ended:
            event = self.clock.next()
            self._handlers[event.kind](event)

    def _hand_over(self, job: Job) -> None:
        """Let a job be trained if its result will be needed."""
        if job.fate == "trains" and job.end_us <= self._last_us and job not in self._world.ahead:
            self._world.ahead.begin(job)

    # --- work is given ------------------------------------------------------------------------------

    def _start(self, event: Event) -> None:
        """Give work to the devices of a round, or to one."""
        leaf = event.subject
        if self._in_rounds:
            self._begin_round(leaf)
            return
        device, until_us = self.choosing.pick(leaf, self.clock.now_us)
        if device is None:
            self.clock.at(max(until_us, self.clock.now_us + 1), Kind.START, leaf, event.number)
        else:
            self._begin_job(self._planned(leaf, device, until_us))

    def _begin_round(self, leaf: int) -> None:
        """Give work to as many devices as a round asks, all from one model."""
        planned, until_us = [], 0
        for _ in range(self.places[leaf]):
            device, until_us = self.choosing.pick(leaf, self.clock.now_us)
            if device is not None:
                planned.append(self._planned(leaf, device, until_us))
        if not planned:
            self.clock.at(max(until_us, self.clock.now_us + 1), Kind.START, leaf)
            return
        asynchrony = self._world.config.asynchrony
        deadline_us = self.clock.now_us + round(asynchrony.deadline_s * SECOND_US)
        jobs, end_us = settled(
            planned,
            goal_of(self.places[leaf], asynchrony.over_selection),
            max(deadline_us, self.clock.now_us + 1) if asynchrony.deadline_s else None,
        )
        for job in jobs:
            self._begin_job(job)
        self.clock.at(end_us, Kind.ROUND_END, leaf)

    def _planned(self, leaf: int, device: int, until_us: int) -> Job:
        """Return the next job of a device that is there until some time."""
        world, now_us, server = self._world, self.clock.now_us, self.servers[leaf]
        self.attempts[device] += 1
        self.begun += 1
        draw = self._draws.of(device, self.attempts[device])
        windows = world.who.windows[device] * world.config.train.local_epochs
        busy_us = self._durations.us(device, windows, self._model_bytes, draw)
        fate: Fate = "trains"
        if draw.dropout < world.config.devices.dropout:
            fate, busy_us = "dropped", max(1, round(busy_us * draw.where))
        if now_us + busy_us > until_us:
            fate, busy_us = "away", until_us - now_us
        return Job(
            self.begun, device, leaf, self.attempts[device], self.evaluated + 1, server.number, now_us,
            now_us + busy_us, fate, server.version,
        )  # fmt: skip

    def _begin_job(self, job: Job) -> None:
        """Let a device begin."""
        self.jobs[job.number] = job
        self.ledger.moved["down"] += self._model_bytes
        self.clock.at(job.end_us, Kind.ARRIVE, job.device, job.number)
        self._hand_over(job)

    # --- work comes back ----------------------------------------------------------------------------

    def _arrive(self, event: Event) -> None:
        """Take in what a job has come to, or let it wait in line for that; its place is free."""
        job = self.jobs.pop(event.number)
        self.choosing.idle[job.server].put(job.device)
        if job.fate != "trains":
            self._note_end(job, job.fate, None)
        elif self.lines[job.server]:
            self.lines[job.server].append(job)
        elif not self._is_busy_with(job):
            self._note_end(job, *self._taken(job, self._world.ahead.result(job)))
        if not self._in_rounds:
            self.clock.at(self.clock.now_us, Kind.START, job.server, job.number)

    def _is_busy_with(self, job: Job) -> bool:
        """Tell whether taking in a job's result takes its leaf time; if so, that begins now."""
        busy_us = round(self.servers[job.server].seconds_of_next * SECOND_US)
        if busy_us:
            self.lines[job.server].insert(0, job)
            self.clock.at(self.clock.now_us + busy_us, Kind.SERVED, job.server, job.number)
            self.busy[job.server] = [self.busy[job.server][0] + busy_us, self.clock.now_us + busy_us]
        return busy_us > 0

    def _served(self, event: Event) -> None:
        """Take in what a leaf was busy with, and all that waits until it is busy again."""
        line = self.lines[event.subject]
        job: Job | None = line.pop(0)
        while job is not None:
            self._note_end(job, *self._taken(job, self._world.ahead.result(job)))
            job = line.pop(0) if line else None
            if job is not None and self._is_busy_with(job):
                return

    def _note_end(self, job: Job, outcome: str, staleness: int | None) -> None:
        """Write down how a job has ended."""
        self.ledger.end_of(job, outcome)
        if job.device in self._world.traced:
            self._world.hooks.on_job(JobRow(job, outcome, staleness))

    def _taken(self, job: Job, found: TrainReply | Failure) -> tuple[str, int | None]:
        """Give a leaf what a device has trained; return what became of it, and its staleness."""
        if isinstance(found, Failure):
            self.ledger.failures.setdefault(job.device, found)
            return "failed", None
        self.ledger.moved["up"] += found.uplink_bytes
        self.ledger.losses[job.device] = found.loss
        server = self.servers[job.server]
        staleness = server.number - job.staleness_from
        self.ledger.staleness[staleness] += 1
        most = self._world.config.asynchrony.max_staleness
        if most and staleness > most:
            return "stale", staleness
        layout = server.version.layout
        self._renew(job.server, Arrival(
            job.device, staleness, job.start.vector, layout.vector(found.state),
            float(self._world.who.windows[job.device]), layout.counters(found.state),
        ))  # fmt: skip
        return "updates", staleness

    def _round_end(self, event: Event) -> None:
        """Combine what is there, and begin the next round."""
        self._renew(event.subject, None)
        self.clock.at(self.clock.now_us, Kind.START, event.subject)

    def _renew(self, leaf: int, arrival: Arrival | None) -> None:
        """Give a leaf an arrival, or tell it that its round is over."""
        made = self.servers[leaf].take(arrival)
        if made and self.cloud is not None:
            self.cloud.renewed(leaf, self.servers[leaf], self.clock, self.ledger)
        self._world.clock.lap("aggregate")

    def _at_cloud(self, event: Event) -> None:
        """Let the cloud take in what a leaf has sent, unless it has changed its group since."""
        assert self.cloud is not None
        if event.number == self.cloud.links[event.subject].exchange:
            self.cloud.take(event.subject, self.clock, self.ledger)
        self._world.clock.lap("cluster")

    def _at_leaf(self, event: Event) -> None:
        """Let a leaf take in the cloud's answer, unless it has changed its group since."""
        assert self.cloud is not None
        if event.number == self.cloud.links[event.subject].exchange:
            self.cloud.give(event.subject, self.servers[event.subject], self.clock, self.ledger)
        self._world.clock.lap("cluster")

    # --- how good it is -----------------------------------------------------------------------------

    @property
    def tops(self) -> list[Server]:
        """Per leaf whose model its clients are served: the cloud's for its group, or the only leaf."""
        if self.cloud is None:
            return self.servers
        return [self.cloud.server_of(leaf) for leaf in range(len(self.servers))]

    @property
    def served(self) -> Version:
        """The model that the clients of the first leaf are served; of all, unless there are groups."""
        return self.tops[0].version

    def _compare(self, evaluation: int) -> CloudStep | None:
        """Compare the leaves if that is due, and let them share models as is found then."""
        groups, cloud, world = self.groups, self.cloud, self._world
        if groups is None or cloud is None or not groups.is_due(evaluation):
            return None
        answers, models = None, [server.version for server in self.servers]
        if groups.asks_losses:
            answers, failures = world.evaluating.cross_losses(models, world.who, evaluation)
            for client, failure in failures.items():
                self.ledger.failures.setdefault(client, failure)
            world.clock.lap("wait")
        states = [model.state for model in models]
        step = groups.compare(states, cloud.weights, answers, evaluation)
        if step.labels.tolist() != cloud.labels:
            cloud.regroup(step.labels.tolist(), self.servers, self.clock, self.ledger)
        world.clock.lap("cluster")
        return step

    def _evaluate(self, event: Event) -> None:
        """Let clients evaluate, and tell of the period that ends here."""
        world, ledger = self._world, self.ledger
        self.evaluated = event.number
        self.clock.at(self.clock.now_us + self._every_us, Kind.EVALUATE, 0, event.number + 1)
        began = world.clock.began
        world.clock.lap("configure")
        step = self._compare(self.evaluated)
        served = [top.version for top in self.tops]
        evaluated, failures = world.evaluating.evaluate(
            lambda client: served[world.who.leaf_of[client]], self.evaluated
        )
        for client, failure in failures.items():
            ledger.failures.setdefault(client, failure)
        world.clock.lap("wait")
        moved = {name: count - self.moved_before[name] for name, count in ledger.moved.items()}
        period = Period(self.evaluated, ledger.losses, ledger.failures, moved, began)
        labels = [0] if self.cloud is None else self.cloud.labels
        result = replace(round_result(world.who, period, evaluated, labels), cloud=step)
        row = replace(
            self._row(),
            seen_accuracy=mean_accuracy(world.who, evaluated, unseen=False),
            unseen_accuracy=mean_accuracy(world.who, evaluated, unseen=True),
        )
        self.moved_before = dict(ledger.moved)
        ledger.begin_period()
        self.has_ended = world.hooks.on_evaluation(result, row, world.clock.finish())

    def _row(self) -> VersionRow:
        """Return the row of this moment, without accuracies."""
        ledger, now_us = self.ledger, self.clock.now_us
        at_work = ledger.total("busy_us") + sum(now_us - job.began_us for job in self.jobs.values())
        at_work += sum(job.busy_us for line in self.lines for job in line)
        updates = ledger.counts["updates"][sorted(self._world.who.windows)]
        return VersionRow(
            evaluation=self.evaluated,
            virtual_s=now_us / SECOND_US,
            version=sum({id(top): top.number for top in self.tops}.values()),
            updates=ledger.total("updates"),
            jobs=ledger.total("jobs"),
            seen_accuracy=None,
            unseen_accuracy=None,
            up=ledger.moved["up"],
            down=ledger.moved["down"],
            cloud_up=ledger.moved["cloud_up"],
            cloud_down=ledger.moved["cloud_down"],
            mean_staleness=ledger.mean_staleness,
            utilisation=at_work / (sum(self.places) * now_us) if now_us else 0.0,
            wasted=ledger.total("wasted_us") / max(1, ledger.total("busy_us")),
            gini=gini(updates),
            events=self.clock.events,
            server_busy=self.server_busy,
            in_line=self.in_line,
        )

    @property
    def in_line(self) -> int:
        """Jobs that have ended and wait for a busy leaf."""
        return sum(map(len, self.lines))

    @property
    def server_busy(self) -> float:
        """Share of virtual time in which the rule occupied a leaf, mean over leaves."""
        now_us = self.clock.now_us
        done_us = sum(busy_us - max(0, until_us - now_us) for busy_us, until_us in self.busy)
        return done_us / (len(self.busy) * now_us) if now_us else 0.0
