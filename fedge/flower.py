"""Differences between the versions of Flower that Fedge runs on: 1.24 to 1.42 (docs/flower-versions.md).

The one place that asks which version there is. Asking loads nothing of Flower: commands that refuse a run do
not wait for it.
"""

from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import version

RUN_ID = 1  # of the one run of an engine without SuperLink


@cache
def flower_version() -> tuple[int, int]:
    """The first two numbers of Flower's version: (1, 25)."""
    major, minor = version("flwr").split(".")[:2]
    return int(major), int(minor)


def uses_superlink() -> bool:
    """Whether `flwr run` hands a simulation to a SuperLink that stays when the run has ended.

    So it does from 1.27 on; 1.26 has moved federations out of pyproject.toml, and runs without one.
    """
    return flower_version() >= (1, 27)


def moves_federations() -> bool:
    """Whether `flwr run` takes federations out of pyproject.toml, as it does from 1.26 on."""
    return flower_version() >= (1, 26)


def has_one_port() -> bool:
    """Whether a SuperLink has one port for SuperNodes, for senders of apps, and for the apps."""
    return flower_version() >= (1, 35)


def identify_task() -> None:
    """Let messages be made in this process, which is no task of a SuperLink.

    From 1.38 on a new Message asks its process which task of which run it is.
    """
    with suppress(ImportError):  # an older Flower
        identity = import_module("flwr.supercore.task_identity").TaskIdentity
        identity.run_id, identity.node_id, identity.task_id = RUN_ID, 0, 0
