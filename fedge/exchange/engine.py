"""Interface to the clients' engine: Flower's Grid, and facts not provided by Flower.

There are two implementations: clients in this process (`fedge.engine.inprocess`), and clients run by Flower
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
    """Error: the run cannot continue; the message is one line for the user."""


@dataclass(frozen=True)
class RemoteProcesses:
    """Processes and clocks outside the server's process, between two rounds.

    Attributes:
        processes: workers of a cluster, their children, and Ray's own beside them.
        clocks: number of another machine (`fedge.process.identity`) → reading of its clock.
        kernels: kernels of the native step, best first → workers that can use these.
    """

    processes: Sequence[ProcessMemory] = ()
    clocks: Mapping[int, MachineClock] = field(default_factory=dict)
    kernels: Mapping[tuple[str, ...], int] = field(default_factory=dict)


@runtime_checkable
class LookAheadEngine(Protocol):
    """Further methods of an engine for a server running jobs ahead of the virtual clock."""

    def store_replies_with(self, keep: Callable[[Message], Message]) -> None:
        """Store replies by `keep` until they are requested, if they are in this process."""

    def num_workers(self) -> int:
        """Number of clients at work at a time, as far as known."""

    def push_due(self, message: Message, due: int) -> str:
        """Send a message, to be processed before all those due later; returns its id."""

    def wait_for(self, message_id: str, timeout_s: float) -> Message | None:
        """The reply to one message, None after `timeout_s` seconds without it."""

    def wait_for_any(self, message_ids: Collection[str], timeout_s: float) -> list[str]:
        """Ids of messages with a reply; waits for the first, at most `timeout_s` seconds."""

    def give_up_late(self, limit_s: float) -> None:
        """End clients working for more than `limit_s` seconds."""

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
        """Native ids of the clients' threads; empty if they are processes."""

    @property
    def nodes_come_back(self) -> bool:
        """Whether nodes may leave and return, perhaps under other ids, as in a deployment."""

    @property
    def startup_hint(self) -> str:
        """Next step for the user if clients do not answer at the start of a run."""

    def get_node_ids(self) -> Iterable[int]:
        """Ids of the connected nodes."""

    def partition_of_key(self, node_id: int) -> int | None:
        """The only partition allowed to a node, by its key; None without a key."""

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages; returns their ids."""

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Replies received so far; each is returned once."""

    def wait(self, timeout_s: float) -> None:
        """Wait for replies or other work, at most `timeout_s` seconds."""

    def give_up_late(self, limit_s: float) -> None:
        """End clients working for more than `limit_s` seconds, if the engine can."""

    def failure_of(self, reply: Message) -> Failure:
        """Reason for which a client failed, from its error reply."""

    def refuse_stopped(self) -> None:
        """Raise RunError if the engine has stopped, so no more replies will arrive."""

    def new_remarks(self) -> Sequence[str]:
        """Remarks on the clients' processes since the last call, one line each."""

    def remote_processes(self) -> RemoteProcesses:
        """Memory of workers outside this process, and clocks of other machines."""

    def spans_machines(self) -> bool:
        """Whether any client may run on any of several machines."""

    def hand_out(self, data_folder: Path) -> str:
        """Distribute the windows of a data folder to all machines; returns a key for messages.

        The key is empty if clients see the folder itself.
        """
