"""Exit of a process with gRPC channels, of Flower or of leaf servers.

gRPC watches a channel from a daemon thread, also for .2 s after it is closed. At exit Python stops this
thread wherever it is; if it holds a lock of the channel, a destructor waits for the lock for ever. On two
busy cores this happened to 16 of 208 `flwr run` whose SuperLink did not answer.
"""

import atexit
import sys


def exit_despite_channels() -> None:
    """Arrange that no channel is waited for at exit; no effect in processes without gRPC."""
    atexit.register(_remove_destructors)


def _remove_destructors() -> None:
    """Remove gRPC's destructors, which only end calls and subscriptions that end with the process."""
    for kind in vars(sys.modules.get("grpc._channel", object)).copy().values():
        if isinstance(kind, type) and "__del__" in vars(kind):
            delattr(kind, "__del__")
