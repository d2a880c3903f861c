"""A ClientApp's process, kept for the next message because it uses a GPU.

Opening a GPU's context and libraries takes seconds, and forks cannot share them. So `fedge node` lets such a
process handle further messages; all others end with their message. A process that has failed ends as well,
because an error may leave the GPU unusable for it. The user's code, imported for one run, is imported again
for another run, because it may have changed.
"""

import sys

from fedge.process.own_modules import OwnModules


class _Life:
    """State of this process."""

    may_stay = False  # whether its starter may send further messages
    failed = False
    modules: OwnModules | None = None  # of the user; None in a process of one message


_life = _Life()


def allow_further_messages() -> None:
    """Let this new process stay for further messages of its starter."""
    _life.may_stay, _life.failed, _life.modules = True, False, OwnModules()


def handles_further_messages() -> bool:
    """Whether this process handles further messages."""
    return _life.may_stay and not _life.failed and holds_gpu()


def holds_gpu() -> bool:
    """Whether this process has opened a GPU."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def note_failure() -> None:
    """Make this process end with its message."""
    _life.failed = True


def begin_message_of(run: int) -> None:
    """Forget code imported for another run; called before a message is handled."""
    if _life.modules is not None:
        _life.modules.begin(run)
