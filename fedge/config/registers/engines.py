"""Register of engines: where the clients of a run live, under the names of ``--engine`` and of manifests."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from fedge.config.registers.option import ConfigError


@dataclass(frozen=True)
class EngineKind:
    """An engine as the rest of Fedge knows it.

    Attributes:
        name: of ``--engine`` and of manifests.
        in_this_process: clients are threads or children of the process that holds the run's folder.
        on_ray: Flower's simulation starts Ray for it, in processes of its own.
        chosen: ``--engine`` may name it; else another option (``--leaves``) asks for it.
        ends_others_s: seconds that ending its other processes takes after a signal.
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
    """The engine of a name.

    Raises:
        ConfigError: no engine has that name, as in a manifest that was changed by hand.
    """
    if name not in _KINDS:
        raise ConfigError(f"engine must be one of {', '.join(_KINDS)}, but is {name[:40]!r}")
    return _KINDS[name]


def named_in(words: Sequence[str]) -> EngineKind | None:
    """The engine that a command line names by ``--engine NAME`` or ``--engine=NAME``; None without one."""
    for word, after in pairwise([*words, ""]):
        option, _, value = word.partition("=")
        if option == "--engine":
            return _KINDS.get(value or after)
    return None
