"""Search: one batch of trials after another, each drawn from the results of earlier batches.

``trials.json`` in the sweep's folder has the draws, written before a batch starts, so an interrupted search
resumes with the same trials, and their number can be raised later. ``trials.csv`` has options, state and
value of every trial, ``best.toml`` the options of the best one, for ``fedge run -c``.
"""

import csv
import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from fedge.config.flat import fold_tables
from fedge.config.registers.option import ConfigError, Scalar, shown
from fedge.process.durable import output_file, write_bytes
from fedge.process.escape import escape_cells, read_json, toml_value
from fedge.process.resources.room import remedy
from fedge.records.folder import short, write_json
from fedge.records.manifest import MANIFEST
from fedge.records.reading.reader import RunData, load_run
from fedge.report.comparison.groups import reached_end
from fedge.sweep.draws import draw, floors
from fedge.sweep.plan import Sweep
from fedge.sweep.pool import RunOutcome
from fedge.sweep.run_states import RunStanding, standings
from fedge.sweep.search import DrawnTrial, Search, Trial, label_of, run_folder, sweep_of

DRAWS, TRIALS, BEST = "trials.json", "trials.csv", "best.toml"

Carry = Callable[[Sweep, Sequence[RunStanding]], Iterable[RunOutcome]]


def read_draws(search: Search) -> list[DrawnTrial]:
    """Trials already drawn, from a search's folder, in order; empty in a new folder.

    Raises:
        ConfigError: the trials belong to another search, or cannot be read.
    """
    path = search.folder / DRAWS
    if not path.is_file():
        return []
    try:
        content = read_json(path.read_text(encoding="utf-8"))
        old = dict(content["search"])
        trials = [
            DrawnTrial(
                dict(trial["options"]), {int(seed): dict(least) for seed, least in trial["floors"].items()}
            )
            for trial in content["trials"]
        ]
    except OSError as error:  # whole, perhaps: no reason to remove it
        raise ConfigError(
            f"{short(path)} must be readable, but: {error.strerror or error}; change that and repeat"
        ) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(
            f"{short(path)} must be written by fedge sweep, but cannot be read: {type(error).__name__}: "
            f"{error}; give the sweep another name, or remove its folder"
        ) from error
    new = _fixed_parts(search)
    space = old.get("space")
    space = space if isinstance(space, Mapping) else {}
    for option in sorted({*new["space"], *space}):
        old_range, new_range = space.get(option), new["space"].get(option)
        if old_range != new_range:
            raise ConfigError(
                f"[search.space] must be that of the first command in {short(search.folder)}, but {option} "
                f"is {_range_text(new_range)}, was {_range_text(old_range)}; give the sweep another name"
            )
    for key, value in new.items():
        if old.get(key) != value:
            raise ConfigError(
                f"[search] {key} must be that of the first command in {short(search.folder)}, "
                f"{shown(old.get(key))}, but is {shown(value)}; give the sweep another name"
            )
    return trials[: search.trials]


def _fixed_parts(search: Search) -> dict[str, Any]:
    """Parts of [search] that must not change between commands; the number of trials may change."""
    space = {key: asdict(values) for key, values in search.space.items()}
    parts = {
        "sampler": search.sampler,
        "batch": search.batch,
        "seed": search.seed,
        "prune-after": search.prune_after,
        "seeds": list(search.head["seeds"]),
        "space": space,
    }
    return dict(json.loads(json.dumps(parts)))


def _range_text(values: Any) -> str:
    """A range of `_fixed_parts` in words; "nothing" without one."""
    if not isinstance(values, Mapping):
        return "nothing" if values is None else shown(values)
    if values.get("choices"):
        return shown(values["choices"])
    return f"{values.get('low')} to {values.get('high')}" + (
        " on a logarithmic scale" if values.get("is_log") else ""
    )


def next_batch(search: Search, drawn: Sequence[DrawnTrial]) -> list[DrawnTrial]:
    """Trials of the next batch, limited by the number of trials left."""
    offset = len(drawn) % search.batch  # above 0 if the number of trials was raised
    trials = trials_of(search, drawn[: len(drawn) - offset])
    count = min(search.batch - offset, search.trials - len(drawn))
    seeds = search.head["seeds"]
    limits = {seed: floors(search, trials, seed) for seed in seeds} if search.prune_after else {}
    options_drawn = draw(search, trials, _maximizes(search, drawn), offset + count)
    return [DrawnTrial(options, limits) for options in options_drawn[offset:]]


def search_through(search: Search, drawn: list[DrawnTrial], carry_out: Carry) -> Sweep:
    """Carry out all trials of a search; returns the sweep they form.

    Args:
        search: the search.
        drawn: trials drawn so far; extended in place.
        carry_out: function carrying out runs and yielding each as it ends.

    Raises:
        ConfigError: a run cannot work, or exists with another configuration.
    """
    started = 0
    while started < search.trials:
        if started == len(drawn):
            drawn += next_batch(search, drawn)
            write_draws(search, drawn)
        sweep = sweep_of(search, drawn)
        names = {label_of(number) for number in range(started, len(drawn))}
        batch = replace(sweep, runs=[run for run in sweep.runs if run.label in names])
        for _ in carry_out(sweep, standings(batch)):
            pass
        started = len(drawn)
    return sweep_of(search, drawn)


def write_draws(search: Search, drawn: Sequence[DrawnTrial]) -> None:
    """Write `DRAWS`.

    Raises:
        ConfigError: the file cannot be written.
    """
    trials = [{"options": trial.options, "floors": trial.floors} for trial in drawn]
    try:
        search.folder.mkdir(parents=True, exist_ok=True)
        write_json(search.folder / DRAWS, {"search": _fixed_parts(search), "trials": trials}, indent=1)
    except OSError as error:
        raise ConfigError(
            f"{short(search.folder)} must be writable, but {error.filename or DRAWS}: "
            f"{error.strerror or error}; {remedy(error)} and repeat"
        ) from error


# --- results ------------------------------------------------------------------------------------------


def trials_of(search: Search, drawn: Sequence[DrawnTrial]) -> list[Trial]:
    """Trials with their results, in order; a trial with an unfinished run counts as failed."""
    return [
        _make_trial(trial.options, {seed: _load_result(search, n, seed) for seed in search.head["seeds"]})
        for n, trial in enumerate(drawn)
    ]


@dataclass(frozen=True)
class _RunResult:
    """Result of an ended run.

    Attributes:
        course: global round → best validation score so far; empty if none was measured.
        last: last measured validation score; NaN without one.
        is_complete: whether the run reached its end.
        maximizes: whether a larger score is better.
    """

    course: Mapping[int, float]
    last: float
    is_complete: bool
    maximizes: bool


def _load_result(search: Search, number: int, seed: int) -> _RunResult | None:
    """Result of one run of a trial; None until it has ended with a round."""
    folder = run_folder(search, number, seed)
    try:
        written = (folder / MANIFEST).stat()
    except OSError:
        return None
    return _read_result(folder.resolve(), (written.st_mtime_ns, written.st_size))


@cache  # every batch asks for all earlier runs
def _read_result(folder: Path, version: tuple[int, int]) -> _RunResult | None:
    """Result of the run in a folder, whose manifest has this `version`; None for a run that has not ended."""
    try:
        run = load_run(folder)
    except ConfigError:
        return None
    if run.status not in ("completed", "partial") or run.rounds.is_empty():
        return None
    scores = _validation_scores(run)
    last = scores[-1][1] if scores else math.nan
    maximizes = bool(run.score.merit(1.0) > run.score.merit(0.0))
    return _RunResult(_course_of(run, scores), last, reached_end(run), maximizes)


def _make_trial(options: Mapping[str, Scalar], runs: Mapping[int, _RunResult | None]) -> Trial:
    """A trial from the results of its runs."""
    finished = {seed: run for seed, run in runs.items() if run is not None and run.course}
    courses = {seed: run.course for seed, run in finished.items()}
    if len(finished) < len(runs):
        return Trial(options, "failed", None, {})
    value = statistics.fmean(run.last for run in finished.values())
    is_complete = all(run.is_complete for run in finished.values())
    return Trial(options, "complete" if is_complete else "pruned", value, courses)


def _validation_scores(run: RunData) -> list[tuple[int, float]]:
    """Global rounds with a validation score, and the scores."""
    rows = run.rounds.select("global_round", f"val_{run.score.name}_mean").iter_rows()
    return [(int(number), float(value)) for number, value in rows if value is not None and value == value]


def _course_of(run: RunData, scores: Sequence[tuple[int, float]]) -> dict[int, float]:
    """Global round → best of the validation scores so far."""
    best: dict[int, float] = {}
    for number, value in scores:
        previous = list(best.values())[-1:]
        best[number] = max([value, *previous], key=run.score.merit)
    return best


def _maximizes(search: Search, drawn: Sequence[DrawnTrial]) -> bool:
    """Whether a larger validation score is better, according to any finished run; True without one."""
    places = product(range(len(drawn)), search.head["seeds"])
    results = (_load_result(search, number, seed) for number, seed in places)
    return next((result.maximizes for result in results if result is not None), True)


def write_trials(search: Search, drawn: Sequence[DrawnTrial]) -> list[str]:
    """Write `TRIALS` and, if a trial is complete, `BEST`; returns lines for the terminal.

    Raises:
        OSError: a file cannot be written.
    """
    trials = trials_of(search, drawn)
    with output_file(search.folder / TRIALS) as part, part.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(escape_cells(["trial", "state", "validation", *search.space]))
        for number, trial in enumerate(trials):
            options = [trial.options[key] for key in search.space]
            table.writerow(escape_cells([label_of(number), trial.state, trial.value, *options]))
    states: list[str] = [trial.state for trial in trials]
    counts = ", ".join(
        f"{states.count(state)} {state}" for state in ("complete", "pruned", "failed") if state in states
    )
    complete = [(number, trial) for number, trial in enumerate(trials) if trial.state == "complete"]
    if not complete:
        return [f"trials: {counts}; no trial is complete, so there is no best"]
    sign = 1 if _maximizes(search, drawn) else -1
    number, best = max(complete, key=lambda item: sign * (item[1].value or 0.0))
    best_options = fold_tables({**search.base.from_file, **search.base.own, **best.options})
    clients = sweep_of(search, drawn[number : number + 1]).runs[0].supernodes
    if clients:  # otherwise as many as the data imply
        best_options["clients"] = clients
    lines = [f"{key} = {toml_value(value)}" for key, value in best_options.items()]
    write_bytes(search.folder / BEST, ("\n".join(lines) + "\n").encode())
    summary = "  ".join(f"{key}={_short_text(value)}" for key, value in best.options.items())
    return [
        f"trials: {counts}",
        f"best by validation: {label_of(number)} ({best.value:.4f})  {summary}",
    ]


def _short_text(value: Scalar) -> str:
    """A value with few digits."""
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
