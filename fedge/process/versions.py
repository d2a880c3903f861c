"""Versions on which results depend besides configuration and data: packages and Fedge's own code."""

import hashlib
import os
import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version

_PACKAGES = ("fedge", "flwr", "ray", "torch", "numpy", "scipy", "safetensors")


def versions() -> dict[str, str]:
    """Versions of Python, of the packages behind results, and of Fedge's code."""
    return dict(_versions_at_first_call())


@cache
def _versions_at_first_call() -> dict[str, str]:
    """Versions at the first call; later changes on disk do not affect this process."""
    versions = {"python": sys.version.split()[0]}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return {**versions, "fedge-code": _code_version()}


def _code_version() -> str:
    """First digits of a SHA-256 over Fedge's source, because one version number covers many edits."""
    digest = hashlib.sha256()
    package = os.path.dirname(os.path.dirname(__file__))  # strings: `Path` is slower than hashing
    files = (os.path.join(folder, name) for folder, _, names in os.walk(package) for name in names)
    for path in sorted(path for path in files if path.endswith(".py")):
        with open(path, "rb") as file:
            digest.update(path[len(package) :].encode() + b"\0" + file.read())
    return digest.hexdigest()[:12]
