"""The command ``fedge superlink``: a SuperLink reachable from other machines only by SuperNodes."""

import argparse
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedge.config.registers.option import ConfigError
from fedge.flower import refuse_untested_flower
from fedge.process.endings import exits

if TYPE_CHECKING:
    from fedge.launch.flower_runs.fleet import SuperLink

_LOOK_S = 2.0  # seconds between checks for new keys and of the process
_NAME = "fedge"  # name of the SuperLink in Flower's commands
_LOOPBACK = ("127.0.0.1", "localhost")


def add_superlink(commands: Any) -> None:
    """Add ``fedge superlink``."""
    parser = commands.add_parser(
        "superlink", help="run the server of a deployment: Flower's SuperLink, open to its SuperNodes only"
    )
    parser.add_argument(
        "--nodes",
        default="0.0.0.0:9092",
        metavar="HOST:PORT",
        help="address for SuperNodes (fedge node) (default: 0.0.0.0:9092)",
    )
    parser.add_argument(
        "--control",
        default="127.0.0.1:9093",
        metavar="HOST:PORT",
        help="address for fedge run of this account on this machine (default: 127.0.0.1:9093)",
    )
    parser.add_argument(
        "--certs", type=Path, default=Path("certs"),
        help="folder of fedge certs, with ca.crt, superlink.crt, superlink.key, node-N.pub (default: certs)",
    )  # fmt: skip
    parser.add_argument("--keys", metavar="N-M", help="admitted keys, as 0-4,7 (default: all in --certs)")
    parser.add_argument(
        "--folder", type=Path, default=Path("superlink"),
        help="folder of its database, its log and Flower's state (default: superlink)",
    )  # fmt: skip
    parser.set_defaults(command=_serve)


def _serve(options: argparse.Namespace) -> int:
    """Carry out ``fedge superlink``."""
    refuse_untested_flower()
    from fedge.link.reach import host_and_port

    host, port = host_and_port("--control", options.control)
    if host not in _LOOPBACK:
        raise ConfigError(
            f"--control must be on the loopback interface, e.g. 127.0.0.1:{port}, because anyone who reaches "
            f"it can run code, but is {options.control}; start fedge run on this machine"
        )
    from fedge.launch.flower_runs.fleet import SuperLink, SuperLinkPlace, await_free, keys_of, register_keys
    from fedge.link.certificates import SUPERLINK
    from fedge.process.endings.reaper import start_reaper

    place = SuperLinkPlace(
        "--nodes", options.nodes, port, options.certs, SUPERLINK, options.folder.absolute(), _NAME
    )
    place.prepare()
    if port == host_and_port("--nodes", options.nodes)[1]:
        raise ConfigError(
            f"--nodes and --control must have different ports, but both have {port}; choose another for one"
        )
    keys = [] if _is_first_start(options) else keys_of(options.certs, options.keys, "fedge superlink")
    start_reaper()  # a SuperLink's processes outlive their starter
    stopping = exits.signals_as_exceptions(exits.LEAVE_S) if options.owns_process else nullcontext()
    with stopping, place.exclusive_use():
        await_free("--nodes", place.nodes)
        await_free("--control", options.control)
        register_keys(keys, place)
        if not keys:
            print(
                f"no keys of nodes in {options.certs} yet; new ones are admitted when they appear there",
                flush=True,
            )
        with SuperLink(place) as link:
            print(
                f"SuperNodes connect to {options.nodes}; fedge run on this machine reaches the SuperLink at "
                f"{options.control}; its folder is {place.folder}", flush=True,
            )  # fmt: skip
            return _admit_new_keys(link, options, set(keys))


def _is_first_start(options: argparse.Namespace) -> bool:
    """Whether there are no keys yet, and none were requested."""
    return options.keys is None and not any(options.certs.glob("node-*.pub"))


def _admit_new_keys(link: "SuperLink", options: argparse.Namespace, admitted: set[Path]) -> int:
    """Admit new keys while the SuperLink runs; returns the exit code after its end.

    A refused key is tried again once its file has changed, because the file may have been incomplete.
    """
    from fedge.launch.flower_runs.fleet import KeysRefusedError

    last_states: dict[Path, tuple[int, int]] = {}
    while link.is_alive:
        time.sleep(_LOOK_S)
        if options.keys is not None:
            continue
        states = {key: _file_state(key) for key in sorted(set(options.certs.glob("node-*.pub")) - admitted)}
        new = [key for key, state in states.items() if last_states.get(key) != state]
        if not new:
            continue
        last_states.update(states)
        refused: tuple[Path, ...] = ()
        try:
            link.register_keys(new)
        except KeysRefusedError as error:
            refused = error.keys
            print(f"fedge: {error}", file=sys.stderr, flush=True)
        admitted.update(set(new) - set(refused))
    print(
        f"fedge: the SuperLink was killed or has crashed; start it again; its log: {link.log}",
        file=sys.stderr, flush=True,
    )  # fmt: skip
    return exits.FAILED


def _file_state(key: Path) -> tuple[int, int]:
    """Size and time of a file; zeros if missing."""
    try:
        status = key.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns
