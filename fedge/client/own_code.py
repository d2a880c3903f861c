"""The user's own code in a client, refused at the first call if it cannot be imported.

The run's server has imported it before, but another machine may lack it. Without this check, every client
would fail in training, round after round.
"""

import platform
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import (
    ALGORITHMS,
    AUGMENTATIONS,
    CLIENT_UPLINKS,
    LOSSES,
    METRICS,
    MODELS,
    OPTIMIZERS,
    SCHEDULES,
    TASKS,
    names_in,
)
from fedge.config.registers.register import add_search_folders, refuse_other_code

_AT_CLIENTS = (MODELS, TASKS, LOSSES, OPTIMIZERS, SCHEDULES, ALGORITHMS, CLIENT_UPLINKS)
_SEVERAL_AT_CLIENTS = (METRICS, AUGMENTATIONS)


def refuse_missing_code(
    options: Mapping[str, Any], folders: Sequence[str] = (), client: int = 0,
    parts: Mapping[str, str] = MappingProxyType({}),
) -> None:  # fmt: skip
    """Raise ConfigError for the user's code that this process cannot import, or has in another version.

    Args:
        options: options of the run, flat.
        folders: folders with code on the server's machine; used only by Ray's workers, whose machines have
            the same folders.
        client: partition id, for the message.
        parts: option → SHA-256 of the code on the server.
    """
    parts_in_use = [
        (register.option, register, str(options[register.option]))
        for register in _AT_CLIENTS
        if register.option in options
    ]
    for register in _SEVERAL_AT_CLIENTS:
        names = names_in(str(options.get(register.option, "")))
        parts_in_use += [
            (f"{register.option}[{number}]", register, name) for number, name in enumerate(names)
        ]
    own_parts = [entry for entry in parts_in_use if entry[1].is_own(entry[2])]
    on_ray = "ray" in sys.modules
    if own_parts and on_ray:
        add_search_folders(*folders)
    try:
        for option, register, name in own_parts:
            refuse_other_code(option, name, register.load(name), parts)
    except ConfigError as error:
        machine = f" ({platform.node()})" if on_ray else ""  # machines of data owners are not named
        raise ConfigError(
            f"code of a run must be on every machine that has clients, but where partition {client} "
            f"is{machine}: {error}"
        ) from error
