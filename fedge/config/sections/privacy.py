"""Options of differential privacy."""

from dataclasses import dataclass

from fedge.config.registers.choices import NOISE_SOURCES, PRIVACY_KINDS
from fedge.config.registers.option import Section, option


@dataclass(frozen=True)
class PrivacyConfig(Section):
    """Differential privacy of clients: `fedge.privacy.mechanism`; see docs/privacy.md."""

    SECTION = "privacy"
    kind: str = option(
        "off",
        "clipping by the leaf or by each client; local: with noise at the client",
        choices=PRIVACY_KINDS,
        also=("dp",),
    )
    clip_norm: float = option(1.0, "largest L2 norm of a client's update; adaptive: the first one", above=0.0)
    noise_multiplier: float = option(
        1.0, "std of the noise on a leaf's mean: this × clip-norm / clients asked; 0: none", minimum=0.0
    )
    clip_quantile: float = option(
        0.5, "adaptive: target share of unclipped updates", minimum=0.0, maximum=1.0
    )
    clip_lr: float = option(0.2, "adaptive: step size of the clipping norm", above=0.0)
    epsilon: float = option(1.0, "local: privacy budget of a leaf round", above=0.0)
    delta: float = option(
        1e-5,
        "probability that the budget fails: of a leaf round (local), and of the whole run",
        above=0.0,
        maximum=0.5,
    )
    noise_source: str = option(
        "seed",
        "system: the operating system's cryptographic generator, different in every run",
        choices=NOISE_SOURCES,
    )

    @property
    def is_adaptive(self) -> bool:
        """Whether the clipping norm follows a quantile of the updates' norms."""
        return self.kind.endswith("-adaptive")
