"""Fedge on Ray in this process, so that its rounds take turns, too; in process it is `benchmarks.round`'s."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from benchmarks.common import Turn
from benchmarks.peers.flower_ray import simulate_on_ray
from benchmarks.round import Gate
from fedge.client_app import app
from fedge.engine.flower_engine import FlowerEngine
from fedge.run.run import run

CLIENTS = 9


class Configured(ClientApp):
    """Fedge's ClientApp with the options that `flwr run` would hand it."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self._config = dict(config)

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message."""
        node, state = context.node_config, context.state
        return app(message, Context(context.run_id, context.node_id, node, state, self._config))


def contend(turn: Turn, config: Mapping[str, Any]) -> None:
    """Its rounds; the first turn holds the start of the run, too."""
    turn.wait()
    server = ServerApp()

    @server.main()
    def serve(grid: Grid, _: Context) -> None:
        gate = Gate(turn)
        run(FlowerEngine(grid), config, "flower", {"num-supernodes": CLIENTS}, lambda _: gate)  # type: ignore[arg-type, return-value]

    simulate_on_ray(server, Configured(config), CLIENTS)
