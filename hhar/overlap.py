"""Zip members sharing bytes: no zip tool writes them, and a few kilobytes of them unpack to any size.

Source: Fifield 2019, "A better zip bomb".
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable

_LEAST_HEADER_BYTES = 30  # before a member's name and its content


def overlapping(members: Iterable[zipfile.ZipInfo]) -> str | None:
    """Name of a member that begins before another ends; None if no two members share bytes."""
    end = 0
    for member in sorted(members, key=lambda m: m.header_offset):
        if member.header_offset < end:
            return member.filename
        end = member.header_offset + _LEAST_HEADER_BYTES + member.compress_size
    return None
