"""Options of evaluation: how often clients evaluate their served models."""

from dataclasses import dataclass

from fedge.config.registers.option import Section, option


@dataclass(frozen=True)
class EvaluateConfig(Section):
    """When clients evaluate."""

    SECTION = "evaluate"
    every: int = option(
        1,
        "global rounds between evaluations; also in the last, and for gates and fine-tuning",
        minimum=1,
    )
    common: str = option(
        "",
        'common test set for the mean of all leaves, each cluster and each leaf: "test" (all '
        "known clients' test windows) or a window file (with part: its test windows); empty: "
        "none",
    )

    def is_due(self, global_round: int, num_rounds: int) -> bool:
        """Whether clients evaluate in a global round (1, 2, …, `num_rounds`)."""
        return global_round % self.every == 0 or global_round == num_rounds
