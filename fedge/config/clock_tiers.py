"""Servers above the leaves on the virtual clock: the rules and links of each tier.

Runs with timed rounds only (`devices.time-rounds`) have the links, but not the rules.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedge.config.registers.option import ConfigError, nearest, shown
from fedge.config.run_options import RunOptions
from fedge.config.sections.devices import AsynchronyConfig
from fedge.config.sections.hierarchy import HierarchyConfig

_KEY = "asynchrony.tiers"
_TIER_OPTIONS = ("rule", "rule-args", "every", "delay-s", "megabytes-s", "link-megabytes-s")
_EDGE_OPTIONS = ("delay-s", "megabytes-s")  # those of timed rounds, too


def has_servers_above_leaves(hierarchy: HierarchyConfig) -> bool:
    """Whether the virtual clock has a cloud; a single leaf has no server above it."""
    return hierarchy.num_servers > 1 or hierarchy.tiers > 2


def clock_of_tiers(config: RunOptions) -> list[AsynchronyConfig]:
    """The asynchrony options of each tier above the leaves, from the root down.

    Raises:
        ConfigError: `asynchrony.tiers` names an unknown tier, or an option unknown to tiers.
    """
    asynchrony, hierarchy = config.asynchrony, config.hierarchy
    tier_options = [asynchrony] * (hierarchy.tiers - 1)
    allowed = _EDGE_OPTIONS if config.devices.time_rounds and not asynchrony.is_on else _TIER_OPTIONS
    for name, overrides in asynchrony.of_tiers.items():
        if hierarchy.tiers < 3:
            raise ConfigError(
                f"{_KEY} must be tiers between cloud and leaves, but names {shown(name)} without a deeper "
                f"hierarchy.tree; leave it out, or set a tree"
            )
        tiers = hierarchy.parse_tiers(name, _KEY)
        if 0 in tiers:
            raise ConfigError(
                f"{_KEY} must be tiers between cloud and leaves, but names {shown(name)}, whose options "
                f"are asynchrony.cloud-rule, cloud-every, …; set those"
            )
        for tier in tiers:
            tier_options[tier] = _with_overrides(asynchrony, name, overrides, allowed)
    return tier_options


def _with_overrides(
    asynchrony: AsynchronyConfig, name: str, overrides: Any, allowed: Sequence[str]
) -> AsynchronyConfig:
    """The cloud's options with those of one tier in their place; `allowed` are the options a tier may set."""
    if not isinstance(overrides, Mapping):
        raise ConfigError(
            f"{_KEY}.{name} must be a table of {', '.join(allowed)}, but is {shown(overrides)}; set for "
            f"example {_KEY}.{name}.delay-s=0.1"
        )
    if unknown := [word for word in overrides if word not in allowed]:
        raise ConfigError(
            f"{_KEY}.{name} must have {', '.join(allowed)}, but has {shown(unknown[0])}"
            f"{nearest(unknown[0], allowed) or '; leave it out'}"
        )
    changes = {f"cloud_{word.replace('-', '_')}": value for word, value in overrides.items()}
    if "cloud_rule" in changes:
        changes.setdefault("cloud_rule_args", {})
    if isinstance(changes.get("cloud_rule_args"), Mapping):
        changes["cloud_rule_args"] = json.dumps(changes["cloud_rule_args"])
    try:
        return replace(asynchrony, **changes)
    except ConfigError as error:
        raise ConfigError(f"{_KEY}.{name}: {str(error).replace('asynchrony.cloud-', '')}") from error
