"""Fetch HHAR's archive over https, resuming an interrupted download.

Pooch is not used: it restarts a broken download from the beginning, and 822 MB over a slow line is where
resuming matters. Arriving bytes go to `NAME.part`; the file's entity tag, kept in `NAME.part.etag`, lets the
server decide whether the rest still belongs to the same file. The SHA-256 is checked when one is given and
always written beside the archive as `NAME.sha256`, in the form read by `sha256sum -c`.
"""

from __future__ import annotations

import errno
import http.client
import ipaddress
import os
import re
import socket
import stat
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from hhar.errors import HharError
from hhar.progress import ProgressCallback, no_progress
from hhar.windows.window_file import fingerprint

if sys.platform != "win32":
    import fcntl

UCI_URL = "https://archive.ics.uci.edu/static/public/344/heterogeneity+activity+recognition.zip"
BLOCK_BYTES = 1 << 20
LOCK = ".downloading"  # file in a download folder
_OFFSET = r"[0-9]{1,18}"
_LONGEST_TAG = 1000  # characters
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EISDIR, errno.EFBIG)


def download(
    url: str,
    target: str | Path,
    *,
    sha256: str | None = None,
    timeout_s: float = 60.0,
    report: ProgressCallback = no_progress,
) -> str:
    """Fetch `url` to the file `target`, unless a file with the right checksum is there already.

    Args:
        url: https; http is allowed for a loopback address only.
        target: created only when complete and checked.
        sha256: expected checksum, 64 hex digits, or None to trust https and record the file's own.
        timeout_s: longest silence of the server, in seconds.
        report: called with the bytes received.

    Returns:
        The SHA-256 of the file in hex.

    Raises:
        HharError: the address is refused, the server fails, or the checksum differs. After a broken
            connection the partial file stays and the same call resumes.
    """
    check_url(url)
    expected = _check_sha256(sha256)
    path = Path(target)
    _refuse_link(_checksum_file(path))
    if path.is_file():
        return _check_existing_file(path, expected)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    for file in (path, part, _tag_file(part), _checksum_file(path)):
        _refuse_link(file)
    _receive(url, part, timeout_s, report)
    actual = fingerprint(part)
    if expected is not None and actual != expected:
        _remove_partial(part)
        raise HharError(
            f"{url}: sha256 must be {expected}, but is {actual}; the download was removed; check the address "
            "or the checksum"
        )
    os.replace(part, path)
    _remove_partial(part)
    _write_text(_checksum_file(path), f"{actual}  {path.name}\n")
    return actual


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold a folder's lock, so no two downloads write the same partial file.

    Raises:
        HharError: another process holds it, or its path is not a regular file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _open_for_writing(folder / LOCK, keep=True) as lock:
        try:
            if sys.platform != "win32":
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise HharError(
                f"{folder}: another process is downloading into it; wait for it to end, or choose another "
                "folder with --to"
            ) from error
        yield


def check_url(url: str) -> None:
    """Raise `HharError` unless `url` is a complete https address, or http to a loopback address."""
    try:
        parts = urllib.parse.urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise HharError(
            f"url: must be an https address, but is {url[:200]!r} ({error}); correct it"
        ) from error
    if not url.isascii() or any(c.isspace() or not c.isprintable() for c in url):
        raise HharError(
            f"url: must consist of ASCII characters without spaces, but is {url[:200]!a}; write others as %XX"
        )
    if host and (parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))):
        return
    raise HharError(
        f"url: must begin with https://, but is {url[:200]!r}; use the https address of the archive"
    )


class _CheckedRedirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect only to an address accepted by `check_url`."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        check_url(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _receive(url: str, part: Path, timeout_s: float, report: ProgressCallback) -> None:
    """Append the missing bytes of `url` to `part`."""
    opener = urllib.request.build_opener(_CheckedRedirects)
    tag = _read_tag(part)
    received = part.stat().st_size if part.is_file() and tag else 0
    headers = {"User-Agent": "hhar", "Accept-Encoding": "identity"}
    if received and tag:
        headers |= {"Range": f"bytes={received}-", "If-Range": tag}
    try:
        with opener.open(urllib.request.Request(url, headers=headers), timeout=timeout_s) as reply:
            received, total = _start_and_total(reply, received, url)
            _write_tag(part, reply)
            _copy(reply, part, received, total, url, report)
    except HharError:
        raise
    except urllib.error.HTTPError as error:
        if error.code == 416 and received:  # nothing is left to send, or the partial file is too long
            size = re.fullmatch(rf"bytes \*/({_OFFSET})", error.headers.get("Content-Range", ""))
            if size and int(size[1]) == received:
                return
            _remove_partial(part)
        raise HharError(
            f"{url}: server must send the file, but answers {error.code} {_excerpt(error.reason)}; retry or "
            "use --url"
        ) from error
    except (ValueError, http.client.InvalidURL) as error:  # an address, of a redirect too, or an odd answer
        raise HharError(
            f"{url}: address and answer must be valid HTTP ({_excerpt(error)}); correct the address or use "
            "another --url"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        if getattr(error, "errno", None) in _OF_THE_DISK:  # the bytes received stay in this case, too
            raise
        reason = getattr(error, "reason", error)
        if isinstance(reason, socket.gaierror):
            raise HharError(
                f"{url}: server cannot be reached ({reason.strerror or reason}); without a network, download "
                f"the file elsewhere and copy it to {part.with_name(part.name.removesuffix('.part'))}"
            ) from error
        raise HharError(
            f"{url}: download interrupted ({_excerpt(reason)}); run the same command again to resume"
        ) from error


def _start_and_total(reply: Any, received: int, url: str) -> tuple[int, int]:
    """Offset of the reply's first byte, and the size of the whole file (0: unknown)."""
    length = _content_length(reply.headers.get_all("Content-Length") or [], url)
    if reply.status not in (200, 206):
        raise HharError(f"{url}: server must send the file, but answers {reply.status}; use another --url")
    if reply.status == 200:
        return 0, length
    content_range = reply.headers.get("Content-Range", "")
    answer = re.fullmatch(rf"bytes ({_OFFSET})-{_OFFSET}/({_OFFSET}|\*)", content_range)
    if not answer or int(answer[1]) != received:
        raise HharError(
            f"{url}: server must send bytes from {received} on, but sends {_excerpt(content_range)!a}; use "
            "another --url, or delete the .part file"
        )
    return received, received + length


def _content_length(values: Sequence[str], url: str) -> int:
    """Content length stated by a server; 0 if none is stated.

    Raises:
        HharError: the stated length is not a number of bytes, or is stated twice.
    """
    stated = {text.strip() for text in values} - {""}
    if not stated:
        return 0
    if len(stated) > 1 or not re.fullmatch(_OFFSET, min(stated)):
        raise HharError(
            f"{url}: server must state the length in bytes, but states {_excerpt(', '.join(stated))!a}; use "
            "another --url"
        )
    return int(min(stated))


def _excerpt(text: object) -> str:
    """Beginning of text possibly chosen by a server."""
    return str(text)[:200]


def _copy(reply: Any, part: Path, received: int, total: int, url: str, report: ProgressCallback) -> None:
    with _open_for_writing(part, keep=bool(received)) as stream:
        if received:
            stream.seek(received)
            stream.truncate()
        while block := reply.read(BLOCK_BYTES):
            stream.write(block)
            received += len(block)
            report("downloading", received, total)
    if not received:
        raise HharError(f"{url}: server must send the file, but sends nothing; retry or use another --url")
    if total and received != total:
        raise HharError(
            f"{url}: download interrupted at {received} of {total} bytes; run the same command again to "
            "resume"
        )


def _check_existing_file(path: Path, expected: str | None) -> str:
    """Check an existing file against the given or the recorded checksum; return its checksum."""
    checksum = fingerprint(path)
    record = _checksum_file(path)
    if expected is None and record.is_file():
        expected = _recorded_checksum(record)
    if expected is not None and checksum != expected:
        raise HharError(
            f"{path}: sha256 must be {expected}, but is {checksum}; delete the file to download it again"
        )
    _write_text(record, f"{checksum}  {path.name}\n")
    return checksum


def _recorded_checksum(record: Path) -> str | None:
    """Checksum in a file of `sha256sum`'s form; None if the file is empty."""
    fields = _read_start(record).split()
    if fields and not re.fullmatch(r"[0-9a-f]{64}", fields[0]):
        raise HharError(
            f"{record}: must begin with a sha256, but begins with {fields[0][:80]!a}; delete the file"
        )
    return fields[0] if fields else None


def _check_sha256(sha256: str | None) -> str | None:
    if sha256 is None:
        return None
    text = sha256.strip().lower()
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise HharError(
            f"sha256: must be 64 hex digits, but is {sha256[:80]!r}; copy the whole checksum or omit it"
        )
    return text


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _checksum_file(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _tag_file(part: Path) -> Path:
    return part.with_name(part.name + ".etag")


def _read_tag(part: Path) -> str | None:
    """Recorded tag of a partial file; None without one fit for a request."""
    tag = _read_start(_tag_file(part)) if _tag_file(part).is_file() else ""
    return tag if _is_sendable(tag) else None


def _write_tag(part: Path, reply: Any) -> None:
    """Record this version of the file: its strong entity tag, else its time of last change."""
    tag = reply.headers.get("ETag") or ""
    if not tag.startswith('"'):
        tag = reply.headers.get("Last-Modified") or ""
    if _is_sendable(tag):
        _write_text(_tag_file(part), tag)
    else:
        _tag_file(part).unlink(missing_ok=True)


def _is_sendable(tag: str) -> bool:
    return 0 < len(tag) <= _LONGEST_TAG and tag.isascii() and tag.isprintable()


def _read_start(path: Path) -> str:
    """First characters of a small text file, whatever it holds."""
    with path.open("rb") as stream:
        return stream.read(2 * _LONGEST_TAG).decode(errors="replace")


def _refuse_link(path: Path) -> None:
    """Raise `HharError` if the path is a link or otherwise no file: writing would follow the link."""
    if path.is_symlink() or (path.exists() and not _is_sole_regular_file(path.stat())):
        raise _irregular_file_error(path)


def _is_sole_regular_file(status: os.stat_result) -> bool:
    """True for a regular file without a second name."""
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def _irregular_file_error(path: Path) -> HharError:
    return HharError(f"{path}: must be a regular file or absent, but is a link or something else; remove it")


def _open_for_writing(path: Path, keep: bool) -> IO[bytes]:
    """Open a file for writing, never through a link; its content is kept (`keep`) or removed."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):
            raise _irregular_file_error(path) from error
        raise
    if not _is_sole_regular_file(os.fstat(descriptor)):
        os.close(descriptor)
        raise _irregular_file_error(path)
    if not keep:
        os.ftruncate(descriptor, 0)
    return os.fdopen(descriptor, "r+b")


def _write_text(path: Path, text: str) -> None:
    """Write a small text file, never through a link."""
    with _open_for_writing(path, keep=False) as stream:
        stream.write(text.encode())


def _remove_partial(part: Path) -> None:
    part.unlink(missing_ok=True)
    _tag_file(part).unlink(missing_ok=True)
