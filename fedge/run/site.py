"""What a leaf server has for one run: its clients in this process, their windows, a leaf to train.

It deals the data as the cloud does, from its own copy of the data set, and takes what its clients hold.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from fedge.config.flat import from_run_config, to_run_config
from fedge.config.option import ConfigError
from fedge.config.topology import leaf_of_clients
from fedge.data.prepared import DataShape, forget_source, write_client_data
from fedge.edge.host import Site
from fedge.edge.store import KeptStates
from fedge.exchange.clients import Clients
from fedge.exchange.engine import Engine
from fedge.leaf.leaf import Leaf
from fedge.records.folder import remove_client_data
from fedge.rounds.strategy import Task
from fedge.rounds.transport import Facilities
from fedge.run.build import Plan, make_leaves, network_of, round_contexts, windows_of_splits
from fedge.run.prepare import Deal, deal_data
from fedge.states.averaging import State
from fedge.states.shared import SharedStates
from fedge.timing.laps import LapClock
from fedge.training.local import get_state
from fedge.training.models import parameter_names, variance_names


class LeafEngine(Engine, Protocol):
    """An engine whose clients are known beforehand."""

    @property
    def node_of(self) -> Mapping[int, int]:
        """Partition id → node."""


MakeEngine = Callable[[Mapping[str, Any], int, Sequence[int]], AbstractContextManager[LeafEngine]]
"""(run configuration, clients of the run, those of this leaf) → what drives these."""


def open_site(folder: Path, leaf: int, make_engine: MakeEngine, facts: Mapping[str, Any]) -> Site:
    """Return what a leaf server has for a run.

    Args:
        folder: the leaf server's own; each run has one in it.
        leaf: which one this is.
        make_engine: drives its clients.
        facts: of the run, as the cloud tells them.

    Raises:
        ConfigError: the run cannot be here: other data, another number of leaves.
    """
    config, seed, total = from_run_config(facts["config"]), int(facts["seed"]), int(facts["clients"])
    if facts["leaf"] != leaf:
        raise ConfigError(f"this is leaf server {leaf}, but the cloud takes it for {facts['leaf']}")
    deal = deal_data(config, seed, total, None)
    if deal.source.fingerprint != facts["fingerprint"]:
        raise ConfigError(
            f"data.path must be the data that the cloud has, but here ({deal.source.name}) are others, by "
            f"their fingerprint; copy the cloud's file to this machine"
        )
    own = folder / f"run-{hashlib.sha256(str(facts['run']).encode()).hexdigest()[:16]}"
    own.mkdir(parents=True, exist_ok=True)
    plan = Plan(config, seed, own, own / "data", SharedStates(own, enabled=False), LapClock())
    shape = write_client_data(plan.data_folder, deal.windows, deal.partition, config.data.normalize)
    forget_source(deal.windows)
    return _site(plan, leaf, deal, shape, total, make_engine)


def _site(plan: Plan, leaf: int, deal: Deal, shape: DataShape, total: int, make_engine: MakeEngine) -> Site:
    """Put the parts together."""
    config, network = plan.config, network_of(plan, shape)
    model, trainable = get_state(network), tuple(parameter_names(network))

    def make_leaf(start: State) -> Leaf:
        made = make_leaves(
            config, deal.partition, deal.clients_per_leaf, start, trainable, variance_names(network)
        )
        return made[leaf]

    leaf_of = leaf_of_clients(deal.clients_per_leaf)
    mine = [client for client, of in enumerate(leaf_of) if of == leaf]
    entered = make_engine(to_run_config(config), total, mine)
    engine = entered.__enter__()

    def close() -> None:
        entered.__exit__(None, None, None)
        remove_client_data(plan.data_folder)

    facilities = Facilities(Clients(engine, engine.node_of), round_contexts(plan), plan.clock, plan.shared)
    return Site(
        Task(config, plan.seed, windows_of_splits(deal.partition), shape.classes),
        make_leaf,
        model,
        trainable,
        facilities,
        KeptStates(plan.folder),
        close,
    )
