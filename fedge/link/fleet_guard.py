"""Checks of SuperNodes' replies before Flower's SuperLink stores them, and one fixed answer to SuperNodes.

Flower 1.25 trusts a reply's own metadata: with one key, a node can answer in another's name if it knows the
question's id. A second reply to a question, or a reply naming another run, makes the SuperLink fail at the
run's next poll for replies, and all replies arrived so far are lost. So Fedge's SuperLink
(`fedge.link.own_account`) records which question was sent to which node. A reply is accepted only if it is
the node's first to a question sent to it, and names the question's run.

A SuperNode may ask for part of a message while the ServerApp is still sending it. Flower 1.25 tries to answer
"not yet", but its traffic accounting refuses zero bytes; the SuperNode drops the message, and the run waits
forever for its reply. The guard gives the intended answer, and the SuperNode asks again.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any

PULL, PUSH = "/flwr.proto.Fleet/PullMessages", "/flwr.proto.Fleet/PushMessages"
PULL_OBJECT = "/flwr.proto.Fleet/PullObject"
_NO_BYTES = "cannot be zero"  # in Flower's error for a transfer of no bytes
_MOST_QUESTIONS = 10_000  # questions remembered per node


@dataclass
class _Question:
    """A question sent to a node: its run, and the id of its reply, empty until there is one."""

    run: int
    reply: str = ""


class FleetGuard:
    """Questions sent to nodes, and the replies accepted for them."""

    def __init__(self) -> None:
        """Guard without any questions yet."""
        self._lock = Lock()
        self._questions: dict[int, OrderedDict[str, _Question]] = {}

    def record_questions(self, node: int, response: Any) -> None:
        """Record the questions sent to a node (a PullMessagesResponse)."""
        with self._lock:
            questions = self._questions.setdefault(node, OrderedDict())
            for message in response.messages_list:
                questions[message.metadata.message_id] = _Question(message.metadata.run_id)
            while len(questions) > _MOST_QUESTIONS:
                questions.popitem(last=False)

    def claim(self, request: Any) -> str:
        """Accept a node's push (a PushMessagesRequest) as the reply to its question.

        Returns:
            Reason for a refusal; empty if accepted.
        """
        node = request.node.node_id
        if len(request.messages_list) != 1 or len(request.message_object_trees) != 1:
            return "a request must have exactly one reply"
        metadata = request.messages_list[0].metadata
        if request.message_object_trees[0].object_id != metadata.message_id:
            return "a reply's content must have the reply's id"
        with self._lock:
            question = self._questions.get(node, {}).get(metadata.reply_to_message_id)
            if metadata.src_node_id != node or question is None:
                return "a node must answer its own questions, in its own name"
            if metadata.run_id != question.run:
                return "a reply must name its question's run"
            if question.reply not in ("", metadata.message_id):  # a retry after a lost reply is accepted
                return "a question has only one reply"
            question.reply = metadata.message_id
        return ""

    def release(self, request: Any) -> None:
        """Permit another reply instead of one that could not be stored."""
        metadata = request.messages_list[0].metadata
        with self._lock:
            self._questions[request.node.node_id][metadata.reply_to_message_id].reply = ""

    def wrap(self, method: str, behaviour: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """A method of the Fleet API wrapped in this guard; other methods unchanged."""
        wrappers = {PULL: self._guard_pull, PUSH: self._guard_push, PULL_OBJECT: _guard_pull_object}
        return wrappers.get(method, lambda unguarded: unguarded)(behaviour)

    def _guard_pull(self, behaviour: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def pull(request: Any, context: Any) -> Any:
            response = behaviour(request, context)  # raises for another node's key
            self.record_questions(request.node.node_id, response)
            return response

        return pull

    def _guard_push(self, behaviour: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def push(request: Any, context: Any) -> Any:
            import grpc  # type: ignore[import-untyped]

            if refusal := self.claim(request):
                context.abort(grpc.StatusCode.PERMISSION_DENIED, refusal)
            try:
                return behaviour(request, context)
            except BaseException:  # gRPC's own refusal, e.g. for another node's key
                self.release(request)
                raise

        return push


def _guard_pull_object(behaviour: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Answer "not yet" for an object announced but without content."""

    def pull_object(request: Any, context: Any) -> Any:
        from flwr.proto.message_pb2 import PullObjectResponse

        try:
            return behaviour(request, context)
        except ValueError as error:
            if _NO_BYTES not in str(error):
                raise
            return PullObjectResponse(object_found=True, object_available=False)

    return pull_object
