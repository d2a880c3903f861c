"""One run from configuration to run folder, on any engine."""

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

from fedge.clustering.registry import may_offer_mixtures
from fedge.config.config import Config
from fedge.config.flat import to_run_config
from fedge.config.registers.engines import engine_kind
from fedge.config.registers.option import ConfigError
from fedge.console.lines import Console
from fedge.console.terminal import open_console
from fedge.engine.cluster import words_of_cluster
from fedge.engine.federation import federation_of_this_process
from fedge.exchange.engine import Engine, LookAheadEngine
from fedge.process.endings import exits
from fedge.process.endings.watchdog import stall_limit_s, watching
from fedge.process.logs import log_to, stop_logging_to
from fedge.records.device_recorder import DeviceRecorder
from fedge.records.folder import (
    client_data_folder,
    data_folders,
    has_code_of_script,
    remove_client_data,
    short,
)
from fedge.records.manifest import read_manifest
from fedge.records.recorder import Recorder, RecordError
from fedge.records.tables.columns import Table
from fedge.records.tables.model_tables import CLIENT_MODELS, COMMON_TEST, MEMBERSHIPS
from fedge.report.report_hook import write_report_at_end
from fedge.rounds.port import LeafEngine
from fedge.run.announce import Announcer
from fedge.run.build import RunPlan
from fedge.run.carry_out import Steps
from fedge.run.ending import Ending, Outcome
from fedge.run.own_files import refuse_delays
from fedge.run.preparation.algorithms import is_default_algorithm
from fedge.run.preparation.prepare import Prepared, prepare_config
from fedge.run.preparation.resume import Resumption
from fedge.run.preparation.run_folder import OpenedRun, first_manifest, open_folder
from fedge.states.state_files import SharedStates
from fedge.tasks.configured import task_of
from fedge.timing.laps import LapClock
from fedge.trackers.tracking import FINISH_FAILED_S, Tracking
from hhar.quantity import quantity


def run(
    grid: Engine,
    run_config: Mapping[str, Any],
    engine: str,
    federation: Mapping[str, Any],
    open_terminal: Callable[[Path], TextIO],
    owns_process: bool = False,
    prepared: Prepared | None = None,
) -> Outcome:
    """Carry out a run and leave its run folder behind.

    A user error ends in one line on the terminal, never in a traceback; run.log has the details.

    Args:
        grid: the engine, connected to the clients.
        run_config: Flower's flat mapping.
        engine: name of the engine, for the manifest.
        federation: facts of the federation, for the manifest.
        open_terminal: (run.log) → stream for the progress lines.
        owns_process: whether the process ends with the run, and is ended if the run stalls.
        prepared: inputs already prepared from `run_config` in this process; None to prepare them here.

    Raises:
        ConfigError: the run is refused, if the caller prepared it and so reports refusals itself.
    """
    is_prepared_by_caller = prepared is not None
    with ExitStack() as beginning:
        try:
            prepared = prepared or prepare_config(run_config)
            refuse_other_clock(prepared.config, grid)
            refuse_needs_of_one_process(prepared.config, grid)
            beginning.enter_context(exits.uninterrupted())  # a folder without a manifest would be no run's
            opened = open_folder(prepared)
        except ConfigError as error:
            if is_prepared_by_caller:
                raise
            print(f"fedge: {error}", file=sys.stderr, flush=True)
            return Outcome("failed", None, str(error), exits.FAILED)
        try:
            surroundings = _Surroundings(prepared, opened, engine, open_terminal(opened.folder / "run.log"))
        except OSError as error:
            return _fail_without_log(opened, error)
        try:
            return _carry_out(grid, surroundings, engine, federation, owns_process, beginning.close)
        except RecordError as error:
            surroundings.console.close(failed=True)
            surroundings.console.say(f"fedge: {error}")
            return Outcome("failed", opened.folder, str(error), exits.FAILED)
        finally:
            try:
                beginning.close()
            finally:
                surroundings.close()


def refuse_other_clock(config: Config, grid: Engine) -> None:
    """Raise ConfigError for a run on a clock with separate leaf servers, which work only in rounds."""
    if config.asynchrony.is_on and not isinstance(grid, LookAheadEngine):
        raise ConfigError(
            f"asynchrony.rule {config.asynchrony.rule} needs clients in this process, on Ray or on "
            f"SuperNodes, because leaf servers work in rounds; set asynchrony.rule=off, or leave out --leaves"
        )


def refuse_needs_of_one_process(config: Config, grid: Engine) -> None:
    """Raise ConfigError for clients that move between separate leaf servers, or are assigned by a file."""
    if not isinstance(grid, LeafEngine):
        return
    refuse_delays(config)
    if config.hierarchy.moves:
        raise ConfigError(
            f"hierarchy.mobility {config.hierarchy.mobility} needs leaf servers that are part of the run's "
            f"process, because a separate one keeps its clients' control variates to itself; set "
            f'hierarchy.mobility="none", or leave out --leaves'
        )


def _fail_without_log(opened: OpenedRun, error: OSError) -> Outcome:
    """Report a failure to open run.log; the run ends as failed."""
    reason = (
        f"run.log must be writable, but {error.filename or opened.folder}: "
        f"{error.strerror or error}; fix this, then start the run again"
    )
    print(f"fedge: {reason}", file=sys.stderr, flush=True)
    opened.lock.close()
    return Outcome("failed", opened.folder, reason, exits.FAILED)


class _Surroundings:
    """Console, log, tracker and files of large states, of one run."""

    def __init__(self, prepared: Prepared, opened: OpenedRun, engine: str, terminal: TextIO) -> None:
        self.prepared = prepared
        self.opened = opened
        self.config = prepared.config
        self.folder = opened.folder
        self.log_path = opened.folder / "run.log"
        self._handler = log_to(self.log_path)
        self.console = open_console(terminal, self.config.num_server_rounds)
        self.shared = SharedStates(self.folder, in_one_process=engine_kind(engine).in_this_process)
        self.tracking = Tracking(self.config.tracker, self.folder, self.config.arguments("tracker"))

    def clean_up(self) -> None:
        """Remove files needed only while the run is in progress."""
        self.shared.close()
        for attempt in data_folders(self.folder):
            remove_client_data(attempt)

    def close(self) -> None:
        """Clean up, close tracker and log, and write the report, however the run ended."""
        try:
            with exits.uninterrupted():
                self.clean_up()
            _end_tracking(self.tracking, self.folder)
            if self.config.report:
                write_report_at_end(self.folder, self.console.say)
        finally:
            with exits.uninterrupted():  # in a notebook, the lock would block the next run
                stop_logging_to(self._handler)
                self.opened.lock.close()


def _carry_out(
    grid: Engine,
    surroundings: _Surroundings,
    engine: str,
    federation: Mapping[str, Any],
    owns_process: bool,
    has_begun: Callable[[], None],
) -> Outcome:
    """Carry out the run under the stall watchdog, unless it is complete.

    Arguments as for `run`; `has_begun` is called once signals end the run like any other error.
    """
    config, opened, prepared = surroundings.config, surroundings.opened, surroundings.prepared
    if opened.resumption is not None and opened.resumption.is_complete(config):
        return _report_complete(opened.resumption, config, surroundings.console)
    manifest = first_manifest(prepared, opened, engine, federation)
    data_folder = client_data_folder(surroundings.folder, len(manifest.get("resumed", [])))
    limit_s, start_s = stall_limit_s(config.guard), config.guard.start_timeout
    with _make_recorder(surroundings, manifest) as recorder:
        resume_words = (
            grid.resume_words if isinstance(grid, LeafEngine) else _cluster_arguments(engine, federation)
        )
        of_script = has_code_of_script(to_run_config(config))
        ending = Ending(
            recorder, surroundings.console, surroundings.clean_up, owns_process, resume_words, of_script
        )
        try:
            recorder.begin(to_run_config(config), resume_words)
        except RecordError as error:  # a manifest on disk would show a run in progress
            return ending.fail(exits.FAILED, str(error))
        with (
            exits.ending_on_signal(ending.interrupt),
            watching(limit_s, surroundings.log_path, ending.give_up, start_s),
        ):
            plan = RunPlan(
                config, prepared.seed, surroundings.folder, data_folder, surroundings.shared, LapClock()
            )
            announcer = Announcer(grid, plan, recorder, surroundings.console, surroundings.tracking)
            steps = _steps_class(config)(
                grid, plan, prepared, opened, recorder, surroundings.console, announcer
            )

            def work() -> None:
                has_begun()
                steps.carry_out()

            return ending.run(work, announcer.remarks)


def _make_recorder(surroundings: _Surroundings, manifest: dict[str, Any]) -> Recorder:
    """Recorder of the run, with the tables of devices if it is on a clock."""
    arguments = surroundings.folder, surroundings.opened.offsets, manifest
    tables, learned = _optional_tables(surroundings.config), task_of(surroundings.config.train)
    clock = surroundings.config.asynchrony
    if clock.is_on:
        return DeviceRecorder(*arguments, task=learned, is_real=clock.is_real, extra_tables=tables)
    return Recorder(*arguments, tables, task=learned)


def _cluster_arguments(engine: str, federation: Mapping[str, Any]) -> str:
    """Command-line arguments naming the run's Ray cluster; empty without one."""
    simulated = engine_kind(engine).on_ray and federation.get("num-supernodes")
    return words_of_cluster(federation_of_this_process().init_args) if simulated else ""


def _optional_tables(config: Config) -> tuple[Table, ...]:
    """Optional tables of this run."""
    needed = (
        (CLIENT_MODELS, not is_default_algorithm(config)),
        (MEMBERSHIPS, may_offer_mixtures(config.cluster) and not config.asynchrony.is_on),
        (COMMON_TEST, bool(config.evaluate.common)),
    )
    return tuple(table for table, is_needed in needed if is_needed)


def _steps_class(config: Config) -> type[Steps]:
    """Class of the run's steps; runs in rounds do not import the virtual clock."""
    if not config.asynchrony.is_on:
        return Steps
    from fedge.run.asynchronous import AsynchronousSteps

    return AsynchronousSteps


def _end_tracking(tracking: Tracking, folder: Path) -> None:
    """Report the end of the run to the tracker, if it has not been reported yet."""
    try:
        exit_code = read_manifest(folder)["exit_code"]
    except ConfigError:
        exit_code = exits.FAILED
    tracking.finish("failed", exit_code, FINISH_FAILED_S)


def _report_complete(resumption: Resumption, config: Config, console: Console) -> Outcome:
    """Report a run as complete."""
    num_rounds, stopped = config.num_server_rounds, resumption.manifest.get("stopped")
    folder = short(resumption.folder)
    if stopped:
        console.say(
            f"{folder} is complete: stopped after global round {stopped['after_round']} of {num_rounds} by "
            f"{stopped['by']}: {stopped['reason']}; to continue, change the callbacks, e.g. "
            f'-c \'callbacks="" callbacks-args=""\''
        )
    else:
        rounds = quantity(num_rounds, "global round")
        console.say(f"{folder} is complete: {num_rounds} of {rounds}; raise num-server-rounds to continue")
    status = resumption.manifest["status"]
    return Outcome(status, resumption.folder, exit_code=exits.BY_STATUS[status])
