"""``fedge leaf --nodes``: a leaf server whose clients are SuperNodes, which own their windows.

It starts a SuperLink (`fedge.launch.flower_runs.fleet`). At the address for SuperNodes, this shows the leaf
server's certificate, and admits those whose keys are in the folder of certificates; everything else is on the
loopback interface. The leaf server itself is an app on the SuperLink (`fedge.leaf_app`), because only apps
can reach nodes.
"""

import argparse
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

from fedge import leaf_app
from fedge.engine.federation import TOLD, Federation
from fedge.launch.flower_runs.fleet import SuperLink, SuperLinkPlace, await_free, keys_of, register_keys
from fedge.launch.flower_runs.flower import toml_of
from fedge.launch.leaf_servers.start_up import FOR_EVER_S, refuse_other_cloud
from fedge.launch.projects.project import CLIENT_APP
from fedge.link.certificates import server_name
from fedge.link.dial import Link
from fedge.link.reach import free_port
from fedge.process.endings import exits
from fedge.process.endings.reaper import start_reaper

_NAME = "leaf"  # name of the app, and of its SuperLink in Flower's configuration
_ENDED = re.compile(rf"{re.escape(leaf_app.ENDED)} (\d+)")


def serve_leaf_of_nodes(options: argparse.Namespace) -> int:
    """Carry out ``fedge leaf --nodes``; returns the exit code.

    Raises:
        ConfigError: certificates, keys or the address cannot be used.
    """
    place = leaf_link_place(options)
    Link(options.cloud, options.certs, options.leaf)  # refuses invalid certificates
    refuse_other_cloud(options)
    place.prepare()
    keys = keys_of(options.certs, options.keys)
    start_reaper()  # a SuperLink's processes outlive their starter
    stopping = exits.signals_as_exceptions(exits.LEAVE_S) if options.owns_process else nullcontext()
    with stopping, place.exclusive_use():
        await_free(place.option, place.nodes)
        register_keys(keys, place)
        with SuperLink(place) as link:
            print(
                f"leaf server {options.leaf} connects to {options.cloud}, SuperNodes to {options.nodes}; its "
                f"folder is {place.folder}", flush=True,
            )  # fmt: skip
            return _run_app(link, options)


def leaf_link_place(options: argparse.Namespace) -> SuperLinkPlace:
    """Addresses and files of a leaf server's SuperLink."""
    folder = (options.folder or Path(f"leaf-{options.leaf}")).absolute()
    name = server_name(options.leaf)
    return SuperLinkPlace("--nodes", options.nodes, free_port(), options.certs, name, folder, _NAME)


def _run_app(link: SuperLink, options: argparse.Namespace) -> int:
    """Start the app, and print its output; returns its exit code after its end."""
    app = link.place.folder / "app"
    write_app(app, link.place, options)
    federation_variable = {TOLD: Federation().to_json()}  # none of its settings is an option of Fedge
    process = subprocess.Popen(
        ["flwr", "run", str(app), _NAME, "--stream"],
        env={**link.environment, **federation_variable, "PYTHONUNBUFFERED": "1"}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.startswith("fedge: "):
                print(line, end="", flush=True)
            link.output.write(line.encode())
            link.output.flush()
            if end := _ENDED.search(line):
                return int(end[1])
    finally:
        process.terminate()
        link.end()
        process.kill()
        process.wait()
    print(
        f"fedge: the leaf server, or its SuperLink, was killed or has crashed; start it again; its "
        f"log: {link.log}", file=sys.stderr, flush=True,
    )  # fmt: skip
    return exits.FAILED


def write_app(folder: Path, place: SuperLinkPlace, options: argparse.Namespace) -> None:
    """Write the app submitted to the SuperLink: settings of this leaf server, and no code."""
    folder.mkdir(exist_ok=True)
    (folder / "README.md").write_text("A leaf server.\n")  # Flower 1.25 cannot install an app without files
    settings = {
        leaf_app.LEAF: options.leaf,
        leaf_app.CLOUD: options.cloud,
        leaf_app.CERTS: str(options.certs.absolute()),
        leaf_app.FOLDER: str(place.folder),
        leaf_app.ONCE: options.once,
        leaf_app.WAIT: options.wait or FOR_EVER_S,
        leaf_app.TRUST_CODE: options.trust_code,
    }
    head = {
        "project": {"name": f"fedge-{_NAME}", "version": "0.1.0", "license": "Apache-2.0"},
        "tool.flwr.app": {"publisher": "fedge"},
        "tool.flwr.app.components": {"serverapp": "fedge.leaf_app:app", "clientapp": CLIENT_APP},
        "tool.flwr.app.config": settings,
        "tool.flwr.federations": {"default": _NAME},
        f"tool.flwr.federations.{_NAME}": place.link,
    }
    text = "\n".join(f"[{name}]\n{toml_of(table)}" for name, table in head.items())
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
