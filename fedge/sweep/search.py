"""[search] of a sweep file: trials whose options Optuna draws, a batch at a time.

    [search]
    sampler = "tpe"                          # or "random"
    trials = 30
    batch = 5                                # trials drawn from the same knowledge
    prune-after = 5                          # trials after which poor ones are ended early; 0: none

    [search.space]
    train.lr = { low = 0.001, high = 0.1, log = true }
    train.local-epochs = { low = 1, high = 5 }
    train.model = ["cnn", "cnn-pool"]

Each trial has one run per seed. Its value is the mean validation score after the last round; test scores are
never used. The draws of a batch depend only on the file and on the results of earlier batches, so they are
the same for any number of processes.

Sources: J. Bergstra et al., "Algorithms for hyper-parameter optimization", 2011 (TPE). D. Golovin et al.,
"Google Vizier", 2017 (median stopping).
"""

import importlib.util
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

from fedge.config.flat import fold_tables
from fedge.config.registers.option import ConfigError, Scalar, arguments_of, nearest, shown
from fedge.launch.projects.project import read_toml
from fedge.sweep.plan import (
    Axis,
    AxisEntry,
    PlannedRun,
    Sweep,
    check_options,
    planned_run,
    prefix_errors,
    read_entry,
    read_head,
    refuse_unknown_keys,
    run_name,
)

SAMPLERS = ("random", "tpe")
AXIS = "trials"
_KEYS = ("sampler", "trials", "batch", "seed", "prune-after", "space")
_RANGE_KEYS = {"low", "high", "log"}
_MOST_TRIALS = 1000
_MOST_CORNERS = 512  # each takes some milliseconds to check


@dataclass(frozen=True)
class Range:
    """Values of an option: from low to high, both included, or a list of choices.

    Attributes:
        low, high: both whole numbers, or both floats.
        is_log: whether to draw uniformly on a logarithmic scale.
        choices: values to choose from, in place of low and high.
    """

    low: float = 0.0
    high: float = 0.0
    is_log: bool = False
    choices: tuple[Scalar, ...] = ()

    @property
    def ends(self) -> tuple[Scalar, ...]:
        """Values checked before anything starts."""
        return self.choices or (self.low, self.high)


@dataclass(frozen=True)
class Search:
    """[search] of a sweep file, checked.

    Attributes:
        path: path of the file.
        head: table [sweep].
        base: table [base].
        sampler: one of `SAMPLERS`.
        trials: total number of trials.
        batch: trials drawn from the same results.
        seed: seed of the draws.
        prune_after: number of complete trials after which poor ones are pruned; 0: none.
        space: option → its range.
    """

    path: Path
    head: Mapping[str, Any]
    base: AxisEntry
    sampler: str
    trials: int
    batch: int
    seed: int
    prune_after: int
    space: Mapping[str, Range]

    @property
    def folder(self) -> Path:
        """Folder of its runs."""
        return Path(self.head["runs-dir"]) / str(self.head["name"])


@dataclass(frozen=True)
class Trial:
    """An ended trial.

    Attributes:
        options: its drawn options.
        state: "complete", "pruned" (ended early) or "failed".
        value: mean validation score over the seeds; None for a failed trial.
        course: seed → {global round: best validation score so far}.
    """

    options: Mapping[str, Scalar]
    state: Literal["complete", "pruned", "failed"]
    value: float | None
    course: Mapping[int, Mapping[int, float]]


def has_search(path: Path) -> bool:
    """Whether a sweep file has a table [search]."""
    return isinstance(read_toml(path, "the sweep file").get("search"), Mapping)


def read_search(path: Path) -> Search:
    """Read a sweep file with a table [search], and check a run at each corner of its space.

    Raises:
        ConfigError: the file is invalid (the message names the place), or Optuna is not installed.
    """
    tables = read_toml(path, "the sweep file")
    with prefix_errors(str(path)):
        axes = [name for name in tables if name not in ("sweep", "base", "search")]
        if axes:
            raise ConfigError(
                f"[search] must be the only axis of a sweep, but the file also has [{axes[0]}]; "
                f"list its values in [search.space]"
            )
        head = read_head(tables.get("sweep"), path)
        base = read_entry(tables.get("base", {}), "[base]", has_name=False)
        with prefix_errors("[search]"):
            table = {"sampler": "tpe", "batch": 1, "seed": 0, "prune-after": 0, **tables["search"]}
            search = _parse_search(path, head, base, table)
        for values in _corners(search.space):
            options = dict(zip(search.space, values, strict=True))
            planned_run(head, search.folder, [Axis(AXIS, [])], base, [AxisEntry("trial", own=options)], 0)
    require_optuna()
    return search


def _corners(space: Mapping[str, Range]) -> Sequence[Sequence[Scalar]]:
    """Values at the corners of a space, including all choices; only the first and last of too many."""
    ends = [values.ends for values in space.values()]
    if math.prod(map(len, ends)) > _MOST_CORNERS:
        return [[values[0] for values in ends], [values[-1] for values in ends]]
    return list(product(*ends))


def require_optuna() -> None:
    """Raise ConfigError if Optuna is not installed."""
    if importlib.util.find_spec("optuna") is None:
        raise ConfigError(
            "[search] draws its trials with Optuna, but the package optuna is not installed; "
            "pip install 'fedge[search]'"
        )


def _parse_search(path: Path, head: Mapping[str, Any], base: AxisEntry, table: Mapping[str, Any]) -> Search:
    """[search] as a checked object."""
    refuse_unknown_keys(table, _KEYS)
    if table["sampler"] not in SAMPLERS:
        raise ConfigError(
            f"sampler must be {' or '.join(SAMPLERS)}, but is {shown(table['sampler'])}"
            f"{nearest(str(table['sampler']), SAMPLERS)}"
        )
    trials = _read_integer(table, "trials", 1, _MOST_TRIALS)
    space = table.get("space")
    if not isinstance(space, Mapping) or not space:
        raise ConfigError(
            f"space must be a table of ranges, e.g. train.lr = {{ low = 0.001, high = 0.1 }}, but "
            f"{'is missing' if space is None else f'is {shown(space)}'}"
        )
    with prefix_errors("space"):
        ranges = dict(_read_ranges(space, ""))
        check_options(ranges)
    return Search(
        path,
        head,
        base,
        str(table["sampler"]),
        trials,
        _read_integer(table, "batch", 1, _MOST_TRIALS),
        _read_integer(table, "seed", 0, 2**32 - 1),
        _read_integer(table, "prune-after", 0, _MOST_TRIALS),
        ranges,
    )


def _read_integer(table: Mapping[str, Any], key: str, least: int, most: int) -> int:
    """A checked whole number."""
    value = table.get(key)
    if type(value) is not int or not least <= value <= most:
        raise ConfigError(
            f"{key} must be a whole number from {least} to {most}, but "
            f"{'is missing' if value is None else f'is {shown(value)}'}"
        )
    return value


def _read_ranges(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Range]]:
    """Every option of [search.space] with its range."""
    for name, value in table.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and not value.keys() & _RANGE_KEYS:
            yield from _read_ranges(value, f"{key}.")
        elif isinstance(value, Mapping):
            yield key, _read_range(key, value)
        elif isinstance(value, list) and len(value) > 1 and all(isinstance(v, Scalar) for v in value):
            yield key, Range(choices=tuple(value))
        else:
            raise ConfigError(
                f"{key} must be a range, e.g. {{ low = 1, high = 5 }}, or a list of at least two values, but "
                f"is {shown(value)}"
            )


def _read_range(key: str, value: Mapping[str, Any]) -> Range:
    """Range from its table."""
    with prefix_errors(key):
        refuse_unknown_keys(value, sorted(_RANGE_KEYS))
        low: Any = value.get("low")
        high: Any = value.get("high")
        is_log = value.get("log", False)
        are_numbers = all(type(end) in (int, float) and math.isfinite(end) for end in (low, high))
        if not are_numbers or not low < high or type(low) is not type(high):
            raise ConfigError(
                f"low and high must be two whole numbers, or two with a decimal point, and low the smaller, "
                f"but are {shown(low)} and {shown(high)}"
            )
        if type(is_log) is not bool or (is_log and low <= 0):
            raise ConfigError(
                f"log must be true or false, and true needs low above 0, but is {shown(is_log)} with low "
                f"{shown(low)}"
            )
    return Range(low, high, is_log)


# --- runs ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DrawnTrial:
    """A drawn trial.

    Attributes:
        options: its drawn options.
        floors: seed → {global round: least validation score}; empty without pruning.
    """

    options: Mapping[str, Scalar]
    floors: Mapping[int, Mapping[str, float]]


def label_of(number: int) -> str:
    """Name of a trial in its runs' names; trials count from 0."""
    return f"t{number:03d}"


def run_folder(search: Search, number: int, seed: int) -> Path:
    """Folder of a trial's run with a seed."""
    return search.folder / run_name(label_of(number), seed)


def sweep_of(search: Search, drawn: Sequence[DrawnTrial]) -> Sweep:
    """Sweep of all drawn trials as its one axis, in their order."""
    entries = [AxisEntry(label_of(number), own=trial.options) for number, trial in enumerate(drawn)]
    axis = Axis(AXIS, entries)
    runs: list[PlannedRun] = []
    for entry, trial in zip(entries, drawn, strict=True):
        for seed in search.head["seeds"]:
            base = search.base
            merged = {**base.from_file, **base.own, **entry.own}
            options = with_floors({**_callback_options(merged), **entry.own}, trial.floors.get(seed, {}))
            runs.append(
                planned_run(
                    search.head, search.folder, [axis], base, [AxisEntry(entry.name, own=options)], seed
                )
            )
    head = search.head
    return Sweep(
        search.path, head["name"], search.folder, [axis], head["seeds"], runs, head["keep-checkpoints"], []
    )


def _callback_options(options: Mapping[str, Any]) -> dict[str, Scalar]:
    """Options `callbacks` and `callbacks-args`, each folded into one text."""
    folded = fold_tables(options)
    return {key: folded[key] for key in ("callbacks", "callbacks-args") if key in folded}


def with_floors(options: Mapping[str, Scalar], least: Mapping[str, float]) -> dict[str, Scalar]:
    """Options with a callback to end the run when its validation score stays below `least`."""
    if not least:
        return dict(options)
    names = [str(options["callbacks"])] if options.get("callbacks") else []
    arguments = arguments_of(str(options.get("callbacks-args", "")), "callbacks-args")
    return {
        **options,
        "callbacks": ",".join([*names, "floor"]),
        "callbacks-args": json.dumps({**arguments, "floor": {"floors": dict(least)}}),
    }
