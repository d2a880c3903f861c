"""``fedge sweep``: check everything, carry out the runs, compare them."""

import argparse
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from fedge.config.registers.option import ConfigError, nearest, shown
from fedge.process.durable import write_output
from fedge.process.endings import exits
from fedge.process.resources.room import remedy
from fedge.process.resources.threads import available_cores
from fedge.records.folder import short, writing_below
from fedge.records.lock import RunLock
from fedge.sweep.plan import Sweep, read_sweep
from fedge.sweep.pool import END_S, RunOutcome, RunPool
from fedge.sweep.progress import SweepPace, run_line, seconds_left
from fedge.sweep.ray_pool import RayPool, runs_with_room
from fedge.sweep.run_states import RunStanding, standings
from fedge.sweep.search import has_search, read_search, sweep_of
from fedge.sweep.searching import next_batch, read_draws, search_through, write_trials
from fedge.sweep.slurm import JobSettings, submit, to_submit, write_script
from fedge.sweep.study import keep_study, study_of
from hhar.quantity import quantity

_LEAVE_S = END_S + 3.0  # after a signal, runs end first
_ACTION_WORDS = {"new": "to do", "resume": "to resume", "again": "to restart", "skip": "complete"}


def run_sweeps(options: argparse.Namespace) -> int:
    """Carry out the sweeps in `options`; returns the exit code.

    Args:
        options: files, dry_run, workers, jobs (None: as many as the cores permit), launcher, sbatch, submit,
            only, owns_process.

    Raises:
        ConfigError: a file is invalid, or one of its runs is invalid or cannot work; nothing was started.
        KeyboardInterrupt: a signal arrived; interrupted runs can be resumed.
    """
    workers = _check_positive("--workers", options.workers)
    _refuse_options_of_other_launchers(options)
    address = options.address or os.environ.get("RAY_ADDRESS", "")
    on_ray = options.launcher == "ray" and not options.dry_run and options.only is None
    default_jobs = runs_with_room(address, workers) if on_ray else max(1, available_cores() // workers)
    jobs = _check_positive("--jobs", default_jobs if options.jobs is None else options.jobs)
    _refuse_seed()
    with exits.signals_as_exceptions(_LEAVE_S) if options.owns_process else nullcontext():
        if any(has_search(path) for path in options.files):
            return _carry_out_search(options, jobs, workers)
        sweeps = [read_sweep(path) for path in options.files]
        _refuse_shared_folder(sweeps)
        if options.only is not None:
            return _carry_out_one(options, sweeps, workers)
        with _lock_folders(sweeps) if not options.dry_run else nullcontext():
            standings_by_sweep = [standings(sweep) for sweep in sweeps]
            is_known = on_ray or options.launcher == "local"
            _print_plan(sweeps, standings_by_sweep, jobs if is_known else None, address if on_ray else "")
            if options.dry_run:
                _list_runs(standings_by_sweep)
                return 0
            if options.launcher == "slurm":
                return _write_scripts(options, sweeps, standings_by_sweep, workers)
            return _carry_out(
                options, sweeps, standings_by_sweep, _Jobs(jobs, workers, address if on_ray else "")
            )


def _check_positive(option: str, value: int) -> int:
    """The number; ConfigError if below 1."""
    if value < 1:
        raise ConfigError(f"{option} must be at least 1, but is {value}; omit it for the default")
    return value


@dataclass(frozen=True)
class _Jobs:
    """Settings for carrying out runs.

    Attributes:
        at_a_time: runs at a time.
        workers: clients in training at a time in each run.
        address: address of the Ray cluster; empty for this machine.
    """

    at_a_time: int
    workers: int
    address: str = ""


def _refuse_options_of_other_launchers(options: argparse.Namespace) -> None:
    """Raise ConfigError for options of a launcher other than the chosen one."""
    if options.address and options.launcher != "ray":
        raise ConfigError(
            "--address needs --launcher ray, but another launcher is chosen; add --launcher ray"
        )
    for name in ("sbatch", "submit"):
        if getattr(options, name) and options.launcher != "slurm":
            raise ConfigError(
                f"--{name} needs --launcher slurm, but another one is chosen; add --launcher slurm"
            )


def _restrict_to_run(sweep: Sweep, name: str) -> Sweep:
    """A sweep restricted to one of its runs.

    Raises:
        ConfigError: the sweep has no such run.
    """
    runs = [run for run in sweep.runs if run.name == name]
    if not runs:
        names = [run.name for run in sweep.runs]
        raise ConfigError(
            f"--only must be a run of {sweep.path}, but is {shown(name)}"
            f"{nearest(name, names) or '; fedge sweep --dry-run lists them'}"
        )
    return replace(sweep, runs=runs)


def _refuse_seed() -> None:
    """Raise ConfigError if SEED is set, which would override every seed of the sweep."""
    if os.environ.get("SEED", "").strip():
        raise ConfigError(
            f"SEED must not be set, because a sweep has its own seeds, but is {shown(os.environ['SEED'])}; "
            f"unset SEED"
        )


def _refuse_shared_folder(sweeps: Sequence[Sweep]) -> None:
    """Raise ConfigError if two sweeps have the same folder."""
    folders = [sweep.folder.resolve() for sweep in sweeps]
    for index, folder in enumerate(folders):
        if folder in folders[:index]:
            first = sweeps[folders.index(folder)].path
            raise ConfigError(
                f"sweeps must differ in name, but {first} and {sweeps[index].path} do not; set [sweep] name"
            )


@contextmanager
def _lock_folders(sweeps: Sequence[Sweep]) -> Iterator[None]:
    """Create the folders of sweeps, and lock them."""
    with ExitStack() as stack:
        for sweep in sweeps:
            _make_folder(sweep)
            stack.callback(
                RunLock(sweep.folder, "a sweep must have ended before it is carried out again").close
            )
        yield


def _make_folder(sweep: Sweep) -> None:
    """Create a sweep's folder; ConfigError if it cannot be."""
    with writing_below(sweep.folder):
        sweep.folder.mkdir(parents=True, exist_ok=True)


# --- before -------------------------------------------------------------------------------------------


def _print_plan(
    sweeps: Sequence[Sweep],
    standings_by_sweep: Sequence[Sequence[RunStanding]],
    jobs: int | None,
    address: str = "",
) -> None:
    """Print the plan: runs, their states, and the number at a time.

    Args:
        sweeps: all sweeps.
        standings_by_sweep: standings of each sweep's runs.
        jobs: runs at a time; None if the launcher decides.
        address: address of the Ray cluster; empty without one.
    """
    for sweep, runs in zip(sweeps, standings_by_sweep, strict=True):
        counts = [sum(s.action == action for s in runs) for action in _ACTION_WORDS]
        states = ", ".join(
            f"{n} {words}" for n, words in zip(counts, _ACTION_WORDS.values(), strict=True) if n
        )
        print(f"{sweep.name}: {quantity(len(runs), 'run')} in {short(sweep.folder)} ({states})")
        for note in dict.fromkeys([*sweep.notes, *(standing.note for standing in runs if standing.note)]):
            print(f"note: {note}")
    todo = sum(standing.action != "skip" for runs in standings_by_sweep for standing in runs)
    if todo and jobs is not None:
        location = f"the Ray cluster at {address}" if address else quantity(available_cores(), "core")
        print(f"{quantity(min(jobs, todo), 'run')} at a time on {location}", flush=True)


def _list_runs(standings_by_sweep: Sequence[Sequence[RunStanding]]) -> None:
    """Print every run and its next action."""
    for runs in standings_by_sweep:
        width = max(len(standing.run.name) for standing in runs)
        for standing in runs:
            rounds = f"{standing.done_rounds}/{quantity(standing.run.config.num_server_rounds, 'round')}"
            print(f"{standing.run.name:<{width}}  {_ACTION_WORDS[standing.action]:<13}  {rounds}")


# --- the runs -----------------------------------------------------------------------------------------


def _write_scripts(
    options: argparse.Namespace,
    sweeps: Sequence[Sweep],
    standings_by_sweep: Sequence[Sequence[RunStanding]],
    workers: int,
) -> int:
    """Write a job array for every sweep with runs to do; compare the complete ones."""
    settings = JobSettings(workers, options.jobs or 0, options.sbatch)
    for sweep, runs in zip(sweeps, standings_by_sweep, strict=True):
        todo = [standing for standing in runs if standing.action != "skip"]
        if not todo:
            _summarise([sweep])
            continue
        script = write_script(sweep, todo, settings)
        _keep_plan(sweep)
        print(submit(script) if options.submit else f"next: {to_submit(script)}")
        command = f"fedge sweep {shlex.quote(str(sweep.path))} --launcher slurm"
        print(f"when it is done: {command}   # resumes, or compares", flush=True)
    return exits.COMPLETED


def _keep_plan(sweep: Sweep) -> None:
    """Write the sweep's file, and the plan made from it, to its folder."""
    copy = sweep.folder / "sweep.toml"
    if not (copy.exists() and copy.samefile(sweep.path)):  # the sweep may run from its folder's own copy
        write_output(copy, sweep.path.read_bytes())
    keep_study(study_of(sweep))


def _carry_out_one(options: argparse.Namespace, sweeps: Sequence[Sweep], workers: int) -> int:
    """Carry out one run of each sweep, without a summary; returns the exit code."""
    standings_by_sweep = [standings(_restrict_to_run(sweep, options.only)) for sweep in sweeps]
    if options.dry_run:
        _list_runs(standings_by_sweep)
        return exits.COMPLETED
    todo = [standing for runs in standings_by_sweep for standing in runs if standing.action != "skip"]
    counter = _Counter(sum(map(len, standings_by_sweep)) - len(todo), sum(map(len, standings_by_sweep)), 0)
    keep = {sweep.folder: sweep.keep_checkpoints for sweep in sweeps}
    for sweep in sweeps:
        _make_folder(sweep)
        _keep_plan(sweep)
    # commands like this one on the machine, from Slurm or Ray
    concurrent_runs = max(1, available_cores() // workers)
    with RunPool(todo, 1, workers, keep, concurrent_runs) as pool:
        for outcome in pool.results():
            print(counter.take(outcome, pool), flush=True)
    return _report_failures(counter)


def _carry_out(
    options: argparse.Namespace,
    sweeps: Sequence[Sweep],
    standings_by_sweep: Sequence[Sequence[RunStanding]],
    settings: _Jobs,
) -> int:
    """Carry out the runs and write the results; returns the exit code."""
    for sweep in sweeps:
        _keep_plan(sweep)
    keep = {sweep.folder: sweep.keep_checkpoints for sweep in sweeps}
    todo = [standing for runs in standings_by_sweep for standing in runs if standing.action != "skip"]
    done = sum(map(len, standings_by_sweep)) - len(todo)
    counter = _Counter(
        done, sum(map(len, standings_by_sweep)), max((len(s.run.name) for s in todo), default=0)
    )
    try:
        with exits.interruptions(), _make_pool(sweeps, todo, settings, keep) as pool:
            for outcome in pool.results():
                print(counter.take(outcome, pool), flush=True)
    except KeyboardInterrupt:
        command = shlex.join(["fedge", "sweep", *map(str, options.files)])
        launcher = " --launcher ray" if settings.address else ""
        print(f"interrupted: {_progress_text(counter)}; resume with: {command}{launcher}", flush=True)
        raise
    _summarise(sweeps)
    return _report_failures(counter)


def _carry_out_search(options: argparse.Namespace, jobs: int, workers: int) -> int:
    """Carry out a sweep with a table [search]; returns the exit code."""
    _refuse_unsupported_search(options)
    search = read_search(options.files[0])
    trials = read_draws(search)
    if options.dry_run:
        trials = trials or next_batch(search, trials)
        _list_runs([standings(sweep_of(search, trials))])
        print(f"{quantity(len(trials), 'trial')} of {search.trials}; the others depend on results")
        return exits.COMPLETED
    counter = _Counter(0, search.trials * len(search.head["seeds"]), 0)

    def carry_out(sweep: Sweep, run_standings: Sequence[RunStanding]) -> Iterator[RunOutcome]:
        _keep_plan(sweep)
        todo = [standing for standing in run_standings if standing.action != "skip"]
        counter.done += len(run_standings) - len(todo)
        with RunPool(todo, jobs, workers, {sweep.folder: sweep.keep_checkpoints}) as pool:
            for outcome in pool.results():
                print(counter.take(outcome, pool), flush=True)
                yield outcome

    with _lock_folders([sweep_of(search, [])]):
        print(
            f"{search.head['name']}: {quantity(search.trials, 'trial')} in {short(search.folder)}", flush=True
        )
        try:
            with exits.interruptions():
                sweep = search_through(search, trials, carry_out)
        except KeyboardInterrupt:
            command = f"fedge sweep {shlex.quote(str(search.path))}"
            print(f"interrupted: {_progress_text(counter)}; resume with: {command}", flush=True)
            raise
        _summarise([sweep])
        print(*write_trials(search, trials), sep="\n", flush=True)
    return _report_failures(counter)


def _refuse_unsupported_search(options: argparse.Namespace) -> None:
    """Raise ConfigError for a search with other sweeps, another launcher, or --only."""
    if len(options.files) > 1:
        raise ConfigError(
            f"a sweep with a table [search] must be run alone, but {len(options.files)} files are "
            f"given; use one command for each"
        )
    if options.launcher != "local":
        raise ConfigError(
            f"[search] needs --launcher local, because each batch waits for the previous one, but it is "
            f"{options.launcher}; remove --launcher"
        )
    if options.only is not None:
        raise ConfigError(f"--only must be omitted for [search], but is {shown(options.only)}; remove it")


def _make_pool(
    sweeps: Sequence[Sweep], todo: Sequence[RunStanding], settings: _Jobs, keep: Mapping[Path, bool]
) -> RunPool | RayPool:
    """Pool for carrying out the runs."""
    if settings.address:
        return RayPool(sweeps, todo, settings.at_a_time, settings.workers, settings.address)
    return RunPool(todo, settings.at_a_time, settings.workers, keep)


class _Counter:
    """Count of the runs done."""

    def __init__(self, done: int, total: int, width: int) -> None:
        self.done = done
        self.total = total
        self.partial: list[RunOutcome] = []
        self.failed: list[RunOutcome] = []
        self._width = width
        self._pace = SweepPace()

    def take(self, outcome: RunOutcome, pool: RunPool | RayPool) -> str:
        """Record an ended run; returns its line."""
        from fedge.report.listing import line_of_run

        self.done += outcome.status != "failed"
        {"partial": self.partial, "failed": self.failed}.get(outcome.status, []).append(outcome)
        run = outcome.standing.run
        self._pace.observe(run.label, outcome.seconds, outcome.rounds)
        left_s = seconds_left(self._pace, pool.runs_in_progress(), pool.waiting_runs(), pool.jobs)
        results = line_of_run(run.folder)
        scores = results.score_name, results.score, results.worst
        return run_line(
            self.done, self.total, run.name, self._width, outcome.status, scores, outcome.seconds,
            left_s,
        )  # fmt: skip


def _summarise(sweeps: Sequence[Sweep]) -> None:
    """Write and print the comparison of every sweep."""
    from fedge.sweep.summary import PAGE, RUNS, TABLE, write_summary  # loads Matplotlib, only after the runs

    for sweep in sweeps:
        try:
            lines = write_summary(study_of(sweep))
        except OSError as error:
            raise ConfigError(
                f"{short(sweep.folder)} must be writable, but {error.filename or 'it'}: "
                f"{error.strerror or error}; {remedy(error)} and repeat"
            ) from error
        print("", *lines, sep="\n")
        print(*(short(sweep.folder / name) for name in (PAGE, TABLE, RUNS)), sep="\n", flush=True)


def _progress_text(counter: _Counter) -> str:
    """Number of runs done, of all, in words."""
    return f"{counter.done} of {quantity(counter.total, 'run')} {'is' if counter.total == 1 else 'are'} done"


def _report_failures(counter: _Counter) -> int:
    """Print the incomplete runs; returns the exit code."""
    for outcome in (*counter.partial, *counter.failed):
        reason = outcome.reason or "clients failed in some rounds"
        print(f"{outcome.status}: {short(outcome.standing.run.folder)}: {reason}")
    if counter.failed:
        failed = quantity(len(counter.failed), "run")
        print(f"{failed} failed; the same command retries from the last checkpoint")
        return exits.FAILED
    return exits.PARTIAL if counter.partial else exits.COMPLETED
