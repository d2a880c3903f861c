"""Code of the user's that a client carries out, refused at its first call where it cannot be imported.

A run's server has imported it before; a machine elsewhere may lack it. By itself it would be missed only in
training, by every client, round after round.
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
from fedge.config.registers.register import look_in, refuse_other_code

_AT_CLIENTS = (MODELS, TASKS, LOSSES, OPTIMIZERS, SCHEDULES, ALGORITHMS, CLIENT_UPLINKS)
_SEVERAL_AT_CLIENTS = (METRICS, AUGMENTATIONS)


def refuse_code_that_is_not_here(
    options: Mapping[str, Any], folders: Sequence[str] = (), client: int = 0,
    parts: Mapping[str, str] = MappingProxyType({}),
) -> None:  # fmt: skip
    """Raise ConfigError for a part of the user's own that this process cannot import, or has in another form.

    Args:
        options: of the run, flat.
        folders: of the server's machine in which code may lie; looked in by workers of Ray alone, whose
            machines have it at the same place.
        client: partition id of who says so.
        parts: option → SHA-256 of the server's code.
    """
    given = [(of.option, of, str(options[of.option])) for of in _AT_CLIENTS if of.option in options]
    for of in _SEVERAL_AT_CLIENTS:
        names = names_in(str(options.get(of.option, "")))
        given += [(f"{of.option}[{number}]", of, name) for number, name in enumerate(names)]
    own = [each for each in given if each[1].is_own(each[2])]
    on_ray = "ray" in sys.modules
    if own and on_ray:
        look_in(*folders)
    try:
        for option, of, name in own:
            refuse_other_code(option, name, of.load(name), parts)
    except ConfigError as error:
        machine = f" ({platform.node()})" if on_ray else ""  # an owner's machine keeps its name to itself
        raise ConfigError(
            f"code of a run must be on every machine that has clients, but where partition {client} "
            f"is{machine}: {error}"
        ) from error
