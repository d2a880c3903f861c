"""A leaf's view of the Grid, on the Grid of an in-process engine."""

import pytest
from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp.strategy import FedAvg, FedMedian, Krum, strategy_utils

from fedge.client_app import app
from fedge.engine.inprocess import InProcessGrid
from fedge.leaf.strategies.grid import LeafGrid, messages_of


@pytest.fixture
def grid():
    """Five nodes."""
    with InProcessGrid(app, 5, {}, workers=1) as grid:
        yield grid


def test_only_the_leaf_s_nodes_exist(grid):
    nodes = sorted(grid.get_node_ids())
    assert list(LeafGrid(grid, nodes[1:3]).get_node_ids()) == nodes[1:3]
    assert sorted(grid.get_node_ids()) == nodes


@pytest.mark.parametrize("strategy", [FedAvg, FedMedian, Krum])
def test_a_strategy_of_flower_s_asks_the_leaf_s_nodes_alone(grid, strategy):
    own = sorted(grid.get_node_ids())[2:]
    asked = strategy().configure_train(1, ArrayRecord(), ConfigRecord(), LeafGrid(grid, own))
    assert sorted(message.metadata.dst_node_id for message in asked) == own


@pytest.mark.parametrize("nodes", [0, 1, 3])
@pytest.mark.parametrize("demanded", [{}, {"min_available_nodes": 9}, {"min_train_nodes": 9}])
def test_a_strategy_waits_for_no_more_nodes_than_train(grid, nodes, demanded, monkeypatch):
    """FedAvg's own settings demand two nodes; a leaf may have one, and nobody else ever comes."""
    monkeypatch.setattr(strategy_utils, "sleep", lambda _: pytest.fail("it waits"))
    strategy = FedAvg(**demanded)
    before = dict(vars(strategy))
    own = sorted(grid.get_node_ids())[:nodes]
    asked = messages_of(strategy, 1, ArrayRecord(), ConfigRecord(), grid, own)
    assert sorted(message.metadata.dst_node_id for message in asked) == own
    assert vars(strategy) == before
