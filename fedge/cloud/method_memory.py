"""State of a grouping method between cloud steps, and the schedule of its comparisons."""

from collections.abc import Mapping
from typing import Any

from fedge.clustering.cadence import Pace
from fedge.clustering.registry import Need, method_named
from fedge.config.sections.cluster import ClusterConfig
from fedge.states.averaging import State

RECENT_STEPS = 4  # earlier comparisons whose cross-losses are pooled with those of a step


class MethodMemory:
    """Memory of a grouping method.

    Attributes:
        config: when to cluster, by which method.
        method: groups the leaves.
        pace: decides which steps compare.
        since_probe: comparisons from different starts since the last probe.
        kept: the method's own state, as JSON.
        own: state of the method's cloud part, packed.
    """

    def __init__(self, config: ClusterConfig) -> None:
        """Start a run."""
        self.config = config
        self.method = method_named(config)
        self.pace = Pace(config.regroup_every, settled_after=RECENT_STEPS + 1)
        self.since_probe = 0
        self.kept: Mapping[str, Any] = {}
        self.own: State = {}

    def needs(self, need: Need) -> bool:
        """Whether the method needs costly evidence."""
        return self.config.enabled and need in self.method.needs(self.config)
