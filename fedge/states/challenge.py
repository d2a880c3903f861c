"""Proof that a client has access to a folder of the server: it must read a secret in the folder.

The server names a file written for this purpose alone. The client opens a file only if it has the name of a
challenge, and answers only if it is a regular file of a challenge's size; so nobody can learn about other
files by such requests.
"""

import hashlib
import os
import re
import secrets
from pathlib import Path

_NAME = re.compile(r"challenge-[0-9a-f]{32}")
_BYTES = 32
_process_challenges: set[str] = set()


def write_challenge(folder: Path) -> str:
    """Write a new secret into a folder; returns the path of the file.

    Raises:
        OSError: the folder cannot be written to.
    """
    path = folder / f"challenge-{secrets.token_hex(16)}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(secrets.token_bytes(_BYTES))
    return str(path)


def challenge_of_process() -> str:
    """Make a challenge answerable by clients in this process only; returns its name."""
    name = f"challenge-{secrets.token_hex(16)}"
    _process_challenges.add(name)
    return name


def answer_to(challenge: str) -> str:
    """Answer to a challenge, as a hash in hex; empty for other files, and those not seen here.

    The folder must be writable as well: a client's trained model goes there.
    """
    path = Path(challenge)
    if not _NAME.fullmatch(path.name):
        return ""
    if challenge in _process_challenges:
        return _hash_of(challenge.encode())
    if not path.is_absolute():
        return ""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with open(descriptor, "rb") as file:
            secret = file.read(_BYTES + 1)
    except (OSError, ValueError):
        return ""
    if len(secret) != _BYTES or not os.access(path.parent, os.W_OK):
        return ""
    return _hash_of(secret)


def _hash_of(secret: bytes) -> str:
    return hashlib.sha256(b"fedge: seen " + secret).hexdigest()
