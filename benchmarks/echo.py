"""Fedge with a network of any size and clients that do not train, but return the model they received.

Importing this module registers such a network under the name `linear`, and steps without computation under
the names called by `fedge.client_app`; messages, strategy, leaves, cloud, gate and run folder are Fedge's
own.

    python -c 'from benchmarks.echo import main; main()' ENGINE MODE BYTES CONFIG.json CLIENTS

MODE is "echo", or "fresh" for a copy of the model per client, as after training (in-process only: on Ray a
reply is a copy anyway).
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from torch import nn

from benchmarks.common import WORKERS
from benchmarks.engines import Configured
from fedge import client_app, simulate
from fedge.engine.flower_engine import FlowerEngine
from fedge.run.run import run
from fedge.training.evaluation import EvalResult
from fedge.training.local import TrainResult
from fedge.training.networks import models
from fedge.training.settings import LocalTraining

LAYERS = 8
_size_bytes = 0  # bytes of the network, if the server builds it
_copies = False
_received = threading.local()

app = ClientApp()


class LargeNetwork(nn.Module):
    """Square matrices of about `_size_bytes` in total (none for 0), and a head. It is never called."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        side = max(1, round((_size_bytes / 4 / LAYERS) ** 0.5))
        self.body = nn.ModuleList(
            nn.Linear(side, side, bias=False) for _ in range(LAYERS if _size_bytes else 0)
        )
        self.head = nn.Linear(side, classes)


def remember_state(_: Any, state: Mapping[str, np.ndarray]) -> None:
    """Store the state to be trained or evaluated."""
    _received.state = state


def echo_train(
    _: Any, x: Any, y: Any, settings: LocalTraining, *__: Any, correction: Any = None, **___: Any
) -> TrainResult:
    """Leave the model unchanged, and report the steps expected by a leaf for these windows.

    The correction of gradients is converted to the model's precision, as in training.
    """
    state = _received.state
    corrections = [np.array(entry).astype(np.float32) for entry in (correction or {}).values()]
    trained = {name: array.copy() for name, array in state.items()} if _copies else dict(state)
    del _received.state
    del corrections
    steps = settings.epochs * math.ceil(len(y) / settings.batch_size)
    return TrainResult(trained, loss=1.0, steps=steps)


def echo_evaluate(_: Any, x: Any, y: Any, sizes: list[int], **__: Any) -> list[EvalResult]:
    """Report every answer in each part as right."""
    del _received.state
    return [EvalResult(size, 1.0, {"confusion": np.diag([size, 0])}, np.ones(size, bool)) for size in sizes]


def nothing(*_: Any) -> None:
    """Build no network."""


models.SoftmaxRegression = LargeNetwork  # type: ignore[misc, assignment]  # train.model="linear" builds it
for name, stand_in in {
    "train": echo_train,
    "evaluate_parts": echo_evaluate,
    "load_state": remember_state,
    "_thread_network": nothing,
}.items():
    assert hasattr(client_app, name), f"fedge.client_app no longer calls {name}"
    setattr(client_app, name, stand_in)


@app.query("hello")
def hello(message: Message, context: Context) -> Message:
    """Same as the real client. These are functions of this module, so workers import it."""
    return client_app.hello(message, context)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Same as the real client."""
    return client_app.train_round(message, context)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Same as the real client."""
    return client_app.evaluate_round(message, context)


def main() -> None:
    """Carry out one run."""
    global _size_bytes, _copies
    engine, mode, size, config_path, clients = sys.argv[1:]
    _size_bytes, _copies = int(size), mode == "fresh"
    config = json.loads(Path(config_path).read_text())
    if engine == "inprocess":
        simulate(config, num_supernodes=int(clients), workers=WORKERS)
    else:
        _on_ray(config, int(clients))


def _on_ray(config: Mapping[str, Any], clients: int) -> None:
    """Same as `flwr run`, but with this module's client app."""
    from flwr.simulation import run_simulation

    server = ServerApp()

    @server.main()
    def serve(grid: Grid, _: Context) -> None:
        run(FlowerEngine(grid), config, "flower", {"num-supernodes": clients}, lambda _: sys.stdout)

    share = (os.cpu_count() or WORKERS) / WORKERS
    backend = {
        "client_resources": {"num_cpus": share, "num_gpus": 0.0},
        "init_args": {"logging_level": "error", "log_to_driver": False, "include_dashboard": False},
    }
    run_simulation(server, Configured(app, config), clients, backend_config=backend)  # type: ignore[arg-type]
