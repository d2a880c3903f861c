"""Server rules as published, where Flower's code differs from the paper.

Flower's versions are available as ``"flwr.serverapp.strategy:FedAdam"`` and so on (docs/baselines.md).
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

_LATE = 2**40  # round from which Adam's bias correction is exactly 1 in float64, for any β below 1
Made = tuple[ArrayRecord | None, MetricRecord | None]


def _begin_with_tau_squared(strategy: FedOpt) -> None:
    """Set v to τ² before the first step (Reddi et al. 2021, algorithm 2: at least τ²)."""
    if not strategy.v_t:
        assert strategy.current_arrays is not None
        strategy.v_t = {k: np.full_like(a, strategy.tau**2) for k, a in strategy.current_arrays.items()}


class Adagrad(FedAdagrad):
    """FedAdagrad as in Reddi et al. 2021: v starts at τ², in Flower at 0."""

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Made:
        """Take a step from the mean of the replies."""
        _begin_with_tau_squared(self)
        return super().aggregate_train(server_round, replies)


class Yogi(FedYogi):
    """FedYogi as in Reddi et al. 2021: v starts at τ², in Flower at 0."""

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Made:
        """Take a step from the mean of the replies."""
        _begin_with_tau_squared(self)
        return super().aggregate_train(server_round, replies)


class ServerAdam(FedAdam):
    """FedAdam as in Reddi et al. 2021: v starts at τ², without bias correction.

    In Flower v starts at 0, and the step in round t is √(1 − β₂^(t+1)) / (1 − β₁^(t+1)) times as large: 0.74
    times in the first round with β₁ = 0.9 and β₂ = 0.99.
    """

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Made:
        """Take a step from the mean of the replies."""
        _begin_with_tau_squared(self)
        return super().aggregate_train(_LATE, replies)


class Bulyan(FlowerBulyan):
    """Bulyan as in El Mhamdi et al. 2018: Krum picks N − 2f replies one after another.

    Flower picks all of them in one pass. The rest is the same: entry by entry, the mean of the N − 4f values
    nearest to the median.
    """

    def __init__(self, **arguments: Any) -> None:
        """Take Flower's arguments."""
        super().__init__(selection_rule=picked_one_by_one, **arguments)


def picked_one_by_one(contents: list[RecordDict], malicious: int, count: int) -> list[RecordDict]:
    """Replies picked by Krum, each from the remaining ones, in their original order."""
    states = [from_record(content.array_records[ARRAYS]) for content in contents]
    vectors = [np.concatenate([array.ravel() for array in state.values()]) for state in states]
    return [contents[i] for i in sorted(krum_picks(vectors, malicious, count))]


def krum_picks(vectors: Sequence[np.ndarray], malicious: int, count: int) -> list[int]:
    """Indices of `count` vectors (P,) out of N, picked by Krum one after another.

    Of n remaining vectors, the next is the one with the smallest sum of squared distances to its n − f − 2
    nearest (Blanchard et al. 2017); at least one neighbour is counted, a case left open in the paper.
    """
    distances = np.array([[float(np.square(a - b).sum()) for b in vectors] for a in vectors])
    remaining, picked = list(range(len(vectors))), list[int]()
    while len(picked) < count:
        nearest = max(1, len(remaining) - malicious - 2)
        scores = np.sort(distances[np.ix_(remaining, remaining)], axis=1)[:, 1 : nearest + 1].sum(axis=1)
        picked.append(remaining.pop(int(scores.argmin())))
    return picked


def _to_float64(replies: Iterable[Message]) -> list[Message]:
    """Replies with arrays in float64."""
    converted = []
    for reply in replies:
        content = reply.content
        state = {n: a.astype(np.float64) for n, a in from_record(content.array_records[ARRAYS]).items()}
        record = RecordDict({ARRAYS: to_record(state), **content.metric_records})
        converted.append(Message(record, 0, "train"))
    return converted


class TrimmedMean(FedTrimmedAvg):
    """Flower's trimmed mean in float64, like all means here; Flower computes in the replies' dtype."""

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Made:
        """Take the trimmed mean, entry by entry."""
        return super().aggregate_train(server_round, _to_float64(replies))


class Median(FedMedian):
    """Flower's median in float64; for an even number the mean of the middle two."""

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Made:
        """Take the median, entry by entry."""
        return super().aggregate_train(server_round, _to_float64(replies))


class FairMean(QFedAvg):
    """Flower's q-FedAvg; it divides by the clients' learning rate, set by `rules.combine` in every round."""

    def __init__(self, **arguments: Any) -> None:
        """Take Flower's arguments except the learning rate."""
        super().__init__(client_learning_rate=1.0, **arguments)
