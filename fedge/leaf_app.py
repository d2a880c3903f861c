"""Flower's entry point for a leaf server of SuperNodes: it connects to the cloud and executes orders.

`fedge leaf --nodes` starts it on its own SuperLink (`fedge.launch.leaf_servers.leaf_nodes`), for any number
of the cloud's runs. For Flower, all of them are one run.
"""

import os
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedge.config.registers.option import ConfigError
from fedge.config.registers.register import add_search_folders
from fedge.edge.host import LeafHost
from fedge.engine.flower_engine import FlowerEngine
from fedge.link.dial import Link, Refused
from fedge.process.endings import exits
from fedge.process.endings.channels import exit_despite_channels
from fedge.process.logs import log_to, stop_logging_to
from fedge.run.node_site import NodeSites

LEAF, CLOUD, CERTS, FOLDER, ONCE, WAIT = "leaf", "cloud", "certs", "folder", "once", "wait"  # keys of its app
TRUST_CODE = "trust-code"  # a further key
ENDED = "fedge: leaf server ended, exit code"  # start of its last line, before the number

app = ServerApp()
exit_despite_channels()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run a leaf server until the run is over, or forever.

    It returns even if the cloud refuses it; its last line has the exit code.
    """
    settings = context.run_config
    folder, leaf, lost_s = Path(str(settings[FOLDER])), int(settings[LEAF]), float(settings[WAIT])
    handler = log_to(folder / "leaf.log")
    add_search_folders(os.getcwd())  # to import the user's parts of a run
    sites = NodeSites(folder, leaf, FlowerEngine(grid, nodes_come_back=True), bool(settings.get(TRUST_CODE)))
    host = LeafHost(sites.open, sites.describe_owners)
    try:
        link = Link(str(settings[CLOUD]), Path(str(settings[CERTS])), leaf, say=_say)
        code = _serve(link, host, lost_s, bool(settings[ONCE]))
    except (Refused, ConfigError) as error:
        print(f"fedge: {error}", flush=True)
        code = exits.FAILED
    finally:
        host.close()
        stop_logging_to(handler)
    print(f"{ENDED} {code}", flush=True)


def _say(line: str) -> None:
    print(f"fedge: {line}", flush=True)


def _serve(link: Link, host: LeafHost, lost_s: float, once: bool) -> int:
    """Answer the cloud, run after run; returns the exit code."""
    try:
        while True:
            link.serve(host, lost_s, host.most_bytes, host.keep)
            print(f"fedge: {host.end_description}", flush=True)
            if once:
                return exits.FAILED if host.refused else 0
    finally:
        link.stop()
