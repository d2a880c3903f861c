"""Exit of a process with gRPC channels, of Flower or of leaf servers.

gRPC watches a channel from a daemon thread, for another 0.2 s after it is closed. At exit Python stops this
thread wherever it is; if it holds a lock of the channel, a destructor waits for the lock forever. On two busy
cores this happened in 16 of 208 `flwr run` whose SuperLink did not answer.
"""

import atexit
import sys


def exit_despite_channels() -> None:
    """Keep exit from waiting for channels; no effect in processes without gRPC."""
    atexit.register(_remove_destructors)


def _remove_destructors() -> None:
    """Remove gRPC's destructors; they only end calls and subscriptions, as the process's end does anyway."""
    for kind in vars(sys.modules.get("grpc._channel", object)).copy().values():
        if isinstance(kind, type) and "__del__" in vars(kind):
            delattr(kind, "__del__")
