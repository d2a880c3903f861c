"""Fedge: a simulator for hierarchical, clustered federated learning on Flower and Ray."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedge.engine.simulate import simulate
    from fedge.run_reader import load_run

__all__ = ["load_run", "simulate"]

# `flwr run` imports this package to see whether the app is there: the only moment at which a run that cannot
# work can be refused before Flower starts Ray and its workers.
if Path(sys.argv[0] if sys.argv else "").name == "flwr" and sys.argv[1:2] == ["run"]:
    from fedge.preflight import check_flwr_run

    check_flwr_run(sys.argv[2:])


def __getattr__(name: str) -> Any:
    """Load the public names on first use: torch takes seconds, and most commands do not need it."""
    if name == "simulate":
        from fedge.engine.simulate import simulate

        return simulate
    if name == "load_run":
        from fedge.run_reader import load_run

        return load_run
    raise AttributeError(f"module 'fedge' has no attribute {name!r}")
