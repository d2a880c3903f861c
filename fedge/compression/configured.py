"""Uplinks made from the configuration; a user's code is tried out before a run begins."""

import inspect
from collections.abc import Collection
from functools import partial
from typing import Any

import numpy as np

from fedge.compression.compressor import Compressor
from fedge.compression.uplink import Uplink
from fedge.config.config import Config
from fedge.config.registers.determinism import FROM_RNG, call_checked
from fedge.config.registers.failing import own_error, own_errors
from fedge.config.registers.hooks import refuse_misspelt
from fedge.config.registers.option import ConfigError, shown
from fedge.config.registers.parts import CLIENT_UPLINKS, SERVER_UPLINKS, UNCOMPRESSED
from fedge.config.registers.register import Register, refuse_wrong_signature
from fedge.config.sections.uplink import UplinkConfig
from fedge.config.uplinks import without_feedback
from fedge.seeding import Purpose, numpy_stream
from fedge.states.averaging import State
from fedge.states.files import state_bytes

_TRIAL_SIZES = (1, 2, 100)  # entries of arrays


def uplink_of_clients(config: UplinkConfig, names: Collection[str]) -> Uplink | None:
    """Uplink from clients to leaves; None if models are sent uncompressed.

    Args:
        config: configuration of the run.
        names: names of the compressed entries.

    Raises:
        ConfigError: the code cannot be made.
    """
    return _build_uplink(CLIENT_UPLINKS, config, "clients", Purpose.CLIENT_UPLINK, names)


def uplink_of_servers(config: UplinkConfig, names: Collection[str]) -> Uplink | None:
    """Uplink from every server to the one above it; see `uplink_of_clients`."""
    return _build_uplink(SERVER_UPLINKS, config, "servers", Purpose.SERVER_UPLINK, names)


def upload_sizes(
    config: UplinkConfig, model: State, names: Collection[str], have_servers: bool
) -> dict[str, dict[str, int]]:
    """Bytes of a model's upload on each compressed tier, as {"clients": {"model_bytes": …, "sent_bytes": …}}.

    Args:
        config: configuration of the run.
        model: any model of the run, without frozen entries.
        names: names of the compressed entries.
        have_servers: whether servers send models to one above: a single leaf does not.
    """
    tiers = {"clients": uplink_of_clients(config, names)}
    if have_servers:
        tiers["servers"] = uplink_of_servers(config, names)
    return {
        tier: {"model_bytes": state_bytes(model), "sent_bytes": uplink.sent_bytes(model)}
        for tier, uplink in tiers.items()
        if uplink is not None
    }


def _build_uplink(
    register: Register, config: UplinkConfig, part: str, purpose: Purpose, names: Collection[str]
) -> Uplink | None:
    name: str = getattr(config, part)
    if name == UNCOMPRESSED:
        return None
    return Uplink(_build_compressor(register, name, config.arguments(part)), purpose, names)


def _build_compressor(register: Register, name: str, arguments: dict[str, Any]) -> Compressor:
    """The code of a name.

    Raises:
        ConfigError: the object is not a code, or refuses its arguments.
    """
    label, code = f"{register.option} {name}", register.load(name)
    if not (inspect.isclass(code) and issubclass(code, Compressor)):
        raise ConfigError(
            f"{label} must be a class derived from fedge.compression.Compressor, but is {shown(code)}; see "
            f"docs/extend.md"
        )
    if register.is_own(name):
        refuse_misspelt(code, Compressor, label)
    refuse_wrong_signature(code, label, f"{register.option}-args", arguments, ())
    try:
        return code(**arguments)
    except ConfigError:
        raise
    except own_errors() as error:
        raise ConfigError(
            f"{label} cannot be made: {own_error(error)}; change {register.option}-args"
        ) from error


def keeps_feedback(config: UplinkConfig) -> bool:
    """Whether clients keep a memory of unsent remainders."""
    uplink = uplink_of_clients(config, ())
    return uplink is not None and uplink.keeps_feedback


def refuse_compressors(config: Config) -> None:
    """Raise ConfigError for a code with a failing constructor or trial, or an incompatible option."""
    for register, name, part in (
        (CLIENT_UPLINKS, config.uplink.clients, "clients"),
        (SERVER_UPLINKS, config.uplink.servers, "servers"),
    ):
        if name != UNCOMPRESSED:
            _try_compressor(register, name, _build_compressor(register, name, config.uplink.arguments(part)))
    if (
        config.scaffold.enabled
        and config.uplink.clients != UNCOMPRESSED
        and not keeps_feedback(config.uplink)
    ):
        raise without_feedback(config.uplink.clients)


def _try_compressor(register: Register, name: str, compressor: Compressor) -> None:
    """Raise ConfigError if a code fails on made-up arrays, or its result is no such array or number."""

    def trial(count: int) -> tuple[Any, Any]:
        rng = numpy_stream(0, Purpose.CLIENT_UPLINK, count)
        update = rng.standard_normal(count)
        update.flags.writeable = False  # as in a run, where the remainder follows from it
        return compressor.sent(update, rng), compressor.bits(count)

    for count in _TRIAL_SIZES:
        with register.explaining_errors(name):
            decoded, bits = call_checked(register, name, partial(trial, count), FROM_RNG, True)
        fits = isinstance(decoded, np.ndarray) and decoded.shape == (count,) and np.isfinite(decoded).all()
        if not fits:
            raise ConfigError(
                f"{register.option} {name} must send {count} finite numbers for as many, but sent "
                f"{shown(decoded)}; fix it"
            )
        if type(bits) is not int or bits < 0:
            raise ConfigError(
                f"{register.option} {name} must say a whole number of bits, but says {shown(bits)}; fix it"
            )
