"""Table of everything leaving a client, from the records declared in this room's modules."""

from fedge.exchange import content, evaluate, failure, hello, train
from fedge.privacy.marks import Leaving, Quantity

LEAVING: Leaving = {
    **content.LEAVING, **hello.LEAVING, **train.LEAVING, **evaluate.LEAVING, **failure.LEAVING,
}  # fmt: skip


def quantities(leaving: Leaving = LEAVING) -> list[Quantity]:
    """Quantities leaving clients, each once, in the order of the list."""
    return list(dict.fromkeys(leaving.values()))
