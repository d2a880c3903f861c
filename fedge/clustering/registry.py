"""How leaves are grouped: a register of methods, each a function from evidence to labels.

`cluster.method` names one of them. A method says what it needs, so that the cloud gathers nothing in vain.
Shape letter: S leaf servers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from fedge.clustering.evidence import Evidence
from fedge.config.sections import ClusterConfig

Need = Literal["starts", "cross-losses", "pool"]


@dataclass(frozen=True)
class Grouping:
    """What a method found.

    Attributes:
        labels: (S,) int64, cluster of each leaf, numbered by first appearance.
        similarity: (S, S), or None where nothing was compared in pairs.
        facts: what else is to be kept in clusters.jsonl, as JSON.
        takes: (S,) which of the cloud's candidate models each leaf is offered; None for its cluster's mean.
    """

    labels: np.ndarray
    similarity: np.ndarray | None
    facts: Mapping[str, Any] = field(default_factory=dict)
    takes: np.ndarray | None = None


Method = Callable[[Evidence, ClusterConfig, np.ndarray | None], Grouping]
"""(evidence, configuration, labels (S,) in force or None before the first cloud step) → grouping."""

Needs = Callable[[ClusterConfig], frozenset[Need]]


@dataclass(frozen=True)
class Registered:
    """A method.

    Attributes:
        group: the function.
        needs: what it must see, which may depend on the configuration.
        compares: by what it compares leaves, where it is not `cluster.signal`; empty where it is.
    """

    group: Method
    needs: Needs
    compares: str = ""


METHODS: dict[str, Registered] = {}


def nothing(_: ClusterConfig) -> frozenset[Need]:
    """Need no more than the models."""
    return frozenset()


def register(name: str, needs: Needs = nothing, compares: str = "") -> Callable[[Method], Method]:
    """Make a function known as the method `name`; `cluster.method` must list the name, too."""

    def known(group: Method) -> Method:
        assert name not in METHODS, f"two methods are called {name}"
        METHODS[name] = Registered(group, needs, compares)
        return group

    return known
