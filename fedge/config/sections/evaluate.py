"""Options of evaluation: how often clients evaluate the models that they are served."""

from dataclasses import dataclass

from fedge.config.option import Section, option


@dataclass(frozen=True)
class EvaluateConfig(Section):
    """When clients evaluate."""

    SECTION = "evaluate"
    every: int = option(
        1,
        "global rounds from one evaluation of served models to the next; the last round always has one, and "
        "a round in which a gate decides or a model is fine-tuned",
        minimum=1,
    )
    common: str = option(
        "",
        "common test set, on which the server's side evaluates the mean of all leaves, of every cluster, and "
        "every leaf: test, all known clients' test windows; or a window file (of one with part, its test "
        "windows); empty: none",
    )

    def is_due(self, global_round: int, num_rounds: int) -> bool:
        """Whether clients evaluate their served models in a global round (1, 2, …) of so many."""
        return global_round % self.every == 0 or global_round == num_rounds
