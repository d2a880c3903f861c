"""Two leaf servers of one process, whose clients are threads."""

from contextlib import contextmanager

from leaf_servers import client_app
from small_runs import small_config

from fedge.config.flat import from_run_config, to_run_config
from fedge.data.prepared import load_source
from fedge.edge.host import LeafHost
from fedge.edge.leaf_bundles import LeafServerGroup
from fedge.edge.packets import orders
from fedge.engine.inprocess import InProcessGrid
from fedge.link.frames import Packet
from fedge.run.site import open_site

TREE = {
    "hierarchy.tree": "((3,3),(3))", "hierarchy.region-rounds": "2", "gate.enabled": False,
    "cluster.enabled": False,
}  # fmt: skip


@contextmanager
def process_of_leaves(folder):
    """Give the hosts of leaf servers 0 and 1, facts of a run, and its configuration."""
    config = from_run_config(small_config(folder) | TREE)
    facts = {
        "run": "a run", "clients": 9, "seed": 3, "config": to_run_config(config),
        "fingerprint": load_source(config, 9)[1].fingerprint,
    }  # fmt: skip
    together, made = LeafServerGroup(), []
    for leaf in (0, 1):

        def opening(facts, leaf=leaf):
            def engine(run_config, total, mine):
                return InProcessGrid(client_app, total, run_config, 1, mine)

            return open_site(folder / f"leaf-{leaf}", leaf, engine, facts, data=config.data.path)

        made.append(LeafHost(opening, group=together))
        together.take(leaf, made[-1])
    try:
        yield made, facts, config
    finally:
        for host in made:
            host.close()


def begun(host, facts):
    """The model and the leaves that a leaf server has of the run."""
    assert host.answer(Packet(orders.BEGIN, {**facts, "leaf": 0}), print).kind == orders.DONE
    site = host._run[1].site
    return site, [site.make_leaf(site.model), None]
