"""Results of one global round: a row per client, a row per leaf, a row for the whole.

Built by `fedge.rounds.strategy`, written by `fedge.records.recorder`, printed by `fedge.console.lines`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedge.cloud.step import CloudStep
from fedge.config.tree import Path
from fedge.exchange.evaluate import OWN, EvaluateReply
from fedge.exchange.failure import Failure
from fedge.metrics.scores import Spread, score_spread
from fedge.rounds.measurements.moment import VersionRow
from fedge.serving.gate import GateResult
from fedge.serving.personal import PersonalResult
from fedge.tasks.configured import CLASSIFICATION
from fedge.tasks.task import Task
from fedge.timing.timeline import ExchangeTimes

_FIRST_SCORES = ("test_score", "unseen_score", "val_score", "shared_score", "tuned_score")


@dataclass(frozen=True)
class ClientResult:
    """One client in one global round; None without participation or after a failure.

    Attributes:
        train_loss: mean training loss of its last leaf round.
        test_samples: number of test windows.
        test_score: the task's first score of the served model on its test windows.
        further: the task's other scores of the served model, by name.
        train_seconds: seconds of training over all leaf rounds of the global round.
        confusion: confusion matrix of the served model on its test windows, (classes, classes), rows true,
            columns predicted.
        unseen_client: whether its users are unseen; it never trains, hence has no train_samples.
        val_samples, val_score, val_loss: the same for its validation windows.
        shared_score: test score of its leaf's model before fine-tuning in this round.
        tuned_score: test score of the fine-tuned model, served or not. Both are None unless both were
            evaluated (never for unseen clients, who get another model).
        asked: number of leaf rounds in which it was asked to train; None for an unseen client, and on the
            virtual clock.
        came_from: its leaf before this round; None if it did not move.
    """

    client: int
    leaf: int
    train_samples: int
    train_loss: float | None
    test_samples: int
    test_score: float | None
    test_loss: float | None
    further: Mapping[str, float]
    train_seconds: float | None
    confusion: np.ndarray | None = None
    unseen_client: bool = False
    shared_score: float | None = None
    tuned_score: float | None = None
    val_samples: int = 0
    val_score: float | None = None
    val_loss: float | None = None
    asked: int | None = None
    came_from: int | None = None


@dataclass(frozen=True)
class ModelResult:
    """One client with one model of its algorithm, on its test windows; see `ClientResult`."""

    client: int
    leaf: int
    model: str
    test_samples: int
    test_score: float
    test_loss: float
    unseen_client: bool = False


def model_results(client: int, leaf: int, unseen: bool, evaluations: EvaluateReply) -> list[ModelResult]:
    """Results of a client's own evaluations, on its test windows, of its algorithm's models.

    Args:
        client: partition id of the client.
        leaf: its leaf.
        unseen: whether it is an unseen client.
        evaluations: its evaluations.
    """
    return [
        ModelResult(client, leaf, role.rpartition("/")[2], answer.windows, answer.score, answer.loss, unseen)
        for (role, _), answer in evaluations.items()
    ]


@dataclass(frozen=True)
class CommonResult:
    """One model on the common test set.

    Attributes:
        model: GLOBAL, CLUSTER or LEAF.
        number: number of the cluster or leaf; None for the mean of all leaves.
        samples: number of windows.
        test_score, test_loss: the task's first score, and the mean loss; None if the loss is not finite.
        further: the task's other scores, by name.
    """

    model: str
    number: int | None
    samples: int
    test_score: float | None
    test_loss: float | None
    further: Mapping[str, float] = field(default_factory=dict)


GLOBAL, CLUSTER, LEAF = "global", "cluster", "leaf"


@dataclass(frozen=True)
class LeafResult:
    """One leaf in one global round; scores are pooled over the test windows of its clients.

    Attributes:
        test_score, test_loss, further: first score, loss and other scores over its known clients.
        val_score, val_loss: the same for these clients' validation windows.
        num_clients: number of known clients.
        kept_model: number of leaf rounds without a new model because of too few accepted replies.
        unseen_score, unseen_loss, unseen_further: the same for its unseen clients; None without any.
        unseen_clients: number of unseen clients.
        personal: result of fine-tuning; None in a round without it.
        serves: role of the served model.
        group: planted group in this round; None without a scenario.
    """

    leaf: int
    cluster: int
    gate: GateResult
    test_score: float | None
    test_loss: float | None
    further: Mapping[str, float]
    num_clients: int
    train_samples: int
    kept_model: int = 0
    unseen_score: float | None = None
    unseen_loss: float | None = None
    unseen_further: Mapping[str, float] = field(default_factory=dict)
    unseen_clients: int = 0
    personal: PersonalResult | None = None
    serves: str = OWN
    group: int | None = None
    val_score: float | None = None
    val_loss: float | None = None


@dataclass
class Traffic:
    """Bytes of arrays between a server and its parent."""

    up: int = 0
    down: int = 0

    def add(self, up: int, down: int) -> None:
        """Count the bytes sent."""
        self.up += up
        self.down += down


@dataclass(frozen=True)
class ServerResult:
    """One server of any tier in one global round; scores are pooled over the clients below.

    Attributes:
        path: position in the tree, from the root down; () is the root.
        cluster: its cluster at the parent, or the parent's cluster; None for the root.
        gate: decision of its gate on the offer; None without a choice.
        uplink_bytes, downlink_bytes: bytes of arrays to and from its parent; None if nothing was sent.
        num_clients: number of training clients below.
        train_samples: number of their training windows.
    """

    path: Path
    cluster: int | None
    gate: GateResult | None
    uplink_bytes: int | None
    downlink_bytes: int | None
    num_clients: int
    train_samples: int
    test_score: float | None
    unseen_score: float | None


@dataclass(frozen=True)
class InnerStep:
    """Step of a region that groups its children or makes offers.

    Attributes:
        path: path of the region.
        number: number of its own round: 1, 2, …
    """

    path: Path
    number: int
    step: CloudStep


@dataclass(frozen=True)
class RoundResult:
    """One global round.

    Attributes:
        cloud: the cloud step of this round, or None in a round without one.
        clients_ok: clients without a failed exchange in the round.
        failures: client → its first failure in the round.
        uplink_bytes, downlink_bytes: bytes of arrays from and to clients, over all exchanges of the round.
        cloud_uplink_bytes, cloud_downlink_bytes: bytes of arrays from servers to their parents and back.
        servers: rows of servers, from the root down; empty on the virtual clock without regions.
        inner_steps: steps of regions, in the order of their rounds.
        tier_names: names of the tiers, from the root down.
        churn: change of labels in the cloud step (`fedge.metrics.agreement.churn`); None for the first.
        truth: (S,) true group of each leaf, or None if unknown.
        began: start of the round, by the clock of the exchanges.
        exchanges: times of work on each client's messages.
        releases: number of leaf rounds so far, including fine-tuning; on the virtual clock the equivalent for
            the device with the most updates (`fedge.devices.servers.private_buffer`).
        models: evaluations of the algorithm's models, by client; empty without any.
        common: results on the common test set; empty without one, and in a round without evaluation.
        epsilon_spent: ε spent by clients so far at the configured δ; None if not counted.
        learned: task of the run, whose first score compares models.
        moment: virtual time and versions at the end of the round; None without the virtual clock.
        virtual_s, joules: totals of the run so far, if devices time the rounds (and their power is known).
    """

    global_round: int
    clients: list[ClientResult]
    leaves: list[LeafResult]
    cloud: CloudStep | None
    clients_ok: int
    failures: dict[int, Failure]
    uplink_bytes: int
    downlink_bytes: int
    cloud_uplink_bytes: int = 0
    cloud_downlink_bytes: int = 0
    churn: float | None = None
    truth: Sequence[int] | None = None
    began: float = 0.0
    exchanges: Sequence[ExchangeTimes] = ()
    releases: int = 0
    epsilon_spent: float | None = None
    learned: Task = CLASSIFICATION
    models: Sequence[ModelResult] = ()
    common: Sequence[CommonResult] = ()
    servers: Sequence[ServerResult] = ()
    inner_steps: Sequence[InnerStep] = ()
    tier_names: Sequence[str] = ()
    moment: VersionRow | None = None
    virtual_s: float | None = None
    joules: float | None = None

    @property
    def failure_kinds(self) -> dict[str, int]:
        """Number of failed clients by kind of failure, in alphabetical order."""
        return dict(sorted(Counter(failure.kind for failure in self.failures.values()).items()))

    def over_clients(self, name: str, unseen_clients: bool = False) -> Spread | None:
        """Spread of a number of `ClientResult` over the clients with a value, or None without any.

        Args:
            name: name of the number, or of one of the further scores.
            unseen_clients: whether to take unseen instead of training clients.
        """
        return self._spread([c for c in self.clients if c.unseen_client == unseen_clients], name)

    def over_own_models(self, unseen_clients: bool = False) -> dict[str, Spread]:
        """Spread over clients of the first score of each of the algorithm's models, by name of the model.

        Args:
            unseen_clients: whether to take unseen instead of training clients.
        """
        scores: dict[str, list[float]] = {}
        for result in self.models:
            if result.unseen_client == unseen_clients:
                scores.setdefault(result.model, []).append(result.test_score)
        higher = self.learned.scores[0].higher_is_better
        return {name: score_spread(values, higher_is_better=higher) for name, values in scores.items()}

    def over_leaves(self, name: str) -> Spread | None:
        """Spread of a number of `LeafResult` over the leaves with a value, or None without any."""
        return self._spread(self.leaves, name)

    def _spread(self, rows: Sequence[ClientResult] | Sequence[LeafResult], name: str) -> Spread | None:
        """Spread of a number over the rows with a value; if lower is better, the worst is the largest."""
        cells = [getattr(row, name, None) if hasattr(row, name) else row.further.get(name) for row in rows]
        values = [value for value in cells if value is not None]
        lower_is_better = name in _FIRST_SCORES and not self.learned.scores[0].higher_is_better
        return score_spread(values, higher_is_better=not lower_is_better) if values else None

    @property
    def gates(self) -> list[GateResult]:
        """Decisions of all gates; a region's gate counts once."""
        has_regions = max((len(server.path) for server in self.servers), default=1) > 1
        if not has_regions:
            return [leaf.gate for leaf in self.leaves]
        return [server.gate for server in self.servers if server.gate is not None]

    @property
    def labels(self) -> list[int]:
        """The cluster of each leaf after the round."""
        return [leaf.cluster for leaf in self.leaves]

    @property
    def train_loss(self) -> float | None:
        """The mean training loss over clients, weighted by training windows."""
        pairs = [(c.train_loss, c.train_samples) for c in self.clients if c.train_loss is not None]
        if not pairs:
            return None
        return float(np.average([loss for loss, _ in pairs], weights=[n for _, n in pairs]))
