"""pfl-research: two processes, each trains its share of the clients; torch.distributed sums the models."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Sequence
from socket import socket
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks.common import WORKERS, Turn
from benchmarks.plain import Learner
from benchmarks.step import BATCH, SETTINGS


def contend(turn: Turn, path: str, sizes: Sequence[int], epochs: int, name: str = "home") -> None:
    """Rounds of pfl-research: this process is the first of two."""
    with socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    spawn = multiprocessing.get_context("spawn")
    processes = [
        spawn.Process(target=work, args=(rank, port, path, sizes, epochs, name), daemon=True)
        for rank in range(1, WORKERS)
    ]
    for process in processes:
        process.start()
    work(0, port, path, sizes, epochs, name, turn)
    for process in processes:
        process.terminate()
        process.join()


def work(
    rank: int,
    port: int,
    path: str,
    sizes: Sequence[int],
    epochs: int,
    name: str,
    turn: Turn | None = None,
) -> None:
    """Run one of the processes, as torchrun would start it."""
    os.environ |= {
        "PFL_PYTORCH_DEVICE": "cpu",
        "TORCHELASTIC_RUN_ID": "peers",
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(WORKERS),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    multiprocessing.current_process().name = "MainProcess"  # pfl takes others for a DataLoader's workers
    _run_fedavg(Learner(path, name), sizes, epochs, turn)


class Network(torch.nn.Module):
    """The network with its loss, in the form required by pfl; records the losses."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network
        self.losses: list[torch.Tensor] = []

    def loss(self, x: Any, y: Any) -> torch.Tensor:
        """Loss of a batch."""
        loss = F.cross_entropy(self.network(x), y)
        self.losses.append(loss.detach())
        return loss

    def metrics(self, x: Any, y: Any) -> dict[str, Any]:
        """None: there is no evaluation."""
        return {}


def _run_fedavg(learner: Learner, sizes: Sequence[int], epochs: int, turn: Turn | None) -> None:
    """FedAvg over all clients in every round, weighted by their windows."""
    # these read the environment
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import MinimizeReuseUserSampler
    from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
    from pfl.model.pytorch import PyTorchModel

    network = Network(learner.network)
    model = PyTorchModel(
        network,
        lambda parameters, lr: torch.optim.SGD(
            parameters, lr=lr, momentum=SETTINGS.momentum, weight_decay=SETTINGS.weight_decay
        ),
        torch.optim.SGD(network.parameters(), lr=1.0),
    )
    rng = np.random.default_rng(0)
    data = [_shuffle(windows, rng) for windows in learner.clients]  # its batches are slices
    order = sorted(range(len(sizes)), key=lambda client: -sizes[client])
    clients = FederatedDataset(
        lambda client: Dataset(data[client], user_id=str(client)),
        MinimizeReuseUserSampler(order),
        {client: sizes[client] for client in order},
    )
    backend = SimulatedBackend(clients, clients, postprocessors=[WeightByDatapoints()])
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=10**6,
            evaluation_frequency=10**9,
            train_cohort_size=len(sizes),
            val_cohort_size=0,
        ),
        backend,
        model,
        NNTrainHyperParams(local_batch_size=BATCH, local_num_epochs=epochs, local_learning_rate=SETTINGS.lr),
        NNEvalHyperParams(local_batch_size=BATCH),
        callbacks=[_turn_callback(network, turn)],
        send_metrics_to_platform=False,
    )


def _shuffle(windows: tuple[torch.Tensor, torch.Tensor], rng: np.random.Generator) -> tuple[Any, Any]:
    rows = torch.from_numpy(rng.permutation(len(windows[1])))
    return windows[0][rows], windows[1][rows]


def _turn_callback(network: Network, turn: Turn | None) -> Any:
    """Callback making every round wait for the contestant's turn."""
    from pfl.callback.base import TrainingProcessCallback
    from pfl.metrics import Metrics

    class TakingTurns(TrainingProcessCallback):
        """The first process has the turn, the other waits for it."""

        began = 0.0

        def on_train_begin(self, *, model: Any) -> Any:
            """Before the first round."""
            self._wait()
            return Metrics()

        def after_central_iteration(self, *_: Any, **__: Any) -> Any:
            """Report on the round; returns whether it is the last, and no metrics."""
            seconds = time.perf_counter() - self.began
            total = torch.tensor([float(len(network.losses)), float(sum(network.losses))])
            network.losses.clear()
            torch.distributed.all_reduce(total)
            if turn is not None:
                turn.done(seconds, float(total[0]), float(total[1] / total[0]))
            return not self._wait(), Metrics()

        def _wait(self) -> bool:
            goes_on = torch.tensor([float(turn.wait()) if turn is not None else 0.0])
            torch.distributed.all_reduce(goes_on)
            self.began = time.perf_counter()
            return bool(goes_on.item())

    return TakingTurns()
