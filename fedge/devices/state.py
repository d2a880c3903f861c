"""State of a run on the virtual clock between two events, from which the run can be continued."""

from collections import Counter
from collections.abc import Sequence

from fedge.config.topology import places_per_leaf
from fedge.devices.clients.algorithms import ClockAlgorithms
from fedge.devices.planning import Planning
from fedge.devices.population.device_choice import Choosing
from fedge.devices.servers.server import DeviceServer
from fedge.devices.servers.vectors import Version
from fedge.devices.tiers.groups import ClockGroups
from fedge.devices.tiers.parent import Parent
from fedge.devices.tiers.servers_above import ServersAbove
from fedge.devices.timeline.arrival_queue import ServerQueue
from fedge.devices.timeline.clock import Clock
from fedge.devices.timeline.network import SharedLinks
from fedge.devices.work.jobs import Job
from fedge.devices.work.ledger import Ledger
from fedge.devices.work.routes import OpenRound, Route
from fedge.devices.world import World


class ClockState:
    """State of a run on the virtual clock between two events.

    Attributes:
        world: setting of the run.
        clock: virtual time, and events ahead.
        servers: leaves, in order.
        above: servers above the leaves; None for a single leaf.
        groups: groups of the cloud's children, each with its own model; None if all share one.
        algorithms: leaf parts of the clients' algorithm; None if options say everything.
        jobs: number → job under way.
        lines: queue of each leaf, of ended jobs with waiting results.
        choosing: selection of devices, with the idle ones.
        planning: planned outcomes of jobs.
        ledger: totals of all events.
        network: shared links.
        routes: number → route of a job under way over its leaf's shared link; empty without such links.
        rounds: open round of each leaf with shared links, or None.
        evaluated: number of evaluations so far.
        ending: limit reached by the run, as a sentence; the next evaluation is the last. Empty before.
        has_ended: whether the latest evaluation is the last.
        moved_before: bytes moved by the time of the last evaluation.
        between_before: the same per server, as in `Ledger.between`.
        last_us: virtual time after which no result is needed yet.
        down_bytes: bytes sent to a device with a job.
        places: per leaf, the number of devices to work at a time.
        at_work: per leaf, the number of devices working now.
        wakes: per leaf, when it looks for devices next, virtual microseconds; in the past if it need not.
    """

    def __init__(
        self,
        world: World,
        servers: Sequence[DeviceServer],
        above: ServersAbove | None = None,
        groups: ClockGroups | None = None,
        algorithms: ClockAlgorithms | None = None,
    ) -> None:
        """State before the first event, all servers with their first model; arguments are the attributes."""
        config = world.config
        self.world = world
        self.clock = Clock()
        self.servers = list(servers)
        self.above = above
        self.groups = groups
        self.algorithms = algorithms
        self.jobs: dict[int, Job] = {}
        self.lines: list[ServerQueue[Job]] = [ServerQueue() for _ in self.servers]
        self.places = places_per_leaf(config.asynchrony.concurrency, len(self.servers))
        self.at_work = [0] * len(self.servers)
        self.wakes = [-1] * len(self.servers)
        windows = world.population.window_counts(len(world.fleet))
        self.choosing = Choosing(
            world.seed, world.population.devices_by_leaf(), world.presence, self.places, windows,
            world.selection, world.selection_arguments,
        )  # fmt: skip
        model_bytes = self.servers[0].version.nbytes
        job_bytes = None if algorithms is None else algorithms.bytes_moved(self.servers[0].version)
        self.down_bytes, up_bytes = job_bytes or (model_bytes, model_bytes)
        self.planning = Planning(
            config, world.seed, world.fleet, windows, self.down_bytes, world.duration, self.choosing.history,
            up_bytes,
        )  # fmt: skip
        parents = [] if above is None else above.parents
        self.ledger = Ledger(len(world.fleet), world.fleet, sum(len(parent.nodes) for parent in parents))
        rates = [parent.link_megabytes_s for parent in parents]
        self.network = SharedLinks(config.asynchrony, len(self.servers), model_bytes, rates, job_bytes)
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
    def pending_jobs(self) -> list[Job]:
        """Jobs whose results have not been used yet."""
        return [*(job for line in self.lines for job in line.waiting), *self.jobs.values()]

    @property
    def unrecorded_us(self) -> Counter[int]:
        """Device → virtual microseconds in jobs missing in the ledger: under way, or in a queue."""
        busy_us: Counter[int] = Counter()
        for job in self.jobs.values():
            busy_us[job.device] += self.clock.now_us - job.began_us
        for line in self.lines:
            for job in line.waiting:
                busy_us[job.device] += job.busy_us
        return busy_us

    def hand_over(self, job: Job) -> None:
        """Pass a job to the workers if its result will be needed."""
        has_arrived = not self.network.at_leaves or job.there_us <= self.clock.now_us
        is_needed = job.fate == "trains" and job.end_us <= self.last_us and has_arrived
        if is_needed and job not in self.world.look_ahead:
            self.world.look_ahead.begin(job)

    @property
    def cloud(self) -> Parent | None:
        """The root; None for a single leaf."""
        return None if self.above is None else self.above.cloud

    @property
    def tops(self) -> list[DeviceServer]:
        """Per leaf, the server of its clients' model: the cloud's for its group, or the only leaf."""
        if self.above is None:
            return self.servers
        return [self.above.top_of(leaf) for leaf in range(len(self.servers))]

    @property
    def served(self) -> Version:
        """Model served to the clients of the first leaf, and to all clients if there are no groups."""
        return self.tops[0].version

    @property
    def versions(self) -> int:
        """Number of versions made by the servers of clients' models, those of former groups included."""
        former = 0 if self.cloud is None else self.cloud.dissolved_versions
        return former + sum({id(top): top.number for top in self.tops}.values())
