"""Numbers of servers per tier in words: "2 regions", or "2 servers of region-1" for a name with a number."""

from collections.abc import Sequence

from fedge.config.tree import Tree
from hhar.quantity import plural, quantity


def servers_of(count: int, tier: str) -> str:
    """Number of servers of a tier.

    >>> servers_of(8, "leaf"), servers_of(2, "metro"), servers_of(1, "region-1"), servers_of(4, "region-2")
    ('8 leaves', '2 metros', '1 server of region-1', '4 servers of region-2')
    """
    return f"{quantity(count, 'server')} of {tier}" if _is_numbered(tier) else quantity(count, tier)


def plural_of(tier: str) -> str:
    """Plural for the servers of a tier.

    >>> plural_of("leaf"), plural_of("region-1")
    ('leaves', 'servers of region-1')
    """
    return f"servers of {tier}" if _is_numbered(tier) else plural(tier)


def tiers_between(tree: Tree, names: Sequence[str]) -> str:
    """Servers between leaves and cloud, from the leaves up; empty in two tiers.

    Args:
        tree: tree of the servers.
        names: names of the tiers, from the cloud down.

    >>> two_of_two = Tree((Tree((Tree(), Tree())), Tree((Tree(), Tree()))))
    >>> tiers_between(two_of_two, ["cloud", "region", "leaf"])
    ' under 2 regions'
    """
    tiers = range(len(names) - 2, 0, -1)
    return "".join(f" under {servers_of(sum(1 for _ in tree.servers(tier)), names[tier])}" for tier in tiers)


def _is_numbered(tier: str) -> bool:
    """Whether a tier's name ends in a number."""
    return tier[-1:].isdigit()
