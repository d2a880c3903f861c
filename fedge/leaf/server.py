"""A server as its parent sees it: a leaf over clients, or a region over servers (`fedge.cloud.region`)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from fedge.compression.sending import Sending
from fedge.config.tree import Path
from fedge.leaf.drift import Drift
from fedge.leaf.models import LeafModels
from fedge.leaf.strategies.aggregation import Contribution
from fedge.states.averaging import State
from fedge.states.files import state_bytes


class Server(Protocol):
    """A server with a parent.

    Attributes:
        path: position in the tree: index of the root's child, then of this server's child, …
        is_apart: whether the servers below keep separate models between its rounds.
        drift: movement since the parent's last round, or None if SCAFFOLD does not reach this tier.
        sending: compression of its uplink; None for uncompressed models.
    """

    path: Path
    is_apart: bool
    drift: Drift | None
    sending: Sending | None

    @property
    def number(self) -> int:
        """Index among the children of its parent: 0, 1, …"""

    @property
    def clients(self) -> Sequence[int]:
        """Partition ids of all training clients below, ascending."""

    @property
    def unseen_clients(self) -> Sequence[int]:
        """Partition ids of all unseen clients below."""

    @property
    def train_samples(self) -> Mapping[int, int]:
        """Partition id → training windows of the training clients."""

    @property
    def models(self) -> LeafModels:
        """The trained and served models; transitions also apply to all servers below."""

    @property
    def model(self) -> State:
        """The model for the next round."""

    @property
    def weight(self) -> int:
        """Number of training windows of all training clients below, its weight at the parent."""

    @property
    def control(self) -> State | None:
        """SCAFFOLD's c of a leaf (of a region: of its first leaf), or None when SCAFFOLD is off."""

    @property
    def below(self) -> Sequence["Server"]:
        """The servers whose results it combines; none for a leaf."""

    def contribution(self, version: int) -> Contribution:
        """Contribution to the parent, in the parent's round `version`."""

    def begin(self, model: State, group: int = 0) -> None:
        """Start the run with a model."""

    def set_correction(self, above: State | None) -> None:
        """Set the sum of the corrections of all servers above; None for zero."""

    def keep_states(self, keep: Callable[[State], State]) -> None:
        """Pass its states, and those of all servers below, through `keep`, which stores them."""


def bytes_up(server: Server) -> int:
    """Bytes sent by a server to its parent for its model."""
    return state_bytes(server.model) if server.sending is None else server.sending.sent_bytes


def set_update_bases(servers: Sequence[Server]) -> None:
    """After a round of the parent: let compressed updates refer to the models received by the servers below.

    A leaf whose clients have all moved away got none.
    """
    for server in servers:
        if server.sending is not None and server.clients:
            server.sending.set_base(server.model)
        set_update_bases(server.below)
