"""In-process engine: Flower's Grid without SuperLink and Ray; clients run on threads of this process.

PyTorch releases the interpreter lock in its kernels, so threads scale with cores, and nothing is serialised.
Client and server get copies of each other's arrays, so neither can modify the other's, as on other engines.
Results have the same bits as on other engines (contract C3).
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedge.client.guarded_app import ClientError, GuardedApp, guarded_reply
from fedge.engine.workers import Workers
from fedge.exchange.content import detached_message, detached_reply
from fedge.exchange.engine import RemoteProcesses
from fedge.exchange.failure import Failure, exception_failure, limit_in, reason_of, timeout_failure, words_of
from fedge.flower import RUN_ID, identify_task

_RAISED, _GIVEN_UP = (
    2,
    200,
)  # codes of error replies: Flower's for an exception in a ClientApp, and Fedge's own
_LEAVE_S = 10.0  # wait for working clients when the grid is closed


class InProcessGrid(Grid):
    """Grid delivering messages to one ClientApp, once per node, on `workers` threads.

    As a context manager, it waits a few seconds on exit for working clients.
    """

    in_order = True
    nodes_come_back = False
    startup_hint = "start fewer at once"

    def __init__(
        self,
        client_app: ClientApp,
        num_supernodes: int,
        run_config: Mapping[str, Any],
        workers: int,
        partitions: Iterable[int] | None = None,
    ) -> None:
        """Grid with nodes for the partitions 0, 1, … of `num_supernodes`, or only for `partitions`."""
        identify_task()
        is_guarded = isinstance(client_app, GuardedApp)  # one guard is enough
        self._answer = client_app if is_guarded else partial(guarded_reply, client_app)
        self._contexts = {
            partition + 1: Context(
                run_id=RUN_ID,
                node_id=partition + 1,
                node_config={"partition-id": partition, "num-partitions": num_supernodes},
                state=RecordDict(),
                run_config=dict(run_config),
            )
            for partition in (range(num_supernodes) if partitions is None else partitions)
        }
        self._numbers = count(1)
        self._replies: dict[str, Message] = {}
        self._num_pending = 0  # number of messages without a reply
        self._failed = False  # whether a message has failed since the last wait
        self._awaited_id = ""  # id of the message awaited by `wait_for`
        self._awaits_any = False  # whether `wait_for_any` waits
        self._put_aside: Callable[[Message], Message] = lambda reply: reply
        self._arrived = threading.Condition()
        self._workers = Workers(workers, self._deliver, self._keep_reply)

    def __enter__(self) -> "InProcessGrid":
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.close(_LEAVE_S)

    @property
    def grid(self) -> Grid:
        """This grid."""
        return self

    @property
    def node_of(self) -> dict[int, int]:
        """Partition id → node id."""
        return {int(c.node_config["partition-id"]): c.node_id for c in self._contexts.values()}

    @property
    def worker_ids(self) -> list[int]:
        """Native ids of the worker threads."""
        return self._workers.ids

    @staticmethod
    def partition_of_key(node_id: int) -> int | None:
        """None: nodes have no keys here."""
        return None

    def store_replies_with(self, keep: Callable[[Message], Message]) -> None:
        """Pass replies through `keep`, which may store their content elsewhere until they are pulled."""
        self._put_aside = keep

    def num_workers(self) -> int:
        """Number of clients in training at a time."""
        return len(self._workers.ids)

    def get_node_ids(self) -> Iterable[int]:
        """Ids of all nodes."""
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Queue messages in the given order; returns their ids."""
        return [self.push_due(message, 0) for message in messages]

    def push_due(self, message: Message, due: int) -> str:
        """Queue a message before all those due later; returns its id."""
        message_id = str(next(self._numbers))
        message.metadata.__dict__["_message_id"] = message_id  # set like this by Flower's own grids
        with self._arrived:
            self._num_pending += 1
        self._workers.submit(message, due)
        return message_id

    def _deliver(self, message: Message) -> Message:
        """Run the client on a worker thread; an exception becomes an error reply, as in Flower's engines."""
        try:
            context = self._contexts[message.metadata.dst_node_id]
            reply = detached_reply(self._answer(detached_message(message), context), message)
            return self._put_aside(reply)
        except ClientError as error:
            return Message(Error(_RAISED, str(error)), reply_to=message)
        except BaseException as error:  # a client's error must not end the worker
            return Message(Error(_RAISED, words_of(error)), reply_to=message)

    def give_up_late(self, limit_s: float) -> None:
        """Give up clients working for more than `limit_s` seconds; they get error replies."""
        for message in self._workers.give_up_late(limit_s):
            self._keep_reply(message, Message(Error(_GIVEN_UP, str(limit_s)), reply_to=message))

    def failure_of(self, reply: Message) -> Failure:
        """Reason for a client's failure."""
        reason = reason_of(reply)
        limit_s = limit_in(reason) if reply.error.code == _GIVEN_UP else None
        return exception_failure(reason) if limit_s is None else timeout_failure(limit_s)

    @staticmethod
    def refuse_stopped() -> None:
        """Do nothing: this engine lasts as long as its process."""

    @staticmethod
    def new_remarks() -> Sequence[str]:
        """Empty: there are no other processes."""
        return ()

    @staticmethod
    def remote_processes() -> RemoteProcesses:
        """Empty: there are no other machines."""
        return RemoteProcesses()

    @staticmethod
    def spans_machines() -> bool:
        """False: clients are in the server's process."""
        return False

    def hand_out(self, data_folder: Path) -> str:
        """Empty: clients read the folder."""
        return ""

    def _keep_reply(self, message: Message, reply: Message) -> None:
        """Keep a reply until pulled."""
        with self._arrived:
            self._replies[message.metadata.message_id] = reply
            self._num_pending -= 1
            self._failed = self._failed or reply.has_error()
            if self._awaited_id:
                if self._awaited_id == message.metadata.message_id:
                    self._arrived.notify_all()
            elif self._awaits_any or self._failed or not self._num_pending:
                self._arrived.notify_all()

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Replies received so far; each is returned once."""
        requested = message_ids if isinstance(message_ids, set) else set(message_ids)
        with self._arrived:  # usually few have arrived and many are wanted
            arrived = [message_id for message_id in self._replies if message_id in requested]
            return [self._replies.pop(message_id) for message_id in arrived]

    def wait_for(self, message_id: str, timeout_s: float) -> Message | None:
        """Reply to one message; None without one within `timeout_s` seconds.

        Other replies do not wake the waiting thread: if the server works ahead, most are needed only later.
        """
        with self._arrived:
            self._awaited_id = message_id
            self._arrived.wait_for(lambda: message_id in self._replies, timeout_s)
            self._awaited_id = ""
            return self._replies.pop(message_id, None)

    def wait_for_any(self, message_ids: Collection[str], timeout_s: float) -> list[str]:
        """Ids of messages with a reply; waits for the first, at most `timeout_s` seconds."""
        with self._arrived:
            self._awaits_any = True
            self._arrived.wait_for(lambda: any(key in self._replies for key in message_ids), timeout_s)
            self._awaits_any = False
            return [key for key in message_ids if key in self._replies]

    def wait(self, timeout_s: float) -> None:
        """Wait until every message has its reply or one has failed, at most `timeout_s` seconds.

        Waking up for each of a thousand replies would take the interpreter away from the clients.
        """
        with self._arrived:
            self._arrived.wait_for(lambda: self._failed or not self._num_pending, timeout_s)
            self._failed = False

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Push messages and return the replies within `timeout` seconds."""
        pending = set(self.push_messages(messages))
        deadline = time.monotonic() + (3600.0 if timeout is None else timeout)
        replies: list[Message] = []
        while pending and time.monotonic() < deadline:
            self.wait(deadline - time.monotonic())
            arrived = self.pull_messages(pending)
            replies.extend(arrived)
            pending.difference_update(reply.metadata.reply_to_message_id for reply in arrived)
        return replies

    def set_run(self, run_id: int) -> None:
        """Do nothing: there is only one run."""

    @property
    def run(self):  # type: ignore[no-untyped-def]  # Flower does not export the type
        """NotImplementedError: the engine has no run information."""
        raise NotImplementedError("the in-process engine has no SuperLink, and so no run information")

    def create_message(  # type: ignore[no-untyped-def]
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ):
        """A new message."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)
