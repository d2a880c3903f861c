"""Options of the tree of servers and clients, and of how leaves and cloud combine models."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from math import prod

from fedge.config.participation import Participation
from fedge.config.participation import parse_participation as parsed_participation
from fedge.config.registers import parts, traits
from fedge.config.registers.option import KEYWORDS, ConfigError, Section, option, shown
from fedge.config.tree import Tree, names_of_tiers, numbers_of_tiers, parse_tiers, parse_tree

_DEFAULT_SERVERS = 3  # leaf servers where nobody says otherwise
OF_TREE = ("hierarchy.num-servers", "hierarchy.clients-per-server")  # follow from hierarchy.tree


@dataclass(frozen=True)
class HierarchyConfig(Section):
    """The tree of servers and clients, and how often its tiers exchange models."""

    SECTION = "hierarchy"
    num_servers: int = option(
        _DEFAULT_SERVERS,
        "leaf servers",
        minimum=1,
        also=("leaves", "edges", "num-leaves", "num-edges", "num-edge-servers"),
    )
    clients_per_server: str = option("auto", 'clients of each leaf, as "4,3,2"; "auto": spread evenly')
    leaf_rounds: int = option(
        1, "leaf rounds (exchanges with clients) per global round", minimum=1, also=("edge-rounds",)
    )
    fraction_train: float = option(
        1.0,
        "share of a leaf's clients that train in a leaf round",
        above=0.0,
        maximum=1.0,
        also=("fraction-fit", "client-fraction", "sample-fraction", "join-ratio"),
    )
    participation: str = option(
        "auto",
        'clients of a leaf that train in a leaf round: "auto" for fraction-train, "2", '
        '"3,2,2", "0.5", "all", by round "1: all; 10: 2", or code; see docs/hierarchy.md',
    )
    participation_args: str = option("", KEYWORDS, table=True)
    selection: str = option(
        "uniform", "choice of the clients that train, if not all do", register=parts.CLIENT_SELECTIONS
    )
    selection_args: str = option("", KEYWORDS, table=True)
    association: str = option(
        "none", "assignment of clients to leaves by their data; see docs/hierarchy.md",
        register=parts.ASSOCIATIONS,
    )  # fmt: skip
    association_args: str = option("", KEYWORDS, table=True)
    mobility: str = option(
        "none",
        "moves of clients between leaves from round to round; see docs/hierarchy.md",
        register=parts.MOBILITIES,
    )
    mobility_args: str = option("", KEYWORDS, table=True)
    tree: str = option(
        "",
        'deeper trees: "2x3x4" for 2 regions of 3 leaves of 4 clients, "2x3x*" for clients '
        'spread evenly, or clients per leaf, as "((3,3),(2,2,2))"; empty: cloud and leaves',
    )
    names: str = option("", 'names of the tiers of servers, as "cloud,region,leaf"')
    region_rounds: str = option(
        "1",
        "rounds of servers between cloud and leaves per round of the server above: one "
        'number, or one per tier from the top, as "2,3"',
    )

    def __post_init__(self) -> None:
        """Take leaf servers and clients from the tree, if there is one.

        Raises:
            ConfigError: an option is malformed, or two contradict each other.
        """
        super().__post_init__()
        if self.tree:
            for name, default, value in (
                ("num_servers", _DEFAULT_SERVERS, len(list(self.shape.leaves()))),
                ("clients_per_server", "auto", self.shape.clients_per_server),
            ):
                current = getattr(self, name)
                if current not in (default, value):
                    key = f"hierarchy.{name.replace('_', '-')}"
                    raise ConfigError(
                        f"{key} must not contradict hierarchy.tree, which says {shown(value)}, but is "
                        f"{shown(current)}; leave one of them out"
                    )
                object.__setattr__(self, name, value)
        _ = self.rounds_of_tiers, self.tier_names, self.participants

    @cached_property
    def shape(self) -> Tree:
        """The tree of servers; without `tree`, leaves under one cloud."""
        return parse_tree(self.tree) if self.tree else Tree((Tree(),) * self.num_servers)

    @cached_property
    def participants(self) -> Participation | None:
        """Numbers of training clients by round and leaf; None if `fraction_train` or a function decides."""
        text = self.participation
        if text in parts.PARTICIPATIONS.names or parts.PARTICIPATIONS.is_code(text):
            return None
        return parsed_participation(text, self.num_servers, self.leaves_option)

    @property
    def associates(self) -> bool:
        """Whether an association assigns clients to leaves, instead of the order of the deal."""
        return self.association != type(self).association

    @property
    def moves(self) -> bool:
        """Whether clients move between leaves."""
        return self.mobility != type(self).mobility

    @property
    def tiers(self) -> int:
        """Number of tiers of servers: 2 for a cloud over leaves."""
        return (
            max(2, self.shape.tiers) if self.tree else 2
        )  # as many leaves as a number can say: no tree of them

    @property
    def leaves_option(self) -> str:
        """The option for the number of leaf servers, for messages."""
        return "the number of leaves in hierarchy.tree" if self.tree else "hierarchy.num-servers"

    def children_option(self, tier: int) -> str:
        """The option for the number of children of a tier's servers, for messages."""
        if not self.tree or self.tiers == 2:
            return self.leaves_option
        parent = f"a {self.tier_names[tier]}" if tier else f"the {self.tier_names[tier]}"
        return f"the children of {parent} (hierarchy.tree)"

    @property
    def branches(self) -> int:
        """Number of children of the cloud: leaves, or regions in a deeper tree."""
        return self.fewest_children([0])

    def fewest_children(self, tiers: Collection[int]) -> int:
        """The smallest number of children of any server of some tiers."""
        return self.fewest_and_tier(tiers)[0]

    def fewest_and_tier(self, tiers: Collection[int]) -> tuple[int, int]:
        """The smallest number of children of any server of some tiers, and its tier (the highest on ties)."""
        if not self.tree:
            return self.num_servers, 0
        return min(
            (max(1, len(server.children)), tier) for tier in tiers for server in self.shape.servers(tier)
        )

    @property
    def rounds_of_tiers(self) -> tuple[int, ...]:
        """Rounds of each tier between cloud and leaves per round of the tier above, from the cloud down."""
        return numbers_of_tiers(self.region_rounds, self.tiers - 2, "hierarchy.region-rounds")

    @property
    def leaf_rounds_per_global(self) -> int:
        """Number of leaf rounds per global round."""
        return self.leaf_rounds * prod(self.rounds_of_tiers)

    def leaf_rounds_of(self, tier: int) -> int:
        """Number of leaf rounds per round of a tier's servers; the root is tier 0."""
        return self.leaf_rounds * prod(self.rounds_of_tiers[tier:])

    def parse_tiers(self, text: str, key: str) -> frozenset[int]:
        """Tiers named by an option, as `fedge.config.tree.parse_tiers`."""
        return parse_tiers(text, self.tier_names, key)

    @property
    def tier_names(self) -> list[str]:
        """Name of each tier, from the cloud down."""
        return names_of_tiers(self.names, self.tiers)


@dataclass(frozen=True)
class LeafConfig(Section):
    """How a leaf server combines its clients' models: by one of Flower's strategies."""

    SECTION = "leaf"
    strategy: str = option("fedavg", "Flower strategy of every leaf", register=parts.RULES)
    strategy_args: str = option("", KEYWORDS, table=True)

    @property
    def is_mean(self) -> bool:
        """Whether it is the mean, weighted by windows."""
        return parts.RULES.has(self.strategy, traits.MEAN)


@dataclass(frozen=True)
class CloudConfig(Section):
    """How the cloud combines the models of a group's leaves: one of Flower's own strategies."""

    SECTION = "cloud"
    rule: str = option(
        "fedavg",
        "combination of a group's models; see docs/extend.md",
        register=parts.CLOUD,
    )
    rule_args: str = option("", "as leaf.strategy-args", table=True)
    rule_tiers: str = option("0", "tiers with this rule, others take the mean; as cluster.tiers")

    @property
    def is_mean(self) -> bool:
        """Whether it is the mean, weighted by windows."""
        return parts.CLOUD.has(self.rule, traits.MEAN)
