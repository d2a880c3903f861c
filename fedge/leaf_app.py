"""Flower entry of a leaf server whose clients are SuperNodes: it dials the cloud and carries out its orders.

`fedge leaf --nodes` starts it, on a SuperLink of its own (`fedge.launch.leaf_servers.leaf_nodes`), for as
many runs of the cloud as come. To Flower all of it is one run.
"""

import os
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedge.config.registers.option import ConfigError
from fedge.config.registers.register import look_in
from fedge.edge.host import LeafHost
from fedge.engine.flower_engine import FlowerEngine
from fedge.link.dial import Link, Refused
from fedge.process.endings import exits
from fedge.process.endings.channels import exit_despite_channels
from fedge.process.logs import log_to, stop_logging_to
from fedge.run.node_site import NodeSites

LEAF, CLOUD, CERTS, FOLDER, ONCE, WAIT = "leaf", "cloud", "certs", "folder", "once", "wait"  # keys of its app
TRUST_CODE = "trust-code"  # another
ENDED = "fedge: leaf server ended, exit code"  # its last line, before the number

app = ServerApp()
exit_despite_channels()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Be a leaf server until the run is over, or for ever.

    It ends by returning, also when the cloud refuses it: its last line is the truth.
    """
    told = context.run_config
    folder, leaf, lost_s = Path(str(told[FOLDER])), int(told[LEAF]), float(told[WAIT])
    handler = log_to(folder / "leaf.log")
    look_in(os.getcwd())  # for a run's parts from the user's own code
    sites = NodeSites(folder, leaf, FlowerEngine(grid, nodes_come_back=True), bool(told.get(TRUST_CODE)))
    host = LeafHost(sites.open, sites.tell)
    try:
        link = Link(str(told[CLOUD]), Path(str(told[CERTS])), leaf, say=_say)
        code = _serve(link, host, lost_s, bool(told[ONCE]))
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
            print(f"fedge: {host.end_said}", flush=True)
            if once:
                return exits.FAILED if host.refused else 0
    finally:
        link.stop()
