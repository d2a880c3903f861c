"""The command ``fedge node``: a client of a deployment, with short options."""

import argparse
import os
import shlex
from pathlib import Path
from typing import Any

from fedge.config.registers.option import ConfigError, shown
from fedge.flower import refuse_untested_flower

_KEYS = ("data_folder", "own_data", "data")  # keys of a SuperNode's configuration; options have dashes


def add_node(commands: Any) -> None:
    """Add ``fedge node``."""
    parser = commands.add_parser(
        "node", help="run a client of a deployment: a SuperNode without a new Python start per message"
    )
    parser.add_argument("partition", type=int, help="number of this client: 0, 1, …")
    parser.add_argument("--of", type=int, required=True, metavar="N", help="clients of the run")
    parser.add_argument("--superlink", required=True, metavar="HOST:PORT", help="address for its SuperNodes")
    parser.add_argument(
        "--certs",
        type=Path,
        default=Path("certs"),
        help="folder with ca.crt and, for nodes with keys, node-N (default: certs)",
    )
    windows = parser.add_mutually_exclusive_group(required=True)
    windows.add_argument("--data-folder", type=Path, help="its windows: its folder from fedge deal")
    windows.add_argument("--own-data", type=Path, help="its windows: its own window file")
    windows.add_argument("--data", help="its windows: its share of a data set on every machine")
    parser.add_argument(
        "--supernode",
        default="",
        metavar="WORDS",
        help='for flower-supernode, as --supernode="--max-retries 10"; --insecure there: no TLS',
    )
    parser.set_defaults(command=_serve, needs_room=True)


def _serve(options: argparse.Namespace) -> int:
    """Carry out ``fedge node``."""
    refuse_untested_flower()
    if not 0 <= options.partition < options.of:
        raise ConfigError(
            f"the client's number must be 0 to {options.of - 1} with --of {options.of}, but is "
            f"{options.partition}"
        )
    arguments = [*node_arguments(options), *shlex.split(options.supernode)]
    if "--isolation" in options.supernode:
        raise ConfigError(
            "--isolation is for flower-supernode by itself, because fedge node starts ClientApps; remove it"
        )
    if "--insecure" not in arguments:
        arguments += _tls_arguments(options)
    from fedge.launch.nodes.node import serve_node

    return serve_node(arguments, options.owns_process)


def node_arguments(options: argparse.Namespace) -> list[str]:
    """Arguments of flower-supernode: SuperLink, partition and windows."""
    ((key, location),) = [(key, getattr(options, key)) for key in _KEYS if getattr(options, key) is not None]
    if key != "data" or os.path.exists(location):
        location = Path(location).absolute()
        if not location.exists():
            raise ConfigError(
                f"--{key.replace('_', '-')} must exist, but {location} does not; check the path"
            )
    if '"' in str(location):
        raise ConfigError(
            f"the path of windows must not contain quotation marks, but is {shown(str(location))}; rename it"
        )
    config = (
        f'partition-id={options.partition} num-partitions={options.of} {key.replace("_", "-")}="{location}"'
    )
    return ["--superlink", options.superlink, "--node-config", config]


def _tls_arguments(options: argparse.Namespace) -> list[str]:
    """Arguments of flower-supernode for TLS and key; refuses a SuperLink of another authority."""
    from fedge.link.certificate_checks import refuse_unusable_node_key
    from fedge.link.reach import fault_of_reaching, refuse_other_authority

    authority, key = options.certs / "ca.crt", options.certs / f"node-{options.partition}"
    if not authority.exists():
        raise ConfigError(
            f"--certs must have ca.crt, but {authority} is missing; create it: "
            f"fedge certs {shlex.quote(str(options.certs))}"
        )
    if not refuse_other_authority("--superlink", options.superlink, authority):
        reason = fault_of_reaching("--superlink", options.superlink) or "no answer"
        print(f"no SuperLink at {options.superlink} yet ({reason}); the node keeps trying", flush=True)
    if key.exists():
        refuse_unusable_node_key(key)
    keys = ["--auth-supernode-private-key", str(key)] if key.exists() else []
    return ["--root-certificates", str(authority), *keys]
