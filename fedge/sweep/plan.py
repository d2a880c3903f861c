"""A sweep file, and the runs it defines: every combination of its axes, with every seed.

    [sweep]                                  # name (default: the file's), seeds, supernodes, runs-dir
    seeds = [1, 2, 3]

    [base]                                   # options of all runs, and `config`, a file of options
    num-server-rounds = 30

    [[variants]]                             # an axis: any [[table]]; one entry of each axis per run
    name = "hierfl"
    config = "configs/hierfl.toml"        # or one that comes with Fedge: "fedge:hierfl"

    [[variants]]
    name = "fedge-0.9"
    cluster.tau = 0.9

    [grid]                                   # one more axis: every combination of the values
    train.lr = [0.01, 0.05]

Options in the sweep file itself win over the files named there; within each, later axes win over earlier ones
and over [base]. Paths are relative to the working directory, as with ``-c``. Nothing is run or written here.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, count, product
from pathlib import Path
from typing import Any

from fedge.config.config import Config
from fedge.config.flat import check_keys, fold_tables, from_run_config
from fedge.config.registers.option import ConfigError, Scalar, nearest, shown
from fedge.launch.projects.packaged import PREFIX
from fedge.launch.projects.project import flatten, read_config, read_toml

# Defaults for runs of a sweep: no report each, and a checkpoint only every ten rounds.
DEFAULTS: Mapping[str, Scalar] = {"report": False, "checkpoint.every": 10, "checkpoint.keep": 1}

_MOST_RUNS = 10_000  # each has a folder, and takes milliseconds to check before the first starts
COLUMNS = frozenset(
    {
        *("run", "seed", "status", "metric", "group", "seeds", "n", "mean", "std", "low", "high"),
        *("reference", "n_pairs", "difference", "difference_low", "difference_high"),
    }
)
"""Columns of runs.csv and sweep.csv beside those named for axes and metrics."""
_OWN_TABLES = ("sweep", "base", "grid")
_SWEEP_KEYS = ("name", "seeds", "supernodes", "runs-dir", "keep-checkpoints")
_ENTRY_KEYS = ("name", "config", "supernodes")
_SET_BY_SWEEP = {
    "seed": "[sweep] seeds",
    "runs-dir": "[sweep] runs-dir",
    "run-name": "the names of the entries",
    "resume": "the same command again, which resumes by itself",
}
_LONGEST_NAME = 100  # characters; a folder's name joins several entries and a seed
_NAME = re.compile(r"[A-Za-z0-9][\w.+=,-]*", re.ASCII)  # needs no quoting in a shell
_NUMBERS = re.compile(r"(?:[\d\s.,:;]|all)+")  # no path, but as "2, 0.5, all" of hierarchy.participation


@dataclass(frozen=True)
class AxisEntry:
    """One entry on an axis.

    Attributes:
        name: name used in the names of runs; empty for [base].
        file: file of options it names, or "".
        from_file: options of that file.
        own: options in the sweep file.
        supernodes: number of clients; None if not given.
    """

    name: str
    file: str = ""
    from_file: Mapping[str, Scalar] = field(default_factory=dict)
    own: Mapping[str, Scalar] = field(default_factory=dict)
    supernodes: int | None = None


@dataclass(frozen=True)
class Axis:
    """Axis of a sweep; every run has one of its entries."""

    name: str
    entries: Sequence[AxisEntry]


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep.

    Attributes:
        label: names of its entries, joined; the same for all seeds.
        point: axis → entry, by name.
        seed: seed of the run.
        supernodes: number of clients; 0 to derive it from the data (`fedge.sweep.run_states`).
        folder: the run folder.
        run_config: its options, flat, including seed and folder.
        config: the same options, checked.
    """

    label: str
    point: Mapping[str, str]
    seed: int
    supernodes: int
    folder: Path
    run_config: Mapping[str, Scalar]
    config: Config

    @property
    def name(self) -> str:
        """Name of the run folder."""
        return self.folder.name


@dataclass(frozen=True)
class Sweep:
    """A sweep file, checked.

    Attributes:
        path: path of the file.
        name: name of the sweep.
        folder: folder of its runs and comparison.
        axes: axes, in the order of the file; the entries of the first are compared.
        seeds: seeds, in the order of the file.
        runs: all with the first seed, then all with the second, …, for an early first comparison.
        keep_checkpoints: whether completed runs keep checkpoints, needed to raise their number of rounds.
        notes: options of named files overridden by the sweep file, one line each.
    """

    path: Path
    name: str
    folder: Path
    axes: Sequence[Axis]
    seeds: Sequence[int]
    runs: Sequence[PlannedRun]
    keep_checkpoints: bool
    notes: Sequence[str]


def read_sweep(path: Path) -> Sweep:
    """Read a sweep file and build the configuration of every run.

    Raises:
        ConfigError: the file or one of the runs is invalid; the message names the place.
    """
    tables = read_toml(path, "the sweep file")
    with prefix_errors(str(path)):
        head = read_head(tables.get("sweep"), path)
        base = read_entry(tables.get("base", {}), "[base]", has_name=False)
        axes = [_read_axis(name, table) for name, table in tables.items() if name not in ("sweep", "base")]
        _refuse_too_many("seeds × entries of every axis", [head["seeds"], *(axis.entries for axis in axes)])
        combinations = list(product(*(axis.entries for axis in axes)))
        folder = Path(head["runs-dir"]) / head["name"]
        runs = [
            planned_run(head, folder, axes, base, entries, seed)
            for seed in head["seeds"]
            for entries in combinations
        ]
        _refuse_equal_names([run.name for run in runs])
        notes = dict.fromkeys(note for entries in combinations for note in _override_notes(base, entries))
        return Sweep(
            path, head["name"], folder, axes, head["seeds"], runs, head["keep-checkpoints"], list(notes)
        )


@contextmanager
def prefix_errors(place: str) -> Iterator[None]:
    """Context prefixing every ConfigError with its place."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from error


# --- [sweep] ------------------------------------------------------------------------------------------


def read_head(table: Any, path: Path) -> dict[str, Any]:
    """The checked keys of [sweep], including defaults."""
    if not isinstance(table, Mapping):
        raise ConfigError("a sweep file must have a table [sweep] with seeds; e.g. seeds = [1, 2, 3]")
    with prefix_errors("[sweep]"):
        refuse_unknown_keys(table, _SWEEP_KEYS)
        defaults = {
            "name": path.stem, "runs-dir": "runs", "keep-checkpoints": False,
        }  # fmt: skip
        head = {**defaults, **table}
        _refuse_name("name", head["name"])
        head["seeds"] = _check_seeds(head.get("seeds"))
        head["supernodes"] = _check_supernodes(head["supernodes"]) if "supernodes" in head else 0
        if type(head["keep-checkpoints"]) is not bool:
            raise ConfigError(
                f"keep-checkpoints must be true or false, but is {shown(head['keep-checkpoints'])}"
            )
        from_run_config({"runs-dir": head["runs-dir"]})
    return head


def _check_seeds(value: Any) -> list[int]:
    """The checked seeds."""
    is_valid = isinstance(value, list) and value and all(type(seed) is int and seed >= 0 for seed in value)
    if not is_valid or len(set(value)) < len(value):
        problem = "is missing" if value is None else f"is {shown(value)}"
        raise ConfigError(
            f"seeds must be a list of different whole numbers of at least 0, but {problem}; "
            f"e.g. seeds = [1, 2, 3]"
        )
    return list(value)


def _check_supernodes(value: Any) -> int:
    """A checked number of clients."""
    if type(value) is not int or value < 1:
        raise ConfigError(
            f"supernodes, the number of clients, must be a whole number of at least 1, but is {shown(value)}"
        )
    return value


# --- axes ---------------------------------------------------------------------------------------------


def _read_axis(name: str, table: Any) -> Axis:
    """[grid] or an array of tables as an axis."""
    if name in COLUMNS:
        raise ConfigError(
            f"[{name}] must have another name, because the tables of a sweep have a column {name} of their "
            f"own; write for example [[my-{name}]]"
        )
    if name == "grid":
        return Axis(name, _read_grid(table))
    if not (isinstance(table, list) and table and all(isinstance(entry, Mapping) for entry in table)):
        hint = nearest(name, list(_OWN_TABLES)) or f"; write an axis as [[{name}]], once per entry"
        raise ConfigError(f"[{name}] is not a table of a sweep file{hint}")
    entries = [
        read_entry(entry, f"[[{name}]] number {number}" if len(table) > 1 else f"[[{name}]]")
        for number, entry in enumerate(table, start=1)
    ]
    with prefix_errors(f"[[{name}]]"):
        _refuse_equal_names([entry.name for entry in entries])
    return Axis(name, entries)


def read_entry(table: Any, place: str, has_name: bool = True) -> AxisEntry:
    """An entry of an axis, or [base], which has no name."""
    with prefix_errors(place):
        if not isinstance(table, Mapping):
            raise ConfigError(f"it must be a table of options, but is {shown(table)}")
        if not has_name and "name" in table:
            raise ConfigError("name belongs in [sweep]")
        file = table.get("config", "")
        if not isinstance(file, str):
            raise ConfigError(f"config must be the name of a TOML file, but is {shown(file)}")
        name = table.get("name", Path(file.removeprefix(PREFIX)).stem)
        if has_name:
            _refuse_name("name", name)
        clients = table.get("supernodes")
        options = flatten({key: value for key, value in table.items() if key not in _ENTRY_KEYS})
        check_options(options, also=_ENTRY_KEYS)
        return AxisEntry(
            name, file, _load_options(file), options, None if clients is None else _check_supernodes(clients)
        )


def _load_options(file: str) -> dict[str, Scalar]:
    """Options of a configuration file; empty without one."""
    if not file:
        return {}
    options = read_config(file, "config")
    with prefix_errors(file):
        check_options(options)
    return options


def _read_grid(table: Any) -> list[AxisEntry]:
    """Every combination of the values in [grid]."""
    with prefix_errors("[grid]"):
        if not isinstance(table, Mapping) or not table:
            raise ConfigError(
                f"it must be a table of lists, e.g. train.lr = [0.01, 0.05], but is {shown(table)}"
            )
        lists: dict[str, Any] = flatten(table)
        check_options(lists)
        for key, values in lists.items():
            if not isinstance(values, list) or not values:
                raise ConfigError(
                    f"{key} must be a list of values, but is {shown(values)}; write {key} = [...]"
                )
        _refuse_too_many("its combinations", list(lists.values()))
        for key, values in lists.items():
            _refuse_equal_values(key, values)
        short = _short_keys(list(lists))
        words = [[f"{short[key]}={word}" for word in _folder_words(values)] for key, values in lists.items()]
        return [
            AxisEntry("-".join(names), own=dict(zip(lists, values, strict=True)))
            for names, values in zip(product(*words), product(*lists.values()), strict=True)
        ]


def _refuse_equal_values(key: str, values: Sequence[Any]) -> None:
    """Raise ConfigError if two values of an option are the same setting; true is not 1."""
    seen = set()
    for value in values:
        setting = value if type(value) in (int, float) else repr(value)
        if setting in seen:
            raise ConfigError(f"values of {key} must differ, but {shown(value)} occurs twice; remove one")
        seen.add(setting)


def _short_keys(keys: Sequence[str]) -> dict[str, str]:
    """Key → its last part, or the whole key if two have the same last part."""
    tails = [key.rpartition(".")[2] for key in keys]
    return {key: tail if tails.count(tail) == 1 else key for key, tail in zip(keys, tails, strict=True)}


def _folder_words(values: Sequence[Any]) -> list[str]:
    """Values as parts of folders' names; a number is appended if a value reads like an earlier one."""
    names: dict[str, None] = {}
    for value in values:
        word = _folder_word(value)
        numbered = (f"{word}.{number}" for number in count(2))
        names[next(name for name in chain([word], numbered) if name not in names)] = None
    return list(names)


def _folder_word(value: Any) -> str:
    """A value as part of a folder's name; for a path, the file's name."""
    is_path = isinstance(value, str) and not _NUMBERS.fullmatch(value)
    text = Path(value).stem if is_path else value if isinstance(value, str) else json.dumps(value)
    return re.sub(r"[^\w.+-]+", "_", text, flags=re.ASCII)


def check_options(options: Mapping[str, Any], also: Sequence[str] = ()) -> None:
    """Raise ConfigError for a key that is no option, or is set by the sweep itself."""
    for key in options:
        if key in _SET_BY_SWEEP:
            raise ConfigError(f"{key} is set by the sweep; use {_SET_BY_SWEEP[key]}")
        hint = nearest(key, list(also)) if "." not in key else ""
        try:
            check_keys([key])
        except ConfigError as error:
            raise ConfigError(f"{key} is not a configuration key{hint}") if hint else error from None


def refuse_unknown_keys(table: Mapping[str, Any], allowed: Sequence[str]) -> None:
    """Raise ConfigError for an unknown key."""
    for key in table:
        if key not in allowed:
            hint = nearest(key, list(allowed)) or f"; it may have {', '.join(allowed)}"
            raise ConfigError(f"{key} is not known here{hint}")


def _refuse_name(key: str, name: Any) -> None:
    """Raise ConfigError for a name unsuitable as part of a folder's name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        raise ConfigError(
            f"{key} must be letters, digits and any of _ . + = , -, of ASCII and at most {_LONGEST_NAME} (it "
            f'becomes part of a folder\'s name), but is {shown(name)}; e.g. {key} = "tau-0.9"'
        )


def _refuse_too_many(subject: str, lists: Sequence[Sequence[Any]]) -> None:
    """Raise ConfigError if lists have more combinations than a sweep may have runs."""
    count = math.prod(map(len, lists))
    if count > _MOST_RUNS:
        raise ConfigError(
            f"{subject} must be at most {_MOST_RUNS} runs, but are {count}; split the sweep into several"
        )


def _refuse_equal_names(names: Sequence[str]) -> None:
    """Raise ConfigError if two entries or runs have the same name."""
    duplicate = (
        next((name for name in names if names.count(name) > 1), None)
        if len(set(names)) < len(names)
        else None
    )
    if duplicate is not None:
        raise ConfigError(f"names must differ, but {duplicate} occurs twice; rename one of them")


# --- runs ---------------------------------------------------------------------------------------------


def planned_run(
    head: Mapping[str, Any],
    folder: Path,
    axes: Sequence[Axis],
    base: AxisEntry,
    entries: Sequence[AxisEntry],
    seed: int,
) -> PlannedRun:
    """Run of one combination and one seed."""
    label = "-".join(entry.name for entry in entries) or head["name"]
    name = run_name(label, seed)
    options = _merge_options(base, entries)
    clients = _count_clients(head, options.get("clients"), (base, *entries))
    client_option = {"clients": clients} if clients and "clients" in options else {}
    run_config = fold_tables(
        {**options, **client_option, "seed": seed, "runs-dir": str(folder), "run-name": name}
    )
    with prefix_errors(name):
        config = from_run_config(run_config)
        return PlannedRun(
            label=label,
            point={axis.name: entry.name for axis, entry in zip(axes, entries, strict=True)},
            seed=seed,
            supernodes=clients,
            folder=folder / name,
            run_config=run_config,
            config=config,
        )


def run_name(label: str, seed: int) -> str:
    """Name of a run, and of its folder in the sweep's."""
    return f"{label}-seed{seed}"


def _count_clients(head: Mapping[str, Any], option: Any, entries: Sequence[AxisEntry]) -> int:
    """Number of clients: the last one given by [base] or an entry, as `supernodes` or as option `clients`.

    Args:
        head: [sweep], whose `supernodes` is the default; 0 if none is given.
        option: option `clients` of all files and entries, which takes precedence over [sweep].
        entries: [base], then the entries.
    """
    entry_counts = [count for entry in entries for count in (entry.own.get("clients"), entry.supernodes)]
    numbers = [count for count in (head["supernodes"], option, *entry_counts) if type(count) is int]
    return numbers[-1]


def _merge_options(base: AxisEntry, entries: Sequence[AxisEntry]) -> dict[str, Scalar]:
    """Options of a combination: those of named files first, then those of the sweep file."""
    options = dict(DEFAULTS)
    for entry in (base, *entries):
        options.update(entry.from_file)
    for entry in (base, *entries):
        options.update(entry.own)
    return options


def _override_notes(base: AxisEntry, entries: Sequence[AxisEntry]) -> Iterator[str]:
    """Notes on options of a named file overridden elsewhere in the sweep file."""
    options = _merge_options(base, entries)
    for entry in (base, *entries):
        for key, value in entry.from_file.items():
            if options[key] != value and key not in entry.own and any(key in e.own for e in (base, *entries)):
                yield f"{key} = {json.dumps(options[key])} overrides {json.dumps(value)} of {entry.file}"
