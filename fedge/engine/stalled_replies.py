"""Replies without content: a node has announced a reply, but sends no part of it.

Flower 1.25 pulls a reply object by object and retries each missing one for up to two hours, serving no other
node meanwhile. Here a reply is given up after a limited time in which no part of it arrives; other replies
are delayed by no more.
"""

import time
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import Any

STALLED_S = 30.0  # seconds without any part of a reply
# modules of Flower's grid and of its object puller, in 1.25 and in 1.41
_PLACES = (
    ("flwr.server.grid.grpc_grid", "flwr.common.inflatable_utils"),
    ("flwr.superlink.grid.http_grid", "flwr.supercore.inflatable.inflatable_utils"),
)
_WRAPPED = "_fedge_gives_up"


class _StalledError(Exception):
    """Error: no part of a reply arrived for too long."""


def give_up_stalled_replies(limit_s: float = STALLED_S) -> bool:
    """Make Flower's grid in this process give up stalled replies; returns whether this version can.

    Args:
        limit_s: seconds without any part of a reply.
    """
    modules = _flower_modules()
    if modules is None:
        return False
    grid, objects = modules
    pull = grid.pull_objects
    if not hasattr(pull, _WRAPPED):
        bounded = _bounded(pull, objects.ObjectUnavailableError, limit_s)
        setattr(bounded, _WRAPPED, True)
        setattr(grid, "pull_objects", bounded)  # noqa: B010 - a module has no such attribute for mypy
    return True


def _flower_modules() -> tuple[ModuleType, ModuleType] | None:
    """Modules of Flower's grid and object puller; None if this version has them elsewhere."""
    for names in _PLACES:
        try:
            grid, objects = map(import_module, names)
        except ModuleNotFoundError:
            continue
        if hasattr(grid, "pull_objects") and hasattr(objects, "ObjectUnavailableError"):
            return grid, objects
    return None


def _bounded(pull: Callable[..., Any], unavailable: type[Exception], limit_s: float) -> Callable[..., Any]:
    """Flower's `pull_objects`, ended after `limit_s` seconds without any part."""

    @wraps(pull)
    def bounded(object_ids: list[str], pull_object_fn: Callable[[str], bytes], **options: Any) -> Any:
        last_part_at = time.monotonic()

        def pull_one(object_id: str) -> bytes:
            nonlocal last_part_at
            try:
                content = pull_object_fn(object_id)
            except unavailable:
                if time.monotonic() - last_part_at > limit_s:
                    raise _StalledError from None
                raise
            last_part_at = time.monotonic()
            return content

        try:
            return pull(object_ids, pull_one, **options)
        except _StalledError:
            raise unavailable(f"no part of it arrived for {limit_s:g} s") from None

    return bounded
