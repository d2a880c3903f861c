"""Evidence about the leaves for grouping, and the questions clients must answer for it.

In one exchange every client evaluates models on its validation windows: under the role ``leaf-<i>`` the model
of leaf i, under other roles any models a method tries. Made by `fedge.cloud.step` and
`fedge.rounds.strategy`, read by the methods of `fedge.clustering.registry`. Shape letters: S leaf servers, K
clients.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedge.clustering.likeness.updates import Likeness
from fedge.exchange.evaluate import EvaluateReply
from fedge.states.averaging import State
from fedge.states.named_states import Memory, read_only
from fedge.states.restore_checks import form

_NEEDED = 'the method must need "{0}": needs = {{"{0}"}} in a class, @method or @signal at a function'


class NotComparable(Exception):
    """Error: this step's evidence does not allow a comparison; the message has the reason."""


class IncomparableModels(Sequence[State]):
    """Placeholder for incomparable models: any access raises the reason."""

    def __init__(self, reason: str) -> None:
        """Keep the reason."""
        self._reason = reason

    def __len__(self) -> int:
        raise NotComparable(self._reason)

    def __getitem__(self, _: Any) -> Any:
        raise NotComparable(self._reason)


Questions = Sequence[Mapping[str, State]]
"""Per leaf the models that its clients are to evaluate, by role."""


@dataclass(frozen=True)
class Answers:
    """Clients' answers about the models of a question.

    Attributes:
        losses: role → (K,) mean cross entropy on each client's validation windows; NaN where the client was
            not asked, did not answer, or the loss was not finite.
        windows: (K,) validation windows of each client.
        leaf_of: (K,) each client's leaf.
        downlink_bytes: bytes of the sent models.
        clients: (K,) partition ids, ascending.
        moments: role → (K, numbers) descriptions of windows (`fedge.training.describe`); NaN where unknown.
        accuracies: role → (K,) the task's first score on the same windows, oriented to be better if larger:
            for classification the model's share of right windows; NaN as for losses.
        confusions: role → (K, C, C) int64, rows true classes, columns predicted, of the same windows; zero
            as for losses. Empty if the task has no classes.
    """

    losses: Mapping[str, np.ndarray]
    windows: np.ndarray
    leaf_of: np.ndarray
    downlink_bytes: int = 0
    clients: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    accuracies: Mapping[str, np.ndarray] = field(default_factory=dict)
    moments: Mapping[str, np.ndarray] = field(default_factory=dict)
    confusions: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class CrossLosses:
    """Loss of every leaf's model at every client.

    Attributes:
        losses: (S, K) mean cross entropy of leaf i's model on client u's validation windows; NaN where the
            client did not answer or the loss was not finite.
        windows: (K,) validation windows of each client.
        leaf_of: (K,) each client's leaf.
    """

    losses: np.ndarray
    windows: np.ndarray
    leaf_of: np.ndarray

    @classmethod
    def from_state(cls, state: State) -> "CrossLosses":
        """Cross-losses with these arrays, by name; ValueError if they do not belong together."""
        return cls(state["losses"], state["windows"], state["leaf_of"])

    def refuse_foreign_state(self, leaves: int) -> None:
        """Raise ValueError unless the arrays belong together and cover `leaves` leaves."""
        clients = len(self.leaf_of)
        form(self.losses, "remembered losses", np.float64, (leaves, clients))
        form(self.windows, "their windows", np.int64, (clients,), 0)
        form(self.leaf_of, "their leaves", np.int64, (clients,), 0, leaves)


@dataclass(frozen=True)
class Evidence:
    """Evidence for a method in one cloud step.

    Attributes:
        models: per leaf the model at the end of its leaf rounds.
        starts: per leaf the model at the start of the global round; None if the method needs none, and
            `IncomparableModels` if it needs equal starts and they differ.
        weights: per leaf its number of training windows.
        parameter_names: the trainable entries of a model, in layer order.
        common_start: whether all leaves began the global round from one model.
        answers: to the questions of this step, or None before they are asked.
        recent: cross-losses of earlier cloud steps, oldest first, to be combined with this one's: the latest
            few since the groups changed.
        truth: (S,) the groups planted by a scenario, or None; only an oracle may look.
        global_round: 1, 2, …; 0 for a choice before the first.
        seed: root of the run's random streams.
        taken: (S,) each leaf's last candidate model, or None.
        likeness: of clients' latest updates from one start; None if the method needs none, or too few have
            arrived.
        pool: the cloud's own models, for methods with such models.
        kept: the method's state from the step before (`fedge.clustering.registry.Grouping`), as JSON.
        before: (S,) the labels in force; None before the first cloud step.
        dispersion: (S,) mean squared distance of a leaf's client models, in their last leaf round, from their
            plain mean, over the trainable entries; 0 for a leaf of one client, NaN for one without trained
            clients. None if not needed by the method.
        memory: memory of a `fedge.clustering.cloud_part.CloudPart`, which may change it.
    """

    models: Sequence[State]
    starts: Sequence[State] | None
    weights: Sequence[float]
    parameter_names: tuple[str, ...]
    common_start: bool = True
    answers: Answers | None = None
    truth: np.ndarray | None = None
    global_round: int = 1
    seed: int = 0
    recent: Sequence[CrossLosses] = ()
    taken: np.ndarray | None = None
    likeness: Likeness | None = None
    kept: Mapping[str, Any] = field(default_factory=dict)
    pool: Sequence[State] = field(default=(), repr=False)
    before: np.ndarray | None = None
    dispersion: np.ndarray | None = None
    memory: Memory = field(default_factory=dict)

    def read_only(self) -> "Evidence":
        """A copy whose models cannot be changed by mistake, for a user's code."""
        starts = self.starts
        if starts is not None and not isinstance(starts, IncomparableModels):
            starts = [read_only(start) for start in starts]
        return replace(self, models=[read_only(model) for model in self.models], starts=starts)

    def original(self, model: State, view: "Evidence") -> State:
        """The leaf's model behind one of `view`, a result of `read_only`; any other model is unchanged."""
        pairs = zip(self.models, view.models, strict=True)
        return next((own for own, seen in pairs if seen is model), model)

    @property
    def weight_shares(self) -> np.ndarray:
        """Share of each leaf in all training windows, (S,), sums to 1."""
        weights = np.asarray(self.weights, dtype=np.float64)
        return weights / weights.sum()

    @property
    def vectors(self) -> np.ndarray:
        """The leaves' models as vectors of the trainable entries, (S, parameters), float64."""
        return self.as_vectors(self.models)

    @property
    def updates(self) -> np.ndarray:
        """Changes of leaves since the start of the round, (S, parameters); needs "starts".

        Raises:
            NotComparable: the method needs equal starts, and they differ.
            ValueError: the method does not need starts.
        """
        if self.starts is None:
            raise ValueError(_NEEDED.format("starts"))
        return self.vectors - self.as_vectors(self.starts)

    def as_vectors(self, models: Sequence[State]) -> np.ndarray:
        """Models as vectors of the trainable entries, in the order of `parameter_names`, float64."""
        flat = [[np.ravel(model[name]) for name in self.parameter_names] for model in models]
        return np.array([np.concatenate(parts) for parts in flat], dtype=np.float64)

    @property
    def distances(self) -> np.ndarray:
        """Squared Euclidean distances between the leaves' models, (S, S)."""
        return squared_distances(self.vectors, self.vectors)

    @property
    def cosines(self) -> np.ndarray:
        """Cosines between the leaves' updates, (S, S), -1..1; 0 for a zero update. Needs "starts"."""
        updates = self.updates
        norms = np.sqrt(squared_distances(updates, np.zeros((1, updates.shape[1]))))
        products = np.array([[float((a * b).sum()) for b in updates] for a in updates])
        return np.clip(products / np.where(norms @ norms.T > 0, norms @ norms.T, 1.0), -1.0, 1.0)

    @property
    def has_cross_losses(self) -> bool:
        """Whether clients were asked for the cross-losses, and at least one answered."""
        return self.answers is not None and any(
            leaf_role(leaf) in self.answers.losses for leaf in range(len(self.models))
        )

    @property
    def cross(self) -> CrossLosses:
        """The cross-losses, which the method must have asked for."""
        if self.answers is None:
            raise ValueError(_NEEDED.format("cross-losses"))
        unknown = np.full(len(self.answers.windows), np.nan)
        rows = [self.answers.losses.get(leaf_role(leaf), unknown) for leaf in range(len(self.models))]
        return CrossLosses(np.stack(rows), self.answers.windows, self.answers.leaf_of)


def squared_distances(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Squared Euclidean distances (A, B) of vectors (A, P) and (B, P); sums do not depend on threads."""
    return np.array([[float(((a - b) ** 2).sum()) for b in others] for a in some]).reshape(
        len(some), len(others)
    )


def leaf_role(leaf: int) -> str:
    """The role under which the model of a leaf is evaluated."""
    return f"leaf-{leaf}"


def cross_loss_questions(models: Sequence[State]) -> list[dict[str, State]]:
    """The questions for the cross-losses: every leaf's model to every client."""
    return [{leaf_role(leaf): model for leaf, model in enumerate(models)} for _ in models]


def collect_answers(
    evaluated: Mapping[int, EvaluateReply],
    leaf_of: Mapping[int, int],
    windows: Mapping[int, int],
    downlink_bytes: int = 0,
) -> Answers:
    """The answers of all clients, in order of their partition ids.

    Args:
        evaluated: client → its evaluations; without failed clients.
        leaf_of: client → its leaf; names all K clients.
        windows: client → its validation windows.
        downlink_bytes: bytes of the sent models.
    """
    clients = sorted(leaf_of)
    losses: dict[str, np.ndarray] = {}
    accuracies: dict[str, np.ndarray] = {}
    moments: dict[str, np.ndarray] = {}
    confusions: dict[str, np.ndarray] = {}

    def rows_of(table: dict[str, np.ndarray], role: str, shape: tuple[int, ...], empty: Any) -> np.ndarray:
        return table.setdefault(role, np.full((len(clients), *shape), empty))

    for row, client in enumerate(clients):
        for (role, _), evaluation in evaluated.get(client, {}).items():
            loss, accuracy = rows_of(losses, role, (), np.nan), rows_of(accuracies, role, (), np.nan)
            counts = None
            if evaluation.confusion is not None:
                counts = rows_of(confusions, role, evaluation.confusion.shape, np.int64(0))
            if evaluation.moments is not None:
                rows_of(moments, role, (len(evaluation.moments),), np.nan)[row] = evaluation.moments
            if not np.isfinite(evaluation.loss):  # as without an answer
                continue
            loss[row] = evaluation.loss
            accuracy[row] = evaluation.task.scores[0].merit(evaluation.score)
            if counts is not None:
                counts[row] = evaluation.confusion
    return Answers(
        losses,
        np.array([windows[client] for client in clients], dtype=np.int64),
        np.array([leaf_of[client] for client in clients], dtype=np.int64),
        downlink_bytes,
        np.array(clients, dtype=np.int64),
        accuracies,
        moments,
        confusions,
    )
