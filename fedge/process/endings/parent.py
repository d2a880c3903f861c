"""Processes ending with their starter: `flwr run` with `fedge run`, the simulation with `flwr run`.

A killed process (SIGKILL, out of memory) cannot end those it started, and a simulation would run to its last
round. A process follows its parent only on request, because a user may start a run and log out.

This file also runs as a program (`ending_with_parent`), and imports nothing from Fedge.
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
_KILLED = 128 + 9  # the shells' exit code for SIGKILL
_NOT_FOUND = 127  # the shells' exit code for a command not found


def tie_children_to_parent(environment: MutableMapping[str, str] | None = None) -> None:
    """Make processes started with `environment` (None: this process's environment) end with this one."""
    variables = os.environ if environment is None else environment
    variables[_VARIABLE] = str(os.getpid())


def follow_parent(end: Callable[[], None]) -> bool:
    """Call `end` when the parent ends, if the parent requested it; returns whether it did.

    Args:
        end: called from a thread once the parent is gone; must not rely on a responsive main thread.
    """
    parent = _parent_to_follow()
    if parent is None:
        return False

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_S)
        end()

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
    return True


def die_with_parent() -> bool:
    """Arrange to be killed with the parent, if it requested so; for processes without clean-up.

    On Linux the kernel does this, even if the interpreter is busy. Returns whether the parent is followed.
    """
    parent = _parent_to_follow()
    if parent is None:
        return False
    if end_with_parent(signal.SIGKILL) and os.getppid() == parent:
        return True
    return follow_parent(lambda: os._exit(_KILLED))


def end_with_parent(signum: int = signal.SIGTERM) -> bool:
    """Have the kernel send this process a signal when its parent ends; returns whether it can (Linux)."""
    if not sys.platform.startswith("linux"):
        return False
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0)
    return True


def ending_with_parent(command: Sequence[str], signum: int = signal.SIGTERM) -> list[str]:
    """Command line that starts a command and has the kernel signal it once this process is gone (Linux).

    A small program requests the signal, and then becomes the command. A `preexec_fn` would do so between
    fork and exec, where a process using gRPC aborts now and then.

    Args:
        command: the command and its arguments.
        signum: number of the signal.
    """
    if not sys.platform.startswith("linux"):
        return list(command)
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(int(signum)), *command]


def _parent_to_follow() -> int | None:
    """Process id of the parent if it requests to be followed; else None."""
    parent = os.getppid()
    return parent if os.environ.get(_VARIABLE) == str(parent) else None


# --- the program --------------------------------------------------------------------------------------


def main(parent: str, signum: str, *command: str) -> int:
    """Become a command that ends with its parent; the shells' exit code if this is impossible."""
    end_with_parent(int(signum))
    if os.getppid() != int(parent):  # it ended before the kernel knew of the request
        return 128 + int(signum)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror or error}", file=sys.stderr)
        return _NOT_FOUND


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
