"""Replies whose content does not come: a node has said that it answers, and then sends nothing of it.

Flower 1.25 pulls a reply object by object, asks for each that is not there yet again and again, for two hours
at most, and looks after nobody else meanwhile. Here it gives a reply up of which nothing has come for a
while. The content of others waits that long, and no longer.
"""

import time
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import Any

STALLED_S = 30.0  # without any part of a reply
# modules of Flower's grid and of its object puller, up to 1.34 and in 1.41
_PLACES = (
    ("flwr.server.grid.grpc_grid", "flwr.common.inflatable_utils"),
    ("flwr.superlink.grid.http_grid", "flwr.supercore.inflatable.inflatable_utils"),
)
_WRAPPED = "_fedge_gives_up"


class _StalledError(Exception):
    """No part of a reply has come for long."""


def give_up_stalled_replies(limit_s: float = STALLED_S) -> bool:
    """Let Flower's grid in this process give up replies of which nothing comes; tell whether that is so.

    Args:
        limit_s: seconds without any part of a reply.
    """
    found = _flowers()
    if found is None:
        return False
    grid, objects = found
    pull = grid.pull_objects
    if not hasattr(pull, _WRAPPED):
        bounded = _bounded(pull, objects.ObjectUnavailableError, limit_s)
        setattr(bounded, _WRAPPED, True)
        setattr(grid, "pull_objects", bounded)  # noqa: B010 - a module has no such attribute for mypy
    return True


def _flowers() -> tuple[ModuleType, ModuleType] | None:
    """Flower's grid and its object puller; None in a Flower that has them elsewhere."""
    for names in _PLACES:
        try:
            grid, objects = map(import_module, names)
        except ModuleNotFoundError:
            continue
        if hasattr(grid, "pull_objects") and hasattr(objects, "ObjectUnavailableError"):
            return grid, objects
    return None


def _bounded(pull: Callable[..., Any], unavailable: type[Exception], limit_s: float) -> Callable[..., Any]:
    """Flower's `pull_objects`, which ends when nothing has come for so many seconds."""

    @wraps(pull)
    def bounded(object_ids: list[str], pull_object_fn: Callable[[str], bytes], **more: Any) -> Any:
        came = time.monotonic()

        def pull_one(object_id: str) -> bytes:
            nonlocal came
            try:
                content = pull_object_fn(object_id)
            except unavailable:
                if time.monotonic() - came > limit_s:
                    raise _StalledError from None
                raise
            came = time.monotonic()
            return content

        try:
            return pull(object_ids, pull_one, **more)
        except _StalledError:
            raise unavailable(f"nothing of it came for {limit_s:g} s") from None

    return bounded
