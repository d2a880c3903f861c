"""A file growing by appending, with a running checksum of its content."""

import errno
import hashlib
import io
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedge.process.durable import write_bytes
from fedge.records.tables.columns import Table

_BLOCK_BYTES = 2**20


class GrowingFile:
    """A file changed only by appending.

    Attributes:
        path: path of the file.
        refitted: whether another version's table was converted to the columns of this version.
    """

    def __init__(self, path: Path, table: Table | None, offset: int) -> None:
        """Open a new file, or an old one truncated to `offset` bytes.

        Args:
            path: path of the file; its folder is created if missing.
            table: its columns; None if it is not a table.
            offset: bytes to keep; 0 for a new file.

        Raises:
            OSError: the disk is full or gone.
        """
        self.path = path
        self._table = table
        path.parent.mkdir(exist_ok=True)
        path.touch()
        os.truncate(path, offset)
        self.refitted = bool(table and offset) and self._refit()
        self._digest = running_digest(path)
        self._file = path.open("ab")
        self._written = path.stat().st_size
        if table and not offset:
            header = io.StringIO()
            table.write_header(header)
            self.append(header.getvalue())

    def _refit(self) -> bool:
        """Convert a table of another version to the columns of this one; returns whether it differed."""
        assert self._table is not None
        original = self.path.read_bytes().decode()
        text = io.StringIO(original, newline="")
        self._table.fit(text)
        if text.getvalue() == original:
            return False
        write_bytes(self.path, text.getvalue().encode())
        return True

    def append(self, text: str) -> None:
        """Append text; `flush` passes it to the system."""
        content = text.encode()
        self._file.write(content)
        self._digest.update(content)
        self._written += len(content)

    def append_rows(self, rows: Iterable[Any]) -> None:
        """Append row objects of its table."""
        assert self._table is not None
        text = io.StringIO()
        self._table.write(text, rows)
        self.append(text.getvalue())

    def flush(self) -> None:
        """Pass appended bytes to the system.

        Raises:
            OSError: the disk is full or gone, or another program has cut, replaced or extended the file.
        """
        self._file.flush()
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return  # reported when a checkpoint is written
        if size != self._written:
            raise foreign_change_error(self.path.name)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def size(self) -> int:
        """Bytes passed to the system."""
        return os.fstat(self._file.fileno()).st_size

    @property
    def sha256(self) -> str:
        """SHA-256 of the kept and all appended bytes."""
        return self._digest.hexdigest()


def foreign_change_error(name: str) -> OSError:
    """Error for a file with other content than this process has written.

    >>> foreign_change_error("clients.csv").strerror
    'another program has changed clients.csv'
    """
    return OSError(errno.ESTALE, f"another program has changed {name}")


def running_digest(path: Path, size: int | None = None) -> "hashlib._Hash":
    """Running SHA-256 of the first `size` bytes of a file; None for all.

    Raises:
        OSError: the file cannot be read.
    """
    digest = hashlib.sha256()
    remaining = path.stat().st_size if size is None else size
    with path.open("rb") as file:
        while remaining > 0 and (block := file.read(min(remaining, _BLOCK_BYTES))):
            digest.update(block)
            remaining -= len(block)
    return digest
