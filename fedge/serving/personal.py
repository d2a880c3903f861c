"""Personal models for a leaf's known clients: when they are trained, and whether they are served.

After the gate, a leaf's served model may be trained for a few more leaf rounds by the leaf's clients alone
(local fine-tuning; Yu et al. 2020, "Salvaging Federated Learning by Local Adaptation"). The result is a fork,
which does not affect the next global round. Known clients get it if it is at least as good on their
validation windows, unseen clients never.
"""

from dataclasses import dataclass

from fedge.config.sections.serving import PersonalConfig
from fedge.exchange.evaluate import Pooled


@dataclass(frozen=True)
class PersonalResult:
    """Result of fine-tuning at one leaf.

    Attributes:
        score_before: validation score of the starting model, pooled over the windows of the clients with both
            evaluations.
        score: the same of the fine-tuned model.
        serves: whether known clients are served the result.
    """

    score_before: float
    score: float
    serves: bool


def is_due(config: PersonalConfig, global_round: int, num_rounds: int) -> bool:
    """Whether leaves make personal models after a global round (1, 2, …, `num_rounds`)."""
    if config.leaf_rounds == 0:
        return False
    return global_round == num_rounds or (config.every > 0 and global_round % config.every == 0)


def compare_personal(before: Pooled, after: Pooled) -> PersonalResult:
    """Whether a leaf serves its personal model: if at least as good on validation windows.

    Args:
        before: evaluation of the model before fine-tuning, over clients with both evaluations.
        after: evaluation of the fine-tuned model, over the same clients.
    """
    return PersonalResult(before.score, after.score, serves=after.merit >= before.merit)
