"""Clients under one leaf that carry out an algorithm as arrays, without messages or files."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from fedge.algorithm.algorithm import Algorithm, Sent
from fedge.algorithm.client import Client, Place
from fedge.algorithm.client_round import plain_training
from fedge.algorithm.leaf_part import LeafContributions, LeafPart, ReplyToLeaf
from fedge.states.averaging import State, weighted_mean
from fedge.states.named_states import Memory, packed, unpacked
from fedge.training.networks.module_state import get_state
from fedge.training.settings import LocalTraining


class OneLeaf:
    """A leaf and its clients.

    Attributes:
        model: the leaf's.
        memories: of the clients, in order.
        sent: the models that the clients sent in the last round.
        memory: of the leaf part.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        network: nn.Module,
        windows: Sequence[tuple[np.ndarray, np.ndarray]],
        settings: LocalTraining,
        part: LeafPart | None = None,
    ) -> None:
        """Begin with the weights that `network` has."""
        self._algorithm, self._network, self._settings = algorithm, network, settings
        self._windows, self._part = windows, part or LeafPart()
        self.model: State = get_state(network)
        self.memories: list[Memory] = [{} for _ in windows]
        self.memory = self._part.start(self.model)
        self.sent: list[State] = []
        self._rounds = 0

    def client(self, number: int, **more: Any) -> Client:
        """A client as it stands before its next leaf round."""
        x, y = (torch.from_numpy(each) for each in self._windows[number])
        draws = torch.Generator().manual_seed(1000 * self._rounds + number)
        made = Client(
            received=self.model,
            x=x,
            y=y,
            network=self._network,
            settings=self._settings,
            place=Place(7, (self._rounds + 1, number)),
            plain=plain_training(self._network, x, y, draws),
            draws=draws,
            beside=unpacked(packed(self._part.send(self.memory), "beside")),
            **more,
        )
        made.memory = self.memories[number] or unpacked(packed(self._algorithm.start(made), "memory"))
        return made

    def round(self) -> None:
        """Let all clients train, and combine what they send."""
        self._rounds += 1
        brought = []
        for number, (_, y) in enumerate(self._windows):
            client = self.client(number)
            made = self._algorithm.train(client)
            sent = made if isinstance(made, Sent) else Sent(made)
            self.memories[number] = unpacked(packed(client.memory, "memory"))
            names = sent.only if sent.only is not None else list(self.model)
            state = {name: sent.fit.state[name] if name in names else a for name, a in self.model.items()}
            arrays = packed(sent.arrays, "arrays")
            brought.append(ReplyToLeaf(number, state, float(len(y)), arrays))
        self.sent = [one.state for one in brought]
        weights = [one.weight for one in brought]
        leaf = LeafContributions(
            self.model,
            weighted_mean(self.sent, weights),
            weighted_mean([one.arrays for one in brought], weights),
            brought,
            self.memory,
            [name for name, p in self._network.named_parameters() if p.requires_grad],
            len(brought),
            self._settings.lr,
        )
        self.model = self._part.combine(leaf)
        self.memory = leaf.memory

    def models(self, number: int) -> Mapping[str, State]:
        """The models that a client is evaluated with."""
        return self._algorithm.models(self.client(number))
