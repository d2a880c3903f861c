"""All callbacks of one run: their construction, calls in order, and their state."""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from types import MappingProxyType
from typing import Any

from fedge.callbacks.attributes import decode_value, encode_value, kept_attributes, unrestored_digests
from fedge.callbacks.callback import EndedRun, LeafRound, Round, Row, Run
from fedge.config.config import Config
from fedge.config.registers.failing import own_error, own_errors
from fedge.config.registers.option import ConfigError, shown
from fedge.config.registers.parts import (
    CALLBACKS,
    callback_arguments,
    names_in,
    refuse_callback_without_methods,
)
from fedge.records.tables.columns import Table
from fedge.records.tables.device_tables import growing_tables
from fedge.records.tables.round_tables import ClientRow, GlobalRow, LeafRow, tables_of
from fedge.rounds.hooks import Hooks
from fedge.rounds.measurements.results import RoundResult
from fedge.tasks.configured import task_of

logger = logging.getLogger(__name__)


class CallbackError(RuntimeError):
    """A failure of a callback; its one line has the callback, the place, the cause and the next step."""


@dataclass(frozen=True)
class Stop:
    """A callback's reason for ending a run before its last round.

    Attributes:
        by: name of the callback.
        global_round: the last global round.
        reason: in the callback's words.
    """

    by: str
    global_round: int
    reason: str


class Callbacks(Hooks):
    """The callbacks of one run.

    Attributes:
        stop: first reason given to end the run; None to continue.
    """

    def __init__(self, config: Config) -> None:
        """Construct all callbacks of `config.callbacks`.

        Raises:
            ConfigError: one cannot be made.
        """
        self._configured = [config.callbacks, config.callbacks_args]
        self._num_rounds = config.num_server_rounds
        self._callbacks = [(name, _callback_of(name, config)) for name in names_in(config.callbacks)]
        self._initial_attributes = [kept_attributes(callback) for _, callback in self._callbacks]
        self._unsaved_attributes = [unrestored_digests(callback) for _, callback in self._callbacks]
        self._warned: set[tuple[str, str]] = set()
        self._global_round = 0
        self.stop: Stop | None = None

    @property
    def is_ending(self) -> bool:
        """Whether a callback has given a reason."""
        return self.stop is not None

    def begin_run(self, run: Run) -> None:
        """Call all: the run begins, or is resumed."""
        self._global_round = run.rounds_done
        self._call("begin_run", run)
        # this call makes these again when a run goes on
        self._unsaved_attributes = [unrestored_digests(callback) for _, callback in self._callbacks]

    def begin_round(self, global_round: int) -> None:
        """Call all."""
        self._global_round = global_round
        if self._callbacks:
            self._call("begin_round", Round(global_round, self._num_rounds, MappingProxyType({})))

    def begin_leaf_round(self, global_round: int, leaf_round: int) -> None:
        """Call all."""
        if self._callbacks:
            self._call("begin_leaf_round", LeafRound(global_round, leaf_round))

    def end_leaf_round(
        self,
        global_round: int,
        leaf_round: int,
        replies: int,
        train_loss: Mapping[int, float],
        failures: Mapping[int, object],
    ) -> None:
        """Call all."""
        if self._callbacks:
            texts = {client: str(failure) for client, failure in sorted(failures.items())}
            losses = MappingProxyType(dict(sorted(train_loss.items())))
            self._call(
                "end_leaf_round",
                LeafRound(global_round, leaf_round, replies, losses, MappingProxyType(texts)),
            )

    def end_round(self, result: RoundResult, seconds: float, on_clock: Any = None) -> None:
        """Call all; `stop` tells afterwards whether the run ends.

        Args:
            result: result of the round.
            seconds: duration of the round.
            on_clock: the row object of devices/versions.csv in a run on the virtual clock.
        """
        if not self._callbacks:
            return
        number = result.global_round
        tables = tables_of(result.learned)
        (numbers,) = _rows(tables.rounds, [GlobalRow(result, seconds)])
        leaves = _rows(tables.leaves, [LeafRow(number, leaf) for leaf in result.leaves])
        clients = _rows(tables.clients, [ClientRow(number, client) for client in result.clients])
        versions = growing_tables(result.learned.scores[0])[0]
        evaluations = _rows(versions, [] if on_clock is None else [on_clock])
        self._call("end_round", Round(number, self._num_rounds, numbers, leaves, clients, *evaluations))

    def end_run(self, run: EndedRun) -> None:
        """Call all: the run is over."""
        self._call("end_run", run)

    def _call(self, hook: str, argument: Any) -> None:
        """Call a method of all callbacks, in order.

        Raises:
            CallbackError: one raises, or returns something other than a reason.
        """
        for name, callback in self._callbacks:
            method = getattr(callback, hook, None)
            if method is None:
                continue
            try:
                answer = method(argument)
            except own_errors() as error:
                raise CallbackError(
                    f"callback {name} failed in {hook}{self._round_text()}: {own_error(error)}; "
                    f"fix it, or leave it out of callbacks"
                ) from error
            if answer is None or hook == "end_run":
                continue
            if not isinstance(answer, str) or not answer.strip():
                raise CallbackError(
                    f"callback {name} must return None or the reason why the run is to end, but in "
                    f"{hook}{self._round_text()} it returned {shown(answer)}; fix it"
                )
            if self.stop is None:
                self.stop = Stop(name, max(self._global_round, 1), " ".join(answer.split()))

    def _round_text(self) -> str:
        return f" of global round {self._global_round}" if self._global_round else ""

    # --- state beyond the process ---------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        """State of all callbacks, as JSON.

        Raises:
            CallbackError: a `state_dict` fails, or JSON cannot hold its result.
        """
        states = [
            _state_of(name, callback, initial)
            for (name, callback), initial in zip(self._callbacks, self._initial_attributes, strict=True)
        ]
        self._warn_of_lost_attributes()
        stop = self.stop and vars(self.stop)
        names = [name for name, _ in self._callbacks]
        return {"given": self._configured, "names": names, "states": states, "stop": stop}

    def _warn_of_lost_attributes(self) -> None:
        """Warn once about each changed attribute that would not be restored."""
        for (name, callback), previous in zip(self._callbacks, self._unsaved_attributes, strict=True):
            if hasattr(callback, "state_dict"):
                continue
            for key, content in unrestored_digests(callback).items():
                if previous.get(key) != content and (name, key) not in self._warned:
                    self._warned.add((name, key))
                    logger.warning(
                        "callback %s changes %s (%s), which is lost when the run resumes after a "
                        "stop; define state_dict and load_state_dict",
                        name, key, type(getattr(callback, key)).__name__,
                    )  # fmt: skip

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Restore the result of `facts`; callbacks absent from the state start afresh.

        Raises:
            ValueError, TypeError, LookupError: they are not a result of `facts`.
        """
        state_of = dict(zip(facts.get("names", ()), map(decode_value, facts.get("states", ())), strict=True))
        for name, callback in self._callbacks:
            if name in state_of:
                _restore_callback(name, callback, state_of[name])
        if facts.get("stop") and facts.get("given") == self._configured:
            stop = Stop(**facts["stop"])
            if [type(value) for value in astuple(stop)] != [str, int, str]:
                raise ValueError(f"stop is {shown(facts['stop'])}")
            self.stop = stop


def _callback_of(name: str, config: Config) -> Any:
    """The callback behind a name.

    Raises:
        ConfigError: construction fails, or the object has no callback method.
    """
    arguments = callback_arguments(name, config.callbacks_args)
    code = CALLBACKS.load(name)
    try:
        callback = code(**arguments)
    except ConfigError:
        raise
    except own_errors() as error:
        raise ConfigError(
            f"callbacks {name} cannot be made: {own_error(error)}; fix it, or change callbacks-args"
        ) from error
    refuse_callback_without_methods(callback, name)
    refuse_other_columns(callback, config)
    return callback


def refuse_other_columns(callback: Any, config: Config) -> None:
    """Raise ConfigError if a callback watches a column missing in global rounds."""
    if hasattr(callback, "read_columns"):
        callback.read_columns(tables_of(task_of(config.train)).rounds.columns)
    if hasattr(callback, "refuse_rare_evaluation"):
        callback.refuse_rare_evaluation(config.evaluate.every)


def _rows(table: Table, rows: Sequence[Any]) -> tuple[Row, ...]:
    """Rows of a table by column; cells without a number are None, as in the table."""
    tables = (dict(zip(table.names, table.row(row), strict=True)) for row in rows)
    return tuple(
        MappingProxyType({k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()})
        for row in tables
    )


def _state_of(name: str, callback: Any, initial: Mapping[str, Any]) -> Any:
    """State of one callback."""
    if not hasattr(callback, "state_dict"):
        current = kept_attributes(callback)
        return {key: value for key, value in current.items() if key not in initial or initial[key] != value}
    try:
        return encode_value(callback.state_dict(), exact=False)
    except own_errors() as error:
        raise CallbackError(
            f"callback {name} must return a table of numbers and strings from state_dict, but: "
            f"{own_error(error)}; fix it"
        ) from error


def _restore_callback(name: str, callback: Any, state: Any) -> None:
    """Restore one callback from the result of `_state_of`."""
    if not hasattr(callback, "load_state_dict"):
        methods = [key for key in state if callable(getattr(type(callback), key, None))]
        if methods:
            raise ValueError(f"{name} keeps no {shown(methods[0])}")
        vars(callback).update(state)
        return
    try:
        callback.load_state_dict(state)
    except own_errors() as error:
        raise CallbackError(
            f"callback {name} must take back with load_state_dict what its state_dict gave, but: "
            f"{own_error(error)}; fix it"
        ) from error
