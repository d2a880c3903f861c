"""Ending with the process that started this one: `flwr run` with `fedge run`, the simulation with `flwr run`.

Killed without a word (SIGKILL, no memory), a process cannot end those that it has started, and a simulation
would go on for all its rounds. Only a parent that has said so is followed: a user who starts a run may log
out.

This file is also carried out by itself, as a program (`ending_with_parent`), and imports nothing of Fedge.
"""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, MutableMapping, Sequence

_VARIABLE = "FEDGE_PARENT"
_PR_SET_PDEATHSIG = 1
_POLL_S = 0.5
_KILLED = 128 + 9  # exit code, as shells have it for SIGKILL
_NOT_FOUND = 127  # the same for a command that is not there


def be_followed(environment: MutableMapping[str, str] | None = None) -> None:
    """Let processes that are started with `environment` (this process's own by default) end with this one."""
    variables = os.environ if environment is None else environment
    variables[_VARIABLE] = str(os.getpid())


def follow_parent(end: Callable[[], None]) -> bool:
    """End when the parent does, if it wants to be followed; tell whether that is so.

    Args:
        end: called from a thread once the parent is gone; must not rely on a main thread that listens.
    """
    parent = _to_follow()
    if parent is None:
        return False

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_S)
        end()

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
    return True


def follow_at_once() -> bool:
    """Be killed as soon as the parent is gone, if it wants to be followed; for processes without clean-up.

    On Linux the kernel sees to it, which no busy interpreter holds up.
    """
    parent = _to_follow()
    if parent is None:
        return False
    if end_with_parent(signal.SIGKILL) and os.getppid() == parent:
        return True
    return follow_parent(lambda: os._exit(_KILLED))


def end_with_parent(signum: int = signal.SIGTERM) -> bool:
    """Let the kernel send this process a signal once its parent is gone; tell whether it can (Linux)."""
    if not sys.platform.startswith("linux"):
        return False
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0)
    return True


def ending_with_parent(words: Sequence[str], signum: int = signal.SIGTERM) -> list[str]:
    """Words that start a command to which the kernel sends a signal once this process is gone (Linux).

    The command is asked for by a small program, which then becomes it. A `preexec_fn` would do it between
    fork and exec, where a process that has used gRPC aborts now and then.

    Args:
        words: the command and its arguments.
        signum: of the signal.
    """
    if not sys.platform.startswith("linux"):
        return list(words)
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(int(signum)), *words]


def _to_follow() -> int | None:
    """The parent's process id if it wants to be followed."""
    parent = os.getppid()
    return parent if os.environ.get(_VARIABLE) == str(parent) else None


# --- the program --------------------------------------------------------------------------------------


def main(parent: str, signum: str, *words: str) -> int:
    """Become a command that ends with a parent; its exit code where that cannot be, as shells have it."""
    end_with_parent(int(signum))
    if os.getppid() != int(parent):  # it has ended before the kernel was asked
        return 128 + int(signum)
    try:
        os.execvp(words[0], words)
    except OSError as error:
        print(f"{words[0]}: {error.strerror}", file=sys.stderr)
        return _NOT_FOUND


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
