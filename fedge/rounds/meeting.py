"""Meeting of the cloud and its children around a cloud step: probes, questions, offers.

Children are leaves, or in a deeper tree regions; a region's questions go to the clients of all its leaves.

The cloud's part stands in `fedge.cloud.step`, the mixing of offers in `fedge.cloud.offers`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedge.cloud import control as cloud_control
from fedge.cloud.offers import Offers, blends_of, make_offers
from fedge.cloud.region import leaves_below
from fedge.cloud.step import CloudRound, CloudStep, Probe
from fedge.clustering.evidence import Answers, Questions, collect_answers
from fedge.config.config import Config
from fedge.exchange.evaluate import SplitName
from fedge.exchange.round_context import PROBE
from fedge.leaf.aggregation import Contribution, mean_of
from fedge.leaf.folds import by_client
from fedge.leaf.server import Server
from fedge.rounds.evaluation import Asked
from fedge.rounds.port import LeafPort
from fedge.rounds.transport import Transport
from fedge.states.averaging import State
from fedge.states.distinct import Once


class Meetings:
    """Brings the leaves to the cloud and its offers back."""

    def __init__(
        self,
        config: Config,
        leaves: Sequence[Server],
        transport: Transport,
        port: LeafPort,
        own_layers: Collection[str],
    ) -> None:
        """Keep the constants of the run.

        Args:
            config: its sections on hierarchy and clustering are read.
            leaves: children of the cloud, in order.
            transport: has the book of the round.
            port: makes probes, and puts the cloud's questions to clients.
            own_layers: entries of a model that a leaf keeps as its own when it takes an offer.
        """
        self._config = config
        self._leaves = leaves
        self._transport = transport
        self._port = port
        self._own_layers = own_layers

    def hold(self, begun: CloudRound) -> CloudStep:
        """Let the cloud cluster the leaves, and give them its offers.

        Args:
            begun: the present global round.
        """
        leaves, book = self._leaves, self._transport.book
        brought = [leaf.contribution(version=book.global_round) for leaf in leaves]
        leaf_of = self._leaf_of()
        losses = {client: (leaf_of[client], loss) for client, loss in book.train_loss.items()}
        meeting = begun.meet(brought, book.global_round, losses, self._dispersion())
        start = meeting.probe_start()
        last_leaf_round = book.global_round * self._config.hierarchy.leaf_rounds_per_global
        probe = None
        if start is not None:
            updates = begun.probed_updates(start, book.global_round)
            as_first = start is begun.first  # then clients repeat the draws of the first leaf round
            probe = self._of_children(
                self._port.probe(start, 1, updates, PROBE, begun.setting.even_windows)
                if as_first
                else self._port.probe(start, last_leaf_round, updates)
            )
        hearing = meeting.hear(probe, [leaf.models.trial for leaf in leaves], self._all_folds())
        step = hearing.finish(self.ask(hearing.questions) if any(hearing.questions) else None)
        cloud_control.arrive(leaves)
        step = self._kept(step)
        book.note_cloud_step(step, self._offers(step.offers), leaves)
        for leaf, cluster, trial in zip(leaves, step.offers, step.trials, strict=True):
            leaf.models.meet_cloud(
                cluster if leaf.unseen_clients and leaf.clients else None,
                trial,
                step.folds.get(leaf.index, ()),
            )
        return step

    def _leaf_of(self) -> dict[int, int]:
        """Partition id → child of the cloud, of clients that train."""
        return {client: leaf.index for leaf in self._leaves for client in leaf.clients}

    def _dispersion(self) -> np.ndarray | None:
        """How far clients' models lie apart at each child: of a region the mean over its leaves (S,)."""
        known = self._transport.book.dispersion
        if not self._transport.book.needs_dispersion:
            return None
        found = [[known[leaf.index] for leaf in leaves_below(s) if leaf.index in known] for s in self._leaves]
        return np.array([float(np.mean(values)) if values else np.nan for values in found])

    def _of_children(self, probe: Probe) -> Probe:
        """Probe of the cloud's children, given one of all leaves: of a region the mean over its leaves."""
        models: list[State] = []
        for server in self._leaves:
            below = leaves_below(server)
            brought = [Contribution(leaf.index, probe.models[leaf.index], leaf.weight, 0) for leaf in below]
            models.append(mean_of(brought) if server.below else brought[0].state)
        return replace(probe, models=models)

    def _all_folds(self) -> dict[int, Mapping[int, State]]:
        """Leaf → client → model trained without it: by forks where there are any."""
        forks = {
            leaf.index: by_client(leaf.clients, leaf.models.folds)
            for leaf in self._leaves
            if leaf.models.folds
        }
        return {**self._transport.book.folds, **forks}

    def ask(self, questions: Questions) -> Answers:
        """Let clients evaluate the models that the cloud asks about, on the windows that it asks for."""
        split: SplitName = "train" if self._config.cluster.asks_training_losses else "val"
        book, once = self._transport.book, Once(self._transport.shared.keep)
        models = {
            leaf: {role: once(model) for role, model in roles.items()} for leaf, roles in enumerate(questions)
        }
        book.note_questions([models[leaf.index] for leaf in self._leaves], self._leaves)
        bytes_before = book.downlink_bytes
        asked = Asked(models, (split,)).of_leaves(self._leaves)
        evaluated = self._port.evaluate(asked, phase="cluster")
        return collect_answers(
            evaluated,
            leaf_of=self._leaf_of(),
            windows=self._port.windows(split),
            downlink_bytes=book.downlink_bytes - bytes_before,
        )

    def _kept(self, step: CloudStep) -> CloudStep:
        """A cloud step whose models lie where large states do."""
        once = Once(self._transport.shared.keep)
        offers, trials = (
            [None if model is None else once(model) for model in models]
            for models in (step.offers, step.trials)
        )
        folds = {leaf: [once(model) for model in models] for leaf, models in step.folds.items()}
        return replace(step, offers=offers, trials=trials, folds=folds)

    def _offers(self, clusters: Sequence[State | None]) -> list[Offers]:
        """Offer for every leaf: its cluster's model."""
        models, weights = [leaf.model for leaf in self._leaves], [leaf.weight for leaf in self._leaves]
        blends = blends_of(self._config.cluster.blend)
        offers = make_offers(models, clusters, weights, blends, self._own_layers)
        once = Once(self._transport.shared.keep)
        return [
            {role: replace(offer, model=once(offer.model)) for role, offer in mine.items()}
            if leaf.clients
            else {}  # all have gone to other leaves: it keeps its model
            for leaf, mine in zip(self._leaves, offers, strict=True)
        ]

    def begin_new_drifts(self, labels: np.ndarray) -> None:
        """After a cloud step and its gates: correct each leaf towards those it stands together with.

        Args:
            labels: (S,) the cluster of each leaf.
        """
        book = self._transport.book
        shares = None if book.step is None else book.step.memberships
        groups = [
            cloud_control.group_of(
                int(label) if shares is None else "family", leaf.model, book.offers_to(leaf)
            )
            for label, leaf in zip(labels, self._leaves, strict=True)
        ]
        cloud_control.depart(self._leaves, groups, self._own_layers, shares)
        for leaf in self._leaves:
            leaf.be_corrected(None)  # by nobody above the cloud: a region tells those below of its own
            leaf.keep_states(self._transport.shared.keep)
            book.note_correction(leaf)
