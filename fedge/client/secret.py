"""Secret of a client: random bytes drawn once, kept in its Flower node's state, and never sent.

All calls of the node see the same secret, in any worker or thread; a node in a new process has a new one.
"""

import os
import threading

from flwr.app import ConfigRecord, Context

_RECORD, _KEY = "fedge-secret", "key"
_BYTES = 32
_drawing = threading.Lock()  # threads of one process share their nodes' contexts


def secret_of(context: Context) -> bytes:
    """Secret of a context's client, 32 bytes; drawn if missing."""
    with _drawing:
        record = context.state.get(_RECORD)
        if not isinstance(record, ConfigRecord):
            record = ConfigRecord({_KEY: os.urandom(_BYTES)})
            context.state[_RECORD] = record
    key = record[_KEY]
    assert isinstance(key, bytes)
    return key
