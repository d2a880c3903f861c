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
from fedge.tasks.chosen import CLASSIFICATION
from fedge.tasks.task import Task
from fedge.timing.timeline import ExchangeTimes

_FIRST_SCORES = ("test_score", "unseen_score", "val_score", "shared_score", "tuned_score")


@dataclass(frozen=True)
class ClientResult:
    """One client in one global round; None without participation or after a failure.

    Attributes:
        train_loss: mean loss of its last leaf round's training.
        test_samples: test windows.
        test_score: the task's first, of its leaf's served model on its test windows.
        further: the task's other scores of the same, by name.
        train_seconds: over all leaf rounds of the global round.
        confusion: of the served model on its test windows, (classes, classes), rows true, columns predicted.
        unseen_client: whether it holds users unknown to all leaves; without training, hence without
            train_samples.
        val_samples, val_score, val_loss: the same of its validation windows.
        shared_score: like test_score, but of its leaf's model before fine-tuning in this round.
        tuned_score: of the result, served or not. Both or neither: None without fine-tuning, and without both
            evaluations (unseen clients, who get another one).
        asked: leaf rounds with a request to train; None for an unseen client, and on the virtual clock.
        came_from: leaf before this round; None without a move.
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


def model_results(client: int, leaf: int, unseen: bool, found: EvaluateReply) -> list[ModelResult]:
    """Results of a client's own evaluations, on its test windows, of its algorithm's models.

    Args:
        client: partition id.
        leaf: the client's.
        unseen: whether it is an unseen client.
        found: its evaluations.
    """
    return [
        ModelResult(client, leaf, role.rpartition("/")[2], one.windows, one.score, one.loss, unseen)
        for (role, _), one in found.items()
    ]


@dataclass(frozen=True)
class CommonResult:
    """One model on the common test set.

    Attributes:
        model: GLOBAL, CLUSTER or LEAF.
        number: of the cluster or leaf; None for the mean of all leaves.
        samples: windows.
        test_score, test_loss: the task's first score, the mean loss; None where the loss is not finite.
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
        test_score, test_loss, further: of its known clients; the task's first score, the others.
        val_score, val_loss: of the same clients' validation windows.
        num_clients: known to it.
        kept_model: leaf rounds without a new model because of too few accepted replies.
        unseen_score, unseen_loss, unseen_further: of its unseen clients; None without any.
        unseen_clients: how many it has.
        personal: result of fine-tuning; None in a round without it.
        serves: role of its clients' served model.
        group: of the scenario in this round; None without one.
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
    """Bytes of arrays between a server and the one above."""

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
        path: from the root down; () is the root.
        cluster: of the server above, or as that server's; None for the root.
        gate: its decision on the offer; None without a choice.
        uplink_bytes, downlink_bytes: arrays to and from the server above; None where nothing was sent.
        num_clients: training clients below.
        train_samples: of those.
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
    """Step of a server below the cloud with groups or offers.

    Attributes:
        path: of the server.
        number: of its own round: 1, 2, …
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
        uplink_bytes, downlink_bytes: arrays from and to clients, all exchanges of the round.
        cloud_uplink_bytes, cloud_downlink_bytes: arrays from servers to those above them and back.
        servers: from the root down; empty on the virtual clock without regions.
        inner_steps: of servers below the cloud, in the order of their rounds.
        tier_names: of the servers, from the root down.
        churn: of a cloud step, against the labels before it (`fedge.metrics.agreement.churn`); None for the
            first.
        truth: (S,) true group of each leaf, or None where nobody knows.
        began: when the round did, by the clock of the exchanges.
        exchanges: times of work on each client's messages.
        releases: leaf rounds of the run so far, fine-tuning included; on the virtual clock what the updates
            of the device with the most count as (`fedge.devices.servers.private`).
        models: clients with the models of their algorithm; empty if none.
        common: models on the common test set; empty without one, and in a round without evaluation.
        epsilon_spent: by clients so far at the configured delta; None if not counted.
        learned: the task of the run; by its first score models are compared.
        moment: end on the virtual clock, and the versions by then; None off that clock.
        virtual_s, joules: of the run so far, where rounds are timed by devices and their power is known.
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
        """How many clients failed for each kind of failure, in alphabetical order."""
        return dict(sorted(Counter(failure.kind for failure in self.failures.values()).items()))

    def over_clients(self, name: str, unseen_clients: bool = False) -> Spread | None:
        """One of ClientResult's numbers over the clients with a value, or None without any.

        Args:
            name: of the number, or of one of its further scores.
            unseen_clients: over unseen instead of training clients.
        """
        return self._spread([c for c in self.clients if c.unseen_client == unseen_clients], name)

    def over_own_models(self, unseen_clients: bool = False) -> dict[str, Spread]:
        """First score of the models that clients keep for themselves, over clients, by name of the model.

        Args:
            unseen_clients: over unseen instead of training clients.
        """
        found: dict[str, list[float]] = {}
        for one in self.models:
            if one.unseen_client == unseen_clients:
                found.setdefault(one.model, []).append(one.test_score)
        higher = self.learned.scores[0].higher_is_better
        return {name: score_spread(values, higher_is_better=higher) for name, values in found.items()}

    def over_leaves(self, name: str) -> Spread | None:
        """One of LeafResult's numbers over the leaves with a value, or None without any."""
        return self._spread(self.leaves, name)

    def _spread(self, rows: Sequence[ClientResult] | Sequence[LeafResult], name: str) -> Spread | None:
        """The spread of a number over rows with a value; where a score falls, worst is the largest."""
        found = [getattr(row, name, None) if hasattr(row, name) else row.further.get(name) for row in rows]
        values = [value for value in found if value is not None]
        falls = name in _FIRST_SCORES and not self.learned.scores[0].higher_is_better
        return score_spread(values, higher_is_better=not falls) if values else None

    @property
    def gates(self) -> list[GateResult]:
        """Decisions on offers of all servers with a choice; in a tree a region's counts once."""
        deep = max((len(server.path) for server in self.servers), default=1) > 1
        if not deep:
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
