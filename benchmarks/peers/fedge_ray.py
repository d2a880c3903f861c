"""Fedge on Ray in this process, so its rounds take turns, too; in process it is `benchmarks.round`'s."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from benchmarks.common import Turn
from benchmarks.engines import Configured
from benchmarks.peers.flower_ray import simulate_on_ray
from benchmarks.round import Gate
from fedge.client_app import app
from fedge.engine.flower_engine import FlowerEngine
from fedge.run.run import run

CLIENTS = 9


def contend(turn: Turn, config: Mapping[str, Any]) -> None:
    """Rounds of Fedge; the first turn includes the start of the run."""
    turn.wait()
    server = ServerApp()

    @server.main()
    def serve(grid: Grid, _: Context) -> None:
        gate = Gate(turn)
        run(FlowerEngine(grid), config, "flower", {"num-supernodes": CLIENTS}, lambda _: gate)  # type: ignore[arg-type, return-value]

    simulate_on_ray(server, Configured(app, config), CLIENTS)
