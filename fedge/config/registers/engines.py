"""Register of engines, which run the clients, by their names in ``--engine`` and in manifests."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from fedge.config.registers.option import ConfigError


@dataclass(frozen=True)
class EngineKind:
    """Facts about an engine for the rest of Fedge.

    Attributes:
        name: its name in ``--engine`` and in manifests.
        in_this_process: clients are threads or children of the process writing the run folder.
        on_ray: Flower's simulation starts Ray processes for it.
        chosen: ``--engine`` may name it; otherwise another option (``--leaves``) selects it.
        ends_others_s: seconds it needs to end its other processes after a signal.
    """

    name: str
    in_this_process: bool = False
    on_ray: bool = False
    chosen: bool = True
    ends_others_s: float = 0.0


IN_PROCESS = EngineKind("inprocess", in_this_process=True)
FLOWER = EngineKind("flower", on_ray=True, ends_others_s=4.0)
LEAVES = EngineKind("leaves", chosen=False)

_KINDS = {kind.name: kind for kind in (IN_PROCESS, FLOWER, LEAVES)}

CHOICES = tuple(kind.name for kind in _KINDS.values() if kind.chosen)  # of --engine


def engine_kind(name: str) -> EngineKind:
    """Engine of a name.

    Raises:
        ConfigError: no engine has this name, for example in a manifest edited by hand.
    """
    if name not in _KINDS:
        raise ConfigError(f"engine must be one of {', '.join(_KINDS)}, but is {name[:40]!r}")
    return _KINDS[name]


def engine_argument(words: Sequence[str]) -> EngineKind | None:
    """The engine named on a command line by ``--engine NAME`` or ``--engine=NAME``; None without one."""
    for word, next_word in pairwise([*words, ""]):
        option, _, value = word.partition("=")
        if option == "--engine":
            return _KINDS.get(value or next_word)
    return None
