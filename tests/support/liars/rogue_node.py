"""A node of a deployment as a process that lies: for tests/deployed.

    python rogue_node.py LIES WORDS…

is `fedge node WORDS…` whose SuperNode lies to its SuperLink, in what it sends after its first answer, with
each of LIES, which have commas between:

    steals      tries to answer in another node's name
    unasked     tries to answer what it was not asked
    elsewhere   tries to answer in another run
    twice       tries to answer once more, with something else
    again@N     its Nth training is that of the first once more
    odd@N       its Nth training is an object that is no message
    empty@N     of its Nth training no byte comes

What came of a lie stands in standard output, in lines: LIE, its name, then Flower's refusal or "taken".
FEDGE_FAULTS (`faulty_client`) says how its ClientApp lies.
"""

import sys
from hashlib import sha256
from itertools import count
from pathlib import Path

import numpy as np
from flwr.clientapp import ClientApp

SUPERNODE = "--supernode-that-lies"
HELLO, TRAIN = "query.hello", "train"


class Liar:
    """Replies of a lying SuperNode, call by call."""

    def __init__(self, lies):
        """Lie so."""
        self.lies = set(lies)
        self.trainings = count(1)

    def pushing(self, stub, push, request):
        """Send a reply, and lie; returns what the SuperLink says of the honest one."""
        kind = request.messages_list[0].metadata.message_type
        if kind == HELLO:
            return push(request)
        number = next(self.trainings) if kind == TRAIN else 0
        for lie in sorted(self.lies & {"steals", "unasked", "elsewhere"}):
            self.try_to(lie, push, self.changed(request, lie))
        if f"odd@{number}" in self.lies:
            return self.odd(stub, push, request)
        response = push(request)
        if f"empty@{number}" in self.lies:
            del response.objects_to_push[:]
            print("LIE empty taken", flush=True)
        if "twice" in self.lies:
            self.try_to("twice", push, self.changed(request, "twice"))
        return response

    def changed(self, request, lie):
        """A request with other words."""
        other = copied(request)
        said = other.messages_list[0].metadata
        if lie == "steals":
            said.src_node_id ^= 1
        elif lie == "unasked":
            said.reply_to_message_id = "0" * 64
        elif lie == "elsewhere":
            said.run_id ^= 1
        said.message_id = sha256(lie.encode() + said.message_id.encode()).hexdigest()
        del other.message_object_trees[0].children[:]
        other.message_object_trees[0].object_id = said.message_id
        return other

    def odd(self, stub, push, request):
        """Send an object that is no message; the SuperNode has nothing left to send."""
        from flwr.app import ConfigRecord
        from flwr.common.inflatable import get_object_id
        from flwr.proto.message_pb2 import PushObjectRequest

        other = copied(request)
        said = other.messages_list[0].metadata
        junk = ConfigRecord({"no": said.message_id}).deflate()
        said.message_id = get_object_id(junk)
        del other.message_object_trees[0].children[:]
        other.message_object_trees[0].object_id = said.message_id
        response = push(other)
        for name in response.objects_to_push:
            stub.PushObject(
                PushObjectRequest(node=request.node, run_id=said.run_id, object_id=name, object_content=junk)
            )
        del response.objects_to_push[:]
        print("LIE odd taken", flush=True)
        return response

    def try_to(self, lie, push, request):
        """Send something, and tell what came of it."""
        try:
            push(request)
            print(f"LIE {lie} taken", flush=True)
        except BaseException as error:  # Flower's SuperNode raises what it takes the refusal for
            print(f"LIE {lie} {type(error).__name__}", flush=True)


def copied(request):
    """A message of gRPC's, once more."""
    other = type(request)()
    other.CopyFrom(request)
    return other


def lie_as_supernode(lies, words):
    """Be Flower's SuperNode, but for what it sends."""
    from flwr.client.grpc_rere_client import connection
    from flwr.supernode.cli import flower_supernode

    liar, wrap = Liar(lies), connection._wrap_stub

    def wrapped(stub, retry):
        wrap(stub, retry)
        push = stub.PushMessages
        stub.PushMessages = lambda request, **more: liar.pushing(stub, push, request)

    connection._wrap_stub = wrapped
    sys.argv = ["flower-supernode", *words]
    flower_supernode()


class Again(ClientApp):
    """One that says what it said at first. Each call is a process of its own: a file knows it."""

    def __init__(self, app, path, at):
        super().__init__()
        self.app, self.path, self.at = app, path, at

    def __call__(self, message, context):
        """Answer, honestly but for one training."""
        from flwr.app import Message
        from flwr.common.inflatable import get_all_nested_objects
        from flwr.common.inflatable_utils import inflate_object_from_contents

        reply = self.app(message, context)
        if message.metadata.message_type != TRAIN:
            return reply
        number = 1 + sum(1 for _ in self.path.parent.glob(f"{self.path.name}-*"))
        parts = {name: part.deflate() for name, part in get_all_nested_objects(reply.content).items()}
        arrays = {name: np.frombuffer(part, np.uint8) for name, part in parts.items()}
        np.savez(f"{self.path}-{number}", top=reply.content.object_id, **arrays)
        if number != self.at:
            return reply
        with np.load(f"{self.path}-1.npz") as kept:
            parts = {name: kept[name].tobytes() for name in kept.files if name != "top"}
            content = inflate_object_from_contents(str(kept["top"]), parts)
        print("LIE again said", flush=True)
        return Message(content, reply_to=message)


def lie_as_node(lies, words):
    """Be `fedge node`, whose SuperNode is this program and whose ClientApp fails on demand."""
    import faulty_client

    import fedge.client_app
    from fedge.cli import main
    from fedge.launch.nodes import node

    app = faulty_client.app
    at = next((int(lie[6:]) for lie in lies if lie.startswith("again@")), 0)
    fedge.client_app.app = Again(app, Path("said"), at) if at else app
    node.guarded_command = lambda program: [sys.executable, __file__, SUPERNODE, ",".join(lies)]
    sys.argv = ["fedge", "node", *words]
    sys.exit(main())


if __name__ == "__main__":
    if sys.argv[1] == SUPERNODE:
        lie_as_supernode(sys.argv[2].split(","), sys.argv[3:])
    else:
        lie_as_node(sys.argv[1].split(","), sys.argv[2:])
