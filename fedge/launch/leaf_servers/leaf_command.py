"""The command ``fedge leaf``, and the options of ``fedge run`` for leaf servers as processes."""

import argparse
from itertools import pairwise
from pathlib import Path
from typing import Any

from fedge.config.registers.engines import engine_kind
from fedge.config.registers.option import ConfigError, shown
from fedge.config.tree import require_server_path
from fedge.flower import refuse_untested_flower
from fedge.link.reach import host_and_port
from fedge.records.private_file import resume_words_of

_CERTS = Path("certs")


def add_leaf(commands: Any) -> None:
    """Add ``fedge leaf``."""
    parser = commands.add_parser("leaf", help="run a separate leaf server, which connects to the cloud")
    parser.add_argument("leaf", type=int, nargs="?", help="number of this leaf server: 0, 1, …")
    parser.add_argument(
        "--at", metavar="PATH",
        help="in a deeper tree: be all leaf servers below the server of this path (1, 1.0, …) in one process",
    )  # fmt: skip
    parser.add_argument("--cloud", required=True, metavar="HOST:PORT", help="address of `fedge run --leaves`")
    _add_certs(parser)
    parser.add_argument(
        "--nodes",
        metavar="HOST:PORT",
        help="SuperNodes (fedge node) with their own windows as clients; listen here for them",
    )
    parser.add_argument("--keys", metavar="N-M", help="with --nodes: admitted keys, as 0-4,7 (default: all)")
    parser.add_argument(
        "--data", default="", metavar="FILE",
        help="window file to read if the cloud's data.path names one (default: none)",
    )  # fmt: skip
    parser.add_argument("--folder", type=Path, help="folder of its state (default: leaf-N, server-PATH)")
    parser.add_argument("--workers", type=int, help="clients in training at a time (default: cores, or GPUs)")
    parser.add_argument("--once", action="store_true", help="end with the first run; default: wait for more")
    parser.add_argument(
        "--wait", type=float, metavar="SECONDS", help="end when the cloud stays away (default: never)"
    )
    parser.add_argument(
        "--trust-code", action="store_true",
        help="trust, from now on, code of your own project or of packages named in the cloud's options",
    )  # fmt: skip
    parser.set_defaults(command=_serve, needs_room=True)


def add_leaves(parser: argparse.ArgumentParser) -> None:
    """Add the options to make a run the cloud of leaf servers in separate processes."""
    parser.add_argument(
        "--leaves",
        metavar="HOST:PORT",
        help="listen here for leaf servers (fedge leaf) with the clients",
    )
    parser.add_argument(
        "--owners", action="store_true", help="with --leaves: clients own their windows (fedge leaf --nodes)"
    )
    _add_certs(parser)


def restore_leaves(options: argparse.Namespace, folder: Path) -> None:
    """Fill in the options for leaf servers as given when the run in `folder` last began, unless given now."""
    words, directory = resume_words_of(folder)
    values = dict(pairwise(words))
    if options.leaves or "--leaves" not in values:
        return
    options.leaves, options.owners = values["--leaves"], options.owners or "--owners" in words
    if options.certs == _CERTS and "--certs" in values:
        options.certs = directory / values["--certs"]


def _add_certs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--certs", type=Path, default=_CERTS, help="folder of `fedge certs` (default: certs)")


def refuse_with_leaves(
    address: str, engine: str, workers: int | None, client_app: str, fedge_app: str
) -> None:
    """Raise ConfigError if the address is invalid, or an option has no effect with leaf servers.

    Args:
        address: value of --leaves.
        engine, workers: values given on the command line.
        client_app: ClientApp of the project.
        fedge_app: Fedge's ClientApp, which leaf servers start.
    """
    if engine_kind(engine).on_ray:
        raise ConfigError(
            "--leaves and --engine flower exclude each other: leaf servers have the clients; remove one"
        )
    if address.isdecimal():
        raise ConfigError(
            f"--leaves is the address at which separate leaf servers connect, but is {shown(address)}; "
            f"for a number of leaf servers use -c 'hierarchy.num-servers={address}'"
        )
    host_and_port("--leaves", address, least=0)
    if workers is not None:
        raise ConfigError(
            "--workers belongs to fedge leaf where --leaves is given, because leaf servers have the clients"
        )
    if client_app != fedge_app:
        raise ConfigError(f"--leaves needs clientapp {fedge_app}, but the project names {client_app}")


def _serve(options: argparse.Namespace) -> int:
    """Carry out ``fedge leaf``."""
    refuse_untested_flower()
    if (options.leaf is None) == (options.at is None):
        raise ConfigError(
            "fedge leaf needs the number of the leaf server, e.g. fedge leaf 0, or the path of a server "
            "whose leaves it is to run, e.g. fedge leaf --at 1"
        )
    if options.at is not None:
        require_server_path(options.at, "--at")
        if options.nodes:
            raise ConfigError(
                "--at needs clients that are threads, because a SuperLink has the nodes of one leaf server; "
                "with --nodes, start one fedge leaf for each"
            )
    elif options.leaf < 0:
        raise ConfigError(f"the number of a leaf server must be 0 or more, but is {options.leaf}")
    if options.workers is not None and options.workers < 1:
        raise ConfigError(f"--workers must be at least 1, but is {options.workers}; omit it for one per core")
    if options.wait is not None and not options.wait > 0:
        raise ConfigError(f"--wait must be above 0 seconds, but is {options.wait:g}; omit it to wait forever")
    if options.keys is not None and not options.nodes:
        raise ConfigError("--keys is for SuperNodes, which need --nodes; remove it")
    if options.nodes:
        for value, name in ((options.workers is not None, "--workers"), (options.data, "--data")):
            if value:
                raise ConfigError(f"{name} is for clients that are threads; remove it, or --nodes")
        from fedge.launch.leaf_servers.leaf_nodes import serve_leaf_of_nodes

        return serve_leaf_of_nodes(options)
    if options.at is not None:
        from fedge.launch.leaf_servers.subtree import serve_subtree  # loads torch

        return serve_subtree(options)
    from fedge.launch.leaf_servers.leaf import serve_leaf  # loads torch

    return serve_leaf(options)
