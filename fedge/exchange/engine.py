"""Engine's side of an exchange: Flower's Grid, and facts not available from Flower.

There are two: clients in this process (`fedge.engine.inprocess`), and clients driven by Flower
(`fedge.engine.flower_engine`).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from flwr.app import Message
from flwr.serverapp import Grid

from fedge.exchange.failure import Failure
from fedge.process.resources.memory import ProcessMemory
from fedge.timing.clocks import MachineClock


class RunError(RuntimeError):
    """The run cannot go on. One line for the user."""


@dataclass(frozen=True)
class Elsewhere:
    """Processes and clocks outside the server's process, between two rounds.

    Attributes:
        processes: workers of a cluster, their children, and Ray's own beside them.
        clocks: number of another machine (`fedge.process.identity`) → reading of its clock.
        kernels: of the native step, best first → workers able to use these.
    """

    processes: Sequence[ProcessMemory] = ()
    clocks: Mapping[int, MachineClock] = field(default_factory=dict)
    kernels: Mapping[tuple[str, ...], int] = field(default_factory=dict)


@runtime_checkable
class LookAheadEngine(Protocol):
    """Additions to `Engine` for a server working ahead of a virtual clock."""

    def put_aside_by(self, keep: Callable[[Message], Message]) -> None:
        """Let replies lie where `keep` puts them until they are asked for, if they lie in this process."""

    def num_workers(self) -> int:
        """Clients at work at a time, as far as known."""

    def push_due(self, message: Message, due: int) -> str:
        """Send a message for work before all later ones; returns its id."""

    def wait_for(self, message_id: str, timeout_s: float) -> Message | None:
        """The reply to one message, None after `timeout_s` seconds without it."""

    def there_of(self, message_ids: Collection[str], timeout_s: float) -> list[str]:
        """Messages with replies; waits until one is, at most `timeout_s` seconds."""

    def give_up_late(self, limit_s: float) -> None:
        """End clients' work of more than `limit_s` seconds."""

    def failure_of(self, reply: Message) -> Failure:
        """Reason for which a client failed, from its error reply."""


class Engine(Protocol):
    """Delivers messages to clients and their replies to the server."""

    @property
    def grid(self) -> Grid:
        """The engine in the form for Flower's strategies."""

    @property
    def in_order(self) -> bool:
        """Whether clients start in the order in which their messages were pushed."""

    @property
    def worker_ids(self) -> Sequence[int]:
        """The system's ids of the clients' threads; empty where they are processes."""

    @property
    def nodes_come_back(self) -> bool:
        """Whether nodes may go and come back, perhaps under other ids: those of a deployment."""

    @property
    def if_none_starts(self) -> str:
        """Next step for the user if clients do not answer at the start of a run."""

    def get_node_ids(self) -> Iterable[int]:
        """The present nodes."""

    def partition_of_key(self, node_id: int) -> int | None:
        """The only partition allowed to a node, by its key; None without one."""

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages; returns their ids."""

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Available replies to messages; each is handed out once."""

    def wait(self, timeout_s: float) -> None:
        """Wait for replies: at most so many seconds, and no longer than until there is something to do."""

    def give_up_late(self, limit_s: float) -> None:
        """End clients' work of more than `limit_s` seconds, if the engine can."""

    def failure_of(self, reply: Message) -> Failure:
        """Reason for which a client failed, from its error reply."""

    def refuse_stopped(self) -> None:
        """Raise RunError when the engine has stopped: no reply will ever come."""

    def look_elsewhere(self) -> Elsewhere:
        """Memory of workers outside this process, and clocks of other machines."""

    def spans_machines(self) -> bool:
        """Whether any client may run on any of several machines."""

    def hand_out(self, data_folder: Path) -> str:
        """Give clients on all machines the windows of a data folder; returns their places, for messages.

        Empty where clients see the folder itself.
        """
