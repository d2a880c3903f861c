"""Groups of runs differing only in seed, and the options in which groups differ.

Options do not identify everything: files and code are compared by their hashes. Code of a script or notebook
may depend on more than its hash covers, so its runs are repetitions only if their results agree (contract
C3).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedge.config.registers.option import ConfigError, shown
from fedge.config.registers.parts import CALLBACKS, TRACKERS
from fedge.config.registers.traits import GIVES_UP
from fedge.records.folder import has_code_of_script
from fedge.records.reading.costs import joules, virtual_seconds
from fedge.records.reading.reader import RunData
from fedge.report.sections.setup import PLACE_KEYS
from fedge.tasks.task import Score

_DIGITS = 16  # of a sha256
_CODE_OF_SCRIPT = "code of the script or notebook"
_SEED_TAIL = re.compile(r"[-_. ]?(seed|s)?[-_. ]?\d+$")


@dataclass(frozen=True)
class Group:
    """Repetitions of one run with different seeds.

    Attributes:
        label: common part of their names, or A, B, …
        runs: runs in order of seeds, one per seed.
        settings: settings common to all, by name: options, data, clients per leaf.
        missing: planned runs without a finished round.
    """

    label: str
    runs: Sequence[RunData]
    settings: Mapping[str, Any]
    missing: int = 0

    @property
    def score(self) -> Score:
        """Score by which its runs are compared: the first of their task."""
        return self.runs[0].score

    @property
    def finished(self) -> dict[int, RunData]:
        """Runs that reached their last round, by seed; only these have final numbers."""
        return {seed_of_run(run): run for run in self.runs if reached_end(run)}


def seed_of_run(run: RunData) -> int:
    """Seed of a run; −1 if unknown."""
    return int(run.manifest.get("seed", -1))


def reached_end(run: RunData) -> bool:
    """Whether a run has all of its rounds, or was ended by a callback or the limit of its virtual clock.

    A run given up, such as a poor trial of a search, did not reach its end.
    """
    if run.rounds.is_empty():
        return False
    return is_ended_early(run) or run.rounds["global_round"][-1] == run.config.get("num-server-rounds")


def is_ended_early(run: RunData) -> bool:
    """Whether a run completed before its last planned round, and was not given up."""
    ended_by = run.manifest.get("stopped", {}).get("by")  # a callback, or the limit of a virtual clock
    is_complete = ended_by is not None and run.status in ("completed", "partial")
    return is_complete and not CALLBACKS.has(ended_by, GIVES_UP)


def is_on_clock(group: Group) -> bool:
    """Whether all runs of a group have virtual time."""
    return all(virtual_seconds(run) is not None for run in group.runs)


def has_energy(group: Group) -> bool:
    """Whether the energy of a group's devices is known in every round."""
    return all(joules(run) is not None for run in group.runs)


def with_same_score(groups: Sequence[Group]) -> list[Group]:
    """Groups with the first one's score; groups of a sweep over tasks may have others."""
    return [group for group in groups if group.score.name == groups[0].score.name]


def settings_of(run: RunData) -> dict[str, Any]:
    """Settings of a run other than its seed."""
    settings = {k: v for k, v in run.config.items() if k not in (*PLACE_KEYS, "seed")}
    fingerprint = run.manifest.get("data", {}).get("fingerprint")
    if fingerprint:  # a path does not identify windows; their fingerprint does
        settings.pop("data.path", None)
        settings["data (sha256)"] = fingerprint[:_DIGITS]
    if start := run.manifest.get("start"):
        settings.pop("train.start", None)
        settings["train.start (sha256)"] = start[:_DIGITS]
    for option, sha256 in run.manifest.get("traces", {}).items():
        settings[f"{option} (sha256)"] = sha256[:_DIGITS]
    settings |= _code_of(run, is_known="data (sha256)" in settings)
    settings["clients per leaf"] = " ".join(map(str, run.manifest.get("clients_per_leaf", [])))
    return settings


def _code_of(run: RunData, is_known: bool) -> dict[str, str]:
    """Hashes of the code of a run's custom parts, by option.

    Args:
        run: the run.
        is_known: whether its windows are known, which makes the code that read them irrelevant.
    """
    unread = {TRACKERS.option, "data.path"} if is_known else {TRACKERS.option}
    return {
        f"code of {option} (sha256)": "".join(
            str(part.get(key, ""))[:_DIGITS] for key in ("version", "sha256", "object")
        )
        for option, part in run.manifest.get("parts", {}).items()
        if option not in unread
    }


def refuse_other_scores(runs: Sequence[RunData]) -> None:
    """Raise ConfigError unless all runs are compared by one score."""
    scored = {run.score.name: run for run in reversed(runs)}
    if len(scored) > 1:
        labels = {run.score.label for run in scored.values()}
        names = {
            name: run.score.label if len(labels) == len(scored) else shown(name)
            for name, run in scored.items()
        }
        listing = " and ".join(f"{run.name} has {names[name]}" for name, run in reversed(scored.items()))
        raise ConfigError(f"compared runs must have the same score, but {listing}; compare runs of one task")


def group_runs(runs: Sequence[RunData]) -> tuple[list[Group], list[str]]:
    """Groups in the order of their first runs, and runs left out, one line each.

    Raises:
        ConfigError: the runs have different scores.
    """
    refuse_other_scores(runs)
    alike: dict[str, list[dict[int, list[RunData]]]] = {}  # settings → groups: seed → repetitions
    for run in runs:
        groups = alike.setdefault(repr(sorted(settings_of(run).items())), [])
        there = next((group for group in groups if _may_join(run, group.get(seed_of_run(run), []))), None)
        if there is None:
            groups.append(there := {})
        there.setdefault(seed_of_run(run), []).append(run)
    found, left_out = [], []
    for groups in alike.values():
        for number, group in enumerate(groups, start=1):
            members = [max(earlier, key=_progress) for _, earlier in sorted(group.items())]
            more = {_CODE_OF_SCRIPT: f"version {number}"} if len(groups) > 1 else {}
            found.append((members, settings_of(members[0]) | more))
            left_out += [
                f"{run.name} repeats {kept.name}: same configuration and seed {seed_of_run(run)}"
                for kept in members
                for run in group[seed_of_run(kept)]
                if run is not kept
            ]
    place = {id(run): number for number, run in enumerate(runs)}
    found.sort(key=lambda one: min(place[id(run)] for run in one[0]))
    labels = _labels([members for members, _ in found])
    return [Group(label, *one) for label, one in zip(labels, found, strict=True)], left_out


def _may_join(run: RunData, same: Sequence[RunData]) -> bool:
    """Whether a run belongs to a group in which runs `same` have its settings and seed."""
    return not same or not has_code_of_script(run.config) or _agree(run, same[0])


def _agree(run: RunData, other: RunData) -> bool:
    """Whether two runs have the same results in their common rounds."""
    names = [name for name in run.rounds.columns if name in other.rounds.columns and name != "seconds"]
    rounds = min(len(run.rounds), len(other.rounds))
    return run.rounds.select(names).head(rounds).equals(other.rounds.select(names).head(rounds))


def _progress(run: RunData) -> tuple[bool, int]:
    """Rank of a run among its repetitions."""
    return reached_end(run), len(run.rounds)


def _labels(groups: Sequence[Sequence[RunData]]) -> list[str]:
    """Short names of groups: their runs' common name without the seed, if unique; else letters."""
    stems = [{_SEED_TAIL.sub("", run.name) for run in members} for members in groups]
    names = [stem.pop() if len(stem) == 1 else "" for stem in stems]
    if all(names) and len(set(names)) == len(names) and not any(re.match(r"\d{8}-", name) for name in names):
        return names
    return [_letters(index) for index in range(len(groups))]


def _letters(index: int) -> str:
    """A, B, …, Z, AA, AB, …"""
    prefix = _letters(index // 26 - 1) if index >= 26 else ""
    return prefix + chr(ord("A") + index % 26)


def differing_settings(groups: Sequence[Group]) -> dict[str, list[Any]]:
    """Settings in which groups differ: name → value per group (None if it has none)."""
    names = list(dict.fromkeys(name for group in groups for name in group.settings))
    table = {name: [group.settings.get(name) for group in groups] for name in names}
    return {name: values for name, values in table.items() if len(set(map(repr, values))) > 1}


def mixed_settings(group: Group) -> list[str]:
    """Files and code in which a group's runs differ; groups of a sweep are formed by name."""
    found = [settings_of(run) for run in group.runs]
    names = dict.fromkeys(name for settings in found for name in settings if name.endswith("(sha256)"))
    return [name for name in names if len({settings.get(name) for settings in found}) > 1]
