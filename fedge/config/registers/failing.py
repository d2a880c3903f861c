"""One-line messages for errors in a user's code, with file and line."""

import sys
import sysconfig
import threading
import traceback
from pathlib import Path

_PACKAGE_FOLDER = Path(__file__).resolve().parents[2]
_INSTALLED = tuple(
    f"{path}/"
    for path in {*map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")), _PACKAGE_FOLDER}
)

_PACKAGES = (
    "/site-packages/",
    "/dist-packages/",
)  # of any environment on Python's path, a user's or a system's


def own_errors() -> tuple[type[BaseException], ...]:
    """Types of errors that a user's code may raise, for an except clause around it.

    All but an interruption: sys.exit() in it must not end a run with an exit code of its own, and a panic of
    a library in Rust is no Exception.
    """
    if isinstance(sys.exc_info()[1], KeyboardInterrupt | GeneratorExit):
        return (Exception, SystemExit)
    return (BaseException,)


def own_error(error: BaseException) -> str:
    """Type, message and place of an error: "ValueError: no such key (my_part.py, line 3)"."""
    message = ": ".join(filter(None, (type(error).__name__, " ".join(message_of(error).split()))))
    return f"{message}{place(error)}"


def message_of(error: BaseException) -> str:
    """Text of an error, even if its own method for this fails."""
    try:
        return str(error)
    except BaseException:  # the exception's own code runs here, and must not end the process
        return "its message cannot be told"


def place(error: BaseException) -> str:
    """Innermost line of the user's own code in a traceback, " (file, line n)"; "" without any.

    Deeper frames in PyTorch, NumPy or Fedge are skipped, because users look for their own line.
    """
    frame = _own_frame(error)
    return f" ({frame.filename}, line {frame.lineno})" if frame else ""


def place_by_name(error: BaseException) -> str:
    """Like `place`, with the file's name only: other machines do not learn folder names."""
    frame = _own_frame(error)
    return f" ({Path(frame.filename).name}, line {frame.lineno})" if frame else ""


def without_folders(words: str, error: BaseException) -> str:
    """An error message for another machine: the user's own files are reduced to their names.

    Args:
        words: the message, which may contain the place of an earlier error.
        error: the error; its traceback and those of its causes say which files are the user's.
    """
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and not any(current is earlier for earlier in seen):
        seen.append(current)
        for frame in traceback.extract_tb(current.__traceback__):
            if is_own_file(frame.filename):
                words = words.replace(frame.filename, Path(frame.filename).name)
        current = current.__cause__ or current.__context__
    return words


def is_own_file(file: str) -> bool:
    """Whether a source file is the user's own, not part of Python, Fedge or an installed package."""
    return not file.startswith(("<", *_INSTALLED)) and not any(folder in file for folder in _PACKAGES)


def current_user_line() -> str:
    """Line of the user's code for which Fedge is now waiting, "file, line n"; "" if none.

    The main thread comes first. A script calling Fedge does not count.
    """
    frames = sys._current_frames()
    first = threading.main_thread().ident
    for thread in sorted(frames, key=lambda ident: ident != first):
        stack = traceback.extract_stack(frames[thread])
        fedge_frames = [
            number for number, frame in enumerate(stack) if frame.filename.startswith(f"{_PACKAGE_FOLDER}/")
        ]
        own_frames = (
            [frame for frame in stack[fedge_frames[0] :] if is_own_file(frame.filename)]
            if fedge_frames
            else []
        )
        if own_frames:
            return f"{own_frames[-1].filename}, line {own_frames[-1].lineno}"
    return ""


def _own_frame(error: BaseException) -> traceback.FrameSummary | None:
    """Innermost frame of the user's own code in an error's traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    own_frames = [frame for frame in frames if is_own_file(frame.filename)]
    return own_frames[-1] if own_frames else None
