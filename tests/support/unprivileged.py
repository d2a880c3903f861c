"""Commands as a user without the rights of root: what the mode of a file forbids is forbidden.

Root reads and writes everything, by three capabilities. The program gives them up for good, then becomes the
command; of any other user it changes nothing.
"""

import sys
from collections.abc import Sequence

_PROGRAM = (
    "import ctypes, os, sys; prctl = ctypes.CDLL(None).prctl; "
    "[prctl(24, n, 0, 0, 0) for n in (1, 2, 3) if os.getuid() == 0]; "  # to rights over files
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


def unprivileged(command: Sequence[str]) -> list[str]:
    """Words that start `command` without these rights."""
    return [sys.executable, "-c", _PROGRAM, *map(str, command)]
