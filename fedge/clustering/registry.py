"""Methods of grouping leaves: each a function from evidence to labels.

`cluster.method` names one of `fedge.config.registers.parts.GROUPINGS`, whose code is loaded at first use by
the cloud. A method declares its needs, so the cloud collects no other evidence, and withholds invalid
evidence. `NEEDS` lists all needs, with the data sent by clients for each. Shape letter: S leaf servers.
"""

import inspect
import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from fedge.clustering.cloud_part import CloudPart, Family
from fedge.clustering.likeness.evidence import Evidence, NotComparable, Questions
from fedge.clustering.likeness.similarity import number_by_first_appearance
from fedge.config.registers.determinism import are_identical, call_checked
from fedge.config.registers.failing import own_error, own_errors
from fedge.config.registers.groupings import GROUPINGS
from fedge.config.registers.hooks import refuse_misspelt, refuse_misspelt_marks
from fedge.config.registers.option import ConfigError, shown
from fedge.config.registers.register import refuse_undeclared, refuse_wrong_signature
from fedge.config.registers.traits import BY_TIME
from fedge.config.sections.cluster import ClusterConfig
from fedge.privacy.marks import DESCRIPTIONS, LOSSES, SINGLE_MODELS, SPREADS, Quantity
from fedge.states.averaging import State
from hhar.quantity import quantity

Need = Literal[
    "starts", "one-start", "cluster-start", "cross-losses", "pool", "updates", "description", "dispersion"
]


@dataclass(frozen=True)
class NeedDescription:
    """One possible need of a method.

    Attributes:
        description: description of the need.
        sent: quantities sent for it by clients, besides their models: words → mark.
    """

    description: str
    sent: Mapping[str, Quantity] = field(default_factory=dict)


NEEDS: Mapping[Need, NeedDescription] = {
    "starts": NeedDescription("the models with which the leaves began the round"),
    "one-start": NeedDescription("one model with which all leaves began the round"),
    "cluster-start": NeedDescription("one model with which all leaves of a cluster began the round"),
    "cross-losses": NeedDescription(
        "losses at each other's clients", {"losses and scores of the leaves' models": LOSSES}
    ),
    "pool": NeedDescription("models of the cloud's own", {"losses and scores of the cloud's models": LOSSES}),
    "updates": NeedDescription(
        "clients' updates of one model",
        {
            "updates of single clients, without the leaf's noise": SINGLE_MODELS,
            "losses and scores of models on trial": LOSSES,
        },
    ),
    "description": NeedDescription(
        "what windows look like to a model", {"class-wise means and deviations of features": DESCRIPTIONS}
    ),
    "dispersion": NeedDescription(
        "how far the models of a leaf's clients lie apart, one number per leaf", {SPREADS.words: SPREADS}
    ),
}
"""Meaning of each need. Privacy, memory and documents follow from it."""

_ASKED: Mapping[str, Quantity] = {"losses and scores of models that the method asks about": LOSSES}
"""Quantities that leave clients because a method asks questions of its own: `GroupingMethod.ask`."""


@dataclass(frozen=True)
class Grouping:
    """Result of a clustering method.

    Attributes:
        labels: (S,) int64, cluster of each leaf, numbered by first appearance.
        similarity: (S, S), or None if leaves were not compared in pairs.
        facts: further findings for clusters.jsonl, as JSON.
        takes: (S,) which of the cloud's candidate models each leaf is offered; None for its cluster's mean.
        models: the cloud's own models from now on; None: as they are. With memberships w_k; None: means.
        kept: for `Evidence.kept` at the next cloud step, as JSON; None: as it was.
        memberships: Π (S, K), rows with sum 1, if each leaf is offered a mixture of K models.
    """

    labels: np.ndarray
    similarity: np.ndarray | None
    facts: Mapping[str, Any] = field(default_factory=dict)
    takes: np.ndarray | None = None
    kept: Mapping[str, Any] | None = None
    models: Sequence[State] | None = None
    memberships: np.ndarray | None = None


Method = Callable[[Evidence, ClusterConfig, np.ndarray | None], Grouping]
"""(evidence, configuration, labels (S,) in force or None before the first cloud step) → grouping."""

Needs = Callable[[ClusterConfig], frozenset[Need]]

Refuses = Callable[[Mapping[str, Any], ClusterConfig, int], None]
"""(kept state as JSON, configuration, number of leaves) → nothing, or raises ValueError."""


@dataclass(frozen=True)
class GroupingMethod:
    """A method with its declarations to the cloud.

    Attributes:
        group: the function.
        needs: names in `NEEDS`, which may depend on the configuration.
        compares: basis of its comparison of leaves, if not `cluster.signal`; else empty.
        by_time: the method itself chooses its grouping rounds, so every cloud step calls it.
        ask: gives models for evaluation by clients before the grouping; None for those of its needs.
        refuses: raises ValueError for `Evidence.kept` of a checkpoint if it cannot be its own.
    """

    group: Method
    needs: Needs
    compares: str = ""
    by_time: bool = False
    ask: Callable[[Evidence], Questions | None] | None = None
    refuses: Refuses | None = None


def sent_quantities(config: ClusterConfig) -> dict[str, Quantity]:
    """Quantities sent by clients beside their models for the method in force: words → mark.

    Known from its needs (`NEEDS`) and questions of its own.
    """
    if not config.enabled:
        return {}
    method, quantities = method_named(config), dict[str, Quantity]()
    needs = method.needs(config)
    for need, meaning in NEEDS.items():
        if need in needs:
            quantities |= meaning.sent
    if method.ask is not None:
        quantities |= _ASKED
    return quantities


def cloud_model_count(config: ClusterConfig) -> int:
    """Number of models kept by the cloud for the configured method."""
    if not config.enabled or "pool" not in method_named(config).needs(config):
        return 0
    return config.fixed_count or 0


def may_offer_mixtures(config: ClusterConfig) -> bool:
    """Whether a method may offer leaves mixtures of several models (`Family`)."""
    is_own = GROUPINGS.is_own(config.method)
    return config.enabled and (is_own or inspect.isclass(GROUPINGS.load(config.method)))


def nothing(_: ClusterConfig) -> frozenset[Need]:
    """Need no more than the models."""
    return frozenset()


def method(
    needs: Needs = nothing, compares: str = "", refuses: Refuses | None = None
) -> Callable[[Callable[..., Grouping]], Callable[..., Grouping]]:
    """Declare the needs of a grouping function, and its basis of comparison.

    Args:
        needs: names in `NEEDS`.
        compares: basis of its comparison of leaves, if not `cluster.signal`.
        refuses: check of a checkpoint's `Evidence.kept`.
    """

    def declare(group: Callable[..., Grouping]) -> Callable[..., Grouping]:
        group.needs, group.compares = needs, compares  # type: ignore[attr-defined]
        group.refuses = refuses  # type: ignore[attr-defined]
        return group

    return declare


def method_named(config: ClusterConfig) -> GroupingMethod:
    """The configured method, with its needs; docs/extend.md shows how to write one.

    Raises:
        ConfigError: no method of this name, or its code cannot be imported.
    """
    name = config.method
    code, arguments = GROUPINGS.load(name), config.arguments("method")
    if inspect.isclass(code):
        refuse_undeclared(GROUPINGS, name, arguments)
        return _method_from_class(name, code, arguments, config)
    declared_needs, is_own = getattr(code, "needs", nothing), GROUPINGS.is_own(name)
    needs = declared_needs if callable(declared_needs) else lambda _: frozenset(declared_needs)

    def group(evidence: Evidence, config: ClusterConfig, before: np.ndarray | None) -> Grouping:
        with GROUPINGS.explaining_errors(name, NotComparable):
            evidence_view = evidence.read_only() if is_own else evidence
            result = call_checked(GROUPINGS, name, lambda: code(evidence_view, config, before, **arguments))
        grouping = _to_grouping(name, result, len(evidence.weights))
        if is_own:
            grouping = _normalise_models(name, grouping, evidence)
            _refuse_other_models(name, grouping, "pool" in needs(config), config.fixed_count or 0)
        return grouping

    if is_own:
        refuse_misspelt_marks(code, ("needs", "compares", "by_time"), f"cluster.method {name}")
        _refuse_uncounted(name, needs(config), config)
    return GroupingMethod(
        group if is_own or arguments else code,
        needs,
        getattr(code, "compares", name if is_own else ""),
        GROUPINGS.has(name, BY_TIME) or bool(getattr(code, "by_time", False)),
        refuses=None if is_own else getattr(code, "refuses", None),
    )


def _method_from_class(
    name: str, code: Any, arguments: Mapping[str, Any], config: ClusterConfig
) -> GroupingMethod:
    """The method of a class, newly constructed."""
    if not issubclass(code, CloudPart) or code.group is CloudPart.group:
        raise ConfigError(
            f"cluster.method {name} must be a function, or a class derived from fedge.clustering.CloudPart "
            f"with a method group(cloud), but is {shown(code)}; see docs/own-method.md"
        )
    refuse_misspelt(code, CloudPart, f"cluster.method {name}")
    refuse_wrong_signature(code, f"cluster.method {name}", "cluster.method-args", arguments, ())
    try:
        part = code(**arguments)
    except own_errors() as error:
        raise ConfigError(
            f"cluster.method {name} cannot be made: {own_error(error)}; fix it, or change cluster.method-args"
        ) from error

    def group(evidence: Evidence, config: ClusterConfig, _: np.ndarray | None) -> Grouping:
        view = evidence.read_only()
        with GROUPINGS.explaining_errors(name, NotComparable):
            result = part.group(view)
        grouping = _to_grouping(name, result, len(evidence.weights))
        if GROUPINGS.is_own(name):
            grouping = _normalise_models(name, grouping, evidence)
        elif grouping.models is not None:
            models = [evidence.original(model, view) for model in grouping.models]
            grouping = replace(grouping, models=models)
        _refuse_other_models(name, grouping, "pool" in needs, config.fixed_count or 0)
        return grouping

    def ask(evidence: Evidence) -> Questions | None:
        view = evidence.read_only()
        with GROUPINGS.explaining_errors(name, NotComparable):
            return [
                {role: evidence.original(model, view) for role, model in roles.items()}
                for roles in part.ask(view) or ()
            ]

    asks = ask if code.ask is not CloudPart.ask else None
    needs = frozenset(part.needs)
    _refuse_uncounted(name, needs, config)
    unknown = sorted(needs - NEEDS.keys())
    if unknown:
        raise ConfigError(
            f"cluster.method {name} must need some of {', '.join(NEEDS)}, but needs {shown(unknown[0])}"
        )
    return GroupingMethod(group, lambda _: needs, part.compares, by_time=True, ask=asks)


def _grouping_from_family(
    name: str, family: Family, leaves: int, kept: Mapping[str, Any] | None = None
) -> Grouping:
    """A family of models as a grouping, with the method's state; labels are the largest membership.

    Raises:
        ConfigError: they are not memberships of all leaves.
    """
    try:
        shares = np.asarray(family.memberships, dtype=np.float64)
    except (TypeError, ValueError):  # of rows of several lengths, or no numbers
        shares = np.zeros(0)
    if shares.ndim != 2 or len(shares) != leaves or not shares.shape[1]:
        problem = f"of shape {shares.shape}"
    elif not np.isfinite(shares).all() or (shares < 0).any():
        problem = "with a value that is negative or not finite"
    elif (bad_rows := np.flatnonzero(np.abs(shares.sum(axis=1) - 1) > 1e-6)).size:
        problem = f"with a row {bad_rows[0]} that sums to {shares[bad_rows[0]].sum():g}"
    elif family.models is not None and len(family.models) != shares.shape[1]:
        problem = f"for {quantity(shares.shape[1], 'model')}, but gave {len(family.models)}"
    else:
        labels = number_by_first_appearance(shares.argmax(axis=1))
        models = None if family.models is None else list(family.models)
        grouping = Grouping(
            labels, family.similarity, family.facts, kept=kept, models=models, memberships=shares
        )
        return _normalise_grouping(name, grouping, leaves)
    raise ConfigError(
        f"cluster.method {name} must return memberships (S, K) of {leaves} leaves, rows that sum to 1, but "
        f"returned some {problem}; fix it"
    )


def _to_grouping(name: str, result: Any, leaves: int) -> Grouping:
    """Result of a user's method as a grouping; it may be labels only.

    Raises:
        ConfigError: it is no grouping of all leaves.
    """
    if isinstance(result, Family):
        return _grouping_from_family(name, result, leaves)
    if isinstance(result, Grouping) and result.memberships is not None and GROUPINGS.is_own(name):
        family = Family(result.memberships, result.models, result.similarity, result.facts)
        return _grouping_from_family(name, family, leaves, result.kept)
    grouping = result if isinstance(result, Grouping) else Grouping(result, None)
    try:
        labels = np.asarray(grouping.labels)
    except ValueError:  # of lists of several lengths
        labels = np.zeros(0)
    if labels.shape != (leaves,) or not np.issubdtype(labels.dtype, np.integer):
        raise ConfigError(
            f"cluster.method {name} must return a whole number for each of {leaves} leaves, but returned "
            f"{shown(result)}; fix it"
        )
    if labels.min() < 0:
        raise ConfigError(
            f"cluster.method {name} must return labels of 0 or more, because leaves with one label are one "
            f"cluster, also those that a method counts as noise by -1, but returned {shown(result)}; give "
            f"each leaf without a group a label of its own"
        )
    return _normalise_grouping(name, replace(grouping, labels=number_by_first_appearance(labels)), leaves)


def _normalise_grouping(name: str, grouping: Grouping, leaves: int) -> Grouping:
    """A grouping whose similarity is an array (S, S), and whose facts and memory files can hold.

    Raises:
        ConfigError: they are not.
    """
    similarity = None if grouping.similarity is None else np.asarray(grouping.similarity)
    if similarity is not None and (
        similarity.shape != (leaves, leaves) or similarity.dtype.kind not in "fiu"
    ):
        raise ConfigError(
            f"cluster.method {name} must return a similarity of shape ({leaves}, {leaves}), or None, but "
            f"returned {shown(grouping.similarity)}; fix it"
        )
    _refuse_unserialisable(name, "facts", grouping.facts)
    _refuse_unserialisable(name, "kept", grouping.kept)
    if not GROUPINGS.is_own(name):
        return replace(grouping, similarity=similarity)
    if similarity is not None and not np.isfinite(similarity).all():
        raise ConfigError(
            f"cluster.method {name} must return a similarity of finite numbers, or None, but returned "
            f"{shown(grouping.similarity)}; fix it"
        )
    taken = sorted(OF_THE_STEP & set(grouping.facts or {}))
    if taken:
        raise ConfigError(
            f"cluster.method {name} must return facts under names of its own, because clusters.jsonl says "
            f"{shown(taken[0])} of every step itself, but returned {shown(grouping.facts[taken[0]])}; "
            f"rename it"
        )
    _refuse_json_changes(name, grouping.kept or {})  # built-in methods read theirs as it comes back
    return replace(grouping, similarity=similarity, facts=_without_nan(dict(grouping.facts or {})))


OF_THE_STEP = frozenset(
    {
        *("round", "signal", "tau", "labels", "similarity", "common_start", "method", "memberships"),
        *("compared", "skipped", "events", "candidate", "agreed", "cross_loss", "exchange_bytes", "probe"),
        *("server", "server_round", "models_without_leaves", "too_few_for_rule", "rule_failed"),
    }
)
"""Keys of a line of clusters.jsonl said of every step, or by the cloud."""


def _without_nan(value: Any) -> Any:
    """Facts with null for infinite numbers and NaN, which JSON lacks."""
    if isinstance(value, Mapping):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _normalise_models(name: str, grouping: Grouping, evidence: Evidence) -> Grouping:
    """A grouping whose models are arrays of names, shapes and types of the leaves' models.

    Raises:
        ConfigError: one has other names or shapes, or is not finite.
    """
    if grouping.models is None:
        return grouping
    template = evidence.models[0]
    return replace(grouping, models=[_model_like(name, model, template) for model in grouping.models])


def _model_like(name: str, model: Any, template: State) -> State:
    """A model of a user's method in the form of a leaf's; arrays of PyTorch and other precisions are cast.

    Raises:
        ConfigError: as of `_normalise_models`.
    """
    problem = ""
    if not isinstance(model, Mapping):
        problem = shown(model)
    elif differing := sorted(set(map(str, model)) ^ set(template)):
        problem = f"one that differs in {shown(differing[0])}"
    else:
        arrays = {key: _host_array(model[key]) for key in template}
        for key, array in arrays.items():
            if array.shape != template[key].shape or array.dtype.kind not in "fiub":
                problem = problem or f"{key!r} of shape {array.shape}, not {template[key].shape}"
            elif not np.isfinite(array).all():
                problem = problem or f"{key!r} with values that are not finite"
        if not problem:
            return {key: array.astype(template[key].dtype, copy=False) for key, array in arrays.items()}
    raise ConfigError(
        f"cluster.method {name} must return models with the entries of the leaves' models, name → array, but "
        f"returned {problem}; fix it"
    )


def _host_array(value: Any) -> np.ndarray:
    """An array of anything; a tensor's is copied to the host, and lists of several lengths are an object."""
    value = value.detach().cpu() if hasattr(value, "detach") else value
    try:
        return np.asarray(value)
    except ValueError:
        return np.asarray(None)


def _refuse_other_models(name: str, grouping: Grouping, has_pool: bool, count: int) -> None:
    """Raise ConfigError unless `takes` names a model of the cloud's per leaf, or nothing without such models.

    Args:
        name: name of the method.
        grouping: grouping with a value for each leaf.
        has_pool: whether the cloud has models of its own for the method.
        count: of these.
    """
    takes = grouping.takes
    if not has_pool and grouping.models is not None and grouping.memberships is None:
        raise ConfigError(
            f'cluster.method {name} must need "pool" to return models of the cloud\'s own, or memberships to '
            f"mix them, but returned {quantity(len(grouping.models), 'model')} without; return a "
            f"fedge.clustering.Family, or leave models out"
        )
    if not has_pool and takes is None:
        return
    if not has_pool:
        raise ConfigError(
            f'cluster.method {name} must need "pool" to say which of the cloud\'s models leaves take, but '
            f"returned takes {shown(takes)} without; add it to its needs, or leave takes out"
        )
    chosen = np.asarray(takes) if takes is not None else np.zeros(0)
    fits = chosen.shape == (len(grouping.labels),) and chosen.dtype.kind in "iu"
    if not fits or chosen.min() < 0 or chosen.max() >= count:
        raise ConfigError(
            f"cluster.method {name} must return as takes a model 0..{count - 1} of the cloud's for each of "
            f"{len(grouping.labels)} leaves, but returned {shown(takes)}; fix it"
        )


def _refuse_uncounted(name: str, needs: Collection[str], config: ClusterConfig) -> None:
    """Raise ConfigError for a method with models at the cloud unless their number is configured."""
    if "pool" in needs and not config.fixed_count:
        raise ConfigError(
            f"cluster.count must be the number of the cloud's models with cluster.method {name}, which needs "
            f'them, but is {shown(config.count)}; set for example cluster.count="2"'
        )


def _refuse_json_changes(name: str, kept: Mapping[str, Any]) -> None:
    """Raise ConfigError for state that a checkpoint would not restore unchanged."""
    for key, value in kept.items():
        restored = json.loads(json.dumps(value))
        if type(key) is not str or not (restored == value or are_identical(restored, value)):
            raise ConfigError(
                f"cluster.method {name} must return kept that comes back from JSON as it was (tables by "
                f"text, no tuples), because a run resumes from it after a stop, but keeps {shown(value)} as "
                f"{shown(key)}; fix it"
            )


def _refuse_unserialisable(name: str, key: str, value: Any) -> None:
    """Raise ConfigError unless a mapping, or None, can be written to a file."""
    try:
        json.dumps(value if value is None else dict(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"cluster.method {name} must return {key} that JSON can hold (numbers and lists of Python), but "
            f"returned {shown(value)}: {error}; fix it"
        ) from error
