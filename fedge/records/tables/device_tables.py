"""Tables of a run on the virtual clock, in its folder `devices/`; see `fedge.records.tables.catalog`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fedge.records.tables.columns import FLOAT, INT, TEXT, USUAL, Column, Table, at
from fedge.tasks.configured import CLASSIFICATION
from fedge.tasks.task import Score

if TYPE_CHECKING:
    from fedge.devices.world import JobRow

_SECOND_US = 1_000_000


def _seconds(path: str) -> Callable[[Any], float]:
    """Reader of a field in microseconds, as seconds."""
    look_up = at(path)
    return lambda row: look_up(row) / _SECOND_US


def _outcome(row: "JobRow") -> str:
    return row.outcome


_ON_TWO_TIERS = (
    Column("at_work", INT, "clients", "busy clients", at("at_work")),
    Column("leaf_versions", INT, "", "models made by leaves, over all leaves", at("leaf_versions")),
    Column(
        "cloud_staleness",
        FLOAT,
        "versions",
        "versions made by the cloud between start and arrival of a leaf's model, mean over arrivals",
        at("cloud_staleness"),
    ),
    Column(
        "cloud_busy",
        FLOAT,
        "share",
        "share of virtual time in which rules occupied the cloud; groups add up",
        at("cloud_busy"),
    ),
    Column("cloud_in_line", INT, "", "leaves' models waiting for a busy cloud", at("cloud_in_line")),
    Column(
        "joules",
        FLOAT,
        "",
        "joules of ended jobs",
        at("joules"),
    ),
    Column("partial", INT, "jobs", USUAL["partial"], at("partial")),
)


def _versions_table(score: Score) -> Table:
    """Table of evaluations, with columns named by the task's first score."""
    meaning = f"mean over clients of the model's test {score.label}"
    return Table(
        "devices/versions.csv",
        "A row per evaluation of a run on the virtual clock; totals are of the run so far.",
        (
            Column(
                "evaluation",
                INT,
                "",
                "number, from 1; `global_round` in other tables",
                at("evaluation"),
            ),
            Column("virtual_s", FLOAT, "virtual s", "time of the evaluation", at("virtual_s")),
            Column("version", INT, "", "models made by the server", at("version")),
            Column("updates", INT, "jobs", "jobs with used results", at("updates")),
            Column("jobs", INT, "jobs", "ended jobs", at("jobs")),
            Column(
                f"seen_{score.name}",
                FLOAT,
                score.unit,
                f"{meaning}: users seen in training",
                at("seen_score"),
            ),
            Column(
                f"unseen_{score.name}",
                FLOAT,
                score.unit,
                f"{meaning}: users unseen in training",
                at("unseen_score"),
            ),
            Column("uplink_bytes", INT, "bytes", "models: from devices", at("up")),
            Column("downlink_bytes", INT, "bytes", "models: to devices", at("down")),
            Column("cloud_uplink_bytes", INT, "bytes", "models: from leaves to the cloud", at("cloud_up")),
            Column(
                "cloud_downlink_bytes", INT, "bytes", "models: from the cloud to leaves", at("cloud_down")
            ),
            Column(
                "mean_staleness",
                FLOAT,
                "versions",
                "versions made between start and arrival, mean over arrivals",
                at("mean_staleness"),
            ),
            Column(
                "utilisation",
                FLOAT,
                "share",
                "share of the places' time in which a device was busy",
                at("utilisation"),
            ),
            Column(
                "wasted",
                FLOAT,
                "share",
                "share of busy time spent on lost jobs",
                at("wasted"),
            ),
            Column("gini", FLOAT, "", "Gini coefficient of the devices' numbers of updates", at("gini")),
            Column("events", INT, "events", "events of the virtual clock", at("events")),
            Column(
                "server_busy",
                FLOAT,
                "share",
                "share of virtual time in which rules occupied leaves",
                at("server_busy"),
            ),
            Column("in_line", INT, "jobs", "ended jobs waiting for a busy leaf", at("in_line")),
            *_ON_TWO_TIERS,
        ),
        always=False,
    )


VERSIONS = _versions_table(CLASSIFICATION.scores[0])

JOBS = Table(
    "devices/jobs.csv",
    "A row per ended job of the first `devices.traced` devices.",
    (
        Column("job", INT, "", USUAL["job"], at("job.number")),
        Column("device", INT, "", USUAL["device"], at("job.device")),
        Column("leaf", INT, "", USUAL["leaf"], at("job.server")),
        Column("attempt", INT, "", USUAL["attempt"], at("job.attempt")),
        Column("began_s", FLOAT, "virtual s", "time: start", _seconds("job.began_us")),
        Column("ended_s", FLOAT, "virtual s", "time: end", _seconds("job.end_us")),
        Column(
            "outcome",
            TEXT,
            "",
            "`updates`: used; or lost: `dropped`, `away`, `late` for its round or timeout, too `stale`, "
            "`failed`",
            _outcome,
        ),
        Column("staleness", INT, "versions", "versions made between start and arrival", at("staleness")),
        Column("share", FLOAT, "share", "share of its steps; 1 for full jobs", at("job.share")),
    ),
    always=False,
)


def _job_count_column(name: str, meaning: str) -> Column:
    return Column(name, INT, "jobs", meaning, at(name))


DEVICE_TOTALS = Table(
    "devices/devices.csv",
    "A row per training device, over the whole run; written at its end.",
    (
        Column("device", INT, "", USUAL["device"], at("device")),
        Column("leaf", INT, "", USUAL["leaf"], at("leaf")),
        Column("train_samples", INT, "windows", "training windows", at("train_samples")),
        _job_count_column("jobs", "ended jobs: the sum of the next six"),
        _job_count_column("updates", "jobs with used results"),
        _job_count_column("dropped", "dropouts"),
        _job_count_column("away", "lost because the device left (`devices.availability`)"),
        _job_count_column("late", "stopped at the end of a round, or by `asynchrony.timeout-s`"),
        _job_count_column("stale", "results too stale (`asynchrony.max-staleness`)"),
        _job_count_column("failed", "without a valid reply"),
        Column("busy_s", FLOAT, "virtual s", "time: busy", at("busy_s")),
        Column("wasted_s", FLOAT, "virtual s", "time: in lost jobs", at("wasted_s")),
        Column("idle_s", FLOAT, "virtual s", "time: idle", at("idle_s")),
        Column("contribution", FLOAT, "share", "share of all updates", at("contribution")),
        _job_count_column("partial", USUAL["partial"]),
    ),
    always=False,
)

STALENESS = Table(
    "devices/staleness.csv",
    "A row per staleness; written at the end of a run on the virtual clock.",
    (
        Column("staleness", INT, "versions", "versions made between start and arrival", lambda row: row[0]),
        Column("arrivals", INT, "jobs", "arrivals with this staleness", lambda row: row[1]),
    ),
    always=False,
)


ARRIVALS = Table(
    "devices/arrivals.csv",
    "A row per ended job of a run on the real clock (`asynchrony.clock`), in order of use; the input "
    "of `asynchrony.replay`.",
    (
        Column("job", INT, "", USUAL["job"], at("job.number")),
        Column("device", INT, "", USUAL["device"], at("job.device")),
        Column("leaf", INT, "", USUAL["leaf"], at("job.server")),
        Column("attempt", INT, "", USUAL["attempt"], at("job.attempt")),
        Column("version", INT, "", "starting version of its leaf", at("job.staleness_from")),
        Column("began_us", INT, "", "microseconds since the start of the run: start", at("job.began_us")),
        Column(
            "ended_us",
            INT,
            "",
            "microseconds since the start of the run: arrival of the reply",
            at("job.end_us"),
        ),
        Column("outcome", TEXT, "", "`updates`: used; too `stale`; `failed`", _outcome),
    ),
    always=False,
)


def growing_tables(score: Score, is_real: bool = False) -> tuple[Table, ...]:
    """Tables growing during a run, with columns named by a score; arrivals only on a real clock."""
    return _versions_table(score), JOBS, *([ARRIVALS] if is_real else [])


GROWING = (VERSIONS, JOBS, ARRIVALS)  # tables growing during a run
DEVICE_TABLES = (VERSIONS, JOBS, DEVICE_TOTALS, STALENESS, ARRIVALS)
