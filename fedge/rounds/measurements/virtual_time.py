"""Virtual time and energy of synchronous rounds: when every server would be done, were clients devices.

Leaves train side by side; a leaf round takes as long as its slowest client, which receives a model, trains
and sends. A combining server waits for the last of those below, then sends its model down. No result of a run
depends on it.

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
from fedge.states.restored import number, whole


class Speeds(Protocol):
    """Speeds of devices and links."""

    def job(
        self, client: int, attempt: int, down_bytes: float, up_bytes: float
    ) -> tuple[float, float | None]:
        """Seconds, and joules (None where power is not known), of a client's job.

        Args:
            client: its partition id.
            attempt: number of the client's job, 1, 2, …
            down_bytes: received bytes.
            up_bytes: sent bytes.
        """
        ...

    def link(self, nbytes: int, tier: int) -> float:
        """Seconds for arrays of some bytes on an edge.

        Args:
            nbytes: the bytes; none take no time.
            tier: of the server at the upper end; the root's is 0.
        """
        ...


def bytes_between_servers(
    traffic: Mapping[Path, Traffic], before: Mapping[Path, Traffic]
) -> dict[Path, Traffic]:
    """Bytes exchanged between servers and those above since `before`, by path."""
    none = Traffic()
    return {
        path: Traffic(now.up - before.get(path, none).up, now.down - before.get(path, none).down)
        for path, now in traffic.items()
    }


class VirtualTime:
    """Clocks of all leaves, and the energy of all devices, through a run.

    Attributes:
        joules: of all jobs so far; None where power is not known.
    """

    def __init__(self, pace: Speeds, branches: Sequence[Server]) -> None:
        """Begin at 0.

        Args:
            pace: of the run's devices.
            branches: children of the cloud, in order.
        """
        leaves = [leaf for branch in branches for leaf in leaves_below(branch)]
        self._pace = pace
        self._leaves = leaves
        self._at = dict.fromkeys((leaf.index for leaf in leaves), 0.0)
        self._jobs: dict[int, int] = {}
        self.joules: float | None = None

    @property
    def now_s(self) -> float:
        """Seconds until the last leaf has finished all started work."""
        return max(self._at.values())

    def train(self, clients: Collection[int], up_bytes: float, down_bytes: float) -> None:
        """Let clients train at the same time, each a job.

        Args:
            clients: whose replies count; failed ones take no time.
            up_bytes, down_bytes: bytes of each job, in the mean.
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
            self._at[leaf] += seconds

    def meet(self, children: Sequence[Server], traffic: Mapping[Path, Traffic]) -> None:
        """Let a server combine its children, where anything moves between them.

        Args:
            children: of the server.
            traffic: path → bytes moved meanwhile, for the children and all servers below.
        """
        between = [traffic.get(child.path, Traffic()) for child in children]
        if not any(each.up or each.down for each in between):
            return
        there = max(
            max(self._at[leaf.index] for leaf in leaves_below(child))
            + self._pace.link(each.up, _above(child))
            for child, each in zip(children, between, strict=True)
        )
        for child in children:
            self._come_down(child, there, traffic)

    def _come_down(self, server: Server, when: float, traffic: Mapping[Path, Traffic]) -> None:
        """Let a model go down to a server at some time, and on to all leaves below."""
        when += self._pace.link(traffic.get(server.path, Traffic()).down, _above(server))
        if isinstance(server, Leaf):
            self._at[server.index] = when
        for below in server.below:
            self._come_down(below, when, traffic)

    def facts(self) -> dict[str, Any]:
        """Clocks and counts as JSON."""
        return {"at": list(self._at.items()), "jobs": list(self._jobs.items()), "joules": self.joules}

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Continue from the result of `facts`; ValueError where they are none of this run's."""
        at = {whole(leaf, "a leaf with a clock"): number(s, "a leaf's clock", 0) for leaf, s in facts["at"]}
        if at.keys() != self._at.keys():
            raise ValueError(
                f"the clocks must be those of leaves {sorted(self._at)}, but are of {sorted(at)}"
            )
        jobs = {whole(client, "a client"): whole(n, "a client's jobs") for client, n in facts["jobs"]}
        joules = facts["joules"]
        self._at, self._jobs = at, jobs
        self.joules = None if joules is None else number(joules, "joules", 0)


def _above(server: Server) -> int:
    """Tier of the server above."""
    return len(server.path) - 1
