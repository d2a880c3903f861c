"""All tables of a run folder, column by column; columns are named only here.

The columns are in `round_tables`, `timing_tables` and `device_tables`. To add one, append it to its table
there (so older tables keep their order), with ``always=False``, and print docs/tables.md again with `fedge
tables`. Shares are 0..1. Loads neither torch nor Polars.
"""

from fedge.records.tables.columns import INT, TEXT, USUAL, Column, Table, at, columns_as_markdown
from fedge.records.tables.device_tables import DEVICE_TABLES
from fedge.records.tables.model_tables import CLIENT_MODELS, COMMON_TEST, MEMBERSHIPS
from fedge.records.tables.round_tables import CLIENTS, GLOBAL, LEAF
from fedge.records.tables.server_table import SERVERS
from fedge.records.tables.timing_tables import MEMORY, MESSAGES, TIMING, WORKERS

PARTITION = Table(
    "partition.csv",
    "A row per client, split, user, device and class with windows; written once, before the first round.",
    (
        Column("client", INT, "", USUAL["client"], at("client")),
        Column("leaf", INT, "", USUAL["leaf"], at("leaf")),
        Column("split", TEXT, "", "`train`, `val` or `test`", at("split")),
        Column("user", TEXT, "", "recorded person", at("user")),
        Column("device", TEXT, "", "recording device", at("device")),
        Column(
            "class",
            TEXT,
            "",
            "the client's class, as renamed by a scenario",
            at("label"),
        ),
        Column("windows", INT, "windows", "windows with all of these", at("windows")),
        Column("unseen_client", INT, "", USUAL["unseen_client"], at("unseen_client")),
        Column("group", INT, "", "planted group in round 1", at("group")),
    ),
)
ROUND_TABLES = (GLOBAL, LEAF, SERVERS, CLIENTS, TIMING, WORKERS, MEMORY)  # at least one row per global round
TABLES = (
    GLOBAL, LEAF, SERVERS, CLIENTS, CLIENT_MODELS, COMMON_TEST, MEMBERSHIPS, PARTITION, TIMING, WORKERS,
    MESSAGES, MEMORY,
    *DEVICE_TABLES,
)  # fmt: skip
_PAGE = """# The tables of a run

<!-- printed by `fedge tables`, from fedge/records/tables/catalog.py -->

Tables for `fedge.load_run` (Polars frames) and spreadsheets. A cell is empty if nothing was measured.
In the files, names that begin with `=`, `+`, `-` or `@` get a leading `'`, so that spreadsheets do not read
them as formulas; `load_run` removes it.
Scores are those of served models unless stated otherwise. Shares are 0..1, losses are mean cross-entropies
in nats. std is the population standard deviation, Jain's index (Σx)² / (n Σx²). Numbers have the fewest
digits that restore the same float. Columns shared by several tables:

"""


def page() -> str:
    """Text of docs/tables.md."""
    return _PAGE + columns_as_markdown(TABLES, USUAL)
