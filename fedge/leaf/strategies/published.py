"""Rules of a server as their papers have them, where Flower's code has something else.

Flower's own stand beside them as ``"flwr.serverapp.strategy:FedAdam"`` and so on (docs/baselines.md).
Shape letters: N replies, f of them malicious, P parameters.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import Bulyan as FlowerBulyan
from flwr.serverapp.strategy import FedAdagrad, FedAdam, FedMedian, FedTrimmedAvg, FedYogi, QFedAvg
from flwr.serverapp.strategy.fedopt import FedOpt

from fedge.exchange.content import ARRAYS
from fedge.states.records import from_record, to_record

_LATE = (
    2**40
)  # round from which Adam's correction of its bias is exactly 1, for any β other than 1 in float64
Made = tuple[ArrayRecord | None, MetricRecord | None]


def _begin_with_tau_squared(strategy: FedOpt) -> None:
    """Set v to τ² before the first step (Reddi et al. 2021, algorithm 2: at least τ²)."""
    if not strategy.v_t:
        assert strategy.current_arrays is not None
        strategy.v_t = {k: np.full_like(a, strategy.tau**2) for k, a in strategy.current_arrays.items()}


class Adagrad(FedAdagrad):
    """FedAdagrad as in Reddi et al. 2021: v begins with τ²; Flower's with 0."""

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Made:
        """Take a step from the mean of the replies."""
        _begin_with_tau_squared(self)
        return super().aggregate_train(server_round, replies)


class Yogi(FedYogi):
    """FedYogi as in Reddi et al. 2021: v begins with τ²; Flower's with 0."""

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Made:
        """Take a step from the mean of the replies."""
        _begin_with_tau_squared(self)
        return super().aggregate_train(server_round, replies)


class ServerAdam(FedAdam):
    """FedAdam as in Reddi et al. 2021: v begins with τ², and no bias is corrected.

    Flower's v begins with 0, and its step is √(1 − β₂^(t+1)) / (1 − β₁^(t+1)) times theirs in round t: .74
    times in the first with β₁ = .9 and β₂ = .99.
    """

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Made:
        """Take a step from the mean of the replies."""
        _begin_with_tau_squared(self)
        return super().aggregate_train(_LATE, replies)


class Bulyan(FlowerBulyan):
    """Bulyan as in El Mhamdi et al. 2018: N − 2f replies are picked one after another by Krum.

    Flower's picks all of them in one pass. The rest is the same: entry by entry the mean of the N − 4f values
    nearest to the median.
    """

    def __init__(self, **arguments: Any) -> None:
        """Take Flower's arguments."""
        super().__init__(selection_rule=picked_one_by_one, **arguments)


def picked_one_by_one(contents: list[RecordDict], malicious: int, count: int) -> list[RecordDict]:
    """The replies chosen by Krum, each among the remaining ones, in their order."""
    states = [from_record(content.array_records[ARRAYS]) for content in contents]
    vectors = [np.concatenate([array.ravel() for array in state.values()]) for state in states]
    return [contents[at] for at in sorted(krum_picks(vectors, malicious, count))]


def krum_picks(vectors: Sequence[np.ndarray], malicious: int, count: int) -> list[int]:
    """Picks of Krum, one after another: `count` of N vectors (P,), by number.

    Of n remaining ones, the next has the least sum of squared distances to its n − f − 2 nearest (Blanchard
    et al. 2017); to one nearest if that would be fewer, a case left open in the paper.
    """
    distances = np.array([[float(np.square(a - b).sum()) for b in vectors] for a in vectors])
    left, picked = list(range(len(vectors))), list[int]()
    while len(picked) < count:
        nearest = max(1, len(left) - malicious - 2)
        among = np.sort(distances[np.ix_(left, left)], axis=1)[:, 1 : nearest + 1].sum(axis=1)
        picked.append(left.pop(int(among.argmin())))
    return picked


def _in_double(replies: Iterable[Message]) -> list[Message]:
    """Replies with arrays in float64."""
    made = []
    for reply in replies:
        content = reply.content
        state = {n: a.astype(np.float64) for n, a in from_record(content.array_records[ARRAYS]).items()}
        record = RecordDict({ARRAYS: to_record(state), **content.metric_records})
        made.append(Message(record, 0, "train"))
    return made


class TrimmedMean(FedTrimmedAvg):
    """Flower's trimmed mean, worked out in float64 as all means here; its own is in the replies' float32."""

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Made:
        """Average without the extremes, entry by entry."""
        return super().aggregate_train(server_round, _in_double(replies))


class Median(FedMedian):
    """Flower's median, of an even number the mean of two in float64."""

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Made:
        """Take the median, entry by entry."""
        return super().aggregate_train(server_round, _in_double(replies))


class FairMean(QFedAvg):
    """Flower's q-FedAvg; it divides by the clients' step size, which `rules.combine` sets in every round."""

    def __init__(self, **arguments: Any) -> None:
        """Take Flower's arguments, but for the step size."""
        super().__init__(client_learning_rate=1.0, **arguments)
