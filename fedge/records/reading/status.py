"""Status of a run, read from its folder, for `fedge status` and other commands."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from fedge.config.registers.engines import LEAVES
from fedge.process.endings import exits
from fedge.process.escape import printable
from fedge.records.folder import has_code_of_script, resume_command, time_written
from fedge.records.manifest import read_manifest
from fedge.records.outputs import damaged_outputs
from fedge.records.tables.rows import records_of

_RECENT = 10  # rounds over which seconds per round are averaged


@dataclass(frozen=True)
class RunStatus:
    """Status of a run at one moment.

    Attributes:
        folder: the run folder.
        status: "running", "completed", "partial" or "failed".
        exit_code: one of `fedge.process.endings.exits`; RUNNING during the run, FAILED if results are
            damaged.
        reason: reason for a failure, or for an end before the last round; empty otherwise.
        last_round: last global round in the metrics; 0 before the first.
        num_rounds: planned global rounds; 0 if unknown.
        seconds_per_round: mean over the last rounds; None before the first.
        last_row: time of the last row; None before the first.
        damaged: one line for each changed result of a successful run.
        has_leaf_servers: whether its leaf servers are separate processes, which are needed to resume it.
        of_script: whether a part is code from a script or notebook, which alone can resume it.
    """

    folder: Path
    status: str
    exit_code: int
    reason: str
    last_round: int
    num_rounds: int
    seconds_per_round: float | None
    last_row: datetime | None
    damaged: tuple[str, ...] = ()
    has_leaf_servers: bool = False
    of_script: bool = False


def read_status(folder: Path) -> RunStatus:
    """Read the status of a run.

    Raises:
        RunFolderError: its manifest is missing or damaged.
    """
    manifest = read_manifest(folder)
    table = folder / "metrics" / "global_rounds.csv"
    rounds = _read_rounds(table)
    succeeded = manifest["status"] in ("completed", "partial")
    damaged = tuple(damaged_outputs(folder, manifest)) if succeeded else ()
    recent = [seconds for _, seconds in rounds[-_RECENT:]]
    return RunStatus(
        folder=folder,
        status=manifest["status"],
        exit_code=exits.FAILED if damaged else manifest["exit_code"],
        reason=_one_line(manifest.get("reason") or _stop_reason(manifest)),
        last_round=rounds[-1][0] if rounds else 0,
        num_rounds=manifest.get("config", {}).get("num-server-rounds", 0),
        seconds_per_round=sum(recent) / len(recent) if recent else None,
        last_row=time_written(table) if rounds else None,
        damaged=damaged,
        has_leaf_servers=manifest.get("engine") == LEAVES.name,
        of_script=has_code_of_script(manifest.get("config", {})),
    )


def _stop_reason(manifest: Mapping[str, Any]) -> str:
    """Reason for an end before the last round; empty without one."""
    stopped = manifest.get("stopped")
    return f"stopped by {stopped['by']}: {stopped['reason']}" if stopped else ""


def _read_rounds(table: Path) -> list[tuple[int, float]]:
    """(global round, seconds) of every complete row of global_rounds.csv."""
    try:
        text = table.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    rounds = []
    complete = text[: text.rfind("\n") + 1]  # an incomplete row is being written, or was cut off
    for row in records_of(complete.split("\n")):
        with suppress(KeyError, TypeError, ValueError):
            rounds.append((int(row["global_round"]), float(row["seconds"])))
    return rounds


def _one_line(value: Any) -> str:
    return " ".join(str(value).split())


def status_lines(status: RunStatus, hindrance: str = "") -> list[str]:
    """A run's status as lines of text; control characters from its files are escaped.

    Args:
        status: the run's status.
        hindrance: why the run cannot be resumed; empty if it can.
    """
    total = f" of {status.num_rounds}" if status.num_rounds else ""
    lines = [f"{status.folder.name}: {status.status}, global round {status.last_round}{total}"]
    if status.seconds_per_round is not None and status.last_row is not None:
        lines.append(
            f"{status.seconds_per_round:.1f} s per round, last one at {status.last_row:%Y-%m-%d %H:%M:%S}"
        )
    if status.reason:
        lines.append(f"reason: {status.reason}")
    lines += [f"damaged: {line}" for line in status.damaged]
    next_step = _next_step(status, bool(hindrance))
    if next_step and hindrance:
        lines.append(f"cannot be resumed: {hindrance}")
    if next_step:
        lines.append(f"next: {next_step}")
    return [printable(line) for line in lines]


def _next_step(status: RunStatus, is_lost: bool) -> str:
    """Next step for the user of a failed or damaged run; a lost run cannot be resumed."""
    if status.damaged and is_lost:
        return "restore the files from a copy, or start the run again"
    arguments = " --leaves HOST:PORT" * status.has_leaf_servers
    resume = resume_command(status.folder, arguments, of_script=status.of_script)
    if status.damaged:
        return resume
    if status.status != "failed":
        return ""
    ended_by_signal = status.exit_code > 128
    hint = "" if ended_by_signal else f"see {status.folder / 'run.log'}, "
    if is_lost:
        return f"{hint and hint + 'fix the cause and '}start the run again"
    return f"{hint and hint + 'then '}{resume}"
