"""Servers above the leaves on the virtual clock: the rules and links of each tier.

Runs that only time their rounds (`devices.time-rounds`) have the links, but not the rules.
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
_WORDS = ("rule", "rule-args", "every", "delay-s", "megabytes-s", "link-megabytes-s")
_OF_EDGES = ("delay-s", "megabytes-s")  # those that timed rounds have, too


def has_servers_above_leaves(hierarchy: HierarchyConfig) -> bool:
    """Whether the virtual clock has a cloud; a single leaf has no server above it."""
    return hierarchy.num_servers > 1 or hierarchy.tiers > 2


def clock_of_tiers(config: RunOptions) -> list[AsynchronyConfig]:
    """The asynchrony options of each tier above the leaves, from the root down.

    Raises:
        ConfigError: `asynchrony.tiers` names an unknown tier, or an option that tiers do not have.
    """
    asynchrony, hierarchy = config.asynchrony, config.hierarchy
    found = [asynchrony] * (hierarchy.tiers - 1)
    known = _OF_EDGES if config.devices.time_rounds and not asynchrony.is_on else _WORDS
    for name, said in asynchrony.of_tiers.items():
        if hierarchy.tiers < 3:
            raise ConfigError(
                f"{_KEY} must be tiers between cloud and leaves, but names {shown(name)} without a deeper "
                f"hierarchy.tree; leave it out, or set a tree"
            )
        tiers = hierarchy.tiers_said(name, _KEY)
        if 0 in tiers:
            raise ConfigError(
                f"{_KEY} must be tiers between cloud and leaves, but names {shown(name)}, whose options "
                f"are asynchrony.cloud-rule, cloud-every, …; set those"
            )
        for tier in tiers:
            found[tier] = _changed(asynchrony, name, said, known)
    return found


def _changed(asynchrony: AsynchronyConfig, name: str, said: Any, known: Sequence[str]) -> AsynchronyConfig:
    """The cloud's options with those of one tier in their place; `known` are the options a tier may set."""
    if not isinstance(said, Mapping):
        raise ConfigError(
            f"{_KEY}.{name} must be a table of {', '.join(known)}, but is {shown(said)}; set for example "
            f"{_KEY}.{name}.delay-s=0.1"
        )
    if unknown := [word for word in said if word not in known]:
        raise ConfigError(
            f"{_KEY}.{name} must have {', '.join(known)}, but has {shown(unknown[0])}"
            f"{nearest(unknown[0], known) or '; leave it out'}"
        )
    given = {f"cloud_{word.replace('-', '_')}": value for word, value in said.items()}
    if "cloud_rule" in given:
        given.setdefault("cloud_rule_args", {})
    if isinstance(given.get("cloud_rule_args"), Mapping):
        given["cloud_rule_args"] = json.dumps(given["cloud_rule_args"])
    try:
        return replace(asynchrony, **given)
    except ConfigError as error:
        raise ConfigError(f"{_KEY}.{name}: {str(error).replace('asynchrony.cloud-', '')}") from error
