"""How leaves are grouped: methods, each a function from evidence to labels.

`cluster.method` names one of `fedge.config.parts.GROUPINGS`, whose code is loaded when a cloud first asks for
it. A method says what it needs, so that the cloud gathers nothing in vain, and withholds what does not hold:
`NEEDS` is the one place where all needs stand, with what clients send because of each.
Shape letter: S leaf servers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import signature
from math import inf
from typing import Any, Literal

import numpy as np

from fedge.clustering.evidence import Evidence, NotComparable
from fedge.clustering.similarity import number_by_first_appearance
from fedge.config.option import ConfigError, shown
from fedge.config.parts import BY_TIME, GROUPINGS
from fedge.config.sections.cluster import ClusterConfig
from fedge.privacy.marks import DESCRIPTIONS, LOSSES, SINGLE_MODELS, Quantity
from fedge.states.averaging import State

Need = Literal["starts", "one-start", "cluster-start", "cross-losses", "pool", "updates", "description"]


@dataclass(frozen=True)
class Meaning:
    """One thing that a method can need.

    Attributes:
        what: it is.
        sent: what leaves clients because of it, beside their models: words → mark.
    """

    what: str
    sent: Mapping[str, Quantity] = field(default_factory=dict)


NEEDS: Mapping[Need, Meaning] = {
    "starts": Meaning("the models with which the leaves began the round"),
    "one-start": Meaning("one model with which all leaves began the round"),
    "cluster-start": Meaning("one model with which all leaves of a cluster began the round"),
    "cross-losses": Meaning(
        "losses at each other's clients", {"losses and accuracies of the leaves' models": LOSSES}
    ),
    "pool": Meaning("models of the cloud's own", {"losses and accuracies of the cloud's models": LOSSES}),
    "updates": Meaning(
        "clients' updates of one model",
        {
            "updates of single clients, without the leaf's noise": SINGLE_MODELS,
            "losses and accuracies of models on trial": LOSSES,
        },
    ),
    "description": Meaning(
        "what windows look like to a model", {"class-wise means and deviations of features": DESCRIPTIONS}
    ),
}
"""What each need means. Privacy, memory and documents follow from it."""


@dataclass(frozen=True)
class Grouping:
    """What a method found.

    Attributes:
        labels: (S,) int64, cluster of each leaf, numbered by first appearance.
        similarity: (S, S), or None where nothing was compared in pairs.
        facts: what else is to be kept in clusters.jsonl, as JSON.
        takes: (S,) which of the cloud's candidate models each leaf is offered; None for its cluster's mean.
        models: the cloud's own models from now on; None: as they are.
        kept: what the method is to find in `Evidence.kept` at the next cloud step, as JSON; None: as it was.
    """

    labels: np.ndarray
    similarity: np.ndarray | None
    facts: Mapping[str, Any] = field(default_factory=dict)
    takes: np.ndarray | None = None
    kept: Mapping[str, Any] | None = None
    models: Sequence[State] | None = None


Method = Callable[[Evidence, ClusterConfig, np.ndarray | None], Grouping]
"""(evidence, configuration, labels (S,) in force or None before the first cloud step) → grouping."""

Needs = Callable[[ClusterConfig], frozenset[Need]]


@dataclass(frozen=True)
class GroupingMethod:
    """A method with what the cloud must know of it.

    Attributes:
        group: the function.
        needs: what it must see, which may depend on the configuration.
        compares: by what it compares leaves, where it is not `cluster.signal`; empty where it is.
        by_time: it decides by itself in which rounds it groups, so every cloud step asks it.
    """

    group: Method
    needs: Needs
    compares: str = ""
    by_time: bool = False


def sent_for(config: ClusterConfig) -> dict[str, Quantity]:
    """What clients send beside their models for the method in force: words → mark, in order of `NEEDS`."""
    if not config.enabled:
        return {}
    needs, found = method_named(config).needs(config), dict[str, Quantity]()
    for need, meaning in NEEDS.items():
        if need in needs:
            found |= meaning.sent
    return found


def own_models(config: ClusterConfig) -> int:
    """Return how many models of its own the cloud keeps for the method in force."""
    if not config.enabled or "pool" not in method_named(config).needs(config):
        return 0
    return config.fixed_count or 0


def nothing(_: ClusterConfig) -> frozenset[Need]:
    """Need no more than the models."""
    return frozenset()


def method(
    needs: Needs = nothing, compares: str = "", words: Mapping[str, tuple[str, ...]] | None = None
) -> Callable[[Callable[..., Grouping]], Callable[..., Grouping]]:
    """Say of a function that groups leaves what it needs, and by what it compares them.

    Args:
        needs: what it must see.
        compares: by what it compares leaves, where it is not `cluster.signal`.
        words: argument → what it can be, where it is a word.
    """

    def told(group: Callable[..., Grouping]) -> Callable[..., Grouping]:
        group.needs, group.compares = needs, compares  # type: ignore[attr-defined]
        group.words = words or {}  # type: ignore[attr-defined]
        return group

    return told


def refuse_wrong_values(config: ClusterConfig) -> None:
    """Raise ConfigError for an argument of a method of Fedge's that is of a wrong type, or below 0."""
    arguments = config.arguments("method")
    if not arguments or GROUPINGS.is_own(config.method):
        return
    code = GROUPINGS.load(config.method)
    for name, value in arguments.items():
        key = f"cluster.method-args.{name.replace('_', '-')}"
        default = signature(code).parameters[name].default
        words = code.words.get(name)
        if words and value not in words:
            known = " or ".join(map(repr, words))
            raise ConfigError(f"{key} must be {known}, but is {shown(value)}; set {key}={words[0]!r}")
        kinds = (int, float) if type(default) is float else (type(default),)
        if type(value) not in kinds or (type(value) in (int, float) and not 0 <= value < inf):
            kind = {bool: "true or false", int: "a whole number of at least 0"}.get(
                type(default), "a number of at least 0"
            )
            raise ConfigError(f"{key} must be {kind}, but is {shown(value)}; set for example {key}={default}")


def method_named(config: ClusterConfig) -> GroupingMethod:
    """Return the method that a configuration names, with what it needs; see docs/extend.md for own ones.

    Raises:
        ConfigError: there is none of that name, or its code cannot be imported.
    """
    name = config.method
    code, arguments = GROUPINGS.load(name), config.arguments("method")
    needs, is_own = getattr(code, "needs", nothing), GROUPINGS.is_own(name)

    def group(evidence: Evidence, config: ClusterConfig, before: np.ndarray | None) -> Grouping:
        with GROUPINGS.carried_out(name, NotComparable):
            found = code(evidence.read_only() if is_own else evidence, config, before, **arguments)
        return _as_grouping(name, found, len(evidence.weights))

    return GroupingMethod(
        group if is_own or arguments else code,
        needs if callable(needs) else lambda _: frozenset(needs),
        getattr(code, "compares", name if is_own else ""),
        GROUPINGS.has(name, BY_TIME) or bool(getattr(code, "by_time", False)),
    )


def _as_grouping(name: str, found: Any, leaves: int) -> Grouping:
    """Return what a method of the user's found, which may be labels alone.

    Raises:
        ConfigError: they are no labels of all leaves.
    """
    grouping = found if isinstance(found, Grouping) else Grouping(np.asarray(found), None)
    labels = np.asarray(grouping.labels)
    if labels.shape != (leaves,) or not np.issubdtype(labels.dtype, np.integer):
        raise ConfigError(
            f"cluster.method {name} must return a whole number for each of {leaves} leaves, but returned "
            f"{shown(found)}; mend it"
        )
    return replace(grouping, labels=number_by_first_appearance(labels))
