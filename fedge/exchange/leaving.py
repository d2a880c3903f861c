"""All that leaves a client: what the modules here say that they send, in one table."""

from fedge.exchange import content, evaluate, failure, hello, train
from fedge.privacy.marks import Leaving, Quantity

LEAVING: Leaving = {
    **content.LEAVING, **hello.LEAVING, **train.LEAVING, **evaluate.LEAVING, **failure.LEAVING,
}  # fmt: skip


def quantities(leaving: Leaving = LEAVING) -> list[Quantity]:
    """Quantities that leave clients, each once, in the order of the list."""
    return list(dict.fromkeys(leaving.values()))
