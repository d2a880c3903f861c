"""The tables of a run on the virtual clock, in its folder `devices/`; see `fedge.records.catalog`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fedge.records.columns import FLOAT, INT, TEXT, Column, Table, at

if TYPE_CHECKING:
    from fedge.devices.procedure import JobRow

_SECOND_US = 1_000_000


def _seconds(path: str) -> Callable[[Any], float]:
    """Return what looks up microseconds and gives seconds."""
    look_up = at(path)
    return lambda row: look_up(row) / _SECOND_US


def _outcome(row: "JobRow") -> str:
    return row.outcome


_SERVED = "mean over clients of the model's test accuracy"

VERSIONS = Table(
    "devices/versions.csv",
    "A row per evaluation of a run on the virtual clock; totals are of the run so far.",
    (
        Column(
            "evaluation", INT, "", "number, from 1: the global round of the other tables", at("evaluation")
        ),
        Column("virtual_s", FLOAT, "virtual s", "when", at("virtual_s")),
        Column("version", INT, "", "models that the server had made", at("version")),
        Column("updates", INT, "jobs", "whose results it had taken in", at("updates")),
        Column("jobs", INT, "jobs", "that had ended", at("jobs")),
        Column("seen_accuracy", FLOAT, "share", f"{_SERVED}, users seen in training", at("seen_accuracy")),
        Column(
            "unseen_accuracy", FLOAT, "share", f"{_SERVED}, users unseen in training", at("unseen_accuracy")
        ),
        Column("uplink_bytes", INT, "bytes", "models from devices", at("up")),
        Column("downlink_bytes", INT, "bytes", "models to devices", at("down")),
        Column("cloud_uplink_bytes", INT, "bytes", "models from leaves to the cloud", at("cloud_up")),
        Column("cloud_downlink_bytes", INT, "bytes", "models from the cloud to leaves", at("cloud_down")),
        Column(
            "mean_staleness",
            FLOAT,
            "versions",
            "made between start and arrival, over all arrivals",
            at("mean_staleness"),
        ),
        Column(
            "utilisation",
            FLOAT,
            "share",
            "of the places' time in which a device was at work",
            at("utilisation"),
        ),
        Column(
            "wasted", FLOAT, "share", "of the time at work that went into jobs that were lost", at("wasted")
        ),
        Column("gini", FLOAT, "", "Gini coefficient of the devices' numbers of updates", at("gini")),
        Column("events", INT, "events", "of the virtual clock", at("events")),
        Column(
            "server_busy",
            FLOAT,
            "share",
            "of virtual time in which rules occupied their leaves",
            at("server_busy"),
        ),
        Column("in_line", INT, "jobs", "that had ended and waited for a busy leaf", at("in_line")),
    ),
    always=False,
)

JOBS = Table(
    "devices/jobs.csv",
    "A row per job that has ended, of the first `devices.traced` devices.",
    (
        Column("job", INT, "", "its number in the run", at("job.number")),
        Column("device", INT, "", "partition id", at("job.device")),
        Column("leaf", INT, "", "number of its leaf", at("job.server")),
        Column("attempt", INT, "", "number of the device's job, from 1", at("job.attempt")),
        Column("began_s", FLOAT, "virtual s", "when it was given", _seconds("job.began_us")),
        Column("ended_s", FLOAT, "virtual s", "when it ended", _seconds("job.end_us")),
        Column(
            "outcome",
            TEXT,
            "",
            "`updates`: taken in; or lost: `dropped`, `away`, `late` for its round, too `stale`, `failed`",
            _outcome,
        ),
        Column(
            "staleness", INT, "versions", "made between start and arrival; empty if lost", at("staleness")
        ),
    ),
    always=False,
)


def _count(name: str, meaning: str) -> Column:
    return Column(name, INT, "jobs", meaning, at(name))


DEVICE_TOTALS = Table(
    "devices/devices.csv",
    "A row per device that trains, over the whole run; written at its end.",
    (
        Column("device", INT, "", "partition id", at("device")),
        Column("leaf", INT, "", "number of its leaf", at("leaf")),
        Column("train_samples", INT, "windows", "that it trains on", at("train_samples")),
        _count("jobs", "that have ended: the sum of the next six"),
        _count("updates", "whose results were taken in"),
        _count("dropped", "in which it dropped out"),
        _count("away", "in which it went away (`devices.availability`)"),
        _count("late", "that were stopped, because their round was over"),
        _count("stale", "whose results were too old (`asynchrony.max-staleness`)"),
        _count("failed", "that failed for real"),
        Column("busy_s", FLOAT, "virtual s", "at work", at("busy_s")),
        Column("wasted_s", FLOAT, "virtual s", "of these in jobs that were lost", at("wasted_s")),
        Column("idle_s", FLOAT, "virtual s", "without work", at("idle_s")),
        Column("contribution", FLOAT, "share", "of all updates", at("contribution")),
    ),
    always=False,
)

STALENESS = Table(
    "devices/staleness.csv",
    "A row per staleness that an arrival has had; written at the end of a run on the virtual clock.",
    (
        Column("staleness", INT, "versions", "made between start and arrival", lambda row: row[0]),
        Column("arrivals", INT, "jobs", "that had it", lambda row: row[1]),
    ),
    always=False,
)

GROWING = (VERSIONS, JOBS)  # while the run goes on
DEVICE_TABLES = (VERSIONS, JOBS, DEVICE_TOTALS, STALENESS)
