"""Search: one batch of trials after another, each drawn from the results of earlier batches.

``trials.json`` in the sweep's folder has the draws, written before a batch starts, so an interrupted search
resumes with the same trials, and their number can be raised later. ``trials.csv`` has options, state and
value of every trial, ``best.toml`` the options of the best one, for ``fedge run -c``.
"""

import csv
import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from fedge.config.flat import fold_tables
from fedge.config.registers.option import ConfigError, Scalar, shown
from fedge.process.durable import output_file, write_bytes
from fedge.process.escape import escape_cells, read_json, toml_value
from fedge.process.resources.room import remedy
from fedge.records.folder import short, write_json
from fedge.records.reading.reader import RunData, load_run
from fedge.report.comparison.groups import reached_end
from fedge.sweep.draws import draw, floors
from fedge.sweep.plan import PlannedRun, Sweep
from fedge.sweep.pool import RunOutcome
from fedge.sweep.run_states import RunStanding, standings
from fedge.sweep.search import DrawnTrial, Search, Trial, label_of, sweep_of

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
    trials = []
    sweep = sweep_of(search, drawn)
    for number, trial in enumerate(drawn):
        runs = {run.seed: _load_results(run) for run in sweep.runs if run.label == label_of(number)}
        trials.append(_make_trial(trial.options, runs))
    return trials


def _load_results(run: PlannedRun) -> RunData | None:
    """Results of a completed run; None for any other run."""
    try:
        results = load_run(run.folder)
    except ConfigError:
        return None
    return results if results.status in ("completed", "partial") and not results.rounds.is_empty() else None


def _make_trial(options: Mapping[str, Scalar], runs: Mapping[int, RunData | None]) -> Trial:
    """A trial from the results of its runs."""
    finished = {seed: run for seed, run in runs.items() if run is not None}
    courses = {seed: course_of(run) for seed, run in finished.items()}
    if len(finished) < len(runs) or not all(courses.values()):
        return Trial(options, "failed", None, {})
    value = statistics.fmean(_last_score(run) for run in finished.values())
    is_complete = all(reached_end(run) for run in finished.values())
    return Trial(options, "complete" if is_complete else "pruned", value, courses)


def _validation_column(run: RunData) -> str:
    """Column of a run's rounds with the validation score."""
    return f"val_{run.score.name}_mean"


def _validation_scores(run: RunData) -> list[tuple[int, float]]:
    """Global rounds with a validation score, and the scores."""
    rows = run.rounds.select("global_round", _validation_column(run)).iter_rows()
    return [(int(number), float(value)) for number, value in rows if value is not None and value == value]


def _last_score(run: RunData) -> float:
    """Last measured validation score."""
    return _validation_scores(run)[-1][1]


def course_of(run: RunData) -> dict[int, float]:
    """Global round → best validation score so far; empty if none was measured."""
    best: dict[int, float] = {}
    for number, value in _validation_scores(run):
        previous = list(best.values())[-1:]
        best[number] = max([value, *previous], key=run.score.merit)
    return best


def _maximizes(search: Search, drawn: Sequence[DrawnTrial]) -> bool:
    """Whether a larger validation score is better, according to any finished run; True without one."""
    for planned in sweep_of(search, drawn).runs if drawn else ():
        run = _load_results(planned)
        if run is not None:
            return bool(run.score.merit(1.0) > run.score.merit(0.0))
    return True


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
