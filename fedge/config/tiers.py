"""Options not supported in a deeper tree of servers."""

from collections.abc import Callable

from fedge.config.registers import groupings, traits
from fedge.config.registers.choices import BY_TEST
from fedge.config.registers.option import ConfigError, shown
from fedge.config.run_options import RunOptions


def _groups_regions(config: RunOptions) -> bool:
    """Whether a server groups regions rather than leaves."""
    tiers = config.hierarchy.parse_tiers(config.cluster.tiers, "cluster.tiers")
    return config.cluster.enabled and min(tiers) < config.hierarchy.tiers - 2


def _is_judged_too_late(config: RunOptions) -> bool:
    """Whether a tentatively accepted offer could be replaced, or its leaf regrouped, before its trial."""
    hierarchy = config.hierarchy
    tiers = hierarchy.parse_tiers(config.gate.tiers, "gate.tiers")
    group_tiers = (
        hierarchy.parse_tiers(config.cluster.tiers, "cluster.tiers") if config.cluster.enabled else {0}
    )
    deepest = max(tiers)
    is_replaced = deepest > 0 and hierarchy.rounds_of_tiers[deepest - 1] < 2
    return config.gate.is_tentative and (len(tiers) > 1 or max(group_tiers) > deepest or is_replaced)


def _models_are_replaced(config: RunOptions) -> bool:
    """Whether the models of a server with several models are replaced by those from servers above it."""
    hierarchy = config.hierarchy
    above = range(max(hierarchy.parse_tiers(config.cluster.tiers, "cluster.tiers")))
    has_own_models = config.cluster.enabled and groupings.GROUPINGS.has(config.cluster.method, traits.OFFERS)
    return has_own_models and any(
        len(server.children) > 1 for tier in above for server in hierarchy.shape.servers(tier)
    )


_DEEP: tuple[tuple[str, str, Callable[[RunOptions], bool]], ...] = (
    ('cluster.tiers="0"', "on the virtual clock the cloud alone compares its children",
     lambda config: (config.asynchrony.is_on and config.cluster.enabled
                     and max(config.hierarchy.parse_tiers(config.cluster.tiers, "cluster.tiers")) > 0)),
    ('cluster.tiers of the servers over leaves, or a cluster.count other than "auto"',
     "a trial of new groups takes forks of leaves",
     lambda config: (config.cluster.count == BY_TEST and _groups_regions(config)
                     and not config.asynchrony.is_on)),  # whose groups have no trials
    ("cluster.tiers of the servers over leaves, or a cluster.method that finds groups",
     "true groups are planted in leaves, not in regions",
     lambda config: (groupings.GROUPINGS.has(config.cluster.method, traits.TRUTH)
                     and _groups_regions(config))),
    ('cluster.tiers="0" or a cluster.method without models of its own',
     "servers above would replace the models that its children train", _models_are_replaced),
    ("gate.tiers of one tier, without groups below it and with two or more of its rounds per round of the "
     'server above (hierarchy.region-rounds), or gate.rule="published"',
     "an offer taken for a round of trial must still be there after it", _is_judged_too_late),
    ('gate.rule="published" or personal.layers="none"', "a region's own line has no layers of a leaf's own",
     lambda config: (config.gate.is_tentative and config.personal.layers != "none"
                     and min(config.hierarchy.parse_tiers(config.gate.tiers, "gate.tiers"))
                     < config.hierarchy.tiers - 2)),
)  # fmt: skip


def refuse_tier_options(config: RunOptions) -> None:
    """Raise ConfigError for an unknown tier, or an option not supported by regions."""
    hierarchy, levels = config.hierarchy, config.scaffold.levels
    for section, key in (("cluster", "tiers"), ("gate", "tiers"), ("cloud", "rule_tiers")):
        hierarchy.parse_tiers(getattr(getattr(config, section), key), f"{section}.{key.replace('_', '-')}")
    if levels > hierarchy.tiers:
        raise ConfigError(
            f"scaffold.levels must be at most {hierarchy.tiers}, the tiers of servers, but is {levels}; "
            f"lower it, or set a deeper hierarchy.tree"
        )
    for remedy, why, is_set in _DEEP if hierarchy.tiers > 2 else ():
        if is_set(config):
            raise ConfigError(
                f"hierarchy.tree {shown(hierarchy.tree)} needs {remedy}, because {why}; set that, or a tree "
                f"of leaves under one cloud"
            )
