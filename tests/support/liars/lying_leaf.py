"""A leaf server as a process, under which clients own windows and some of them lie.

python lying_leaf.py LEAF ADDRESS CERTIFICATES FOLDER CLIENTS LEAVES; FEDGE_LIES and FEDGE_DEALT as for
`lying_client`. In a plan "tell" the lies are the leaf server's own: it spoils what it passes on of a client.
"""

import json
import os
import sys
import time
from pathlib import Path

import lying_client
from lies import first_answer

from fedge.edge.host import LeafHost
from fedge.engine.inprocess import InProcessGrid
from fedge.link.dial import Link, Refused
from fedge.process.logs import log_to
from fedge.run.node_site import NodeSites


def main(leaf, address, certificates, folder, clients, leaves):
    mine = range(leaf * clients // leaves, (leaf + 1) * clients // leaves)
    folder.mkdir(parents=True, exist_ok=True)
    log_to(folder / "leaf.log")
    sites = NodeSites(folder, leaf, InProcessGrid(lying_client.app, clients, {}, 1, mine))

    def tell(facts):
        told = sites.describe_owners(facts)
        plan = json.loads(Path(os.environ["FEDGE_LIES"]).read_text())
        if plan["what"] == "tell" and plan["liars"][0] in told:
            liar = plan["liars"][0]
            lying_client.note_lie()
            record = {"partition_id": liar, "num_partitions": clients, "seen": "", "told": told[liar]}
            told[liar] = first_answer(plan["seed"])[1](record).get("told")
        return told

    host = LeafHost(sites.open, tell)
    while True:
        link = Link(address, certificates, leaf)
        try:
            link.serve(host, 600.0, host.most_bytes)
        except Refused as error:
            print(error, flush=True)
        time.sleep(0.1)


if __name__ == "__main__":
    leaf, address, certificates, folder, clients, leaves = sys.argv[1:]
    main(int(leaf), address, Path(certificates), Path(folder), int(clients), int(leaves))
