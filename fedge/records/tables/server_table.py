"""Table of servers of any tier: one row per server per global round; see `catalog`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedge.records.tables.columns import FLOAT, INT, ROUND, TEXT, Column, Table, at

if TYPE_CHECKING:
    from fedge.rounds.measurements.results import ServerResult


def path_text(path: Sequence[int]) -> str:
    """Path of a server in results: / for the root, /1/0 for the first child of its second child."""
    return "/" + "/".join(map(str, path))


@dataclass(frozen=True)
class ServerRow:
    """Source of a row of servers.csv."""

    global_round: int
    server: "ServerResult"
    names: Sequence[str]

    @property
    def tier(self) -> int:
        """Depth of the server; 0 for the root."""
        return len(self.server.path)


SERVERS = Table(
    "metrics/servers.csv",
    "A row per server of any tier per global round, from the root down. Scores are pooled over the windows "
    "of all clients below.",
    (
        Column("global_round", INT, "", ROUND, at("global_round")),
        Column(
            "path",
            TEXT,
            "",
            "/ is the root, /1/0 the first child of its second child",
            lambda r: path_text(r.server.path),
        ),
        Column("tier", INT, "", "0 is the root", at("tier")),
        Column("name", TEXT, "", "name of the tier", lambda r: r.names[r.tier]),
        Column(
            "cluster",
            INT,
            "",
            "cluster among the children of the server above; without groups, that server's cluster",
            at("server.cluster"),
        ),
        Column(
            "gate",
            TEXT,
            "",
            "latest decision of the round on its offer; empty if there was none",
            at("server.gate.decision"),
        ),
        Column("uplink_bytes", INT, "bytes", "arrays: to the server above", at("server.uplink_bytes")),
        Column("downlink_bytes", INT, "bytes", "arrays: from the server above", at("server.downlink_bytes")),
        Column("num_clients", INT, "clients", "known clients below", at("server.num_clients")),
        Column("train_samples", INT, "windows", "training windows below", at("server.train_samples")),
        Column(
            "test_score",
            FLOAT,
            "",
            "first score of the served model: known clients",
            at("server.test_score"),
        ),
        Column(
            "unseen_score",
            FLOAT,
            "",
            "first score of the served model: unseen clients",
            at("server.unseen_score"),
        ),
    ),
    always=False,
)
