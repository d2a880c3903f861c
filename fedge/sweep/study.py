"""Plan of a sweep, kept in its folder, so comparing the sweep needs only the folder.

``plan.json`` has the axes with their entries in the order of the file, and the point of every run.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedge.config.registers.option import ConfigError
from fedge.process.durable import write_output
from fedge.process.escape import read_json
from fedge.records.folder import short
from fedge.sweep.plan import Sweep

PLAN = "plan.json"


@dataclass(frozen=True)
class StudyRun:
    """Run of a study and its point on the axes.

    Attributes:
        name: name of its folder.
        point: axis → entry, by name.
        seed: seed of the run.
        folder: path of its folder.
    """

    name: str
    point: Mapping[str, str]
    seed: int
    folder: Path


@dataclass(frozen=True)
class StudyPlan:
    """Plan of a sweep without its configurations.

    Attributes:
        name: name of the sweep.
        source: path of its file when last carried out.
        folder: folder of its runs.
        axes: axis → its entries, in the order of the file; the first axis is compared, with its first entry
            as the reference.
        seeds: seeds, in the order of the file.
        runs: runs, in the order of the plan.
    """

    name: str
    source: str
    folder: Path
    axes: Mapping[str, Sequence[str]]
    seeds: Sequence[int]
    runs: Sequence[StudyRun]


def study_of(sweep: Sweep) -> StudyPlan:
    """Plan of a sweep read from its file."""
    return StudyPlan(
        sweep.name,
        str(sweep.path),
        sweep.folder,
        {axis.name: [entry.name for entry in axis.entries] for axis in sweep.axes},
        list(sweep.seeds),
        [StudyRun(run.name, run.point, run.seed, run.folder) for run in sweep.runs],
    )


def keep_study(study: StudyPlan) -> None:
    """Write `PLAN` into the sweep's folder; safe if tasks on several machines do so at the same time.

    Raises:
        OSError: the file cannot be written.
    """
    content = {
        "name": study.name,
        "source": study.source,
        "axes": study.axes,
        "seeds": study.seeds,
        "runs": [{"run": run.name, "point": run.point, "seed": run.seed} for run in study.runs],
    }
    write_output(study.folder / PLAN, (json.dumps(content, indent=1) + "\n").encode())


def kept_study(folder: Path) -> StudyPlan | None:
    """Plan kept in a folder; None without one.

    Raises:
        ConfigError: the file was not written by `keep_study`.
    """
    path = folder / PLAN
    if not path.is_file():
        return None
    try:
        return _parse_plan(folder, read_json(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(
            f"{short(path)} must be readable, but: {error.strerror or error}; change that and repeat"
        ) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(
            f"{short(path)} must be written by fedge sweep, but cannot be read: {type(error).__name__}: "
            f"{error}; repeat the sweep, which keeps its runs"
        ) from error


def _parse_plan(folder: Path, content: Mapping[str, Any]) -> StudyPlan:
    """Plan from the content of its file."""
    axes = {str(axis): [str(entry) for entry in entries] for axis, entries in content["axes"].items()}
    runs = []
    for run in content["runs"]:
        name, point = str(run["run"]), {axis: str(run["point"][axis]) for axis in axes}
        if Path(name).name != name:
            raise ValueError(f"{name!r} is not a folder's name")
        runs.append(StudyRun(name, point, int(run["seed"]), folder / name))
    seeds = [int(seed) for seed in content["seeds"]]
    return StudyPlan(str(content["name"]), str(content["source"]), folder, axes, seeds, runs)
