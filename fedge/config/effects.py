"""Conditions under which options have an effect, one entry per conditional option.

A changed option without effect makes a run look like another one. A run therefore lists such options; where
the run could be mistaken for another one, it is refused (`fedge.config.contradictions`). Options not listed
here always have an effect.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from fedge.config.clock_tiers import clock_of_tiers, has_servers_above_leaves
from fedge.config.registers import parts, traits
from fedge.config.registers.choices import BY_TEST, BY_THRESHOLD
from fedge.config.registers.groupings import GROUPINGS
from fedge.config.registers.option import key_of, shown
from fedge.config.registers.register import Register
from fedge.config.run_options import RunOptions

Holds = Callable[[RunOptions], bool]
_LEAVES = "several leaf servers (hierarchy.num-servers, hierarchy.tree)"


@dataclass(frozen=True)
class Effect:
    """Conditions under which an option has an effect.

    Attributes:
        needs: the condition in words, with the key of the other option.
        holds: tests whether a configuration meets the condition.
    """

    needs: str
    holds: Holds


def options_without_effect(config: RunOptions) -> list[str]:
    """A line for every changed option without effect in this run."""
    lines = []
    for section, holder in [("", config), *((f.name, getattr(config, f.name)) for f in fields(config))]:
        for declared in fields(holder) if hasattr(holder, "SECTION") else ():
            key = key_of(section, declared.name)
            value = getattr(holder, declared.name)
            effect = EFFECTS.get(key)
            if effect is not None and value != declared.default and not effect.holds(config):
                lines.append(f"{key}={shown(value)} has no effect: it needs {effect.needs}")
    return lines


def effects_twice(config: RunOptions) -> list[str]:
    """A line for every changed option added to the same setting of a part."""
    train = config.train
    if not train.prox_mu or not parts.ALGORITHMS.has(train.algorithm, traits.PROXIMAL):
        return []
    return [
        f"train.prox-mu={train.prox_mu:g} is added to the proximal term of train.algorithm "
        f"{train.algorithm}: for one of the two, set train.prox-mu=0, or train.algorithm=fedavg"
    ]


def _read_by(register: Register, key: str) -> Effect:
    """Condition: the chosen part reads the option; a user's part may read any."""
    section, name = register.option.split(".")
    return Effect(
        f"{register.option} {' or '.join(register.reading(key))}",
        lambda config: register.may_read(getattr(getattr(config, section), name), key),
    )


def _cluster(needs: str, holds: Callable[[Any], bool] = lambda _: True) -> Effect:
    """Condition: clustering is on, and `holds` for its section."""
    condition = "cluster.enabled" + (f" and {needs}" if needs else "")
    return Effect(condition, lambda config: config.cluster.enabled and holds(config.cluster))


def _grouping(key: str) -> Effect:
    """Condition: the grouping method reads the option."""
    read = _read_by(GROUPINGS, key)
    return Effect(
        f"cluster.enabled and {read.needs}", lambda config: config.cluster.enabled and read.holds(config)
    )


def _grouping_with(trait: str) -> Effect:
    """Condition: the grouping method has a trait."""
    names = GROUPINGS.names_with(trait)
    return _cluster(
        f"cluster.method {' or '.join(names)}",
        lambda cluster: cluster.method in names or GROUPINGS.is_own(cluster.method),
    )


def _uses_tau(cluster: Any) -> bool:
    """Whether a threshold joins leaves: always for some methods, else if no number of clusters is given."""
    always = not GROUPINGS.has(cluster.method, traits.TESTED)
    return GROUPINGS.may_read(cluster.method, "cluster.tau") and (always or cluster.count == BY_THRESHOLD)


def _tau() -> Effect:
    """Condition: a threshold joins leaves."""
    reading = GROUPINGS.reading("cluster.tau")
    testable = [name for name in reading if GROUPINGS.has(name, traits.TESTED)]
    untestable = [name for name in reading if name not in testable]
    return _cluster(
        f"cluster.method {' or '.join(untestable)}, or {' or '.join(testable)} with cluster.count "
        '"threshold"',
        _uses_tau,
    )


def _makes_offers(config: RunOptions) -> bool:
    """Whether the cloud can offer a leaf anything."""
    is_apart = config.cluster.enabled and GROUPINGS.has(config.cluster.method, traits.APART)
    return not (is_apart and config.cluster.blend == 1.0)


def _privacy(needs: str, test: Callable[[str], bool]) -> Effect:
    """Condition: `privacy.kind` passes a test."""
    return Effect(f"privacy.kind {needs}", lambda config: test(config.privacy.kind))


def _bytes_take_time(config: RunOptions) -> bool:
    """Whether transfers between servers take virtual time on any tier."""
    tiers = clock_of_tiers(config) if config.asynchrony.is_on else ()
    return not tiers or any(tier.cloud_delay_s or tier.cloud_link_megabytes_s for tier in tiers)


def _clock(needs: str, holds: Holds = lambda _: True) -> Effect:
    """Condition: the run is on the virtual clock, and `holds`."""
    condition = "an asynchrony.rule other than off" + (f" and {needs}" if needs else "")
    return Effect(condition, lambda config: config.asynchrony.is_on and holds(config))


def _devices(needs: str = "", holds: Holds = lambda _: True) -> Effect:
    """Condition: clients are timed as devices, and `holds`."""
    condition = "an asynchrony.rule other than off, or devices.time-rounds" + (
        f", and {needs}" if needs else ""
    )
    return Effect(condition, lambda config: _are_devices(config) and holds(config))


def _are_devices(config: RunOptions) -> bool:
    """Whether clients are timed as devices."""
    return config.asynchrony.is_on or config.devices.time_rounds


_without_rounds = _clock(
    "a rule without rounds",
    lambda config: not parts.SERVER_RULES.has(config.asynchrony.rule, traits.ROUNDS),
)
_in_rounds = Effect(
    f"asynchrony.rule {' or '.join(parts.SERVER_RULES.names_with(traits.ROUNDS))}",
    lambda config: parts.SERVER_RULES.has(config.asynchrony.rule, traits.ROUNDS),
)
_gate = Effect(
    "gate.enabled, and offers of the cloud", lambda config: config.gate.enabled and _makes_offers(config)
)
_gpu = Effect('train.device "auto" or "cuda"', lambda config: config.train.device != "cpu")
_scenario = Effect("a scenario", lambda config: config.scenario != "none")
_adaptive = _privacy("server-adaptive or client-adaptive", lambda kind: kind.endswith("-adaptive"))

EFFECTS: dict[str, Effect] = {
    **{key: _grouping(key) for key in GROUPINGS.keys_read},
    "scenario-groups": Effect(
        "a scenario that makes its groups",
        lambda config: config.scenario != "none" and not parts.SCENARIOS.has(config.scenario, traits.FILES),
    ),
    "scenario-sizes": _scenario,
    "scenario-from": _scenario,
    "scenario-until": _scenario,
    "scenario-moves": _scenario,
    "data.guard-windows": Effect(
        'data.split "blocks", or "auto" on windows without sessions',
        lambda config: config.data.split != "session",
    ),
    "data.synthetic-users": Effect(
        'data.path "synthetic", or "auto" without data/hhar-windows.npz',
        lambda config: config.data.path in ("auto", "synthetic"),
    ),
    "partition.deal": Effect(
        "partition.kind user or device, or partition.unseen-clients",
        lambda config: (
            parts.PARTITIONS.has(config.partition.kind, traits.OWNERS) or config.partition.unseen_clients > 0
        ),
    ),
    "train.local-epochs": Effect(
        'train.local-steps 0 or "auto"', lambda config: config.train.local_steps in (0, "auto")
    ),
    "train.momentum": Effect("train.optimizer sgd", lambda config: config.train.optimizer == parts.SGD),
    "train.lr-decay": Effect(
        "num-server-rounds of at least 2 and train.schedule exponential",
        lambda config: (
            config.num_server_rounds > 1
            and config.train.schedule in parts.SCHEDULES.reading("train.lr-decay")
        ),
    ),
    "train.label-smoothing": Effect(
        f"train.loss {parts.OF_THE_TASK} and train.task "
        f"{' or '.join(parts.TASKS.names_with(traits.SMOOTHS))}",
        lambda config: (
            config.train.loss == parts.OF_THE_TASK
            and (parts.TASKS.is_own(config.train.task) or parts.TASKS.has(config.train.task, traits.SMOOTHS))
        ),
    ),
    "train.precision": Effect(
        'train.device "auto" or "cuda"; or, for bf16, train.kernel "auto" or "native"',
        lambda config: (
            config.train.device != "cpu"
            or (config.train.precision == "bf16" and config.train.kernel != "torch")
        ),
    ),
    "train.cuda-graph": _gpu,
    "hierarchy.selection": Effect(
        "hierarchy.fraction-train or hierarchy.participation, by which not all clients train",
        lambda config: config.hierarchy.participation != "auto" or config.hierarchy.fraction_train < 1.0,
    ),
    "hierarchy.region-rounds": Effect(
        "servers between cloud and leaves (hierarchy.tree)", lambda config: config.hierarchy.tiers > 2
    ),
    "cluster.tiers": _cluster(""),
    "gate.tiers": Effect("gate.enabled", lambda config: config.gate.enabled),
    "cloud.rule-tiers": Effect("a cloud.rule other than fedavg", lambda config: not config.cloud.is_mean),
    "scaffold.levels": Effect("scaffold.enabled", lambda config: config.scaffold.enabled),
    "cluster.tau": _tau(),
    "cluster.signal": _grouping_with(traits.BY_SIGNAL),
    "cluster.method": _cluster(""),
    "cluster.level": _cluster('cluster.count "auto"', lambda cluster: cluster.count == BY_TEST),
    "cluster.patience": _cluster(
        f"a cluster.method other than {', '.join(GROUPINGS.names_with(traits.OFFERS))}",
        lambda cluster: not GROUPINGS.has(cluster.method, traits.OFFERS),
    ),
    "cluster.min-gain": _cluster('cluster.count "auto"', lambda cluster: cluster.count == BY_TEST),
    "cluster.probe-every": _cluster(
        "a cluster.method that compares leaves",
        lambda cluster: not GROUPINGS.has(cluster.method, traits.BLIND),
    ),
    "cluster.watch": _cluster('cluster.count "auto"', lambda cluster: cluster.deals),
    "cluster.blend": _cluster(""),
    "gate.min-gain": _gate,
    "gate.rule": _gate,
    "personal.layers": Effect("offers of the cloud", _makes_offers),
    "personal.every": Effect("personal.leaf-rounds", lambda config: config.personal.leaf_rounds > 0),
    "personal.unseen-clients": Effect(
        "partition.unseen-clients", lambda config: config.partition.unseen_clients > 0
    ),
    "privacy.clip-norm": _privacy("other than off", lambda kind: kind != "off"),
    "privacy.noise-multiplier": _privacy(
        "other than off or local", lambda kind: kind not in ("off", "local")
    ),
    "privacy.noise-source": _privacy("other than off", lambda kind: kind != "off"),
    "privacy.clip-quantile": _adaptive,
    "privacy.clip-lr": _adaptive,
    "privacy.epsilon": _privacy("local", lambda kind: kind == "local"),
    "privacy.delta": _privacy("other than off", lambda kind: kind != "off"),
    "uplink.servers": Effect(
        "at least two servers under the cloud", lambda config: config.hierarchy.branches > 1
    ),
    "devices.pieces": _clock(""),
    "devices.least-windows": _clock("devices.pieces", lambda config: config.devices.pieces > 0),
    "devices.preset": _devices(),
    "devices.duration": _clock(""),
    "devices.availability": _clock(""),
    "devices.dropout": _clock(""),
    "devices.partial-work": _clock(""),
    "devices.traced": _clock(""),
    "devices.selection": _clock(""),
    "devices.train-watts": _devices(),
    "devices.radio-watts": _devices(),
    "devices.time-rounds": Effect("asynchrony.rule off", lambda config: not config.asynchrony.is_on),
    "asynchrony.clock": _clock(""),
    "asynchrony.replay": _clock(""),
    "asynchrony.concurrency": _clock(""),
    "asynchrony.refill": _without_rounds,
    "asynchrony.timeout-s": _without_rounds,
    **{f"asynchrony.end-{what}": _clock("") for what in ("versions", "updates", "megabytes", "joules")},
    "asynchrony.max-staleness": _without_rounds,
    "asynchrony.over-selection": _in_rounds,
    "asynchrony.deadline-s": _in_rounds,
    "asynchrony.evaluate-every-s": _clock(""),
    "asynchrony.leaf-link-megabytes-s": _clock(""),
    "asynchrony.tiers": _devices("a deeper hierarchy.tree", lambda config: config.hierarchy.tiers > 2),
    **{
        f"asynchrony.{option}": _clock(_LEAVES, lambda config: has_servers_above_leaves(config.hierarchy))
        for option in (
            "groups",
            "cloud-rule",
            "cloud-every",
            "cloud-link-megabytes-s",
        )
    },
    "asynchrony.cloud-delay-s": _devices(_LEAVES, lambda config: has_servers_above_leaves(config.hierarchy)),
    "asynchrony.cloud-megabytes-s": _devices(
        f"{_LEAVES}, and on the virtual clock asynchrony.cloud-delay-s or cloud-link-megabytes-s above 0",
        lambda config: has_servers_above_leaves(config.hierarchy) and _bytes_take_time(config),
    ),
    "checkpoint.keep": Effect("checkpoint.every", lambda config: config.checkpoint.every > 0),
}
