"""Versions on which results depend besides configuration and data: packages and Fedge's own code."""

import hashlib
import os
import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version

_PACKAGES = ("fedge", "flwr", "ray", "torch", "numpy", "scipy", "safetensors")


def versions() -> dict[str, str]:
    """Versions of Python, of the packages that results depend on, and of Fedge's code."""
    return dict(_at_first_sight())


@cache
def _at_first_sight() -> dict[str, str]:
    """Versions at the first call; later changes on disk do not affect this process."""
    found = {"python": sys.version.split()[0]}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return {**found, "fedge-code": _code_version()}


def _code_version() -> str:
    """First digits of a SHA-256 over Fedge's source, because one version number covers many edits."""
    digest = hashlib.sha256()
    package = os.path.dirname(os.path.dirname(__file__))  # strings: `Path` is slower than hashing
    files = (os.path.join(at, name) for at, _, names in os.walk(package) for name in names)
    for path in sorted(path for path in files if path.endswith(".py")):
        with open(path, "rb") as file:
            digest.update(path[len(package) :].encode() + b"\0" + file.read())
    return digest.hexdigest()[:12]
