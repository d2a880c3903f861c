"""Replies of SuperNodes, looked at before Flower's SuperLink keeps them.

Flower 1.25 believes a reply's word on itself: with one key a node can answer in another's name if it knows
the question's id, a second reply to one question or one that names another run makes the SuperLink fail at
the run's next look for replies, and all that had come go with it. So a SuperLink of Fedge's
(`fedge.link.own_account`) writes down which question it has handed to whom. A reply gets in if it is to one
that this node has, names that question's run, and is the first.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any

PULL, PUSH = "/flwr.proto.Fleet/PullMessages", "/flwr.proto.Fleet/PushMessages"
_MOST = 10_000  # remembered questions of a node


@dataclass
class _Held:
    """A question that a node has: its run, and the id of the reply to it, empty until there is one."""

    run: int
    reply: str = ""


class FleetGuard:
    """Questions handed to nodes, and replies that may come."""

    def __init__(self) -> None:
        """Nobody has any."""
        self._lock = Lock()
        self._held: dict[int, OrderedDict[str, _Held]] = {}

    def handed(self, node: int, response: Any) -> None:
        """Note the questions handed to a node (a PullMessagesResponse)."""
        with self._lock:
            held = self._held.setdefault(node, OrderedDict())
            for message in response.messages_list:
                held[message.metadata.message_id] = _Held(message.metadata.run_id)
            while len(held) > _MOST:
                held.popitem(last=False)

    def claim(self, request: Any) -> str:
        """Take a node's push (a PushMessagesRequest) for the reply to its question.

        Returns:
            Why it does not get in; empty if it does.
        """
        node = request.node.node_id
        if len(request.messages_list) != 1 or len(request.message_object_trees) != 1:
            return "one reply at a time"
        said = request.messages_list[0].metadata
        if request.message_object_trees[0].object_id != said.message_id:
            return "a reply's content is its own"
        with self._lock:
            question = self._held.get(node, {}).get(said.reply_to_message_id)
            if said.src_node_id != node or question is None:
                return "a node answers what it was asked, in its own name"
            if said.run_id != question.run:
                return "a reply is of its question's run"
            if question.reply not in ("", said.message_id):  # the same may come again after a loss
                return "a question is answered once"
            question.reply = said.message_id
        return ""

    def release(self, request: Any) -> None:
        """Let another reply come in the place of one that could not be kept."""
        said = request.messages_list[0].metadata
        with self._lock:
            self._held[request.node.node_id][said.reply_to_message_id].reply = ""

    def around(self, method: str, behaviour: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """A method of the Fleet API with this guard around it; others as they are."""
        return {PULL: self._pulling, PUSH: self._pushing}.get(method, lambda given: given)(behaviour)

    def _pulling(self, behaviour: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def pull(request: Any, context: Any) -> Any:
            response = behaviour(request, context)  # which fails for another node's key
            self.handed(request.node.node_id, response)
            return response

        return pull

    def _pushing(self, behaviour: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def push(request: Any, context: Any) -> Any:
            import grpc  # type: ignore[import-untyped]

            if refusal := self.claim(request):
                context.abort(grpc.StatusCode.PERMISSION_DENIED, refusal)
            try:
                return behaviour(request, context)
            except BaseException:  # gRPC's own refusal, as for another node's key
                self.release(request)
                raise

        return push
