"""A client as its algorithm sees it: received arrays, windows, memory, and local training."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedge.algorithm.descent import BatchLoss, Changes, Fit, Trainer, descend, training_only
from fedge.config.registers.hooks import refuse_unknown_attribute
from fedge.config.registers.option import ConfigError, nearest, shown
from fedge.seeding import Purpose, numpy_stream, torch_stream
from fedge.states.averaging import State
from fedge.states.named_states import Memory, read_only
from fedge.training.local import TrainResult, one_pass
from fedge.training.networks.models import head_names, layer_names
from fedge.training.networks.module_state import load_state
from fedge.training.networks.own_models import OwnDraws
from fedge.training.settings import LocalTraining, with_changed

Plain = Callable[[State, LocalTraining, "torch.Generator", "State | None"], TrainResult]
"""(start, settings, order of windows, correction) → Fedge's own local training, by whatever computes it."""


@dataclass(frozen=True)
class Place:
    """Coordinates of a client's random streams: seed of the run, leaf round, client and so on."""

    seed: int
    where: tuple[int, ...]
    evaluates: bool = False  # evaluation and training use different streams


@dataclass
class Client:
    """One client in one leaf round.

    Attributes:
        received: the leaf's model, name → array; read only.
        beside: arrays sent with the model by the leaf part, by name; empty in `models` and `unseen`.
        memory: this client's memory by name: arrays, states (name → array) and numbers.
        x: training windows, (N, …); read only.
        y: their labels, (N, …).
        network: working copy in training mode, with the received weights, then those of the last training.
        settings: local training in this round, from the section `train` of the configuration.
        global_round: 1, 2, …
        leaf_round: 1, 2, …, counted over the whole run.
        correction: SCAFFOLD's c − c_i if `scaffold.enabled`, else None.
        config: entries of the config record of the leaf's strategy, by key.
        draws: random stream for dropout in a user's own model, else None.
        id: partition id from 0, as in the tables; the same in all rounds and at every leaf.
    """

    received: State
    x: Tensor
    y: Tensor
    network: nn.Module
    settings: LocalTraining
    place: Place
    plain: Plain
    global_round: int = 1
    leaf_round: int = 1
    beside: Memory = field(default_factory=dict)
    memory: Memory = field(default_factory=dict)
    correction: State | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    draws: torch.Generator | None = None
    id: int = 0

    def __post_init__(self) -> None:
        self.received = read_only(self.received)
        if self.correction is not None:
            self.correction = read_only(self.correction)
        self._original_windows = {"x": self.x, "y": self.y}
        self._streams: dict[str, torch.Generator] = {}
        self._fitted_steps = 0
        self._trainers: list[Trainer] = []

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; AttributeError for an unknown one, which nothing would read."""
        refuse_unknown_attribute(self, name, "client", "keep values in client.memory, send them in Sent")
        super().__setattr__(name, value)

    @property
    def steps(self) -> int:
        """Optimiser steps taken in this leaf round, over all models."""
        return self._fitted_steps + sum(trainer.steps for trainer in self._trainers)

    @property
    def windows(self) -> int:
        """Number of training windows, the client's default weight in means."""
        return len(self.y)

    @property
    def lr(self) -> float:
        """Learning rate of the round."""
        return self.settings.lr

    @property
    def head(self) -> list[str]:
        """Entries of the model's last layer with a weight matrix."""
        return layer_names(self.network, ("head",))

    @property
    def base(self) -> list[str]:
        """All other entries of the model.

        Raises:
            ConfigError: the model has no other entries.
        """
        head = set(self.head)
        names = [name for name in self.received if name not in head]
        if not names:
            raise ConfigError(
                f"train.model must have layers below its last one, because train.algorithm shares them, but "
                f"has {' and '.join(sorted(head))} only; use another of the two"
            )
        return names

    @property
    def parameters(self) -> list[str]:
        """Names of the trainable entries."""
        return [name for name, p in self.network.named_parameters() if p.requires_grad]

    def stream(self, name: str = "") -> torch.Generator:
        """PyTorch random stream of this client in this leaf round, continued from call to call.

        Args:
            name: "" for the default order of windows; any other name for a separate stream.
        """
        if name not in self._streams:
            place = self.place
            purpose, coordinates = (
                Purpose.ALGORITHM,
                (*place.where, zlib.crc32(name.encode()), int(place.evaluates)),
            )
            if not name and not place.evaluates:
                purpose, coordinates = Purpose.BATCHES, place.where
            self._streams[name] = torch_stream(place.seed, purpose, *coordinates)
        return self._streams[name]

    def rng(self, name: str) -> np.random.Generator:
        """A NumPy random stream of this client in this leaf round, from the beginning at every call."""
        coordinates = (*self.place.where, zlib.crc32(name.encode()), 2 + int(self.place.evaluates))
        return numpy_stream(self.place.seed, Purpose.ALGORITHM, *coordinates)

    def fit(
        self,
        start: State | None = None,
        *,
        steps: int | None = None,
        pull: tuple[float, State] | Sequence[tuple[float, State]] = (),
        correction: State | None = None,
        only: Sequence[str] | None = None,
        loss: BatchLoss | None = None,
        penalty: BatchLoss | None = None,
        after: Callable[[Trainer], None] | None = None,
        stream: str = "",
        **changed: Any,
    ) -> Fit:
        """Train a model on this client's windows; without changes exactly as `fedge.training.local` does.

        Args:
            start: initial weights; by default the received ones.
            steps: optimiser steps in place of epochs; by default `train.local-steps`.
            pull: (μ, weights), or several such pairs: adds μ (w − weights) to every gradient, after clipping.
            correction: name → array, added to every gradient, after clipping.
            only: names of the parameters to train; the others are frozen.
            loss: (network, x, y) → scalar, replaces the run's loss.
            penalty: (network, x, y) → scalar, added to the loss.
            after: called after every step with the `Trainer`.
            stream: name of the random stream for the order of windows.
            **changed: settings of local training to change: epochs, lr, momentum, weight_decay, …

        Raises:
            TypeError, ValueError: an unknown name, or a value not allowed.
            FloatingPointError: a loss or a weight is not finite.
        """
        start = self.received if start is None else start
        if not isinstance(start, Mapping):
            raise TypeError(f"start must be a model's entries, name → array, but is {shown(start)}")
        settings, only = self._changed_settings(steps, changed), _entry_names(only)
        pulls = self._normalize_pulls(pull)
        if len(pulls) == 1 and pulls[0][1] is start and not settings.prox_mu:  # FedProx, by the option
            settings, pulls = replace(settings, prox_mu=pulls[0][0]), []
        changes = Changes(pulls, correction, only, loss, penalty, after)
        if steps is None and not changes.needs_torch:
            plain_result = self.plain(start, settings, self.stream(stream), correction)
            self._fitted_steps += plain_result.steps
            return Fit(plain_result.state, plain_result.loss, plain_result.steps)
        load_state(self.network, start)
        draws = None if self.draws is None else OwnDraws(self.draws)
        result = descend(self.network, self.x, self.y, settings, self.stream(stream), changes, draws)
        self._fitted_steps += result.steps
        return result

    def _changed_settings(self, steps: int | None, changed: Mapping[str, Any]) -> LocalTraining:
        """Settings with the method's changes; epochs set by the method override `train.local-steps`."""
        if steps is None and "epochs" not in changed:
            return with_changed(self.settings, changed) if changed else self.settings
        settings = with_changed(self.settings, {"steps": 0 if steps is None else steps, **changed})
        if steps is not None and not settings.steps:
            raise ValueError(f"steps must be at least 1, got {steps}; None for epochs")
        return settings

    def _normalize_pulls(self, pull: Any) -> list[Any]:
        """Pulls as pairs, from one or several.

        Raises:
            TypeError: it is neither.
            ValueError: weights have a name unknown to the model.
        """
        values = list(pull) if isinstance(pull, Iterable) and not isinstance(pull, Mapping) else [pull]
        pulls = [tuple(values)] if values and not isinstance(values[0], (tuple, list)) else values
        for pair in pulls:
            if len(pair) != 2 or np.ndim(pair[0]) or not isinstance(pair[1], Mapping):
                raise TypeError(
                    f"pull must be (strength, weights), or several of them, but is or has {shown(pair)}"
                )
            unknown = [name for name in pair[1] if name not in self.received]
            if unknown:
                raise ValueError(
                    f"pull must name entries of the model, but has {shown(unknown[0])}"
                    f"{nearest(str(unknown[0]), list(self.received))}"
                )
        return [(float(strength), weights) for strength, weights in pulls]

    def trainer(self, start: State, *, only: Sequence[str] | None = None, **changed: Any) -> Trainer:
        """A separate network to train step by step, for methods with several networks.

        Args:
            start: initial weights.
            only: names of the parameters to train; the others are frozen.
            **changed: settings of local training to change.
        """
        network = self.network_with(start).train()
        draws = None if self.draws is None else OwnDraws(self.draws)
        with training_only(network, _entry_names(only)):
            trainer = Trainer(network, with_changed(self.settings, changed), Changes(), draws)
        self._trainers.append(trainer)
        return trainer

    def refuse_changed_windows(self) -> None:
        """Raise ValueError if windows or labels were modified: `fit` would mix old and new values."""
        for name, original in self._original_windows.items():
            if getattr(self, name) is not original or original._version:
                raise ValueError(f"client.{name} is read only, but was changed; change client.{name}.clone()")

    def batches(self, epochs: int | None = None, stream: str = "") -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batches (x, y) of this client's windows in seeded order, on the network's device.

        Args:
            epochs: passes over the windows; by default those of the configuration.
            stream: name of the random stream for the order of windows.
        """
        settings = self._changed_settings(None, {} if epochs is None else {"epochs": epochs})
        for steps in settings.passes(self.windows):
            batches = one_pass(self.windows, settings, steps, self.stream(stream))
            device = next(self.network.parameters()).device
            for batch in batches.rows(self.x.device):
                yield batches.inputs(self.x, batch).to(device), self.y.index_select(0, batch).to(device)

    def windows_at(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        """Windows and labels at indices (B,), copied to the network's device."""
        device = next(self.network.parameters()).device
        return self.x.index_select(0, batch).to(device), self.y.index_select(0, batch).to(device)

    def network_with(self, state: State) -> nn.Module:
        """A copy of the network with the weights of a state, in evaluation mode."""
        network = copy.deepcopy(self.network)
        load_state(network, state)
        return network.eval()

    def features(self, network: nn.Module) -> Features:
        """Recorder of the inputs to a network's head, from now on."""
        return Features(network)


def _entry_names(only: Any) -> list[str] | None:
    """Names of entries, from any iterable of them; None for all.

    Raises:
        TypeError: it is a single text, whose letters would be names.
    """
    if only is None:
        return None
    if isinstance(only, str) or not isinstance(only, Iterable):
        raise TypeError(f"only must be a list of names, as client.head, but is {shown(only)}")
    return list(only)


class Features:
    """Recorder of the inputs to a network's head in the last batch.

    Attributes:
        last: (B, F), with its gradient; None before the first batch.
    """

    def __init__(self, network: nn.Module) -> None:
        """Record every batch of `network`, until `close`."""
        layer = head_names(network)[0].rpartition(".")[0]
        self._network = network
        self.last: Tensor | None = None
        self._hook = network.get_submodule(layer).register_forward_pre_hook(self._record)

    def _record(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.last = inputs[0]

    def of(self, x: Tensor) -> Tensor:
        """Features of a batch x (B, …), without gradient; (B, F)."""
        with torch.no_grad():
            self._network(x)
        assert self.last is not None
        return self.last

    def __deepcopy__(self, memo: dict[int, Any]) -> Features:
        """A recorder of the copied network, without the last batch: a result with gradient has no copy."""
        made = object.__new__(type(self))
        memo[id(self)] = made
        made._network, made.last = copy.deepcopy(self._network, memo), None
        return made

    def close(self) -> None:
        """Stop recording."""
        self._hook.remove()
