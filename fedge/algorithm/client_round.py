"""One leaf round of one client under any algorithm: from its memory to a message and its new memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fedge.algorithm.algorithm import Algorithm, Sent
from fedge.algorithm.client import Client, Plain
from fedge.algorithm.descent import Fit
from fedge.config.registers.option import shown
from fedge.states.averaging import State
from fedge.states.named_states import Memory, arrays_by_name, copy_if_view, first_difference, packed, unpacked
from fedge.training.host import torch_threads
from fedge.training.local import TrainResult, train
from fedge.training.networks.module_state import load_state
from fedge.training.settings import LocalTraining


@dataclass(frozen=True)
class ClientTurnResult:
    """Result of a client's leaf round.

    Attributes:
        sent: model entries to send.
        loss: training loss.
        steps: optimiser steps taken, over all models.
        weight: weight in means; None for the number of windows.
        arrays: arrays to send beside the model, packed; float32 or float64, or integers of models.
        memory: new memory, packed; empty if the algorithm has none.
        own: entries of the model trained by the client and not sent.
    """

    sent: State
    loss: float
    steps: int
    weight: float | None
    arrays: State
    memory: State
    own: tuple[str, ...] = ()


def plain_training(network: nn.Module, x: Tensor, y: Tensor, draws: torch.Generator | None = None) -> Plain:
    """Plain local training (`fedge.training.local`) of a network on windows x (N, …), y (N, …)."""

    def run(
        start: State, settings: LocalTraining, generator: torch.Generator, correction: State | None
    ) -> TrainResult:
        load_state(network, start)
        return train(network, x, y, settings, generator, correction=correction, draws=draws)

    return run


def run_algorithm(algorithm: Algorithm, client: Client, stored: Memory | None) -> ClientTurnResult:
    """Run a client's algorithm for one leaf round.

    Args:
        algorithm: algorithm of the run.
        client: the client; its memory is set here.
        stored: memory from earlier rounds; None before the first.

    Raises:
        TypeError, ValueError: the algorithm returns or stores values of the wrong form.
        FloatingPointError: a value is not finite.
    """
    with torch_threads(client.settings.threads):
        before = begin_memory(algorithm, client, stored)
        result = algorithm.train(client)
    client.refuse_changed_windows()
    sent = Sent(result) if isinstance(result, Fit) else result
    if not isinstance(sent, Sent) or not isinstance(sent.fit, Fit):
        raise TypeError(
            f"train must return what client.fit returns, or Sent of that, but returned {shown(result)}"
        )
    memory = packed(client.memory, "memory")
    difference = first_difference(before, memory)
    if difference:
        raise ValueError(f"memory must keep its names, shapes and dtypes, but {difference}")
    if sent.weight is not None and not 0 < sent.weight <= client.windows:
        raise ValueError(
            f"weight must be above 0 and at most the client's {client.windows} windows, but is "
            f"{shown(sent.weight)}"
        )
    arrays = {
        name: a
        if name.partition("/")[0] in algorithm.beside_models and a.dtype.kind in "iub"
        else _as_float(a)
        for name, a in packed(sent.arrays, "arrays").items()
    }
    weight = None if sent.weight is None else float(sent.weight)
    entries = _sent_entries(sent, client.received)
    unsent = [name for name in client.received if name not in entries]
    kept_entries = [
        n for n in unsent if not np.array_equal(sent.fit.state[n], client.received[n], equal_nan=True)
    ]
    return ClientTurnResult(
        entries,
        _as_number(sent.fit.loss),
        max(client.steps, 1),
        weight,
        arrays,
        memory,
        tuple(kept_entries),
    )


def further_models(
    algorithm: Algorithm, client: Client, stored: Memory | None, unseen: bool = False
) -> dict[str, State]:
    """Models evaluated by a client beside the served one, by name, in order.

    Args:
        algorithm: algorithm of the run.
        client: the client; its memory is set here, and `received` is its served model.
        stored: its memory; None without any.
        unseen: whether it is an unseen client.

    Raises:
        TypeError, ValueError: a model does not have the entries of the run's model.
    """
    with torch_threads(client.settings.threads):
        begin_memory(algorithm, client, stored)
        models = algorithm.unseen(client) if unseen else algorithm.models(client)
    client.refuse_changed_windows()
    if not isinstance(models, Mapping):
        raise TypeError(f"models must return models by name, but returned {shown(models)}")
    for name, state in models.items():
        if type(name) is not str or not name or "/" in name:
            raise ValueError(f"models must have names without '/', but has {shown(name)}")
        difference = first_difference(client.received, packed({name: state}, "models"), name)
        if difference:
            raise ValueError(f"model {name!r} must be one of the run's, but entry {difference}")
    return dict(sorted(models.items()))


def begin_memory(algorithm: Algorithm, client: Client, stored: Memory | None) -> State:
    """Set the client's memory, created by the algorithm if absent; returns it packed."""
    before = packed(algorithm.start(client) if stored is None else stored, "memory")
    client.memory = unpacked(before)
    return before


def _as_float(array: np.ndarray) -> np.ndarray:
    """An array to send beside the model: float32 unchanged, all others as float64."""
    return array if array.dtype == np.float32 else array.astype(np.float64)


def _as_number(loss: object) -> float:
    """The loss of a fit as a Python number; a user's `Fit` may hold a NumPy number or a tensor.

    Raises:
        TypeError: the loss is not a number.
    """
    loss = loss.detach() if isinstance(loss, Tensor) else loss
    try:
        return float(loss)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"the loss of what train returns must be a number, but is {shown(loss)}") from None


def _sent_entries(sent: Sent, received: State) -> State:
    """Model entries sent by a client, in the model's order."""
    state = arrays_by_name(sent.fit.state, "the model that train returns")
    differing = sorted(set(state) ^ set(received))
    if differing:
        raise ValueError(f"train must return the model's entries, but differs in {differing[0]!r}")
    if isinstance(sent.only, str):
        raise TypeError(f"only must be a list of names, as client.head, but is {shown(sent.only)}")
    only = set(received) if sent.only is None else set(sent.only)
    unknown = sorted(only - set(received))
    if unknown or not only:
        wrong = repr(unknown[0]) if unknown else "none"
        raise ValueError(f"only must name entries of the model, but has {wrong}")
    for name in only:
        if state[name].shape != received[name].shape or state[name].dtype != received[name].dtype:
            raise ValueError(
                f"entry {name!r} must be {received[name].dtype} {received[name].shape}, but is "
                f"{state[name].dtype} {state[name].shape}"
            )
    return {name: copy_if_view(state[name]) for name in received if name in only}
