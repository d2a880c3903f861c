"""A training step recorded once as a CUDA graph and replayed, so small kernels do not wait for Python.

The graph holds forward pass, backward pass and update, all of which work in place on tensors with fixed
addresses. Before use, some steps of the graph, on batches in other orders, are compared with plain ones; if
they differ, the graph is dropped. Source: PyTorch's notes on CUDA graphs (warm-up on a side stream, static
inputs).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

Step = Callable[[Tensor, Tensor], Tensor]
_WARMUP = 3  # steps before recording, in which libraries choose their kernels and take their memory
_TOLERANCE = 1e-4  # of the largest weight; kernels without a fixed order differ by less, also after these


class GraphedStep:
    """Replays one step for batches of one shape."""

    def __init__(self, step: Step, state: Sequence[Tensor], x: Tensor, y: Tensor) -> None:
        """Record `step`; `state` is restored afterwards.

        Args:
            step: (x, y) → loss, scalar; changes the tensors of `state` in place and no others.
            state: weights, velocities, BatchNorm statistics.
            x: a batch on the GPU, any values.
            y: its labels.

        Raises:
            RuntimeError: CUDA cannot record the step, or recorded steps differ from plain ones.
        """
        self._x, self._y = x.clone(), y.clone()
        initial = [tensor.clone() for tensor in state]
        side_stream = torch.cuda.Stream()
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream):
            _warm_up(step, x, y)
        torch.cuda.current_stream().wait_stream(side_stream)
        plain = [tensor.clone() for tensor in state]
        self._graph = torch.cuda.CUDAGraph()
        # other clients' threads may use the GPU meanwhile: only this thread's calls must be recordable
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._loss = step(self._x, self._y)
        _restore(state, initial)
        _warm_up(self, x, y)
        if not all(map(_is_close, state, plain)):
            raise RuntimeError("the recorded step does not compute what the plain step does")
        _restore(state, initial)

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Take one step on a batch of the recorded shape; returns its loss."""
        self._x.copy_(x)
        self._y.copy_(y)
        self._graph.replay()
        return self._loss.clone()


def graphed_or_plain(step: Step, state: Sequence[Tensor], x: Tensor, y: Tensor) -> Step:
    """`step` as a graph, or `step` itself if a graph does not work (logged).

    `x` (N, C, T) float32 and `y` (N,) int64 are a batch of the common size; `state` holds the tensors changed
    by a step, of any shape.
    """
    initial = [tensor.clone() for tensor in state]
    try:
        return GraphedStep(step, state, x, y)
    except RuntimeError as error:
        logger.warning("train.cuda-graph: plain steps instead: %s", str(error).splitlines()[0])
        _restore(state, initial)
        return step


def _warm_up(step: Step, x: Tensor, y: Tensor) -> None:
    """Take `_WARMUP` steps on a batch, its rows in another order each time."""
    for number in range(_WARMUP):
        step(x.roll(number, 0), y.roll(number, 0))


@torch.no_grad()
def _restore(state: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Write values back in place."""
    for tensor, value in zip(state, values, strict=True):
        tensor.copy_(value)


def _is_close(actual: Tensor, expected: Tensor) -> bool:
    """Whether two tensors agree but for the order of sums."""
    if not actual.is_floating_point():
        return torch.equal(actual, expected)
    scale = float(expected.abs().max()) if expected.numel() else 0.0
    return torch.allclose(actual, expected, rtol=0.0, atol=_TOLERANCE * max(scale, 1e-3))
