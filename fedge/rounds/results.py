"""What one global round measured: a row per client, a row per leaf, a row for the whole.

Built by `fedge.rounds.strategy`, written by `fedge.records.recorder`, printed by `fedge.console.lines`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedge.cloud.step import CloudStep
from fedge.exchange.evaluate import OWN
from fedge.exchange.failure import Failure
from fedge.metrics.scores import Spread, spread
from fedge.serving.gate import GateResult
from fedge.serving.personal import PersonalResult
from fedge.timing.timeline import ExchangeTimes


@dataclass(frozen=True)
class ClientResult:
    """One client in one global round; None where it did not take part or failed.

    Attributes:
        train_loss: mean loss of its last leaf round's training.
        test_samples: test windows.
        test_accuracy: of its leaf's served model on its test windows, 0..1.
        macro_f1: unweighted mean F1 over the classes that occur.
        train_seconds: over all leaf rounds of the global round.
        confusion: of the served model on its test windows, (classes, classes), rows true, columns predicted.
        unseen_client: whether it holds users whom no leaf has seen; it does not train, so it has no
            train_samples.
        shared_accuracy: like test_accuracy, but of the model that its leaf fine-tuned in this round.
        tuned_accuracy: of what came of it, whether or not the leaf serves it. Both or neither: None without
            fine-tuning, and where it did not evaluate both models (unseen clients, who get another one).
    """

    client: int
    leaf: int
    train_samples: int
    train_loss: float | None
    test_samples: int
    test_accuracy: float | None
    test_loss: float | None
    macro_f1: float | None
    train_seconds: float | None
    confusion: np.ndarray | None = None
    unseen_client: bool = False
    shared_accuracy: float | None = None
    tuned_accuracy: float | None = None


@dataclass(frozen=True)
class LeafResult:
    """One leaf in one global round; scores are pooled over the test windows of its clients.

    Attributes:
        test_accuracy, test_loss, macro_f1: of the clients that it knows.
        num_clients: that it knows.
        kept_model: leaf rounds in which it kept its model because too few replies counted.
        unseen_accuracy, unseen_loss, unseen_macro_f1: of its unseen clients; None without any.
        unseen_clients: how many it has.
        personal: what fine-tuning gave; None in a round without it.
        serves: role of the model that its clients are served.
        group: in which a scenario has it in this round; None without one.
    """

    leaf: int
    cluster: int
    gate: GateResult
    test_accuracy: float | None
    test_loss: float | None
    macro_f1: float | None
    num_clients: int
    train_samples: int
    kept_model: int = 0
    unseen_accuracy: float | None = None
    unseen_loss: float | None = None
    unseen_macro_f1: float | None = None
    unseen_clients: int = 0
    personal: PersonalResult | None = None
    serves: str = OWN
    group: int | None = None


@dataclass(frozen=True)
class RoundResult:
    """One global round.

    Attributes:
        cloud: the cloud step of this round, or None in a round without one.
        clients_ok: clients whose every exchange of the round succeeded.
        failures: client → its first failure in the round.
        uplink_bytes, downlink_bytes: arrays from and to clients, all exchanges of the round.
        cloud_uplink_bytes, cloud_downlink_bytes: arrays from leaves to the cloud and back.
        churn: of a cloud step, against the labels before it (`fedge.metrics.agreement.churn`); None for the
            first.
        truth: (S,) true group of each leaf, or None where nobody knows.
        began: when the round did, by the clock of the exchanges.
        exchanges: when whose messages were worked on.
        releases: leaf rounds of the run so far, those that fine-tune included.
        epsilon_spent: what clients have spent by then at the configured delta; None where nobody adds it up.
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

    @property
    def failure_kinds(self) -> dict[str, int]:
        """Return how many clients failed for each kind of failure, in alphabetical order."""
        return dict(sorted(Counter(failure.kind for failure in self.failures.values()).items()))

    def over_clients(self, name: str, unseen_clients: bool = False) -> Spread | None:
        """Return one of ClientResult's numbers over the clients that have it, or None without any.

        Args:
            name: of the number.
            unseen_clients: over unseen clients instead of the clients that train.
        """
        found = [getattr(c, name) for c in self.clients if c.unseen_client == unseen_clients]
        values = [value for value in found if value is not None]
        return spread(values) if values else None

    @property
    def labels(self) -> list[int]:
        """The cluster of each leaf after the round."""
        return [leaf.cluster for leaf in self.leaves]

    @property
    def train_loss(self) -> float | None:
        """Return the mean training loss over clients, weighted by training windows."""
        pairs = [(c.train_loss, c.train_samples) for c in self.clients if c.train_loss is not None]
        if not pairs:
            return None
        return float(np.average([loss for loss, _ in pairs], weights=[n for _, n in pairs]))
