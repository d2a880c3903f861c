"""Secret of a client: random bytes, drawn once, kept in the state of its Flower node, never sent.

Every question to the node, in any worker or thread, finds the same secret; a node in a new process has
another.
"""

import os
import threading

from flwr.app import ConfigRecord, Context

_RECORD, _KEY = "fedge-secret", "key"
_BYTES = 32
_drawing = threading.Lock()  # threads of one process share their nodes' contexts


def secret_of(context: Context) -> bytes:
    """The secret of a context's client, 32 bytes; drawn if missing."""
    with _drawing:
        found = context.state.get(_RECORD)
        if not isinstance(found, ConfigRecord):
            found = ConfigRecord({_KEY: os.urandom(_BYTES)})
            context.state[_RECORD] = found
    key = found[_KEY]
    assert isinstance(key, bytes)
    return key
