"""Facts about the model for a server's rule: the network, and the classes of each device."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedge.devices.servers.vectors import Layout, Version

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, eq=False)
class ModelFacts:
    """Facts in `fedge.devices.servers.arrivals.Memory.facts` during every run; not part of checkpoints.

    Attributes:
        build: makes a network to load vectors into; its initial weights do not matter.
        version: any model of the server, for layout and counters.
        input_shape: shape of a window (C, T) or image (C, H, W).
        shares: (children, classes) float64, share of each class in a child's training windows; a row per
            partition id, or per leaf.
        seed: root of random streams.
        server: number of the leaf; for the cloud, the number of leaves.
        frozen: entries of the network left out of vectors.
    """

    build: "Callable[[], nn.Module]"
    version: Version
    input_shape: tuple[int, ...]
    shares: np.ndarray
    seed: int
    server: int
    frozen: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)
    _networks: "dict[int, nn.Module]" = field(default_factory=dict, repr=False)

    @property
    def layout(self) -> Layout:
        """Layout of vectors."""
        return self.version.layout

    @property
    def classes(self) -> int:
        """Number of classes."""
        return int(self.shares.shape[1])

    @cached_property
    def trainable(self) -> frozenset[str]:
        """Names of the network's trained parameters."""
        return frozenset(name for name, each in self.build().named_parameters() if each.requires_grad)

    def network(self, number: int, vector: np.ndarray) -> "nn.Module":
        """Network number 0, 1, … loaded with the model (P,), in evaluation mode, with fixed parameters.

        The same number gives the same network object, with the new model.
        """
        from fedge.training.networks.module_state import load_state

        if number not in self._networks:
            self._networks[number] = self.build().eval().requires_grad_(False)
        network = self._networks[number]
        load_state(network, {**self.frozen, **self.layout.state(vector, self.version.counters)})
        return network
