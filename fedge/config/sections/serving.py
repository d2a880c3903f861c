"""Options of served models: a leaf's gate, and its personal models."""

from dataclasses import dataclass

from fedge.config.registers import groupings, traits
from fedge.config.registers.choices import PERSONAL_LAYERS
from fedge.config.registers.option import KEYWORDS, ConfigError, Section, option


@dataclass(frozen=True)
class GateConfig(Section):
    """A leaf's choice between the offered cluster model and its own."""

    SECTION = "gate"
    enabled: bool = option(True, "false: every offer is taken")
    tiers: str = option("0", "tiers whose children may refuse an offer; as cluster.tiers")
    min_gain: float = option(
        0.0, "gain in validation score that an offer needs, in its unit", minimum=-1.0, maximum=1.0
    )
    rule: str = option(
        "published",
        "an offer is taken if, on validation data, it is as accurate; as accurate after a round of training; "
        "not worse by more than one standard error; not worse by McNemar's test",
        register=groupings.GATES,
    )
    rule_args: str = option("", KEYWORDS, table=True)

    @property
    def is_tentative(self) -> bool:
        """Whether an offer is trained for a round before the gate decides."""
        return self.enabled and groupings.GATES.has(self.rule, traits.AFTER_ROUND)

    def __post_init__(self) -> None:
        super().__post_init__()
        if groupings.GATES.has(self.rule, traits.NO_MARGIN) and self.min_gain != 0:
            raise ConfigError(
                f"gate.rule {self.rule} needs gate.min-gain to be 0, because it tests whether both models "
                f"are equally good, but it is {self.min_gain:g}; use one-standard-error, or set "
                f"gate.rule-args.level"
            )


@dataclass(frozen=True)
class PersonalConfig(Section):
    """Personal layers kept by a leaf, and fine-tuning for its known clients."""

    SECTION = "personal"
    layers: str = option(
        "none",
        "layers that a leaf keeps when it takes an offer; head: the last",
        choices=PERSONAL_LAYERS,
    )
    leaf_rounds: int = option(0, "leaf rounds of fine-tuning for known clients; 0: none", minimum=0)
    every: int = option(
        0,
        "global rounds between fine-tunings; also in the last; 0: only there",
        minimum=0,
    )
    unseen_clients: str = option(
        "cluster",
        "model of unseen clients: their cluster's, or the same as others",
        choices=("cluster", "same"),
    )

    @property
    def kept(self) -> tuple[str, ...]:
        """Kinds of layers kept by a leaf."""
        return {"none": (), "both": ("head", "batch-norm")}.get(self.layers, (self.layers,))
