"""The command ``fedge certs``."""

import argparse
from pathlib import Path
from typing import Any

from fedge.config.option import ConfigError

_MOST = 10_000  # leaves or nodes; files are made one by one


def add_commands(commands: Any) -> None:
    """Add ``certs`` to the parsers of `fedge`."""
    certs = commands.add_parser("certs", help="make certificates and node keys for a trial of a deployment")
    certs.add_argument(
        "folder", nargs="?", type=Path, default=Path("certs"), help="where they go (default: certs)"
    )
    certs.add_argument(
        "--hosts",
        default="localhost,127.0.0.1",
        help="names and addresses of all servers, with commas between (default: localhost,127.0.0.1)",
    )
    certs.add_argument("--leaves", type=int, default=0, metavar="N", help="leaf servers (default: 0)")
    certs.add_argument("--nodes", type=int, default=0, metavar="N", help="SuperNodes (default: 0)")
    certs.add_argument("--days", type=int, default=30, help="for which they are valid (default: 30)")
    certs.set_defaults(command=_make)


def _make(options: argparse.Namespace) -> int:
    """Carry out ``fedge certs``."""
    for name, least, most in (("leaves", 0, _MOST), ("nodes", 0, _MOST), ("days", 1, 3650)):
        value = getattr(options, name)
        if not least <= value <= most:
            raise ConfigError(f"--{name} must be {least} to {most}, but is {value}")
    from fedge.link.certificates import Wanted, make_certificates  # loads cryptography

    hosts = tuple(host.strip() for host in options.hosts.split(",") if host.strip())
    written = make_certificates(options.folder, Wanted(hosts, options.leaves, options.nodes, options.days))
    for file in written:
        print(file)
    if not written:
        print(f"{options.folder} has all of them already")
    return 0
