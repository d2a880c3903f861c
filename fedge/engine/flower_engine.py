"""Flower as an engine: messages over its Grid, and reasons why a node or one of Ray's workers failed."""

import math
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import psutil
from flwr.app import Error, Message
from flwr.serverapp import Grid
from grpc import RpcError, StatusCode  # type: ignore[import-untyped]

from fedge.engine.dispatch import signal_push
from fedge.engine.loopback import KEEP
from fedge.engine.other_machines import query_remote_workers
from fedge.engine.ray_objects import hand_out
from fedge.engine.ray_workers import StartingWorkers
from fedge.engine.stalled_replies import give_up_stalled_replies
from fedge.engine.urgency import Urgency
from fedge.engine.worker_pool import OverTimeError, limit_s, num_deaths, num_workers
from fedge.exchange.content import total_payload_bytes
from fedge.exchange.engine import RemoteProcesses, RunError
from fedge.exchange.failure import (
    FEWER_AT_ONCE,
    LOST,
    Failure,
    dead_worker_failure,
    exception_failure,
    limit_in,
    lost_node_failure,
    reason_of,
    reported_node_failure,
    timeout_failure,
)
from fedge.exchange.hello import HELLO
from fedge.link.bound_nodes import BoundNodes
from fedge.process.logs import first_engine_error
from fedge.states.records import arrays_in, forget_sent

_POLL_S = 0.01
_AFTER_FAILURE_S = 0.1  # a restarting worker fails all its messages, so do not ask more often
_LARGE_BYTES = 32e6  # bytes sent at once; smaller batches need no care
_DEPLOYED_POLL_S = 0.1  # each poll is a call to the SuperLink, and every exchange takes seconds
_WRAPPED = "Exception ClientAppException occurred. Message: "  # Flower's words, on Ray
_GUARD = re.compile(r"^(fedge\.client\.guarded_app\.)?ClientError: ")
_START_NODES = "start every client's fedge node"
_START_RAY = f"start fewer at once, look into Ray's logs (kept with {KEEP}=1)"
_DEATHS = (
    "a worker of Ray died: killed, out of memory or crashed; it is replaced, and its client tried again "
    f"(guard.retries); if more die (run.log), {FEWER_AT_ONCE}"
)
_RAYLET = "raylet"
_CORE_NAMES = (_RAYLET, "gcs_server")  # process names
_NODE_UNAVAILABLE = 5  # codes of Flower's ErrorCode
_CLIENT_APP_GONE = 8
_UNREADABLE_REPLY = 202
_NODE_FAULTS = {
    3: "the SuperLink has lost the message",
    4: "the SuperLink has lost the reply",
    _CLIENT_APP_GONE: "its ClientApp was killed, ran out of memory or crashed",
    _UNREADABLE_REPLY: "its reply cannot be read",
    LOST: "it lost the message, e.g. by a restart",
}
_CLIENT_APP_ERROR = re.compile(r"^<class '(?:\w+\.)*(\w+)'>:<'(?!<)")  # a SuperNode's text of an exception
_OVER_TIME = re.compile(rf"^{re.escape(str(OverTimeError))}:<'([\d.e+]+)'>$")
_T = TypeVar("_T")
_LINK_DOWN = (StatusCode.UNAVAILABLE, StatusCode.CANCELLED)  # the second if it goes down during a call
_DEAD_WORKER = ("ActorUnavailableError", "ActorDiedError", "WorkerCrashedError", "OutOfMemoryError")


def _error_reply(code: int, reason: str, message: Message, message_id: str) -> Message:
    """An error in place of the reply to a message."""
    error = Message(Error(code, reason), reply_to=message)
    error.metadata.__dict__["_reply_to_message_id"] = message_id
    return error


class FlowerEngine:
    """Flower's Grid as `fedge.exchange.engine.Engine`; if Flower has no answer, Ray is asked."""

    in_order = False  # clients of messages pushed at once start in any order

    def __init__(
        self, grid: Grid, stopped: threading.Event | None = None, nodes_come_back: bool = False
    ) -> None:
        """Engine over Flower's grid.

        Args:
            grid: connection to the nodes.
            stopped: event set by Flower's engine when stopping; None if unknown.
            nodes_come_back: whether the nodes are a deployment's.
        """
        self.nodes_come_back = nodes_come_back
        self.startup_hint = _START_NODES if nodes_come_back else _START_RAY
        self._bound_nodes = BoundNodes()
        self._unsent_errors: dict[str, Message] = {}  # id → error in place of its reply
        self._unreadable_errors: dict[str, Message] = {}  # id → error in place of an unreadable reply
        self._time_limits: dict[str, tuple[float, float]] = {}  # id → time of sending, allowed seconds
        self._grid = grid
        self._stopped = stopped or threading.Event()
        self._failed_at = -_AFTER_FAILURE_S  # time of the last failure of a client
        self._ray_was_up = False
        # Ray's processes without which no reply will come
        self._core_processes: list[psutil.Process] | None = None
        self._starting_workers: StartingWorkers | None = StartingWorkers()  # None once they have had work
        if nodes_come_back:
            give_up_stalled_replies()
        self._has_told_of_deaths = False
        self._urgency = Urgency(self, self.num_workers)

    @property
    def grid(self) -> Grid:
        """Flower's own grid."""
        return self._grid

    @property
    def worker_ids(self) -> Sequence[int]:
        """Empty: workers are processes, not threads."""
        return ()

    def store_replies_with(self, keep: Callable[[Message], Message]) -> None:
        """Do nothing: replies stay where Flower keeps them."""

    def num_workers(self) -> int:
        """Clients in training at a time: Ray's workers, once started; in a deployment, its nodes."""
        return len(list(self.get_node_ids())) if self.nodes_come_back else num_workers()

    def push_due(self, message: Message, due: int) -> str:
        """Send a message before all those due later; returns its id."""
        return self._urgency.push_due(message, due)

    def wait_for(self, message_id: str, timeout_s: float) -> Message | None:
        """Reply to one message; None without one within `timeout_s` seconds."""
        return self._urgency.wait_for(message_id, timeout_s)

    def wait_for_any(self, message_ids: Collection[str], timeout_s: float) -> list[str]:
        """Ids of messages with a reply; waits for the first, at most `timeout_s` seconds."""
        return self._urgency.wait_for_any(message_ids, timeout_s)

    def get_node_ids(self) -> Iterable[int]:
        """Ids of the registered nodes."""
        return self._call_flower(self._grid.get_node_ids)

    def partition_of_key(self, node_id: int) -> int | None:
        """Partition of a node's key, from the SuperLink's folder; None without one."""
        return self._bound_nodes(node_id) if self.nodes_come_back else None

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages; returns their ids, including messages refused by Flower because the node is gone."""
        messages = list(messages)
        if any(message.metadata.message_type != HELLO for message in messages):
            self._starting_workers = None
        ids: list[str] = []
        for message, sent_id in zip(messages, self._push(messages), strict=True):
            if not sent_id:
                reason = "the SuperLink no longer knows the node"
                key = message.metadata.message_id
                self._unsent_errors[key] = _error_reply(_NODE_UNAVAILABLE, reason, message, key)
            ids.append(sent_id or message.metadata.message_id)
            if self.nodes_come_back:
                self._time_limits[ids[-1]] = time.monotonic(), limit_s(message)
                self._unreadable_errors[ids[-1]] = _error_reply(
                    _UNREADABLE_REPLY, "it cannot be read", message, ids[-1]
                )
        if time.monotonic() - self._failed_at >= _AFTER_FAILURE_S:
            signal_push()
        return ids

    def _push(self, messages: Sequence[Message]) -> list[str]:
        """Push messages; returns their ids, empty for refused ones.

        Large messages are sent one by one: Flower holds all bytes sent at once in memory twice, and one copy
        for as long as the arrays live.
        """
        if not self.nodes_come_back or total_payload_bytes(messages) <= _LARGE_BYTES:
            return list(self._call_flower(self._grid.push_messages, messages))
        ids: list[str] = []
        remaining = Counter(id(array) for message in messages for array in arrays_in(message.content))
        for message in messages:
            ids += self._call_flower(self._grid.push_messages, [message])
            for array in arrays_in(message.content):
                remaining[id(array)] -= 1
                if not remaining[id(array)]:
                    forget_sent(array)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Replies received so far."""
        pending = set(message_ids)
        unsent = [self._unsent_errors.pop(key) for key in pending & self._unsent_errors.keys()]
        pending -= {reply.metadata.reply_to_message_id for reply in unsent}
        if self.nodes_come_back:
            replies = [*unsent, *chain.from_iterable(map(self._pull_one, sorted(pending)))]
        else:
            replies = [*unsent, *(self._call_flower(self._grid.pull_messages, pending) if pending else ())]
        for reply in replies:
            self._unreadable_errors.pop(reply.metadata.reply_to_message_id, None)
            if not reply.has_error():  # errors need it in `failure_of`
                self._time_limits.pop(reply.metadata.reply_to_message_id, None)
        return replies

    def _pull_one(self, message_id: str) -> list[Message]:
        """Reply to one message if it has arrived, pulled alone so its content cannot affect others.

        If they were pulled together, all replies would be lost if Flower failed to decode one of them.
        """
        try:
            replies = list(self._call_flower(self._grid.pull_messages, {message_id}))
        except (RunError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # decoding the bytes of a reply may raise anything
            if isinstance(error, RpcError) and error.code() != StatusCode.UNKNOWN:  # the link is down
                raise
            return [self._unreadable_errors[message_id]] if message_id in self._unreadable_errors else []
        for reply in replies:  # the content could name another question
            reply.metadata.__dict__["_reply_to_message_id"] = message_id
        return replies[:1]

    @staticmethod
    def _call_flower(call: Callable[..., Iterable[_T]], *arguments: Any) -> Iterable[_T]:
        """Call Flower; RunError if the run was stopped from outside, or its SuperLink is gone."""
        try:
            return call(*arguments)
        except BaseException as error:  # Flower's exception is a BaseException
            if type(error).__name__ == "RunNotRunningException":
                raise RunError("the run was stopped from outside, e.g. by flwr stop") from None
            if isinstance(error, RpcError) and error.code() in _LINK_DOWN:
                status = error.code().name
                raise RunError(
                    f"the SuperLink no longer answers ({status}); start fedge superlink there again"
                ) from error
            raise

    def wait(self, timeout_s: float) -> None:
        """Wait for one polling interval, at most `timeout_s` seconds; Flower has no notification."""
        time.sleep(min(_DEPLOYED_POLL_S if self.nodes_come_back else _POLL_S, timeout_s))

    @staticmethod
    def give_up_late(limit_s: float) -> None:
        """Do nothing: workers end themselves after `limit_s` seconds (`fedge.client.guarded_app`)."""

    def failure_of(self, reply: Message) -> Failure:
        """Reason for a client's failure; Flower passes Ray's exceptions as text, after their class."""
        self._failed_at = time.monotonic()
        sent_at, allowed_s = self._time_limits.pop(reply.metadata.reply_to_message_id, (0.0, math.inf))
        reason = reason_of(reply)
        if self.nodes_come_back and reply.error.code == _NODE_UNAVAILABLE:
            return lost_node_failure()
        if reply.error.code == _CLIENT_APP_GONE and self._failed_at - sent_at >= allowed_s:
            # the ClientApp ends itself, and its SuperNode notices later
            timeout = timeout_failure(allowed_s)
            return reported_node_failure(f"{_NODE_FAULTS[_CLIENT_APP_GONE]}, or gave {timeout}")
        if self.nodes_come_back and reply.error.code in _NODE_FAULTS:
            return reported_node_failure(_NODE_FAULTS[reply.error.code])
        if any(reason.startswith(f"<class 'ray.exceptions.{name}'>") for name in _DEAD_WORKER):
            return dead_worker_failure()
        over_time = _OVER_TIME.match(reason)
        limit_s = limit_in(over_time[1]) if over_time else None
        if limit_s is not None:
            return timeout_failure(limit_s)
        failure = exception_failure(_CLIENT_APP_ERROR.sub(r"\1: ", reason.replace(_WRAPPED, "")))
        return Failure(failure.kind, _GUARD.sub("", failure.detail))

    def refuse_stopped(self) -> None:
        """Raise RunError if the engine has stopped, as reported by its event or by Ray's shutdown.

        Flower's ServerApp waits forever if its simulation engine has crashed (Ray did not start, no worker
        fits) or was interrupted.
        """
        ray = sys.modules.get("ray")
        # another thread may be importing Ray
        is_up = ray is not None and hasattr(ray, "is_initialized") and ray.is_initialized()
        if self._stopped.is_set() and not (is_up or self._ray_was_up):
            reason = first_engine_error().rstrip(".") or "see run.log or the lines above"
            raise RunError(f"the simulation engine did not start: {reason}; fedge run needs no Ray")
        if self._stopped.is_set() or (self._ray_was_up and not is_up):
            raise RunError("the simulation engine stopped while clients were at work; see run.log")
        self._ray_was_up = is_up
        if is_up:
            self._refuse_dead_core()

    def _refuse_dead_core(self) -> None:
        """Raise RunError if one of Ray's own processes has ended, which Ray notices only after a minute."""
        if self._core_processes is None:
            self._core_processes = [p for p in psutil.Process().children() if p.name() in _CORE_NAMES]
        for process in self._core_processes:
            with suppress(psutil.NoSuchProcess):
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    continue
            raise RunError(
                f"the simulation engine died: process {process.pid} of Ray was killed or crashed; "
                f"{FEWER_AT_ONCE}"
            )
        for process in self._core_processes:
            if self._starting_workers and num_workers() and process.name() == _RAYLET:
                self._starting_workers.refuse_dead(process, num_workers())

    def new_remarks(self) -> Sequence[str]:
        """A line when the first of Ray's workers has died, as its client is tried again without a word."""
        if self._has_told_of_deaths or not num_deaths():
            return ()
        self._has_told_of_deaths = True
        return (_DEATHS,)

    def remote_processes(self) -> RemoteProcesses:
        """Measurements of a cluster's workers; empty for the run's own Ray, below this process."""
        ray = sys.modules.get("ray")
        is_cluster = ray is not None and ray.is_initialized() and not self._core_processes
        return query_remote_workers() if is_cluster else RemoteProcesses()

    def spans_machines(self) -> bool:
        """Whether Ray has workers on several machines, any of which may run any client."""
        ray = sys.modules.get("ray")
        return ray is not None and ray.is_initialized() and sum(bool(n["Alive"]) for n in ray.nodes()) > 1

    def hand_out(self, data_folder: Path) -> str:
        """Put the windows into Ray's object store if it spans machines, which do not share files."""
        return hand_out(data_folder) if self.spans_machines() else ""
