"""Virtual time and energy of synchronous rounds, with clients timed as devices.

Leaves train in parallel; a leaf round takes as long as its slowest client needs to receive the model, train
and send. A server waits for the last of its children, then sends its model down; a region's goes up once its
leaves have it. It has no effect on results.

Source of the model: Liu et al. 2020 (HierFAVG), section V; their constants are the preset
``devices.preset="hierfavg"``. As there, evaluations take no time.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from fedge.cloud.region import leaves_below
from fedge.config.tree import Path
from fedge.leaf.leaf import Leaf
from fedge.leaf.server import Server
from fedge.rounds.measurements.results import Traffic
from fedge.states.restore_checks import checked_int, checked_number


class Speeds(Protocol):
    """Speeds of devices and links."""

    def job(
        self, client: int, attempt: int, down_bytes: float, up_bytes: float
    ) -> tuple[float, float | None]:
        """Seconds and joules of a client's job; joules are None if the power is unknown.

        Args:
            client: partition id of the client.
            attempt: number of the client's job, 1, 2, …
            down_bytes: bytes received.
            up_bytes: bytes sent.
        """
        ...

    def link(self, nbytes: int, tier: int) -> float:
        """Seconds to transfer arrays between a server and a child.

        Args:
            nbytes: bytes of the arrays; 0 takes no time.
            tier: tier of the server; the root is 0.
        """
        ...


def bytes_between_servers(
    traffic: Mapping[Path, Traffic], before: Mapping[Path, Traffic]
) -> dict[Path, Traffic]:
    """Bytes exchanged between servers and their parents since `before`, by path."""
    nothing = Traffic()
    return {
        path: Traffic(
            current.up - before.get(path, nothing).up, current.down - before.get(path, nothing).down
        )
        for path, current in traffic.items()
    }


class VirtualTime:
    """Virtual clocks of all leaves, and energy of all devices, over a run.

    Attributes:
        joules: energy of all jobs so far; None if the power is unknown.
    """

    def __init__(self, pace: Speeds, branches: Sequence[Server]) -> None:
        """Start at 0.

        Args:
            pace: speeds of the run's devices and links.
            branches: children of the cloud, in order.
        """
        leaves = [leaf for branch in branches for leaf in leaves_below(branch)]
        self._pace = pace
        self._leaves = leaves
        self._clocks = dict.fromkeys((leaf.index for leaf in leaves), 0.0)
        self._jobs: dict[int, int] = {}
        self.joules: float | None = None

    @property
    def now_s(self) -> float:
        """Virtual seconds at which the last leaf is done."""
        return max(self._clocks.values())

    def train(self, clients: Collection[int], up_bytes: float, down_bytes: float) -> None:
        """Advance by one job per client, in parallel.

        Args:
            clients: clients with accepted replies; failed ones take no time.
            up_bytes, down_bytes: mean bytes per job.
        """
        longest: dict[int, float] = {}
        leaf_of = {client: leaf.index for leaf in self._leaves for client in leaf.clients}  # they may move
        for client in sorted(clients):
            attempt = self._jobs[client] = self._jobs.get(client, 0) + 1
            seconds, joules = self._pace.job(client, attempt, down_bytes, up_bytes)
            leaf = leaf_of[client]
            longest[leaf] = max(longest.get(leaf, 0.0), seconds)
            if joules is not None:
                self.joules = (self.joules or 0.0) + joules
        for leaf, seconds in longest.items():
            self._clocks[leaf] += seconds

    def aggregate(self, children: Sequence[Server], traffic: Mapping[Path, Traffic]) -> None:
        """Advance by a server's aggregation, if anything is transferred.

        Args:
            children: children of the server.
            traffic: path → bytes transferred, for the children and all servers below.
        """
        between = [traffic.get(child.path, Traffic()) for child in children]
        if not any(transfer.up or transfer.down for transfer in between):
            return
        arrival = max(
            max(self._clocks[leaf.index] for leaf in leaves_below(child))
            + self._pace.link(transfer.up, _parent_tier(child))
            for child, transfer in zip(children, between, strict=True)
        )
        for child in children:
            self._send_down(child, arrival, traffic)

    def _send_down(self, server: Server, time_s: float, traffic: Mapping[Path, Traffic]) -> None:
        """Send a model at time `time_s` to a server and on to all leaves below."""
        time_s += self._pace.link(traffic.get(server.path, Traffic()).down, _parent_tier(server))
        if isinstance(server, Leaf):
            self._clocks[server.index] = time_s
        for below in server.below:
            self._send_down(below, time_s, traffic)

    def facts(self) -> dict[str, Any]:
        """Clocks and counts as JSON."""
        return {"at": list(self._clocks.items()), "jobs": list(self._jobs.items()), "joules": self.joules}

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Continue from the result of `facts`; ValueError if they do not belong to this run's."""
        clocks = {
            checked_int(leaf, "a leaf with a clock"): checked_number(s, "a leaf's clock", 0)
            for leaf, s in facts["at"]
        }
        if clocks.keys() != self._clocks.keys():
            raise ValueError(
                f"the clocks must be those of leaves {sorted(self._clocks)}, but are of {sorted(clocks)}"
            )
        jobs = {
            checked_int(client, "a client"): checked_int(n, "a client's jobs") for client, n in facts["jobs"]
        }
        joules = facts["joules"]
        self._clocks, self._jobs = clocks, jobs
        self.joules = None if joules is None else checked_number(joules, "joules", 0)


def _parent_tier(server: Server) -> int:
    """Tier of a server's parent."""
    return len(server.path) - 1
