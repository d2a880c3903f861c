"""Options of served models: the gate at its leaf, and models of its own."""

from dataclasses import dataclass

from fedge.config import groupings, traits
from fedge.config.choices import PERSONAL_LAYERS
from fedge.config.option import ConfigError, Section, option


@dataclass(frozen=True)
class GateConfig(Section):
    """A leaf's choice between the offered cluster model and its own."""

    SECTION = "gate"
    enabled: bool = option(True, "false: every offer is taken")
    tiers: str = option(
        "0", "tiers whose servers leave their children a choice; others are obeyed; as cluster.tiers"
    )
    min_gain: float = option(
        0.0, "validation score, in its unit, that an offer must add to be taken", minimum=-1.0, maximum=1.0
    )
    rule: str = option(
        "published",
        "an offer is taken if, on validation data, it is as accurate; as accurate after a round of training; "
        "not worse by more than one standard error; not worse by McNemar's test",
        register=groupings.GATES,
    )
    rule_args: str = option("", "keyword arguments of a rule of one's own, as a table", table=True)
    level: float = option(
        0.05, "paired: level of the test; smaller takes more offers", above=0.0, maximum=0.5
    )

    @property
    def is_tentative(self) -> bool:
        """Whether an offer is trained for a round before the gate decides."""
        return self.enabled and groupings.GATES.has(self.rule, traits.AFTER_ROUND)

    def __post_init__(self) -> None:
        super().__post_init__()
        if groupings.GATES.has(self.rule, traits.NO_MARGIN) and self.min_gain != 0:
            raise ConfigError(
                f"gate.rule {self.rule} needs gate.min-gain to be 0, because it tests whether both models "
                f"are equally good, but it is {self.min_gain:g}; use one-standard-error, or set gate.level"
            )


@dataclass(frozen=True)
class PersonalConfig(Section):
    """Models that a leaf keeps or makes for its known clients."""

    SECTION = "personal"
    layers: str = option(
        "none", "what a leaf keeps as its own when it takes an offer: its last layer, its BatchNorm, both",
        choices=PERSONAL_LAYERS,
    )  # fmt: skip
    leaf_rounds: int = option(
        0, "leaf rounds that a leaf trains on before it serves the clients that it knows; 0 = none", minimum=0
    )
    every: int = option(
        0, "global rounds from one such model to the next; the last round always has one; 0 = only that",
        minimum=0,
    )  # fmt: skip
    unseen_clients: str = option(
        "cluster", "what clients outside training are served: their cluster's model, or the same as others",
        choices=("cluster", "same"),
    )  # fmt: skip

    @property
    def kept(self) -> tuple[str, ...]:
        """The kinds of layers that a leaf keeps."""
        return {"none": (), "both": ("head", "batch-norm")}.get(self.layers, (self.layers,))
