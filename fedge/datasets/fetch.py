"""Download of a data set's files over https, with checks and unpacking.

`hhar.raw.download` transfers files: resumable parts, checksums, redirects within https. This module lets only
one process at a time download into a folder, unpacks archives, and tells users without a network the next
step.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedge.datasets.archives import is_archive, unpack
from fedge.datasets.cards import DataCard, RemoteFile
from hhar.errors import HharError
from hhar.progress import ProgressCallback, no_progress
from hhar.raw.download import alone_in
from hhar.raw.download import download as download_file

RAW = Path("data/raw")  # folder of all data sets' files, unless told otherwise


def download(
    card: DataCard,
    folder: Path | None = None,
    *,
    url: str = "",
    sha256: str = "",
    keep_packed: bool = False,
    report: ProgressCallback = no_progress,
) -> list[tuple[Path, str]]:
    """Download a data set's files into a folder and unpack archives there.

    Args:
        card: of the data set.
        folder: made if absent; by default data/raw/NAME.
        url: in place of the card's address, for a data set of one file: a mirror.
        sha256: required checksum in place of the card's.
        keep_packed: leave archives as they are.
        report: called with the number of bytes.

    Returns:
        Every downloaded file with its sha256.

    Raises:
        HharError: an address is refused, the server fails, a checksum differs, an archive is damaged, or
            another process downloads into the folder.
    """
    target = folder or RAW / card.name
    files = _with_override(card, url, sha256)
    fetched = []
    with alone_in(target):
        for file in files:
            path = target / file.name
            fetched.append((path, download_file(file.url, path, sha256=file.sha256 or None, report=report)))
            if is_archive(path) and not keep_packed:
                unpack(path, target, report)
    return fetched


def _with_override(card: DataCard, url: str, sha256: str) -> tuple[RemoteFile, ...]:
    """The files of a card, with another address or checksum for its only one."""
    if not (url or sha256):
        return card.files
    if len(card.files) != 1:
        raise HharError(
            f"{card.name}: must be one file for --url and --sha256, is {len(card.files)}; fetch them by hand "
            "and give their folder to prepare"
        )
    # another address is another file, unless the checksum is equal
    file = card.files[0]
    return (replace(file, url=url or file.url, sha256=sha256 or file.sha256),)
