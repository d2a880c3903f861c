"""Errors of a user's code in one line, with the place in their file."""

import sys
import sysconfig
import threading
import traceback
from pathlib import Path

_OURS = Path(__file__).resolve().parents[2]
_INSTALLED = tuple(
    f"{path}/" for path in {*map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")), _OURS}
)

_PACKAGES = (
    "/site-packages/",
    "/dist-packages/",
)  # of any environment on Python's path, a user's or a system's

OWN_ERRORS = (Exception, SystemExit)
"""Errors that a user's code may raise: sys.exit() in it must not end a run with an exit code of its own."""


def own_error(error: BaseException) -> str:
    """Kind, words and place of an error: "ValueError: no such key (my_part.py, line 3)"."""
    words = ": ".join(filter(None, (type(error).__name__, " ".join(str(error).split()))))
    return f"{words}{place(error)}"


def place(error: BaseException) -> str:
    """Innermost line of the user's own code behind an error, " (file, line n)"; "" where there is none.

    What it calls in PyTorch, NumPy or Fedge is deeper, but the user looks for their own line.
    """
    own = _own_frame(error)
    return f" ({own.filename}, line {own.lineno})" if own else ""


def place_by_name(error: BaseException) -> str:
    """As `place`, with the file's name alone: another machine's folders are nobody's business."""
    own = _own_frame(error)
    return f" ({Path(own.filename).name}, line {own.lineno})" if own else ""


def without_folders(words: str, error: BaseException) -> str:
    """Words of an error for another machine: files of the user's own code by their names alone.

    Args:
        words: of the error, which may hold the place of one behind it.
        error: whose code, and that of the errors that led to it, is looked at.
    """
    seen: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and not any(at is one for one in seen):
        seen.append(at)
        for frame in traceback.extract_tb(at.__traceback__):
            if is_own_file(frame.filename):
                words = words.replace(frame.filename, Path(frame.filename).name)
        at = at.__cause__ or at.__context__
    return words


def is_own_file(file: str) -> bool:
    """Whether a file of code is the user's own: not Python's, an installed package's or Fedge's."""
    return not file.startswith(("<", *_INSTALLED)) and not any(folder in file for folder in _PACKAGES)


def standing() -> str:
    """Line of the user's own code that Fedge has called and waits for, "file, line n"; "" for none.

    The main thread's first. A script that has called Fedge is none.
    """
    frames = sys._current_frames()
    first = threading.main_thread().ident
    for thread in sorted(frames, key=lambda ident: ident != first):
        stack = traceback.extract_stack(frames[thread])
        outer = [number for number, frame in enumerate(stack) if frame.filename.startswith(f"{_OURS}/")]
        own = [frame for frame in stack[outer[0] :] if is_own_file(frame.filename)] if outer else []
        if own:
            return f"{own[-1].filename}, line {own[-1].lineno}"
    return ""


def _own_frame(error: BaseException) -> traceback.FrameSummary | None:
    """Innermost frame of the user's own code behind an error."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_own_file(frame.filename)]
    return own[-1] if own else None
