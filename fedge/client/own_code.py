"""Code of the user's that a client carries out, refused at its first call where it cannot be imported.

A run's server has imported it before; a machine elsewhere may lack it. By itself it would be missed only in
training, by every client, round after round.
"""

import platform
import sys
from collections.abc import Mapping, Sequence
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
from fedge.config.registers.register import look_in

_AT_CLIENTS = (MODELS, TASKS, LOSSES, OPTIMIZERS, SCHEDULES, ALGORITHMS, CLIENT_UPLINKS)
_SEVERAL_AT_CLIENTS = (METRICS, AUGMENTATIONS)


def refuse_code_that_is_not_here(
    options: Mapping[str, Any], folders: Sequence[str] = (), client: int = 0
) -> None:
    """Raise ConfigError for a part of the user's own that this process cannot import.

    Args:
        options: of the run, flat.
        folders: of the server's machine in which code may lie; looked in by workers of Ray alone, whose
            machines have it at the same place.
        client: partition id of who says so.
    """
    given = [(of, str(options[of.option])) for of in _AT_CLIENTS if of.option in options]
    given += [(of, name) for of in _SEVERAL_AT_CLIENTS for name in names_in(str(options.get(of.option, "")))]
    own = [(of, name) for of, name in given if of.is_own(name)]
    on_ray = "ray" in sys.modules
    if own and on_ray:
        look_in(*folders)
    try:
        for of, name in own:
            of.load(name)
    except ConfigError as error:
        machine = f" ({platform.node()})" if on_ray else ""  # an owner's machine keeps its name to itself
        raise ConfigError(
            f"code of a run must be on every machine that has clients, but where partition {client} "
            f"is{machine}: {error}"
        ) from error
