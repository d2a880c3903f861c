"""Regions: servers between cloud and leaves, which combine the models of their children.

To its parent, a region looks like a leaf: it contributes a model, and gets an offer and a correction. To its
children, it looks like the cloud. A plain region takes the mean, from which its children continue, each with
its correction (`fedge.cloud.control`). Other regions group their children, combine them by a rule or give
them a choice (`fedge.rounds.server_round`). Then the children stand *apart*: they keep different models, and
only the parent sees the region's own model, which is their mean. Every model sent to a region reaches all
servers below.

Source: Liu et al. 2020, HierFAVG, for averages on two tiers; Fang et al. 2024, MTGC, for corrections on each.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import Any

from fedge.cloud import control
from fedge.cloud.offers import with_own_entries
from fedge.compression.sending import Sending
from fedge.config.config import Config
from fedge.config.tree import Path
from fedge.exchange.evaluate import CLUSTER, OWN
from fedge.exchange.round_context import LEAF, OWN_LINE, Line
from fedge.leaf.drift import EVERYBODY, Drift, corrected_control
from fedge.leaf.leaf import Leaf
from fedge.leaf.models import LeafModels
from fedge.leaf.server import Server, set_update_bases
from fedge.leaf.strategies.aggregation import Contribution, mean_of
from fedge.states.averaging import State, weighted_mean


class RegionModels(LeafModels):
    """The models of a region; every change also applies to all servers below.

    Attributes:
        given: model sent by the parent since `take_received_model`; None without one, or if no child
            stands apart.
    """

    def __init__(
        self, model: State, below: Sequence[Server], is_apart: bool, personal_entries: Collection[str]
    ) -> None:
        """Start with the initial model, which the servers below already have.

        Args:
            model: the common initial model.
            below: the region's servers.
            is_apart: whether these keep different models between the region's rounds.
            personal_entries: leaves' personal entries.
        """
        self._below, self._is_apart, self._personal_entries = below, is_apart, personal_entries
        self.given: State | None = None
        super().__init__(model)

    def begin(self, model: State) -> None:
        """Start with a model, and serve it."""
        super().begin(model)
        for server in self._below:
            server.models.begin(model)

    def continue_with(self, model: State) -> None:
        """Serve a model and train it further."""
        super().continue_with(model)
        self._note_given(model)
        for server in self._below:
            server.models.continue_with(self._with_personal(server, model))

    def continue_with_own(self) -> None:
        """Continue with its own model; separated children have already continued with theirs."""
        if self._is_apart:
            super().continue_with(self.model)
        else:
            self.continue_with(self.model)

    def take_tentatively(self, offer: State) -> None:
        """Train an offer, beside the served model."""
        super().take_tentatively(offer)
        self._note_given(offer)
        for server in self._below:
            server.models.take_tentatively(self._with_personal(server, offer))

    def serve_unseen(self, model: State | None, is_own: bool) -> None:
        """Serve unseen clients a separate model, or, with None, the known clients'."""
        super().serve_unseen(model, is_own)
        for server in self._below:
            below = self._with_personal(server, model) if is_own and model is not None else model
            server.models.serve_unseen(below, is_own)

    def trained(self, line: Line, model: State) -> None:
        """Set the mean of a line's models from below; the servers train it and serve their previous model."""
        super().trained(line, model)
        if line == LEAF:
            self._note_given(model)
        for server in self._below:
            server.models.trained(line, self._with_personal(server, model))

    def set_own_model(self, model: State) -> None:
        """Set the region's own model to the mean of its children, which continue with other models."""
        super().trained(LEAF, model)

    def take_received_model(self) -> State | None:
        """The model sent by the parent since the last call; None without one."""
        model, self.given = self.given, None
        return model

    def _note_given(self, model: State) -> None:
        """Record a model from the parent; with children apart, only `set_own_model` sets the own model."""
        if self._is_apart:
            self.given = model

    def _with_personal(self, server: Server, model: State) -> State:
        """A model with a leaf's personal entries; for a region, the model unchanged."""
        return model if server.below else with_own_entries(model, server.model, self._personal_entries)


class Region:
    """A server over servers other than the root.

    Attributes:
        path: position in the tree, from the root down.
        below: its children, in order.
        is_apart: whether these keep different models between its rounds, by grouping or by choice.
        leaves: all leaves below it, in order.
        clients, unseen_clients: partition ids of all clients below, ascending.
        train_samples: partition id → number of training windows of the training clients.
        models: its current and served models.
        drift: movement since the parent's last round, or None if SCAFFOLD does not reach this tier.
        sending: compression of its uplink; None for uncompressed models.
        rounds: number of its rounds per round of the parent.
    """

    def __init__(
        self,
        path: Path,
        below: Sequence[Server],
        is_corrected: bool,
        is_apart: bool = False,
        personal_entries: Collection[str] = (),
        rounds: int = 1,
    ) -> None:
        """Start over children with a common initial model; for further arguments see the attributes.

        Args:
            is_corrected: whether SCAFFOLD corrects the region's drift.
            personal_entries: leaves' personal entries when they take a model.
        """
        self.path, self.below, self.is_apart, self.rounds = path, list(below), is_apart, rounds
        self.leaves = [leaf for child in below for leaf in leaves_below(child)]
        self.clients = tuple(sorted(chain.from_iterable(leaf.clients for leaf in self.leaves)))
        self.unseen_clients = tuple(sorted(chain.from_iterable(leaf.unseen_clients for leaf in self.leaves)))
        self.train_samples = {c: n for leaf in self.leaves for c, n in leaf.train_samples.items()}
        self.models = RegionModels(self.leaves[0].model, self.below, is_apart, personal_entries)
        self.drift = Drift(self.model) if is_corrected else None
        self.sending: Sending | None = None
        self._personal_entries = personal_entries
        self._parent_correction: State | None = None
        self._contributions: tuple[Contribution, ...] = ()

    @property
    def number(self) -> int:
        """Index among the children of its parent."""
        return self.path[-1]

    @property
    def model(self) -> State:
        """The starting model of the servers below, unless they stand apart."""
        return self.models.model

    @property
    def weight(self) -> int:
        """Number of training windows of all training clients below, its weight at the parent."""
        return sum(leaf.weight for leaf in self.leaves)

    @property
    def control(self) -> State | None:
        """SCAFFOLD's c of its first leaf, for the names of corrected entries; None without SCAFFOLD."""
        return self.leaves[0].control

    @property
    def brings_leaves(self) -> bool:
        """Whether its contribution is the models of its leaves, whose mean is then rounded only once.

        True if it and all regions below have one round per round of their parent."""
        return all(region.rounds == 1 for region in all_regions([self]))

    def begin(self, model: State, group: int = EVERYBODY) -> None:
        """Start the run with a model, as all servers below do."""
        self.models.begin(model)
        for server in self.below:
            server.begin(model)
        if self.drift is not None:
            self.drift = Drift(model, group=group)

    def contribution(self, version: int) -> Contribution:
        """Contribution to the parent, the mean of its last round; call once per round of the parent.

        With one round per round of the parent, its parts are included, and the mean is rounded only once.
        """
        if self.sending is not None:
            return Contribution(self.number, self.sending.send(self.model), self.weight, version)
        return Contribution(self.number, self.model, self.weight, version, self._contributions)

    def evaluated_model(self, leaf: Leaf, role: str, model: State, unseen: bool = False) -> State:
        """The model evaluated by clients of a leaf when the region is asked about `model`.

        Args:
            leaf: a leaf below, at any depth.
            role: role of the model.
            model: the region's model in that role.
            unseen: whether unseen clients evaluate it.
        """
        if self.is_apart and role == OWN:
            return leaf.models.unseen if unseen and leaf.models.unseen is not None else leaf.models.served
        own_line = leaf.models.own_line if role == OWN_LINE else None
        return (
            model
            if role == CLUSTER
            else with_own_entries(model, leaf.model if own_line is None else own_line, self._personal_entries)
        )

    # --- its rounds -----------------------------------------------------------------------------------------

    def combine(self, version: int, keep: Callable[[State], State]) -> None:
        """Run a round: take the mean of the children's models, from which they continue.

        Args:
            version: version of their models.
            keep: stores large states in files or in memory.
        """
        mean = self.gather(version, keep)
        self.models.trained(LEAF, mean)
        if self.models.own_line is not None:
            lines = [leaf.models.own_line for leaf in self.leaves]
            weights = [leaf.weight for leaf in self.leaves]
            self.models.trained(OWN_LINE, keep(weighted_mean([x for x in lines if x is not None], weights)))
        set_update_bases(self.below)
        if self.below[0].drift is not None:
            control.start_drifts(self.below, [EVERYBODY] * len(self.below), self._personal_entries)
            self.correct_below()
        self.keep_states(keep)

    def gather(self, version: int, keep: Callable[[State], State]) -> State:
        """Record the contributions and movements of the servers below; return the mean of their models.

        Args:
            version: version of their models.
            keep: stores large states in files or in memory.
        """
        contributions = tuple(server.contribution(version) for server in self.below)
        self._contributions = contributions if self.rounds == 1 else ()
        control.record_drift_ends(self.below)
        if self.drift is not None:
            lengths = [server.drift.take_increase() for server in self.below if server.drift is not None]
            weights = [server.weight for server in self.below]
            self.drift.length += sum(w * n for w, n in zip(weights, lengths, strict=True)) / sum(weights)
        mean = keep(mean_of(contributions))
        self.models.set_own_model(mean)
        return mean

    def take_combined(self, model: State, keep: Callable[[State], State]) -> None:
        """Set the model of rounds run by the region in another process; its children continue from it.

        Args:
            model: model of its last round.
            keep: stores large states in files or in memory.
        """
        self._contributions = ()
        self.models.trained(LEAF, keep(model))
        self.keep_states(keep)

    def set_own_model(self, model: State) -> None:
        """Set its own model to the result of a rule, in place of its children's mean."""
        self._contributions = ()
        self.models.set_own_model(model)

    def depart(self) -> None:
        """Start new drifts of the servers below from models of the parent; corrections stay.

        The parent may have sent them since the region's round. After a round without a step (`cluster.every`
        or `cluster.start-round` above 1), the drifts of servers with their own models go on.
        """
        self._contributions = ()  # they may be large
        for server in self.below:
            if server.drift is not None:
                server.drift.depart_from(server.model)
            if isinstance(server, Region):
                server.depart()

    def set_correction(self, above: State | None) -> None:
        """Set the sum of the corrections of all servers above, and pass it on to the children."""
        self._parent_correction = above
        self.correct_below()

    def correct_below(self) -> None:
        """Pass the sum of its own correction and those of all servers above to the children."""
        own, above = None if self.drift is None else self.drift.correction, self._parent_correction
        total = above if own is None else own if above is None else corrected_control(own, above)
        for server in self.below:
            server.set_correction(total)

    def keep_states(self, keep: Callable[[State], State]) -> None:
        """Pass its states, and those of all servers below, through `keep`, which stores them."""
        self.models.keep(keep)
        if self.drift is not None and self.drift.correction is not None:
            self.drift.correction = keep(self.drift.correction)
        for server in self.below:
            server.keep_states(keep)

    # --- state beyond the process ---------------------------------------------------------------------

    def states(self) -> dict[str, State]:
        """States between global rounds."""
        sending = {} if self.sending is None else self.sending.states()
        return {**self.models.states(), **({} if self.drift is None else self.drift.states()), **sending}

    def facts(self) -> dict[str, Any]:
        """Other state, as JSON."""
        drift = {} if self.drift is None else {"drift": self.drift.facts()}
        sending = {} if self.sending is None else {"sending": self.sending.facts()}
        return {"repeated": self.models.repeated(), **drift, **sending}

    def restore(self, states: Mapping[str, State], facts: Mapping[str, Any]) -> None:
        """Restore the result of `states` and `facts`; the servers below are restored separately."""
        self.models.restore(states, facts["repeated"])
        if self.drift is not None:
            self.drift = Drift.restored(states, facts["drift"], self.model, self.control)
        if self.sending is not None:
            self.sending.restore(states, facts["sending"])


def servers_over(
    config: Config, leaves: Sequence[Leaf], own_layers: Collection[str] = (), tier: int = 1
) -> list[Server]:
    """Create the servers of a tier over given leaves, with all regions in between.

    Args:
        config: configuration of the run.
        leaves: leaves in order, all of the tree or those below some servers of the tier; their paths are set.
        own_layers: personal entries of a leaf.
        tier: tier of the servers; by default the cloud's children.
    """
    hierarchy, levels = config.hierarchy, config.scaffold.levels if config.scaffold.enabled else 0
    servers: list[Server] = list(leaves)
    paths = hierarchy.shape.paths(hierarchy.tiers - 1) if hierarchy.tiers > 2 else []
    for leaf in leaves if paths else ():
        leaf.path = paths[leaf.index]
    for inner_tier in range(hierarchy.tiers - 2, tier - 1, -1):
        servers = [
            Region(
                path,
                [server for server in servers if server.path[:-1] == path],
                levels > hierarchy.tiers - inner_tier,
                inner_tier in config.meeting_tiers,
                own_layers,
                hierarchy.rounds_of_tiers[inner_tier - 1],
            )
            for path in dict.fromkeys(server.path[:-1] for server in servers)
        ]
    return servers


def leaves_below(server: Server) -> list[Leaf]:
    """Leaves below a server, in order; a leaf itself."""
    if isinstance(server, Leaf):
        return [server]
    return [leaf for child in server.below for leaf in leaves_below(child)]


def all_regions(servers: Sequence[Server]) -> list[Region]:
    """Regions among servers and below them, lowest tier first, each tier in order."""
    regions = [server for server in servers if isinstance(server, Region)]
    if not regions:
        return []
    return [*all_regions([server for region in regions for server in region.below]), *regions]
