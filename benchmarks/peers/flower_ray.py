"""Flower's simulation on Ray: its FedAvg and a ClientApp with a plain loop, two clients at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.common import WORKERS, Turn
from benchmarks.plain import Learner, said_of
from benchmarks.works import WORKS

app = ClientApp()
_learner: Learner | None = None  # learner of a worker process


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model on the client's windows."""
    global _learner
    settings = message.content["config"]
    _learner = _learner or Learner(str(settings["path"]), str(settings["work"]))
    client = int(context.node_config["partition-id"])
    _learner.network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    steps, loss = _learner.train(client, int(settings["epochs"]))
    metrics = MetricRecord({"num-examples": len(_learner.clients[client][1]), "steps": steps, "loss": loss})
    arrays = ArrayRecord(_learner.network.state_dict())
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


class TakingTurns(FedAvg):
    """FedAvg whose rounds wait for the contestant's turn."""

    def __init__(self, turn: Turn, settings: dict[str, str | int], clients: int) -> None:
        super().__init__(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
        self._turn = turn
        self._settings = settings
        self._round_start = 0.0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config, grid: Grid
    ) -> Iterable[Message]:  # type: ignore[no-untyped-def]
        """Begin a round."""
        if not self._turn.wait():
            raise SystemExit  # there is no other way out of FedAvg's rounds
        self._round_start = time.perf_counter()
        config.update(self._settings)
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]):  # type: ignore[no-untyped-def]
        """End a round."""
        replies = list(replies)
        aggregated = super().aggregate_train(server_round, replies)
        seconds = time.perf_counter() - self._round_start
        metrics = [reply.content["metrics"] for reply in replies]
        self._turn.done(seconds, *said_of((int(m["steps"]), float(m["loss"])) for m in metrics))
        return aggregated


def contend(turn: Turn, path: str, sizes: Sequence[int], epochs: int, work: str = "home") -> None:
    """Rounds of Flower."""
    server = ServerApp()

    @server.main()
    def serve(grid: Grid, _: Context) -> None:
        strategy = TakingTurns(turn, {"path": path, "epochs": epochs, "work": work}, len(sizes))
        initial = ArrayRecord(WORKS[work].network().state_dict())
        try:
            strategy.start(grid, initial, num_rounds=10**6, timeout=3600.0)
        except SystemExit:
            return

    simulate_on_ray(server, app, len(sizes))


def simulate_on_ray(server: ServerApp, client: ClientApp, clients: int) -> None:
    """Run a simulation in this process, as `flwr run` does, without Ray's dashboard and output."""
    share = (os.cpu_count() or WORKERS) / WORKERS  # CPUs per client, so that WORKERS fit at a time
    run_simulation(
        server,
        client,
        clients,
        backend_config={
            "client_resources": {"num_cpus": share, "num_gpus": 0.0},
            "init_args": {"logging_level": "error", "log_to_driver": False, "include_dashboard": False},
        },
    )
