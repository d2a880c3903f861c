"""Commands under a limit of the system, set by the program that then becomes the command.

Not by a `preexec_fn`: a process that has used gRPC aborts now and then between fork and exec. They write no
bytecode: of a file that is cut by a limit, CPython 3.11 keeps what is there, for all processes after it.
"""

import sys
from collections.abc import Sequence

_PROGRAM = (
    "import os, resource, sys; kind, value = map(int, sys.argv[1:3]); "
    "resource.setrlimit(kind, (value, value)); "
    "os.environ['PYTHONDONTWRITEBYTECODE'] = '1'; os.execvp(sys.argv[3], sys.argv[3:])"
)


def limited(command: Sequence[str], kind: int, value: int) -> list[str]:
    """Words that start `command` with both limits of a kind (`resource.RLIMIT_…`) at `value`."""
    return [sys.executable, "-c", _PROGRAM, str(kind), str(value), *map(str, command)]
