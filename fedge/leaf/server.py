"""A server as seen by the one above: a leaf over clients, or a region over servers (`fedge.cloud.region`)."""

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
    """Child of a server.

    Attributes:
        path: from the root down: which child, then which of its children, …
        is_apart: whether the servers below have models of their own between its rounds.
        drift: since the last round of the server above, or None where SCAFFOLD does not reach that high.
        sending: its compressed way up; None where its model travels as it is.
    """

    path: Path
    is_apart: bool
    drift: Drift | None
    sending: Sending | None

    @property
    def number(self) -> int:
        """Its number among the children of the server above: 0, 1, …"""

    @property
    def clients(self) -> Sequence[int]:
        """Partition ids of all training clients below, ascending."""

    @property
    def unseen_clients(self) -> Sequence[int]:
        """Partition ids of all clients below without training."""

    @property
    def train_samples(self) -> Mapping[int, int]:
        """Partition id → training windows of the training clients."""

    @property
    def models(self) -> LeafModels:
        """Trained and served models; transitions reach all servers below."""

    @property
    def model(self) -> State:
        """The model for the next round."""

    @property
    def weight(self) -> int:
        """Training windows of all training clients below: its weight at the server above."""

    @property
    def control(self) -> State | None:
        """SCAFFOLD's c of a leaf (of a region: of its first leaf), or None when SCAFFOLD is off."""

    @property
    def below(self) -> Sequence["Server"]:
        """Servers with results to combine; none for a leaf."""

    def contribution(self, version: int) -> Contribution:
        """Contribution to the server above, whose round is `version`."""

    def begin(self, model: State, group: int = 0) -> None:
        """Begin the run with a model."""

    def be_corrected(self, above: State | None) -> None:
        """Take in the sum of the corrections of all servers above; None for zero."""

    def keep_states(self, keep: Callable[[State], State]) -> None:
        """Let `keep` decide where its states, and those of all servers below, lie."""


def bytes_up(server: Server) -> int:
    """Bytes of a server's model on its way up."""
    return state_bytes(server.model) if server.sending is None else server.sending.sent_bytes


def take_in_given(servers: Sequence[Server]) -> None:
    """After a round of the server above: count updates from the models given to all below.

    A leaf without clients, which all have moved, was given none.
    """
    for server in servers:
        if server.sending is not None and server.clients:
            server.sending.took(server.model)
        take_in_given(server.below)
