"""A leaf rule: any Flower strategy that averages. Here the geometric median (Pillutla et al. 2022, RFA)."""

from collections.abc import Iterable

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import FedAvg


class GeometricMedian(FedAvg):
    """Clients far from the others have less weight, so that one bad client has little influence."""

    def __init__(self, steps: int = 8, smallest: float = 1e-6, **settings):
        """Take `steps` of Weiszfeld's algorithm; `settings` are FedAvg's, which Fedge gives."""
        super().__init__(**settings)
        self.steps = steps
        self.smallest = smallest

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The point with the smallest weighted sum of distances to the clients' models."""
        contents = [reply.content for reply in replies]  # in the order of the clients
        records = [next(iter(content.array_records.values())) for content in contents]
        samples = [next(iter(c.metric_records.values()))[self.weighted_by_key] for c in contents]
        arrays = [[a.numpy().astype(np.float64) for a in record.values()] for record in records]
        points = np.stack([np.concatenate([a.ravel() for a in own]) for own in arrays])
        shares = np.array(samples, dtype=np.float64) / sum(samples)
        median = shares @ points
        for _ in range(self.steps):
            distances = np.sqrt(((points - median) ** 2).sum(axis=1))
            weights = shares / np.maximum(distances, self.smallest)
            median = weights @ points / weights.sum()
        result, first = {}, 0
        for name, array in records[0].items():
            end = first + int(np.prod(array.shape))
            result[name] = Array(median[first:end].reshape(array.shape).astype(array.dtype))
            first = end
        return ArrayRecord(result), None
