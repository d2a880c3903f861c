"""Differences between the versions of Flower supported by Fedge: 1.25, 1.41, 1.42 (docs/flower-versions.md).

Only this module checks the version. The check loads nothing of Flower, so commands refusing a run respond
quickly.
"""

from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import version

from fedge.config.registers.option import ConfigError

RUN_ID = 1  # id of the only run of an engine without SuperLink
TESTED = {(1, 25): "1.25", (1, 41): "1.41", (1, 42): "1.42"}
_NEW = (1, 41)  # the first tested version with a SuperLink kept for simulations


@cache
def flower_version() -> tuple[int, int]:
    """The first two numbers of Flower's version, e.g. (1, 25)."""
    major, minor = version("flwr").split(".")[:2]
    return int(major), int(minor)


def refuse_untested_flower() -> None:
    """Raise ConfigError for a version of Flower with which Fedge is not tested."""
    if flower_version() not in TESTED:
        raise ConfigError(
            f"flwr must be {', '.join(TESTED.values())}, but is {version('flwr')}; "
            "pip install 'flwr==1.25.0' (docs/flower-versions.md)"
        )


def uses_superlink() -> bool:
    """Whether `flwr run` passes a simulation to a SuperLink kept after the run."""
    return flower_version() >= _NEW


def moves_federations() -> bool:
    """Whether `flwr run` removes federations from pyproject.toml."""
    return flower_version() >= _NEW


def has_one_port() -> bool:
    """Whether a SuperLink has one port for SuperNodes, for submitting apps, and for the apps."""
    return flower_version() >= _NEW


def identify_task() -> None:
    """Allow this process, which is not a task of a SuperLink, to create messages.

    In versions after 1.25, a new Message asks its process for its task and run.
    """
    with suppress(ImportError):  # Flower 1.25
        identity = import_module("flwr.supercore.task_identity").TaskIdentity
        identity.run_id, identity.node_id, identity.task_id = RUN_ID, 0, 0
