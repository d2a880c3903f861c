"""Servers between cloud and leaves: a region combines the models of the servers below, and is a child itself.

To the server above, a region is like a leaf: it brings a model, is offered one, is corrected. To the
servers below, it is like a cloud without groups: when its round is over they bring it their models, it
takes the mean, and they go on from that, each with its correction (`fedge.cloud.control`). All that a region
is given reaches every server below it.

Source: Liu et al. 2020, HierFAVG, for averages on two tiers; Fang et al. 2024, MTGC, for corrections on each.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from fedge.cloud import control
from fedge.compression.sending import Sending
from fedge.config.tree import Path
from fedge.leaf.aggregation import Contribution, mean_of
from fedge.leaf.drift import EVERYBODY, Drift, added
from fedge.leaf.leaf import Leaf
from fedge.leaf.models import LeafModels
from fedge.leaf.server import Server, take_in_given
from fedge.states.averaging import State


class RegionModels(LeafModels):
    """The models of a region; every change of them reaches all servers below."""

    def __init__(self, model: State, below: Sequence[Server]) -> None:
        """Begin with a model, as those below have already."""
        self._below = below
        super().__init__(model)

    def begin(self, model: State) -> None:
        """Begin with a model, and serve it."""
        super().begin(model)
        for server in self._below:
            server.models.begin(model)

    def go_on_with(self, model: State) -> None:
        """Serve a model and train it on."""
        super().go_on_with(model)
        for server in self._below:
            server.models.go_on_with(model)

    def serve_unseen(self, model: State | None) -> None:
        """Serve unseen clients a model of their own, or with None that of known clients."""
        super().serve_unseen(model)
        for server in self._below:
            server.models.serve_unseen(model)

    def combined(self, model: State) -> None:
        """Take the mean of the models from below; they train it on, and serve the same models as before."""
        self._held["model"] = model
        for server in self._below:
            if isinstance(server.models, RegionModels):
                server.models.combined(model)
            else:
                server.models.trained("leaf", model)


class Region:
    """A server over servers that is no root.

    Attributes:
        path: from the root down.
        index: among the children of the server above it.
        below: servers whose models it combines, in order.
        leaves: below it, at whatever depth, in order.
        clients, unseen_clients: partition ids of all clients below, ascending.
        train_samples: partition id → training windows of the clients that train.
        models: its present and its served ones.
        drift: since the last round of the server above, or None where SCAFFOLD does not reach that high.
        sending: its compressed way up; None where its model travels as it is.
    """

    def __init__(self, path: Path, below: Sequence[Server], is_corrected: bool) -> None:
        """Stand over servers that have all begun with one model.

        Args:
            path: from the root down.
            below: its children, in order.
            is_corrected: whether SCAFFOLD corrects it towards the server above.
        """
        self.path, self.index, self.below = path, path[-1], list(below)
        self.leaves = [leaf for each in below for leaf in leaves_below(each)]
        self.clients = tuple(sorted(chain.from_iterable(leaf.clients for leaf in self.leaves)))
        self.unseen_clients = tuple(sorted(chain.from_iterable(leaf.unseen_clients for leaf in self.leaves)))
        self.train_samples = {c: n for leaf in self.leaves for c, n in leaf.train_samples.items()}
        self.models = RegionModels(self.leaves[0].model, self.below)
        self.drift = Drift(self.model) if is_corrected else None
        self.sending: Sending | None = None
        self._above: State | None = None
        self._brought: tuple[Contribution, ...] = ()

    @property
    def model(self) -> State:
        """The model with which those below it go on."""
        return self.models.model

    @property
    def weight(self) -> int:
        """Training windows of all clients below that train: its weight at the server above."""
        return sum(leaf.weight for leaf in self.leaves)

    @property
    def control(self) -> State | None:
        """SCAFFOLD's c of its first leaf, which has the entries that are corrected; None without SCAFFOLD."""
        return self.leaves[0].control

    def begin(self, model: State, group: int = EVERYBODY) -> None:
        """Begin the run with a model, as all servers below do."""
        self.models.begin(model)
        for server in self.below:
            server.begin(model)
        if self.drift is not None:
            self.drift = Drift(model, group=group)

    def contribution(self, version: int) -> Contribution:
        """Contribution to the server above, once a round of it: the mean of those in its last round."""
        if self.sending is not None:
            return Contribution(self.index, self.sending.send(self.model), self.weight, version)
        return Contribution(self.index, self.model, self.weight, version, self._brought)

    def combine(self, version: int, keep: Callable[[State], State]) -> None:
        """Carry out a round: take the mean of the models from below, and let those servers go on from it.

        Args:
            version: of the models that they bring.
            keep: decides where large states lie.
        """
        self._brought = tuple(server.contribution(version) for server in self.below)
        control.arrive(self.below)
        if self.drift is not None:
            lengths = [server.drift.length for server in self.below if server.drift is not None]
            weights = [server.weight for server in self.below]
            self.drift.length += sum(w * n for w, n in zip(weights, lengths, strict=True)) / sum(weights)
        self.models.combined(keep(mean_of(self._brought)))
        take_in_given(self.below)
        if self.below[0].drift is not None:
            control.depart(self.below, [EVERYBODY] * len(self.below))
            self.be_corrected(self._above)
        self.keep_states(keep)

    def depart(self) -> None:
        """Let servers below begin their drifts from the models that they have by now; corrections stay.

        The server above may have given them others since their region's round.
        """
        self._brought = ()  # they may be large
        for server in self.below:
            if server.drift is not None:
                server.drift.start = server.model
            if isinstance(server, Region):
                server.depart()

    def be_corrected(self, above: State | None) -> None:
        """Take in the sum of the corrections of all servers above, and tell those below."""
        self._above = above
        own = None if self.drift is None else self.drift.correction
        told = above if own is None else own if above is None else added(own, above)
        for server in self.below:
            server.be_corrected(told)

    def keep_states(self, keep: Callable[[State], State]) -> None:
        """Let `keep` decide where its states, and those of all servers below, lie."""
        self.models.keep(keep)
        if self.drift is not None and self.drift.correction is not None:
            self.drift.correction = keep(self.drift.correction)
        for server in self.below:
            server.keep_states(keep)

    # --- state that survives the process --------------------------------------------------------------------

    def states(self) -> dict[str, State]:
        """States that it keeps from one global round to the next."""
        sending = {} if self.sending is None else self.sending.states()
        return {**self.models.states(), **({} if self.drift is None else self.drift.states()), **sending}

    def facts(self) -> dict[str, Any]:
        """Further state as JSON."""
        drift = {} if self.drift is None else {"drift": self.drift.facts()}
        sending = {} if self.sending is None else {"sending": self.sending.facts()}
        return {"repeated": self.models.repeated(), **drift, **sending}

    def restore(self, states: Mapping[str, State], facts: Mapping[str, Any]) -> None:
        """Restore the result of `states` and `facts`; servers below it are restored by themselves."""
        self.models.restore(states, facts["repeated"])
        if self.drift is not None:
            self.drift = Drift.restored(states, facts["drift"], self.model)
        if self.sending is not None:
            self.sending.restore(states, facts["sending"])


def leaves_below(server: Server) -> list[Leaf]:
    """Leaves below a server, in order; of a leaf itself."""
    if isinstance(server, Leaf):
        return [server]
    return [leaf for each in server.below for leaf in leaves_below(each)]


def all_regions(servers: Sequence[Server]) -> list[Region]:
    """Regions among servers and below them, lowest tier first, each tier in order."""
    regions = [server for server in servers if isinstance(server, Region)]
    if not regions:
        return []
    return [*all_regions([server for region in regions for server in region.below]), *regions]
