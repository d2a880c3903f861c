"""State of a run on the virtual clock between two events: all that a run needs to go on from there."""

from collections.abc import Sequence

from fedge.config.topology import places_per_leaf
from fedge.devices.clients.algorithms import ClockAlgorithms
from fedge.devices.planning import Planning
from fedge.devices.population.choosing import Choosing
from fedge.devices.servers.server import DeviceServer
from fedge.devices.servers.vectors import Version
from fedge.devices.tiers.above import Above
from fedge.devices.tiers.groups import ClockGroups
from fedge.devices.tiers.parent import Parent
from fedge.devices.timeline.clock import Clock
from fedge.devices.timeline.line import Line
from fedge.devices.timeline.network import SharedLinks
from fedge.devices.work.jobs import Job
from fedge.devices.work.ledger import Ledger
from fedge.devices.work.routes import OpenRound, Route
from fedge.devices.world import World


class ClockState:
    """A run on the virtual clock, between two events.

    Attributes:
        world: its setting.
        clock: virtual time, and events to come.
        servers: the leaves, in order.
        above: the servers above them; None above a single one.
        groups: of the cloud's children with a model of their own each; None where all share one.
        algorithms: the leaves' sides of their clients' algorithm; None where options say all.
        jobs: number → job that is under way.
        lines: per leaf the jobs that have ended and wait to be taken in.
        choosing: devices idle, present, and picked for work.
        planning: outcomes of jobs.
        ledger: of all events.
        network: shared links.
        routes: number → way of a job under way over the shared link of its leaf; empty where there is none.
        rounds: per leaf the open round, with shared links; None: none is.
        evaluated: how many evaluations there have been.
        ending: the reached limit of the run, in words; the next evaluation is the last. Empty before.
        has_ended: the newest evaluation is to be the last.
        moved_before: the bytes that had been moved at the last evaluation.
        between_before: the same per server, as `Ledger.between`.
        last_us: virtual time beyond which no result is needed yet.
        down_bytes: sent to a device with a job.
        places: devices of each leaf that are to be at work at a time.
        at_work: devices of each leaf that are.
        wakes: per leaf its next look for devices, virtual microseconds; in the past where nothing is
            due.
    """

    def __init__(
        self,
        world: World,
        servers: Sequence[DeviceServer],
        above: Above | None = None,
        groups: ClockGroups | None = None,
        algorithms: ClockAlgorithms | None = None,
    ) -> None:
        """Stand before the first event; arguments are the attributes, all servers with their first model."""
        config = world.config
        self.world = world
        self.clock = Clock()
        self.servers = list(servers)
        self.above = above
        self.groups = groups
        self.algorithms = algorithms
        self.jobs: dict[int, Job] = {}
        self.lines: list[Line[Job]] = [Line() for _ in self.servers]
        self.places = places_per_leaf(config.asynchrony.concurrency, len(self.servers))
        self.at_work = [0] * len(self.servers)
        self.wakes = [-1] * len(self.servers)
        windows = world.who.window_counts(len(world.fleet))
        self.choosing = Choosing(
            world.seed, world.who.devices_by_leaf(), world.presence, self.places, windows,
            world.selection, world.selection_arguments,
        )  # fmt: skip
        model_bytes = self.servers[0].version.nbytes
        moves = None if algorithms is None else algorithms.bytes_moved(self.servers[0].version)
        self.down_bytes, up_bytes = moves or (model_bytes, model_bytes)
        self.planning = Planning(
            config, world.seed, world.fleet, windows, self.down_bytes, world.duration, self.choosing.history,
            up_bytes,
        )  # fmt: skip
        parents = [] if above is None else above.parents
        self.ledger = Ledger(len(world.fleet), world.fleet, sum(len(parent.nodes) for parent in parents))
        rates = [parent.link_megabytes_s for parent in parents]
        self.network = SharedLinks(config.asynchrony, len(self.servers), model_bytes, rates, moves)
        for parent in parents:
            parent.network = self.network if self.network.is_shared(parent.number) else None
        self.routes: dict[int, Route] = {}
        self.rounds: list[OpenRound | None] = [None] * len(self.servers)
        self.evaluated = 0
        self.ending = ""
        self.has_ended = False
        self.moved_before, self.between_before = dict(self.ledger.moved), self.ledger.between.copy()
        self.last_us = 0

    @property
    def under_way(self) -> list[Job]:
        """Jobs whose results have not been taken in."""
        return [*(job for line in self.lines for job in line.waiting), *self.jobs.values()]

    def hand_over(self, job: Job) -> None:
        """Let a job be trained if its result will be needed."""
        has_come = not self.network.at_leaves or job.there_us <= self.clock.now_us
        is_needed = job.fate == "trains" and job.end_us <= self.last_us and has_come
        if is_needed and job not in self.world.ahead:
            self.world.ahead.begin(job)

    @property
    def cloud(self) -> Parent | None:
        """The root; None above a single leaf."""
        return None if self.above is None else self.above.cloud

    @property
    def tops(self) -> list[DeviceServer]:
        """Per leaf whose model its clients are served: the cloud's for its group, or the only leaf."""
        if self.above is None:
            return self.servers
        return [self.above.top_of(leaf) for leaf in range(len(self.servers))]

    @property
    def served(self) -> Version:
        """The served model of the first leaf's clients; of all, unless there are groups."""
        return self.tops[0].version

    @property
    def versions(self) -> int:
        """Number of models made by the servers of clients' models."""
        return sum({id(top): top.number for top in self.tops}.values())
