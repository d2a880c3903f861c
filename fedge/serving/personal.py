"""Models for the clients that a leaf knows: when they are made, and whether they are served.

After the gate, a leaf's served model may be trained for a few more leaf rounds by the leaf's clients alone
(local fine-tuning; Yu et al. 2020, "Salvaging Federated Learning by Local Adaptation"). The result is a fork:
known clients get it if it does at least as well on their validation windows, unseen clients never, and the
next global round starts as if it had not been.
"""

from dataclasses import dataclass

from fedge.config.sections.serving import PersonalConfig


@dataclass(frozen=True)
class PersonalResult:
    """What fine-tuning gave at one leaf.

    Attributes:
        accuracy_before: validation accuracy of the model that it began with, pooled over the windows of the
            clients that evaluated both, 0..1.
        accuracy: of the fine-tuned one.
        serves: whether known clients are served it.
    """

    accuracy_before: float
    accuracy: float
    serves: bool


def is_due(config: PersonalConfig, global_round: int, num_rounds: int) -> bool:
    """Tell whether leaves make personal models after a global round (1, 2, …, `num_rounds`)."""
    if config.leaf_rounds == 0:
        return False
    return global_round == num_rounds or (config.every > 0 and global_round % config.every == 0)


def compared(accuracy_before: float, accuracy: float) -> PersonalResult:
    """Return whether a leaf serves its personal model: if it is at least as good on validation windows.

    Args:
        accuracy_before: of the model that was fine-tuned, pooled over clients that evaluated both, 0..1.
        accuracy: of the fine-tuned one.
    """
    return PersonalResult(accuracy_before, accuracy, serves=accuracy >= accuracy_before)
