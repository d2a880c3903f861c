"""Options incompatible with mobility or association of clients."""

from collections.abc import Callable

from fedge.config.registers import groupings, parts, traits
from fedge.config.registers.choices import BY_TEST
from fedge.config.registers.option import ConfigError
from fedge.config.run_options import RunOptions

_FIXED_ONLY: tuple[tuple[str, str, Callable[[RunOptions], bool]], ...] = (
    ('asynchrony.rule="off"', "the virtual clock gives each device to one leaf",
     lambda config: config.asynchrony.is_on),
    ("leaves under one cloud (hierarchy.tree)", "a region gives its mean to every leaf below, also to one "
     "without clients", lambda config: config.hierarchy.tiers > 2),
    ('scenario="none"', "groups are planted in leaves, and a client takes its windows along",
     lambda config: config.scenario != "none"),
    ("scaffold.levels=1", "corrections between leaves add up to zero under weights that moves change",
     lambda config: config.scaffold.enabled and config.scaffold.levels > 1),
    ("cluster.enabled=false, or a cluster.method that compares leaves by a signal in every step",
     "others remember clients by their leaf",
     lambda config: config.cluster.enabled
     and not groupings.GROUPINGS.has(config.cluster.method, traits.BY_SIGNAL)),
    ('a cluster.count other than "auto"', "its test deals clients to leaves as they were dealt",
     lambda config: config.cluster.enabled and config.cluster.count == BY_TEST),
    ('cloud.rule="fedavg"', "another rule would count the model of a leaf without clients",
     lambda config: not config.cloud.is_mean),
    ('privacy.kind "off" or "local"', "noise is measured for the clients that a leaf was dealt",
     lambda config: config.privacy.kind not in ("off", "local")),
)  # fmt: skip


def refuse_mobility(config: RunOptions) -> None:
    """Raise ConfigError for an option under which clients cannot move between leaves."""
    if not config.hierarchy.moves:
        return
    for remedy, why, is_set in _FIXED_ONLY:
        if is_set(config):
            raise ConfigError(
                f"hierarchy.mobility {config.hierarchy.mobility} needs {remedy}, because {why}; set that, or "
                f'hierarchy.mobility="none"'
            )


def refuse_association(config: RunOptions) -> None:
    """Raise ConfigError for an option under which clients cannot be reassigned to leaves."""
    hierarchy = config.hierarchy
    if not hierarchy.associates:
        return
    if parts.SCENARIOS.has(config.scenario, traits.FIXED):
        raise ConfigError(
            f"hierarchy.association {hierarchy.association} needs another scenario than {config.scenario}, "
            f'which decides what leaves hold; set one of them to "none"'
        )
    if config.asynchrony.is_on and config.devices.pieces:
        raise ConfigError(
            f"hierarchy.association {hierarchy.association} needs devices.pieces=0, because pieces of a user "
            f"stay at one leaf, but it is {config.devices.pieces}; set one of them otherwise"
        )
