"""Local SGD of `fedge.training.local` in one of several processes, with the same steps on the same batches.

All processes hold the model, draw the same order of windows, and make the same updates. Each computes the
gradient of its share of a batch (`fedge.parallel.shares`), and DistributedDataParallel gives all of them the
sum. So the result equals that of one process, except for the order of summation within a batch.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from fedge.config.registers.option import ConfigError
from fedge.parallel.batch_norm import share_statistics
from fedge.parallel.shares import ProcessRank, rows_of_process
from fedge.training.host import keep_freed_memory, torch_threads
from fedge.training.local import pass_loss, pass_order
from fedge.training.networks.own_models import BATCH_NORMS, OwnDraws
from fedge.training.passes import mean_of_passes
from fedge.training.settings import LocalTraining, check_data
from fedge.training.sgd import Sgd


@dataclass(frozen=True)
class SharedNetwork:
    """A network of which every process has a copy, made once for all rounds of a run."""

    model: nn.Module
    wrapped: DistributedDataParallel
    seat: ProcessRank


def share_network(model: nn.Module, seat: ProcessRank) -> SharedNetwork:
    """A model on its device whose gradients and statistics are those of all processes.

    Raises:
        ConfigError: as in `share_statistics`.
    """
    share_statistics(model, seat)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", FutureWarning
        )  # of broadcast_buffers, whose follower is not there yet
        wrapped = DistributedDataParallel(
            model, broadcast_buffers=False, find_unused_parameters=True, gradient_as_bucket_view=True
        )
    wrapped.register_comm_hook(None, _sum_gradients)
    return SharedNetwork(model, wrapped, seat)


def _sum_gradients(_: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Sum a bucket of gradients over all processes.

    DistributedDataParallel itself computes the mean: it multiplies by 1/n in its first step, and divides by n
    in later ones, so a repetition of the same training would differ in the last bits.
    """
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return future.then(lambda completed: completed.value()[0])


def train_share(
    network: SharedNetwork,
    x: Tensor,
    y: Tensor,
    settings: LocalTraining,
    generator: torch.Generator,
    correction: Mapping[str, np.ndarray] | None,
    draws: torch.Generator | None,
) -> tuple[float, int]:
    """Train the network as `fedge.training.local.train` does, with this process's share of every batch.

    Args:
        network: network with the initial state; at the end it has the new one, the same in all processes.
        x: float32 or int64 (N, …).
        y: int64 (N).
        settings, generator, correction: as in `train`, the same in all processes.
        draws: random stream of this process alone, for a model with random draws in training.

    Returns:
        Mean loss, and K steps; the same in all processes.

    Raises:
        ConfigError: buffers of the model other than BatchNorm's differ between processes.
        ValueError, FloatingPointError: as in `train`.
    """
    check_data(x, y)
    keep_freed_memory()
    with torch_threads(settings.threads):
        device = next(network.model.parameters()).device
        x, y = x.to(device), y.to(device)
        network.model.train()
        sgd = SharedSgd(network, settings, correction, None if draws is None else OwnDraws(draws))
        losses, passes = [], settings.passes(len(y))
        for steps in passes:
            order = pass_order(len(y), settings.batch_size, steps, generator).to(device)
            per_step = torch.stack([sgd.share_step(x, y, b) for b in order.split(settings.batch_size)])
            joined = per_step.double()
            dist.all_reduce(joined)
            losses.append(pass_loss(joined.cpu().numpy(), len(order), settings.batch_size, sgd.steps))
            sgd.steps += steps
        sgd.check_finite()
        _refuse_diverging_buffers(network)
    return mean_of_passes(losses, passes, len(y), settings.batch_size), sgd.steps


class SharedSgd(Sgd):
    """A step on a whole batch, of which this process computes its share."""

    def __init__(
        self,
        network: SharedNetwork,
        settings: LocalTraining,
        correction: Mapping[str, np.ndarray] | None,
        draws: OwnDraws | None,
    ) -> None:
        super().__init__(network.model, settings, correction, draws)
        self.model = network.wrapped
        self._seat = network.seat
        self._weight = 1.0  # of this process's mean loss; weights sum to 1

    def share_step(self, x: Tensor, y: Tensor, batch: Tensor) -> Tensor:
        """One update from windows `batch` (B,) of x (N, …), y (N,); returns the weighted loss."""
        rows = batch[rows_of_process(len(batch), self._seat.rank, self._seat.size)]
        self._seat.counts = len(rows) > 0
        self._weight = len(rows) / len(batch)
        used_rows = rows if len(rows) else batch[:1]
        return self.step(x.index_select(0, used_rows), y.index_select(0, used_rows))

    def gradients(self, x: Tensor, y: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Weighted loss of this process on x (B, …) and y (B,); the whole batch's gradient per parameter."""
        for parameter in self.parameters:
            if parameter.grad is not None:  # keep the memory for the gradients of all processes
                parameter.grad.zero_()
        loss = self.loss(x, y) * self._weight
        loss.backward()
        return loss.detach(), tuple(map(_gradient, self.parameters))


def _gradient(parameter: Tensor) -> Tensor:
    """Gradient of a parameter; zeros if the loss does not depend on it."""
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.contiguous()


def _refuse_diverging_buffers(network: SharedNetwork) -> None:
    """Raise ConfigError if buffers differ between processes after training.

    Each process has seen only its own windows, so such statistics are not those of one process.
    """
    names, buffers = _other_buffers(network.model)
    if not buffers:
        return
    flat = torch.cat([b.detach().double().reshape(-1) for b in buffers])
    least, most = flat.clone(), flat
    dist.all_reduce(least, dist.ReduceOp.MIN)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    differing = torch.nonzero(least != most)
    if len(differing):
        ends = np.cumsum([b.numel() for b in buffers])
        name = names[int(np.searchsorted(ends, int(differing[0]), side="right"))]
        raise ConfigError(
            f"train.processes must be 1 for a model whose buffer {name} follows the windows of each process; "
            f"set train.processes=1"
        )


def _other_buffers(model: nn.Module) -> tuple[list[str], Sequence[Tensor]]:
    """Names and values of buffers outside BatchNorm layers."""
    norms = {
        id(buffer)
        for layer in model.modules()
        if isinstance(layer, BATCH_NORMS)
        for buffer in layer.buffers(recurse=False)
    }
    other_buffers = {name: buffer for name, buffer in model.named_buffers() if id(buffer) not in norms}
    return list(other_buffers), list(other_buffers.values())
