"""Table rows of servers on all tiers, from the record of a global round."""

from collections.abc import Sequence

from fedge.cloud.region import leaves_below
from fedge.config.tree import Path
from fedge.exchange.evaluate import pool_evaluations
from fedge.leaf.leaf import Leaf
from fedge.leaf.server import Server
from fedge.rounds.measurements.book import RoundBook
from fedge.rounds.measurements.results import ServerResult
from fedge.serving.gate import GateResult


def server_rows(book: RoundBook, servers: Sequence[Server]) -> list[ServerResult]:
    """Rows of all servers, from the root down; a server is followed by those below.

    Args:
        book: record of the round, after the gates' decisions.
        servers: children of the cloud, in order.
    """
    leaves = [leaf for server in servers for leaf in leaves_below(server)]
    return [_row(book, (), leaves), *(row for server in servers for row in _rows_below(book, server, None))]


def _rows_below(book: RoundBook, server: Server, cluster: int | None) -> list[ServerResult]:
    """Rows of a server and those below; without grouping, a server is in the cluster of its parent."""
    record = book.latest_record(server.path[:-1])
    gate = None
    if record is not None:
        gate = record.gates[server.number] if record.has_gates and record.gates else None
        cluster = int(record.labels[server.number]) if record.groups or cluster is None else cluster
    row = _row(book, server.path, leaves_below(server), cluster, gate)
    return [row, *(inner_row for below in server.below for inner_row in _rows_below(book, below, cluster))]


def _row(
    book: RoundBook,
    path: Path,
    leaves: Sequence[Leaf],
    cluster: int | None = None,
    gate: GateResult | None = None,
) -> ServerResult:
    """Row of one server over leaves, or of one leaf."""
    known, unseen = (
        pool_evaluations(
            [evaluation for leaf in leaves for evaluation in book.served(leaf, is_unseen).values()]
        )
        for is_unseen in (False, True)
    )
    traffic = book.traffic.get(path)
    return ServerResult(
        path=path,
        cluster=cluster,
        gate=gate,
        uplink_bytes=None if traffic is None else traffic.up,
        downlink_bytes=None if traffic is None else traffic.down,
        num_clients=sum(len(leaf.clients) for leaf in leaves),
        train_samples=sum(leaf.weight for leaf in leaves),
        test_score=known.score if known else None,
        unseen_score=unseen.score if unseen else None,
    )
