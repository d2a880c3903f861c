"""Fixtures of minutes are made once for all test processes, over which tests of one module may be spread."""

import fcntl
import os
import pickle
from collections.abc import Callable
from typing import Any

import pytest


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[], Any]) -> Any:
    """`make()`, or what another test process of these tests has made by that name; others wait for it."""
    folder = factory.getbasetemp()
    kept = (folder.parent if os.environ.get("PYTEST_XDIST_WORKER") else folder) / f"{name}.pickle"
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.is_file():
            kept.write_bytes(pickle.dumps(make()))
        return pickle.loads(kept.read_bytes())
