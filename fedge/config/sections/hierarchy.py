"""Options of the tree: who stands under whom, and how a leaf combines its clients' models."""

from dataclasses import dataclass

from fedge.config import parts
from fedge.config.option import Section, option


@dataclass(frozen=True)
class HierarchyConfig(Section):
    """Who stands under whom, and how often they talk."""

    SECTION = "hierarchy"
    num_servers: int = option(3, "leaf servers", minimum=1)
    clients_per_server: str = option(
        "auto", '"auto" splits the clients evenly over the leaves; or one number per leaf, as "4,3,2"'
    )
    leaf_rounds: int = option(1, "leaf rounds (client exchanges) per global round", minimum=1)
    fraction_train: float = option(
        1.0, "share of each leaf's clients that train in a leaf round", above=0.0, maximum=1.0
    )


@dataclass(frozen=True)
class LeafConfig(Section):
    """How a leaf server combines its clients' models: one of Flower's own strategies."""

    SECTION = "leaf"
    strategy: str = option("fedavg", "Flower strategy of every leaf", register=parts.RULES)
    strategy_args: str = option("", "keyword arguments of a strategy of one's own, as a table", table=True)
    trim_fraction: float = option(0.34, "fedtrimmedavg: share cut off at each end", minimum=0.0, maximum=0.49)
    num_malicious: int = option(0, "krum, multikrum, bulyan: clients per leaf assumed malicious", minimum=0)
    num_selected: int = option(
        0, "multikrum: clients that are averaged; 0 = all but the malicious and two", minimum=0
    )
    server_lr: float = option(
        0.01, "fedadagrad, fedadam, fedyogi: server learning rate (eta)", above=0.0, maximum=1e6
    )
    server_momentum: float = option(0.9, "fedavgm: server momentum", minimum=0.0, maximum=0.999)
    fairness: float = option(0.1, "qfedavg: q; 0 = all clients count alike", minimum=0.0)
