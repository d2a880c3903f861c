"""Size of a terminal, whose window may have changed or be gone."""

import os
from typing import TextIO


def terminal_size(stream: TextIO) -> tuple[int, int]:
    """Columns and lines of a terminal; 80 × 24 if unknown.

    Raises:
        OSError, ValueError: the stream is not a terminal, or is gone.
    """
    width, height = os.get_terminal_size(stream.fileno())
    return width or 80, height or 24
