"""``fedge doctor deployment``: state of a machine of a deployment, and the servers it reaches."""

import argparse
import ctypes
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

from cryptography import x509

from fedge.client.memory import own_folder
from fedge.config.registers.option import ConfigError
from fedge.doctor.findings import BROKEN, TRAP, WELL, Finding
from fedge.flower import flower_version
from fedge.link.certificate_checks import read_certificate, refuse_unusable
from fedge.link.certificates import AUTHORITY, CLOUD, is_client, name_needed
from fedge.link.reach import is_listening, refuse_other_authority
from fedge.process.versions import versions

NAME = "deployment"
_SOON_DAYS = 7
_LITTLE_MIB = 1024
_TESTED = (1, 25)  # may lose messages, and needs cryptography below 45
_UNSYNCHRONISED = 5  # TIME_ERROR of <sys/timex.h>
_TIMEX_BYTES = 512  # more than struct timex has anywhere


def deployment_findings(options: argparse.Namespace) -> Iterator[Finding]:
    """Findings on versions, clock, certificates, servers and folders of this machine.

    Args:
        options: `superlink`, `cloud` and `control` are addresses or None, `certs` is a folder.
    """
    yield version_findings()
    yield clock_findings()
    yield from certificate_findings(options.certs)
    yield from server_findings(options)
    yield from folder_findings((Path.cwd(),))
    yield from own_folder_findings("memory", lambda: own_folder({}))
    yield from own_folder_findings("temporary files", lambda: Path(tempfile.gettempdir()))


def version_findings() -> Finding:
    """Versions, which must agree on all machines; a newer Flower than the tested one is advised."""
    installed = versions()
    words = ", ".join(
        f"{name} {installed[name]}" for name in ("fedge", "flwr", "torch", "numpy") if name in installed
    )
    words += f", Python {sys.version.split()[0]}, cryptography {version('cryptography')}"
    if flower_version() <= _TESTED:
        return Finding("versions", TRAP, f"{words}; use a newer Flower for deployments (flower-versions.md)")
    return Finding("versions", WELL, f"{words}; they must be the same on all machines")


def clock_findings() -> Finding:
    """Whether this machine's clock is synchronised, as certificates have a validity period."""
    now = f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    state = _clock_state()
    if state == _UNSYNCHRONISED:
        return Finding("clock", TRAP, f"{now}, not synchronised; check it, or start an NTP service")
    description = (
        "synchronised" if state is not None else "the system does not report whether it is synchronised"
    )
    return Finding("clock", WELL, f"{now}, {description}")


def _clock_state() -> int | None:
    """The kernel's state of its clock; None if unknown."""
    with suppress(OSError, AttributeError, TypeError):
        state = int(ctypes.CDLL(None).ntp_adjtime(ctypes.create_string_buffer(_TIMEX_BYTES)))
        return None if state < 0 else state
    return None


def certificate_findings(folder: Path) -> Iterator[Finding]:
    """Certificates and keys of a folder: their validity, and whether this account can read them."""
    authority = folder / f"{AUTHORITY}.crt"
    if not authority.is_file():
        yield Finding(
            "certificates", BROKEN, f"{authority} does not exist; fedge certs creates one for trials"
        )
        return
    for file in sorted(folder.glob("*.crt")):
        yield _check_certificate(file, authority)
    for key in sorted(
        [*folder.glob("*.key"), *(public_key.with_suffix("") for public_key in folder.glob("node-*.pub"))]
    ):
        if key.name == f"{AUTHORITY}.key":
            words = "the authority's key is here; only the machine that creates certificates needs it"
            yield Finding(key.name, TRAP, words)
        elif key.exists() and not os.access(key, os.R_OK):
            words = f"not readable by this account; chown it to the account that starts fedge ({os.getuid()})"
            yield Finding(key.name, BROKEN, words)


def _check_certificate(file: Path, authority: Path) -> Finding:
    """Validity of a certificate, and whether it fits its key, if present, and its authority."""
    try:
        validity = _validity(read_certificate(file))
        key = file.with_suffix(".key")
        if validity[0] != BROKEN and file != authority and os.path.lexists(key):
            refuse_unusable(file, key, authority, name_needed(file.stem), is_client(file.stem))
    except ConfigError as error:
        return Finding(file.name, BROKEN, str(error))
    return Finding(file.name, *validity)


def _validity(certificate: x509.Certificate) -> tuple[str, str]:
    """State of a certificate's validity period, in words."""
    now, first, last = (
        datetime.now(timezone.utc),
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
    )
    until = f"until {last:%Y-%m-%d}"
    if now < first:
        return BROKEN, f"not valid before {first:%Y-%m-%d %H:%M} UTC; correct this machine's clock"
    if now > last:
        return BROKEN, f"valid {until}, now expired; renew it: fedge certs"
    days = (last - now).days
    return (TRAP if days < _SOON_DAYS else WELL), f"valid {until}, {days} days"


def server_findings(options: argparse.Namespace) -> Iterator[Finding]:
    """Servers to be reached from this machine, with the names their certificates must have."""
    authority = options.certs / f"{AUTHORITY}.crt"
    for name, address, known_as in (
        ("--superlink", options.superlink, ""),
        ("--cloud", options.cloud, CLOUD),
    ):
        if address is not None:
            yield _check_server(name, address, authority, known_as)
    if options.control is not None:
        is_up = is_listening("--control", options.control)
        words = "answers" if is_up else "does not answer; start fedge superlink on this machine"
        yield Finding("--control", WELL if is_up else BROKEN, f"{options.control}: {words}")


def _check_server(name: str, address: str, authority: Path, known_as: str) -> Finding:
    """Whether a TLS server answers, with the right certificate."""
    try:
        is_up = refuse_other_authority(name, address, authority, known_as)
    except ConfigError as error:
        return Finding(name, BROKEN, str(error))
    if not is_up:
        words = "does not answer; check that it is started, its name, and the firewall"
        return Finding(name, BROKEN, f"{address}: {words}")
    return Finding(name, WELL, f"{address} answers, certified by {authority}")


def own_folder_findings(name: str, find: Callable[[], Path]) -> Iterator[Finding]:
    """A folder of this account, which may have none; `name` tells its purpose."""
    try:
        yield from folder_findings((find(),))
    except (ConfigError, OSError) as error:
        yield Finding(name, BROKEN, str(error))


def folder_findings(places: tuple[Path, ...]) -> Iterator[Finding]:
    """Folders in which a server or node writes: permission and free space."""
    for place in places:
        existing = next(path for path in (place, *place.parents) if path.exists())
        if not os.access(existing, os.W_OK | os.X_OK):
            words = f"not writable by account {os.getuid()}; chown it, or mount it with that owner"
            yield Finding(str(place), BROKEN, words)
            continue
        free = shutil.disk_usage(existing).free / 2**20
        words = f"writable, {free:,.0f} MiB free"
        yield Finding(str(place), TRAP if free < _LITTLE_MIB else WELL, words)
