"""All leaves below a server of a tree in one process: ``fedge leaf --at 1``.

Each leaf has its own link, under the one certificate, its own host and its own clients. They share the
process, its threads, and one partition of the data. Each executes its own orders, which arrive in one packet
for all (`fedge.edge.packets.bundles`), so models have the same bits, and each recovers from the same faults
as a leaf server. If the server is a region with several means in a round of the server above it, the process
runs these rounds itself, after one order on the link of its first leaf (`fedge.edge.region`).
"""

import argparse
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fedge.client_app import app as client_app
from fedge.edge.host import LeafHost
from fedge.edge.leaf_bundles import LeafServerGroup
from fedge.engine.inprocess import InProcessGrid
from fedge.launch.client_threads import client_threads
from fedge.launch.leaf_servers.start_up import FOR_EVER_S, say, serve_runs
from fedge.link.certificates import path_name
from fedge.link.dial import Link
from fedge.link.leaves_below import SubtreeQuery
from fedge.run.site import SharedDeal, open_site

logger = logging.getLogger(__name__)

_LOOK_S = 0.2
_END_S = 20.0  # wait for a stopped link to end


class Subtree:
    """Leaf servers of one process, from their first contact with the cloud to the end of a run.

    Attributes:
        leave_s: seconds for the remaining leaves to learn that the run is over, after the first has.
    """

    leave_s = 20.0

    def __init__(self, links: Sequence[Link], hosts: Sequence[LeafHost]) -> None:
        """Leaf servers with one link and one host per leaf."""
        self._links, self._hosts = links, hosts
        self._errors: list[Exception] = []

    def serve(self, lost_s: float) -> None:
        """Serve the cloud until it ends the run at all leaves.

        Args:
            lost_s: seconds without contact to the cloud after which to give up.

        Raises:
            Refused: the cloud refuses a leaf, or was out of contact for `lost_s` seconds.
        """
        pairs = zip(self._links, self._hosts, strict=True)
        threads = [threading.Thread(target=self._serve, args=(*pair, lost_s)) for pair in pairs]
        for thread in threads:
            thread.start()
        try:
            self._wait(threads)
        finally:
            for link in self._links:
                link.stop()
            for thread in threads:
                thread.join(_END_S)
            for host in self._hosts:
                host.close()
        if self._errors:
            raise self._errors[0]

    @property
    def is_refused(self) -> bool:
        """Whether the newest run has no finished round."""
        return any(host.refused for host in self._hosts)

    @property
    def end_description(self) -> str:
        """Description of how the newest run ended."""
        return next(
            (host.end_description for host in self._hosts if host.refused), self._hosts[0].end_description
        )

    def _wait(self, threads: Sequence[threading.Thread]) -> None:
        """Wait until all leaves have ended, one has failed, or `leave_s` seconds after the first has ended.

        A link broken during this time gets no further messages; the next run starts with new links.
        """
        deadline: float | None = None
        while (running := [t for t in threads if t.is_alive()]) and not self._errors:
            running[0].join(_LOOK_S)
            if len(running) < len(threads) and deadline is None:
                deadline = time.monotonic() + self.leave_s
            if deadline is not None and time.monotonic() > deadline:
                logger.warning("%d leaf servers were not told that the run is over", len(running))
                return

    def _serve(self, link: Link, host: LeafHost, lost_s: float) -> None:
        """Serve one leaf; an error ends all leaves."""
        try:
            link.serve(host, lost_s, host.most_bytes, host.keep)
        except Exception as error:
            self._errors.append(error)


def serve_subtree(options: argparse.Namespace) -> int:
    """Carry out ``fedge leaf --at``; returns the exit code."""
    path, lost_s = str(options.at), options.wait or FOR_EVER_S
    folder = options.folder or Path(path_name(path))
    query = SubtreeQuery(options.cloud, options.certs, path, say)

    def serve_run() -> bool:
        nonlocal query
        leaves = query.leaves(lost_s)
        print(f"server {path} runs the leaf servers {', '.join(map(str, leaves))}", flush=True)
        subtree = subtree_of(folder, leaves, options)
        subtree.serve(lost_s)
        print(subtree.end_description, flush=True)
        if not options.once:
            query = SubtreeQuery(options.cloud, options.certs, path, say)
        return subtree.is_refused

    return serve_runs(options, folder, f"server {path}", serve_run, lambda: query.stop())


def subtree_of(folder: Path, leaves: Sequence[int], options: argparse.Namespace) -> Subtree:
    """Leaf servers of one process.

    Args:
        folder: folder of the process, with a folder for each leaf.
        leaves: numbers of the leaves.
        options: options of the command.

    Raises:
        ConfigError: a TLS file is unusable.
    """
    shared_deal = SharedDeal()

    def make_engine(
        run_config: Mapping[str, Any], num_clients: int, partitions: Sequence[int]
    ) -> InProcessGrid:
        count, client_config = client_threads(run_config, options.workers, len(partitions), len(leaves))
        return InProcessGrid(client_app, num_clients, client_config, count, partitions)

    group = LeafServerGroup()
    links = [Link(options.cloud, options.certs, leaf, str(options.at)) for leaf in leaves]
    hosts = [
        LeafHost(
            partial(
                open_site, folder / f"leaf-{leaf}", leaf, make_engine,
                trust_code=options.trust_code, data=options.data, dealing=shared_deal,
            ),
            group=group,
        )
        for leaf in leaves
    ]  # fmt: skip
    for leaf, host in zip(leaves, hosts, strict=True):
        group.take(leaf, host)
    return Subtree(links, hosts)
