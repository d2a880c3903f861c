"""Fedge: a simulator for hierarchical, clustered federated learning on Flower and Ray."""

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedge.launch.simulate import simulate
    from fedge.records.reader import load_run
    from fedge.report.compare import compare

__all__ = ["compare", "load_run", "simulate"]

_HOMES = {
    "compare": "fedge.report.compare",
    "load_run": "fedge.records.reader",
    "simulate": "fedge.launch.simulate",
}

if "FEDGE_CAPTURE" in os.environ:  # `fedge profile` looks at what this process asks for, from here on
    from fedge.process.capture import begin

    begin()

# `flwr run` imports this package to see whether the app is there: the only moment at which a run that cannot
# work can be refused before Flower starts Ray and its workers.
if Path(sys.argv[0] if sys.argv else "").name == "flwr" and sys.argv[1:2] == ["run"]:
    from fedge.launch.preflight import check_flwr_run

    check_flwr_run(sys.argv[2:])


def __getattr__(name: str) -> Any:
    """Load the public names on first use: torch takes seconds, and most commands do not need it."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'fedge' has no attribute {name!r}")
