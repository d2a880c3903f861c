"""One leaf round of one client under any algorithm: memory in, message and new memory out."""

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
from fedge.states.named import Memory, arrays_by_name, of_its_own, other_form, packed, unpacked
from fedge.training.host import torch_threads
from fedge.training.local import TrainResult, train
from fedge.training.networks.module_state import load_state
from fedge.training.settings import LocalTraining


@dataclass(frozen=True)
class TakenPart:
    """Result of a client's leaf round.

    Attributes:
        sent: the transmitted entries of the model.
        loss: of training.
        steps: that the client took, for any model.
        weight: in means; None for the client's windows.
        arrays: sent beside the model, packed, float32 or float64.
        memory: new, packed; empty without any.
        own: entries of the model that the client has trained but does not send.
    """

    sent: State
    loss: float
    steps: int
    weight: float | None
    arrays: State
    memory: State
    own: tuple[str, ...] = ()


def plain_training(network: nn.Module, x: Tensor, y: Tensor, draws: torch.Generator | None = None) -> Plain:
    """Fedge's own local training of a network on windows x (N, …), y (N, …), in this process."""

    def run(
        start: State, settings: LocalTraining, generator: torch.Generator, correction: State | None
    ) -> TrainResult:
        load_state(network, start)
        return train(network, x, y, settings, generator, correction=correction, draws=draws)

    return run


def take_part(algorithm: Algorithm, client: Client, kept: Memory | None) -> TakenPart:
    """Let a client train for a leaf round.

    Args:
        algorithm: of the run.
        client: its memory is set here.
        kept: its memory so far; None before the first.

    Raises:
        TypeError, ValueError: the algorithm returns or keeps values of another form.
        FloatingPointError: something is not finite.
    """
    with torch_threads(client.settings.threads):
        before = begin_memory(algorithm, client, kept)
        made = algorithm.train(client)
    client.refuse_changed_windows()
    sent = Sent(made) if isinstance(made, Fit) else made
    if not isinstance(sent, Sent) or not isinstance(sent.fit, Fit):
        raise TypeError(
            f"train must return what client.fit returns, or Sent of that, but returned {shown(made)}"
        )
    memory = packed(client.memory, "memory")
    changed = other_form(before, memory)
    if changed:
        raise ValueError(f"memory must keep its names, shapes and dtypes, but {changed}")
    if sent.weight is not None and not 0 < sent.weight <= client.windows:
        raise ValueError(
            f"weight must be above 0 and at most the client's {client.windows} windows, but is "
            f"{shown(sent.weight)}"
        )
    arrays = {name: _floating(name, a) for name, a in packed(sent.arrays, "arrays").items()}
    weight = None if sent.weight is None else float(sent.weight)
    travelling = _travelling(sent, client.received)
    unsent = [name for name in client.received if name not in travelling]
    own = [n for n in unsent if not np.array_equal(sent.fit.state[n], client.received[n], equal_nan=True)]
    return TakenPart(
        travelling,
        _number(sent.fit.loss),
        max(client.steps, 1),
        weight,
        arrays,
        memory,
        tuple(own),
    )


def further_models(
    algorithm: Algorithm, client: Client, kept: Memory | None, unseen: bool = False
) -> dict[str, State]:
    """The further models of a client's evaluation beside the served one, by name, in order.

    Args:
        algorithm: of the run.
        client: its memory is set here; `received` is its served model.
        kept: its memory; None where it has none.
        unseen: the client has not trained.

    Raises:
        TypeError, ValueError: a model is none of the run's.
    """
    with torch_threads(client.settings.threads):
        begin_memory(algorithm, client, kept)
        made = algorithm.unseen(client) if unseen else algorithm.models(client)
    client.refuse_changed_windows()
    if not isinstance(made, Mapping):
        raise TypeError(f"models must return models by name, but returned {shown(made)}")
    for name, state in made.items():
        if type(name) is not str or not name or "/" in name:
            raise ValueError(f"models must have names without '/', but has {shown(name)}")
        differs = other_form(client.received, packed({name: state}, "models"), name)
        if differs:
            raise ValueError(f"model {name!r} must be one of the run's, but entry {differs}")
    return dict(sorted(made.items()))


def begin_memory(algorithm: Algorithm, client: Client, kept: Memory | None) -> State:
    """The client's memory, created by the algorithm if absent; returns it packed."""
    before = packed(algorithm.start(client) if kept is None else kept, "memory")
    client.memory = unpacked(before)
    return before


def _floating(name: str, array: np.ndarray) -> np.ndarray:
    """An array sent beside the model: float32 as it is, all others as float64."""
    return array if array.dtype == np.float32 else array.astype(np.float64)


def _number(loss: object) -> float:
    """The loss of a fit as a number of Python's: an own fit may hold NumPy's or a tensor.

    Raises:
        TypeError: it is none.
    """
    try:
        return float(loss)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"the loss of what train returns must be a number, but is {shown(loss)}") from None


def _travelling(sent: Sent, received: State) -> State:
    """The model entries sent by a client, in the model's order."""
    state = arrays_by_name(sent.fit.state, "the model that train returns")
    differing = sorted(set(state) ^ set(received))
    if differing:
        raise ValueError(f"train must return the model's entries, but differs in {differing[0]!r}")
    only = set(received) if sent.only is None else set(sent.only)
    unknown = sorted(only - set(received))
    if unknown or not only:
        what = repr(unknown[0]) if unknown else "none"
        raise ValueError(f"only must name entries of the model, but has {what}")
    for name in only:
        if state[name].shape != received[name].shape or state[name].dtype != received[name].dtype:
            raise ValueError(
                f"entry {name!r} must be {received[name].dtype} {received[name].shape}, but is "
                f"{state[name].dtype} {state[name].shape}"
            )
    return {name: of_its_own(state[name]) for name in received if name in only}
