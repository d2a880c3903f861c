"""An engine whose nodes a test lets come, go, answer and lose what they are asked, one step at a time."""

from itertools import count

from flwr.app import Error, Message

from fedge.engine.flower_engine import FlowerEngine
from fedge.exchange.hello import HELLO, Hello, hello_reply

GONE = 5  # Flower's code of a node that is not there


class Script:
    """A Grid: what was pushed lies here until the test lets somebody answer it."""

    def __init__(self):
        self.nodes = {}  # node id → Hello
        self.pending = {}  # message id → message
        self.replies = {}
        self._numbers = count(1)

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(next(self._numbers))
            ids.append(message.metadata.message_id if message.metadata.dst_node_id in self.nodes else None)
            if ids[-1]:
                self.pending[ids[-1]] = message
        return ids

    def pull_messages(self, message_ids):
        return [self.replies.pop(key) for key in list(self.replies) if key in message_ids]

    def asked(self, node, kind):
        """The questions of a kind that a node has not answered, oldest first."""
        return [
            m for m in self.pending.values()
            if m.metadata.dst_node_id == node and m.metadata.message_type == kind
        ]  # fmt: skip

    def answer(self, question, reply):
        """Let somebody answer a question."""
        del self.pending[question.metadata.message_id]
        self.replies[question.metadata.message_id] = reply

    def say_hello(self, *nodes):
        """Let nodes say who they are."""
        for node in nodes:
            for question in self.asked(node, HELLO):
                self.answer(question, hello_reply(self.nodes[node], question))

    def go(self, node):
        """Let a node go; its SuperLink answers for it, in its own name."""
        del self.nodes[node]
        for question in [m for m in self.pending.values() if m.metadata.dst_node_id == node]:
            self.answer(question, Message(Error(GONE, "Node Unavailable"), reply_to=question))


def deployment(*partitions, total=None):
    """(script, engine) of nodes 11, 12, … that hold partitions."""
    script = Script()
    for number, partition in enumerate(partitions, start=11):
        script.nodes[number] = Hello(partition, total or len(partitions))
    return script, FlowerEngine(script, nodes_come_back=True)
