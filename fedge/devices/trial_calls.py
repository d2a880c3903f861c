"""Trial calls of parts of the virtual clock before a run, to report their errors at once."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from fedge.config.registers.determinism import FROM_RNG, call_again, call_checked
from fedge.config.registers.failing import own_error, own_errors
from fedge.config.registers.option import ConfigError, shown
from fedge.config.registers.parts import AVAILABILITY, DEVICES, DURATIONS, SELECTIONS, SERVER_RULES
from fedge.config.registers.register import Register
from fedge.config.registers.traits import PARTIAL, ROUNDS
from fedge.config.sections.devices import DevicesConfig
from fedge.devices.population.draws import PickDraws
from fedge.devices.population.duration import Work, checked_seconds, duration_of
from fedge.devices.population.fleet import Fleet, check_fleet
from fedge.devices.population.idle import Idle
from fedge.devices.population.selection import DeviceTurn, History
from fedge.devices.servers.arrivals import Arrival, Memory, unrestorable_entry

PARTIAL_WORK = "takes_partial_work"  # attribute of a user's rule
_DEVICES = 2
_REPEATS = 16  # results, unlikely to agree by chance
_ARRIVALS = 64  # enough for one to complete a buffer and make a model


def try_rule(name: str, arguments: Mapping[str, Any], register: Register = SERVER_RULES) -> None:
    """Raise ConfigError for a rule that fails on arrivals, up to its first model, with these arguments."""

    def first_model() -> tuple[np.ndarray | None, dict[str, np.ndarray]]:
        return _first_model(name, arguments, register)

    call_checked(register, name, first_model)


def _first_model(
    name: str, arguments: Mapping[str, Any], register: Register
) -> tuple[np.ndarray | None, dict[str, np.ndarray]]:
    """First model of a rule from arrivals, None without one, and the arrays it keeps."""
    rule, model, memory = register.load(name), np.zeros(1, np.float32), Memory(_DEVICES)
    model.flags.writeable = False  # as in a run, where devices train from it
    updated = None
    arrivals: list[Arrival | None] = [Arrival(0, 0, model, model), None]
    if not register.has(name, ROUNDS):
        arrivals = [Arrival(number % _DEVICES, number, model, model) for number in range(_ARRIVALS)]
    for arrival in arrivals:
        updated = _call_part(register, name, partial(rule, model, memory, arrival, **arguments))
        if updated is not None and not (isinstance(updated, np.ndarray) and updated.shape == model.shape):
            raise ConfigError(
                f"{register.option} {name} must return the new model, an array of the shape of the one "
                f"it got, or None, but returned {shown(updated)}; fix it"
            )
        if problem := unrestorable_entry(memory, model):
            raise ConfigError(f"{register.option} {name} {problem}; fix it")
        if updated is not None:
            break
    return updated, memory.arrays


def refuse_partial_work(devices: DevicesConfig, rule: str) -> None:
    """Raise ConfigError for partial work if the server's rule does not support it.

    A user's rule supports it with a true attribute `takes_partial_work`.
    """
    if not devices.partial_work:
        return
    is_own = SERVER_RULES.is_own(rule)
    is_supported = (
        getattr(SERVER_RULES.load(rule), PARTIAL_WORK, False) if is_own else SERVER_RULES.has(rule, PARTIAL)
    )
    if not is_supported:
        hint = f", or give it {PARTIAL_WORK} = True and go by arrival.share" if is_own else ""
        raise ConfigError(
            f"devices.partial-work needs an asynchrony.rule that takes it "
            f"({', '.join(SERVER_RULES.names_with(PARTIAL))}), but is true with {rule}; set it false{hint}"
        )


def try_preset(name: str, arguments: Mapping[str, Any]) -> Fleet:
    """A few devices of a preset; ConfigError if it makes none with these arguments."""

    def make_fleet(count: int) -> Fleet:
        owner, rng = np.zeros(count, np.int64), np.random.default_rng(0)
        fleet: Fleet = _call_part(DEVICES, name, lambda: DEVICES.load(name)(owner, rng, **arguments))
        check_fleet(fleet, count, f"{DEVICES.option} {name}")
        return fleet

    return call_checked(
        DEVICES, name, lambda: [make_fleet(count) for count in (_DEVICES, _REPEATS)], FROM_RNG
    )[0]


def try_availability(name: str, arguments: Mapping[str, Any]) -> None:
    """Raise ConfigError for an availability with invalid results."""

    def presence() -> Any:
        return _call_part(AVAILABILITY, name, lambda: AVAILABILITY.load(name)(_DEVICES, 0, **arguments))

    answer = _call_part(AVAILABILITY, name, lambda: presence()(1, 0))
    if not (isinstance(answer, tuple) and len(answer) == 2 and type(answer[1]) is int and answer[1] > 0):
        raise ConfigError(
            f"{AVAILABILITY.option} {name} must say (whether a device is there, until which microsecond), "
            f"but said {shown(answer)} at 0; fix it"
        )

    hint = "draw from the seed alone, and keep nothing between calls"

    def answers_over_time() -> list[Any]:
        present, now_us, answers = presence(), 0, []
        for _ in range(_REPEATS):
            ask = partial(_call_part, AVAILABILITY, name, partial(present, 1, now_us))
            answers.append(call_again(AVAILABILITY, name, ask, hint))
            now_us = max(now_us + 1, answers[-1][1])
        return answers

    call_checked(AVAILABILITY, name, answers_over_time, hint)


def try_device_selection(name: str, arguments: Mapping[str, Any]) -> None:
    """Raise ConfigError for a selection that fails, or picks an absent device."""

    def select(leaf: int) -> Any:
        idle, history = Idle(range(_DEVICES)), History.of(np.ones(_DEVICES, np.int64))
        turn = DeviceTurn(leaf, PickDraws(0, leaf), _DEVICES)
        return _call_part(SELECTIONS, name, lambda: SELECTIONS.load(name)(idle, history, turn, **arguments))

    device = select(0)
    if device is not None and (isinstance(device, bool) or device not in range(_DEVICES)):
        raise ConfigError(
            f"{SELECTIONS.option} {name} must return a device that is there, or None, but returned "
            f"{shown(device)} of devices 0 and 1; fix it"
        )

    def devices() -> list[Any]:
        return [call_again(SELECTIONS, name, partial(select, leaf), FROM_RNG) for leaf in range(_REPEATS)]

    call_checked(SELECTIONS, name, devices, FROM_RNG)


def try_duration(name: str, arguments: Mapping[str, Any]) -> None:
    """Raise ConfigError for a duration that fails, or gives no seconds of training."""
    duration = duration_of(name, arguments)
    if duration is not None:
        history = History.of(np.ones(_DEVICES, np.int64))

        def seconds_of(attempt: int) -> float:
            return checked_seconds(duration, Work(0, attempt, 0, 1, 1, 1, 0.0, 1.0, history))

        def training_seconds() -> list[float]:
            return [
                call_again(DURATIONS, name, partial(seconds_of, attempt), FROM_RNG)
                for attempt in range(1, _REPEATS)
            ]

        call_checked(DURATIONS, name, lambda: _call_part(DURATIONS, name, training_seconds), FROM_RNG)


def _call_part(register: Register, name: str, call: Callable[[], Any]) -> Any:
    """Result of calling a part; any error becomes one line."""
    try:
        return call()
    except ConfigError as error:
        if str(error).startswith(register.option):
            raise
        raise ConfigError(f"{register.option} {name}: {error}") from error
    except own_errors() as error:
        raise ConfigError(
            f"{register.option} {name} cannot be used: {own_error(error)}; change "
            f"{register.option}-args, or fix it"
        ) from error
