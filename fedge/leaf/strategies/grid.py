"""View of Flower's Grid for a leaf's strategy, restricted to the leaf's own nodes."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

_AWAITED = ("min_available_nodes", "min_train_nodes")  # attributes of FedAvg, 2 by default


class LeafGrid(Grid):
    """A leaf's view of the Grid, restricted to the given nodes."""

    def __init__(self, grid: Grid, node_ids: Sequence[int]) -> None:
        """Show `node_ids` of `grid`."""
        self._grid = grid
        self._node_ids = list(node_ids)

    def get_node_ids(self) -> Iterable[int]:
        """The nodes of this leaf."""
        return list(self._node_ids)

    def set_run(self, run_id: int) -> None:
        """Pass on."""
        self._grid.set_run(run_id)

    @property
    def run(self):  # type: ignore[no-untyped-def]  # Flower does not export the type
        """Pass on."""
        return self._grid.run

    def create_message(  # type: ignore[no-untyped-def]
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ):
        """Pass on."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Pass on."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Pass on."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Pass on; `timeout` in seconds."""
        return self._grid.send_and_receive(messages, timeout=timeout)


def messages_of(
    strategy: Strategy,
    leaf_round: int,
    arrays: ArrayRecord,
    config: ConfigRecord,
    grid: Grid,
    node_ids: Sequence[int],
) -> list[Message]:
    """A strategy's train messages to the nodes of one leaf round.

    Flower's strategies wait indefinitely for the minimum number of nodes in their attributes. A leaf's nodes
    are chosen beforehand, so the minimum is lowered to their number for the call.

    Args:
        strategy: strategy of the leaf; unchanged afterwards.
        leaf_round: number of the leaf round.
        arrays: the leaf's model.
        config: settings of the round.
        grid: Flower's Grid.
        node_ids: all training nodes of this round.
    """
    with _without_waiting(strategy, len(node_ids)):
        return list(strategy.configure_train(leaf_round, arrays, config, LeafGrid(grid, node_ids)))


@contextmanager
def _without_waiting(strategy: Strategy, nodes: int) -> Iterator[None]:
    """Context in which a strategy waits for at most `nodes` nodes."""
    minima = {name: getattr(strategy, name, 0) for name in _AWAITED}
    lowered = {name: n for name, n in minima.items() if isinstance(n, int) and n > nodes}
    try:
        for name in lowered:
            setattr(strategy, name, nodes)
        yield
    finally:
        for name, number in lowered.items():
            setattr(strategy, name, number)
