"""A soft family of two models at the cloud; every leaf is offered its own mixture of them."""

import numpy as np

from fedge.clustering import CloudPart, Family


class Soft(CloudPart):
    """Fuzzy means of the leaves' models.

    Args:
        temperature: of the memberships; smaller is harder.
    """

    def __init__(self, temperature: float = 1.0) -> None:
        self.temperature = temperature

    def group(self, cloud) -> Family:
        """Memberships (S leaves, 2 models) from distances to both centres, kept in the memory."""
        before = cloud.memory.get("memberships", np.eye(len(cloud.models))[:, :2] * 0.2 + 0.4)
        before = before / before.sum(axis=1, keepdims=True)
        centres = before.T @ cloud.vectors / before.sum(axis=0)[:, None]
        distances = ((cloud.vectors[:, None] - centres[None]) ** 2).sum(axis=2)
        found = np.exp(-distances / distances.mean() / self.temperature)
        cloud.memory["memberships"] = found / found.sum(axis=1, keepdims=True)
        return Family(cloud.memory["memberships"])
