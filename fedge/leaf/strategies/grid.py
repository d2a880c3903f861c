"""View of the real Grid for a leaf's strategy, in which only its own nodes exist."""

from collections.abc import Iterable, Sequence

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid


class LeafGrid(Grid):
    """One leaf's view of the Grid: only the given nodes exist."""

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
