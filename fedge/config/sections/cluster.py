"""Options of the cloud step: which leaves share a model."""

from dataclasses import dataclass
from functools import partial

from fedge.config.registers import groupings, traits
from fedge.config.registers.choices import BY_TEST, BY_THRESHOLD
from fedge.config.registers.option import KEYWORDS, ConfigError, Section, option, shown

_MOST_DIGITS = 10  # of a number of clusters


@dataclass(frozen=True)
class ClusterConfig(Section):
    """The cloud step: which leaves share a model."""

    SECTION = "cluster"
    enabled: bool = option(True, "false: the cloud averages all leaves")
    tiers: str = option(
        "0",
        'tiers with groups, from the cloud\'s 0, or by name: "1" for regions, "0,1" for both',
    )
    start_round: int = option(1, "first global round with a cloud step", minimum=1)
    every: int = option(1, "global rounds from one cloud step to the next", minimum=1)
    regroup_every: int = option(
        1,
        "cloud steps between comparisons of leaves, after five without change; clusters stay in between",
        minimum=1,
    )
    tau: float = option(
        0.7, "similarity from which leaves are joined; above 1 none are", minimum=-1.0, also=("threshold",)
    )
    signal: str = option(
        "weights",
        "compared quantity: last layers, updates, or losses at each other's clients; see docs/clustering.md",
        register=groupings.SIGNALS,
    )
    signal_args: str = option("", KEYWORDS, table=True)
    method: str = option(
        "components",
        "grouping of leaves; see docs/clustering.md",
        register=groupings.GROUPINGS,
    )
    method_args: str = option("", KEYWORDS, table=True)
    count: str = option(
        BY_THRESHOLD,
        'clusters: "threshold" cuts at tau; "auto" tests for groups (affinity); or a number, as "3"',
        also=("k", "num-clusters", "n-clusters", "num-groups"),
    )
    level: float | str = option(
        0.01,
        'count "auto": largest p-value for a split; "auto": 0.01 if a lone leaf can reach a '
        "quarter of it, else 0.05",
        above=0.0,
        maximum=0.5,
        words=("auto",),
    )
    patience: int = option(1, "successive cloud steps with the same new groups before a change", minimum=1)
    min_gain: float = option(
        0.05,
        'count "auto": fall of log loss that new groups need in a trial; 0.05 is about 5 % of the loss',
        minimum=0.0,
    )
    probe_every: int = option(
        0,
        "comparisons between probes if leaves start from different models: a leaf round from "
        "the mean of all, only to compare; 0: none",
        minimum=0,
    )
    watch: float = option(
        0.2,
        'count "auto": rise of the log of a leaf\'s training loss in a round that starts a '
        "new comparison; 0: never",
        minimum=0.0,
    )
    blend: float | str = option(
        1.0,
        "share of the cluster's model in an offer, the rest is the mean of all leaves; auto: each leaf tries "
        "0, 0.25 … 1 on validation data",
        minimum=0.0,
        maximum=1.0,
        words=("auto",),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.count not in (BY_THRESHOLD, BY_TEST) and not self.fixed_count:
            raise ConfigError(
                f'cluster.count must be "threshold", "auto" or a number of at least 1 in quotes, but is '
                f'{shown(self.count)}; set for example cluster.count="auto"'
            )
        if self.enabled:
            self._refuse_contradictions()

    @property
    def fixed_count(self) -> int | None:
        """The number of clusters if fixed, else None."""
        return int(self.count) if self.count.isdecimal() and len(self.count) < _MOST_DIGITS else None

    @property
    def asks_training_losses(self) -> bool:
        """Whether clients report losses on their training windows."""
        offers = groupings.GROUPINGS.has(self.method, traits.OFFERS)
        return offers and self.arguments("method").get("losses_on") == "train"

    @property
    def deals(self) -> bool:
        """Whether the deal test decides if groups are real or due to chance."""
        return self.enabled and self.count == BY_TEST

    def _refuse_contradictions(self) -> None:
        """Raise ConfigError when signal, method and number of clusters are incompatible."""
        method, has = self.method, partial(groupings.GROUPINGS.has, self.method)
        if has(traits.BY_THRESHOLD_ONLY) and self.count != BY_THRESHOLD:
            raise ConfigError(
                f'cluster.method {method} needs cluster.count to be "threshold", but it is {self.count!r}; '
                'use cluster.method="agglomerative"'
            )
        if has(traits.NUMBERED) and self.fixed_count is None:
            raise ConfigError(
                f"cluster.method {self.method} needs cluster.count to be a number, but it is {self.count!r}; "
                f'set for example cluster.count="2"'
            )
        if self.count == BY_TEST and not has(traits.TESTED):
            raise ConfigError(
                f'cluster.count "auto" needs cluster.method to be '
                f"{' or '.join(groupings.GROUPINGS.names_with(traits.TESTED))}, but it is "
                f'{self.method!r}; set cluster.count="threshold"'
            )
        if has(traits.BY_TIME) and self.patience > 1:
            raise ConfigError(
                f"cluster.method {self.method} needs cluster.patience to be 1, because it groups when it is "
                f"time, but it is {self.patience}; set cluster.patience=1"
            )
        if has(traits.NEVER_BY_THRESHOLD) and self.count == BY_THRESHOLD:
            raise ConfigError(
                f'cluster.method {method} needs cluster.count to be "auto" or a number, but it is '
                '"threshold"; set for example cluster.count="2"'
            )
        if self.count == BY_TEST and not groupings.SIGNALS.has(self.signal, traits.OWN_TEST):
            tested = " or ".join(groupings.SIGNALS.names_with(traits.OWN_TEST))
            raise ConfigError(
                f'cluster.count "auto" needs cluster.signal to be {tested}, whose test it is, but it is '
                f'{self.signal!r}; set cluster.signal="{tested}"'
            )
        if self.deals and self.start_round > 1:
            raise ConfigError(
                f'cluster.count "auto" needs cluster.start-round to be 1, because it looks at what clients '
                f"make of the model that all begin with, but it is {self.start_round}; set "
                f"cluster.start-round=1"
            )
        if self.count == BY_TEST and self.patience < 2:
            raise ConfigError(
                'cluster.count "auto" needs cluster.patience of at least 2, because new groups are tried in '
                f"the step after they were found, but it is {self.patience}; set cluster.patience=2"
            )
