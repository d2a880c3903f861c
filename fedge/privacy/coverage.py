"""Coverage of a configuration's privacy: its promise, and quantities sent without noise.

Every quantity that leaves a client is marked where it is produced (`fedge.privacy.marks`): noised under some
kinds of privacy, public, or plain. Every part that decides something declares the quantities it uses: a
grouping method, including a user's, by its needs (`fedge.clustering.registry`), a client's algorithm by its
arrays. Gaps in a run's promise, and refusals, follow from these marks; this module names no part. See
docs/privacy.md.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from fedge.config.clock_tiers import clock_of_tiers, has_servers_above_leaves
from fedge.config.config import Config
from fedge.config.registers import groupings, parts, traits
from fedge.config.registers.option import ConfigError
from fedge.config.sections.train import TrainConfig
from fedge.privacy.account import EXTRA, noise_multiplier
from fedge.privacy.marks import (
    ACCURACIES,
    CLASS_COUNTS,
    LOSSES,
    SCALES,
    WEIGHTS,
    WHO_FAILED,
    WINDOWS,
    Mark,
    Quantity,
)
from fedge.privacy.noise import SYSTEM
from hhar.quantity import quantity

_NOT_INSTALLED = f"dp-accounting is not installed ({EXTRA})"
_DEFAULT_ALGORITHM = TrainConfig.__dataclass_fields__["algorithm"].default


@dataclass(frozen=True)
class Decision:
    """A decision affecting models, and the quantity on which it is based.

    Attributes:
        quantity: the quantity that clients send.
        description: the decision.
        option: option that controls it.
        applies: whether a configuration includes the decision.
    """

    quantity: Quantity
    description: str
    option: str
    applies: Callable[[Config], bool]


def _has_cloud(config: Config) -> bool:
    return has_servers_above_leaves(config.hierarchy)


DECISIONS = (
    Decision(SCALES, "", "data.normalize", lambda config: config.data.normalize),
    Decision(
        ACCURACIES, "by which gates decide", "gate.enabled",
        lambda config: _has_cloud(config) and config.gate.enabled,
    ),
    Decision(
        LOSSES, "by which offers are mixed", "cluster.blend",
        lambda config: _has_cloud(config) and isinstance(config.cluster.blend, str),
    ),
    Decision(
        ACCURACIES, "by which fine-tuned models are served", "personal.leaf-rounds",
        lambda config: config.personal.leaf_rounds > 0,
    ),
    Decision(
        WINDOWS, "by which the cloud weighs leaves", "hierarchy.num-servers",
        lambda config: _has_cloud(config) and (
            not config.asynchrony.is_on
            or config.cluster.enabled
            or any(
                parts.CLOUD_RULES.is_own(of.cloud_rule) or parts.CLOUD_RULES.has(of.cloud_rule, traits.ROUNDS)
                for of in clock_of_tiers(config)
            )
        ),
    ),
    Decision(
        WINDOWS, "by which regions weigh those below them", "hierarchy.tree",
        lambda config: config.hierarchy.tiers > 2 and not config.asynchrony.is_on,
    ),
    Decision(
        CLASS_COUNTS, "by which clients are assigned to leaves", "hierarchy.association",
        lambda config: config.hierarchy.associates,
    ),
    Decision(
        WINDOWS, "by which clients may go from leaf to leaf", "hierarchy.mobility",
        lambda config: parts.MOBILITIES.is_own(config.hierarchy.mobility),
    ),
    Decision(
        WINDOWS, "by which leaves weigh clients", "privacy.kind",
        lambda config: config.privacy.kind == "local",
    ),
    Decision(
        WINDOWS, "by which jobs take their time, so who arrives when", "asynchrony.rule",
        lambda config: config.asynchrony.is_on,
    ),
    Decision(
        LOSSES, "by which devices are given work", "devices.selection",
        lambda config: config.asynchrony.is_on and (
            parts.SELECTIONS.is_own(config.devices.selection)
            or parts.SELECTIONS.has(config.devices.selection, traits.BY_LOSS)
        ),
    ),
    Decision(
        WEIGHTS, "in leaves' means", "train.algorithm",
        lambda config: config.privacy.kind == "local" and config.train.algorithm != _DEFAULT_ALGORITHM,
    ),
    Decision(
        LOSSES, "and all else in replies, which leaves combine", "leaf.strategy",
        lambda config: config.leaf.strategy != parts.RULES.names[0],
    ),
    Decision(
        WHO_FAILED, "by which leaves keep their models without noise", "guard.min-clients",
        lambda config: not config.asynchrony.is_on,  # without any reply they do, too
    ),
    Decision(
        WHO_FAILED, "by which servers wait for others", "asynchrony.rule",
        lambda config: config.asynchrony.is_on and config.privacy.kind == "local",  # else they count as zero
    ),
    Decision(
        ACCURACIES, "by which the run may end", "callbacks", lambda config: bool(config.callbacks.strip())
    ),
    Decision(
        ACCURACIES, "by which the best models are kept", "checkpoint.models",
        lambda config: config.checkpoint.keeps_best,
    ),
)  # fmt: skip
"""All decisions but the grouping of leaves, whose method declares what clients send."""


def protection_of(kind: str) -> str:
    """Protection by a kind of privacy, and from whom, in a few words."""
    if kind == "local":
        return "local: a client's windows may be any others, and its leaf could not tell"
    return "central: a client's updates may be there or not, and the leaves' models would not tell"


@dataclass(frozen=True)
class SentQuantities:
    """Quantities leaving the clients of a run.

    Attributes:
        quantities: all of them.
        grouping: quantities sent for the grouping of leaves, besides models: words → mark.
    """

    quantities: Iterable[Quantity] = ()
    grouping: Mapping[str, Quantity] = field(default_factory=dict)


def unprotected_quantities(config: Config, leaves: SentQuantities) -> list[str]:
    """Quantities without noise: those with an effect on models first, those only recorded last.

    Args:
        config: configuration of the run.
        leaves: quantities leaving its clients.
    """
    kind, option = config.privacy.kind, _grouping_option(config)
    effective = [
        decision
        for decision in DECISIONS
        if decision.quantity.mark(kind) is Mark.PLAIN and decision.applies(config)
    ]
    uncovered = [
        f"{' '.join(filter(None, (decision.quantity.words, decision.description)))} ({decision.option})"
        for decision in effective
    ]
    if _has_cloud(config):
        uncovered += [
            f"{purpose}, by which leaves are grouped ({option})"
            for purpose, quantity in leaves.grouping.items()
            if quantity.mark(kind) is Mark.PLAIN
        ]
    mentioned = {decision.quantity.words for decision in effective}
    plain = [
        q.words
        for q in leaves.quantities
        if q.mark(kind) is Mark.PLAIN and not q.refused and q.words not in mentioned
    ]
    return [*uncovered, f"all else that clients tell: {', '.join(plain)}"]


def refuse(config: Config, part: str, sent: Mapping[str, Quantity]) -> None:
    """Raise ConfigError for a decision by a plain quantity not allowed with privacy.

    Args:
        config: configuration of the run.
        part: the part, by the name of its option: "train.algorithm mine:Method".
        sent: entry → description.
    """
    kind = config.privacy.kind
    if kind == "off":
        return
    for entry, leaving in sent.items():
        if leaving.refused and leaving.mark(kind) is Mark.PLAIN:
            reason = leaving.refused.format(what=part, entry=entry)
            raise ConfigError(f"privacy.kind {kind} {reason}; use another method")


def _grouping_option(config: Config) -> str:
    """The option to change so clients send something else."""
    by_signal = groupings.GROUPINGS.has(config.cluster.method, traits.BY_SIGNAL)
    return "cluster.signal" if by_signal else "cluster.method"


def at_start(config: Config, library: str | None, leaves: SentQuantities) -> str:
    """Terms of a private run, in one line before its first round.

    Args:
        config: configuration of the run.
        library: library that adds up the cost; None without one.
        leaves: as for `unprotected_quantities`.
    """
    words = _coverage_text(config, leaves)
    if library is None and noise_multiplier(config.privacy):
        return f"{words}; epsilon will not be added up, because {_NOT_INSTALLED}"
    return words


def _source_note(config: Config) -> str:
    """Words on the source of noise."""
    if config.privacy.noise_source == SYSTEM:
        return "noise is of the system's cryptographic generator, so no other run has these bits; "
    return ""


def _coverage_text(config: Config, leaves: SentQuantities) -> str:
    if not noise_multiplier(config.privacy):
        return "privacy: privacy.noise-multiplier is 0: updates are clipped, nothing is promised"
    uncovered = "; ".join(unprotected_quantities(config, leaves))
    return f"privacy is {protection_of(config.privacy.kind)}; {_source_note(config)}not covered: {uncovered}"


def spent_privacy_line(config: Config, epsilon: float | None, releases: int, leaves: SentQuantities) -> str:
    """Privacy spent by a run, in one line.

    Args:
        config: configuration of the run.
        epsilon: ε spent; None if not counted.
        releases: leaf rounds, fine-tuning rounds included; on the virtual clock those of the device with the
            most (`fedge.devices.servers.private_buffer`).
        leaves: as for `unprotected_quantities`.
    """
    if not noise_multiplier(config.privacy):
        return _coverage_text(config, leaves)
    releases_text = f"{quantity(releases, 'leaf round')}"
    if config.asynchrony.is_on:
        releases_text = f"what counts as {quantity(releases, 'update')} of the device with the most"
    if epsilon is None:
        spent = f"epsilon of {releases_text} was not added up, because {_NOT_INSTALLED}"
    else:
        spent = f"epsilon {epsilon:.4g} at delta {config.privacy.delta:g} was spent in {releases_text}"
    return f"privacy: {spent}; {_coverage_text(config, leaves)}"
