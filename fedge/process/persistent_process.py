"""A ClientApp's process, kept for the next message because it uses a GPU.

Opening a GPU's context and libraries takes seconds, and forks cannot share them. So `fedge node` lets such a
process handle further messages; all others end with their message. A process that has failed ends as well,
because an error may leave the GPU unusable for it. The user's code, imported for one run, is imported again
for another run, because it may have changed.
"""

import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from fedge.config.registers.register import search_folders

_OURS = ("fedge", "hhar")
_INSTALLED = {"site-packages", "dist-packages"}


class _Life:
    """State of this process."""

    may_stay = False  # whether its starter may send further messages
    failed = False
    run: int | None = None
    before: Collection[str] = frozenset()  # modules imported before the first message


_life = _Life()


def allow_further_messages() -> None:
    """Let this new process stay for further messages of its starter."""
    _life.may_stay, _life.failed, _life.before = True, False, frozenset(sys.modules)


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
    if _life.may_stay and _life.run not in (None, run):
        for name in imported_since(_life.before):
            del sys.modules[name]
    _life.run = run


def imported_since(before: Collection[str]) -> list[str]:
    """Modules imported since `before` from the folders searched for the user's code."""
    folders = [Path(folder) for folder in search_folders()]
    with suppress(OSError):  # the working directory was removed
        folders.append(Path.cwd())
    return [
        name
        for name, module in list(sys.modules.items())
        if name not in before
        and name.partition(".")[0] not in _OURS
        and (file := getattr(module, "__file__", None))
        and not _INSTALLED & set(Path(file).parts)
        and any(Path(file).resolve().is_relative_to(folder) for folder in folders)
    ]
