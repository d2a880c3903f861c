"""The command ``fedge certs``: certificates and node keys of a deployment, made or revoked."""

import argparse
from pathlib import Path
from typing import Any

from fedge.config.registers.option import ConfigError, shown
from fedge.config.tree import require_server_path

_MOST_FILES = 10_000  # leaves or nodes; files are created one by one


def add_commands(commands: Any) -> None:
    """Add ``certs`` to the parsers of `fedge`."""
    certs = commands.add_parser("certs", help="make certificates and node keys for a trial of a deployment")
    certs.add_argument(
        "folder", nargs="?", type=Path, default=Path("certs"), help="folder to write (default: certs)"
    )
    certs.add_argument(
        "--hosts",
        action="append",
        default=[],
        metavar="ROLE=HOST,…",
        help="names and addresses of one server: superlink, cloud, leaf-0, …; repeatable (its own machine "
        "reaches each by localhost and 127.0.0.1 anyway)",
    )
    certs.add_argument("--leaves", type=int, default=0, metavar="N", help="leaf servers (default: 0)")
    certs.add_argument(
        "--at", default="", metavar="PATH,…",
        help="servers over leaves that are one process with all leaves below (fedge leaf --at), as 0,1.0",
    )  # fmt: skip
    certs.add_argument("--nodes", type=int, default=0, metavar="N", help="SuperNodes (default: 0)")
    certs.add_argument("--days", type=int, default=30, help="days of validity (default: 30)")
    certs.add_argument(
        "--revoke",
        action="append",
        default=[],
        metavar="NAME",
        help="revoke leaf-0, cloud, node-3, …",
    )
    certs.set_defaults(command=_run_certs)


def _run_certs(options: argparse.Namespace) -> int:
    """Carry out ``fedge certs``."""
    for name, least, most in (("leaves", 0, _MOST_FILES), ("nodes", 0, _MOST_FILES), ("days", 1, 3650)):
        value = getattr(options, name)
        if not least <= value <= most:
            raise ConfigError(f"--{name} must be {least} to {most}, but is {value}; change it")
    from fedge.link.certificates import CertificateRequest, make_certificates, revoke  # loads cryptography

    if options.revoke:
        _refuse_making(options)
        for name in revoke(options.folder, options.revoke):
            print(f"{name} is revoked; {_step_after(name)}; fedge certs without --revoke makes a new one")
        return 0
    hosts = _parse_hosts(options.hosts)
    paths = [path.strip() for path in options.at.split(",")] if options.at else []
    if len(paths) > _MOST_FILES:
        raise ConfigError(f"--at must name at most {_MOST_FILES} servers, but names {len(paths)}")
    for path in paths:
        require_server_path(path, "--at")
    request = CertificateRequest(hosts, options.leaves, options.nodes, options.days, paths)
    written = make_certificates(options.folder, request)
    for file in written:
        print(file)
    if not written:
        print(f"{options.folder} already has all of them")
    return 0


def _step_after(name: str) -> str:
    """Next step after a revocation; nodes' keys are on no list."""
    if name.startswith("node-"):
        return "delete its public key at the SuperLink, and start that again"
    return "copy revoked.pem beside the cloud's ca.crt"


def _refuse_making(options: argparse.Namespace) -> None:
    """Raise ConfigError for an option of new files beside ``--revoke``, which makes none."""
    given = [name for name in ("hosts", "leaves", "at", "nodes") if getattr(options, name)]
    if given:
        raise ConfigError(
            f"--revoke must be given alone, but --{given[0]} is given as well; repeat the command without "
            f"--revoke afterwards, which makes new files"
        )


def _parse_hosts(arguments: list[str]) -> dict[str, list[str]]:
    """Role → hosts, from arguments such as cloud=cloud.example,10.0.0.1."""
    hosts_by_role: dict[str, list[str]] = {}
    for text in arguments:
        role, sign, hosts = text.partition("=")
        if not sign:
            raise ConfigError(
                f"--hosts must begin with a role, e.g. cloud={text} or superlink={text}, but is "
                f"{shown(text)}; each server's certificate names only its own hosts"
            )
        hosts_by_role.setdefault(role.strip(), []).extend(
            host.strip() for host in hosts.split(",") if host.strip()
        )
    return hosts_by_role
